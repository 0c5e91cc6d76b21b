"""loaderscope: why does the training loop wait for data, or does it at all?

    import loaderscope as ls
    report = ls.diagnose(loader, step=train_step)

Importing this module starts nothing, touches no device and sets no style: every name below is loaded when it is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "loaderscope.diagnosis.diagnose": ("diagnose",),
    "loaderscope.diagnosis.report": ("Report",),
    "loaderscope.diagnosis.causes": ("CAUSES",),
    "loaderscope.diagnosis.symptoms": ("SYMPTOMS",),
    "loaderscope.claims": ("CLAIMS",),
    "loaderscope.experiments.headroom": ("headroom",),
    "loaderscope.experiments.preflight": ("preflight",),
    "loaderscope.experiments.prove": ("compare",),
    "loaderscope.loaders": ("LoaderSpec",),
    "loaderscope.machine": ("read_environment",),
    "loaderscope.probes.gil": ("gil_check",),
    "loaderscope.probes.stages": ("profile_stages",),
    "loaderscope.probes.timing": ("time_loop",),
    "loaderscope.records": ("NotMeasured", "is_measured", "load"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)

if TYPE_CHECKING:  # for editors; the names are loaded on first use
    from loaderscope.claims import CLAIMS as CLAIMS
    from loaderscope.diagnosis.causes import CAUSES as CAUSES
    from loaderscope.diagnosis.diagnose import diagnose as diagnose
    from loaderscope.diagnosis.report import Report as Report
    from loaderscope.diagnosis.symptoms import SYMPTOMS as SYMPTOMS
    from loaderscope.experiments.headroom import headroom as headroom
    from loaderscope.experiments.preflight import preflight as preflight
    from loaderscope.experiments.prove import compare as compare
    from loaderscope.loaders import LoaderSpec as LoaderSpec
    from loaderscope.machine import read_environment as read_environment
    from loaderscope.probes.gil import gil_check as gil_check
    from loaderscope.probes.stages import profile_stages as profile_stages
    from loaderscope.probes.timing import time_loop as time_loop
    from loaderscope.records import NotMeasured as NotMeasured
    from loaderscope.records import is_measured as is_measured
    from loaderscope.records import load as load


def __getattr__(name: str):
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'loaderscope' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(home), name)


def __dir__():
    return __all__
