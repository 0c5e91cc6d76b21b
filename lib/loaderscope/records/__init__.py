"""Frozen results. Nothing here imports torch, matplotlib or ipywidgets."""

from loaderscope.records.base import NotMeasured, Record, Row, is_measured, load
from loaderscope.records.environment import Environment, ThreadPool
from loaderscope.records.findings import Comparison, Finding, Fix
from loaderscope.records.gil import GilCheck, ThreadScaling
from loaderscope.records.loader import LoaderFacts
from loaderscope.records.outcome import Outcome, ThreadStack
from loaderscope.records.preflight import Check, Preflight
from loaderscope.records.samples import Estimate, Samples
from loaderscope.records.stages import StageProfile, StageSpans
from loaderscope.records.timing import Headroom, LoopTiming

__all__ = [
    "Check",
    "Comparison",
    "Environment",
    "Estimate",
    "Finding",
    "Fix",
    "GilCheck",
    "Headroom",
    "LoaderFacts",
    "LoopTiming",
    "NotMeasured",
    "Outcome",
    "Preflight",
    "Record",
    "Row",
    "Samples",
    "StageProfile",
    "StageSpans",
    "ThreadPool",
    "ThreadScaling",
    "ThreadStack",
    "is_measured",
    "load",
]
