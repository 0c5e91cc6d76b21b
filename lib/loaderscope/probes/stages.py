"""`profile_stages`: where a sample's time goes, measured inside the process that loads."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

from loaderscope import arguments, isolation
from loaderscope.clock import SYSTEM
from loaderscope.errors import CannotRebuildError
from loaderscope.loaders import LoaderSpec
from loaderscope.probes.spans import COLLATE, FAILED, READ, STAGE, Span, SpanFile, SpanTarget
from loaderscope.probes.stand_ins import ProbedCollate, ProbedDataset
from loaderscope.probes.timing import DEADLINE_S, Limit, run_loop
from loaderscope.probes.transforms import find_transforms
from loaderscope.records import Environment, LoaderFacts, NotMeasured, Outcome, StageProfile, StageSpans

# Seconds for a profile when nothing else is asked for: some hundred samples of most loaders.
SECONDS = 4.0


def profile_stages(
    loader: Any,
    *,
    batches: int | None = None,
    seconds: float = SECONDS,
    deadline_s: float = DEADLINE_S,
    environment: Environment | None = None,
    clock=SYSTEM,
) -> StageProfile:
    """Waiting, computing and queueing per sample, by transform, and collate.

    The loader is copied with a transparent stand-in for its dataset and collate function. With workers the copy is
    iterated here; without, in a forked child with one torch thread, so that the reader's dataset is not touched.

    Returns:
        StageProfile; for an iterable that is no DataLoader, one that says why nothing could be measured.

    Raises:
        BadInputError: an argument cannot be used.
    """
    arguments.count("batches", batches)
    seconds = arguments.seconds("seconds", seconds)
    arguments.seconds("deadline_s", deadline_s)
    spec = loader if isinstance(loader, LoaderSpec) else LoaderSpec.read(loader)
    limit = Limit(batches=batches, seconds=seconds, at_least=spec.facts.workers + 1)
    refusal = spec.refusal()
    if spec.kind == "any" or refusal:
        return _nothing(spec.facts, environment, refusal or "it is not a DataLoader, so its inside cannot be timed")
    try:
        return _measured(spec, limit, deadline_s, environment, clock)
    except CannotRebuildError as error:  # only the stand-in shows what some subclasses and pipes refuse
        return _nothing(spec.facts, environment, str(error))


def _measured(spec: LoaderSpec, limit: Limit, deadline_s: float, environment, clock) -> StageProfile:
    with SpanFile(spec.facts.workers) as spans:
        target = spans.target()
        if spec.facts.workers:
            with spec.preserved():
                fault = _in_workers(spec, target, limit, deadline_s, clock)
        else:
            fault = _in_child(spec, target, limit, deadline_s)
        where = "workers" if spec.facts.workers else "child"
        return _profile(spec, environment, spans, where, fault)


def _changes(spec: LoaderSpec, target: SpanTarget, home: int, clock) -> dict[str, Any]:
    return {
        "dataset": ProbedDataset(spec.dataset, target, home, clock),
        "collate_fn": ProbedCollate(spec.collate_fn, target, clock),
    }


def _in_workers(spec, target, limit, deadline_s, clock) -> Outcome | None:
    changes = _changes(spec, target, os.getpid(), clock)
    timing = run_loop(spec, None, limit, changes=changes, deadline_s=deadline_s, clock=clock)
    if timing.ended == "interrupted":
        raise KeyboardInterrupt
    return timing.fault


def _in_child(spec, target, limit, deadline_s) -> Outcome | None:
    budget = (limit.hard_seconds or 3 * (limit.seconds or SECONDS)) + deadline_s
    outcome = isolation.run_in_child(_iterate, spec, target, limit, os.getpid(), deadline_s=budget)
    return None if outcome.ok else replace(outcome, value=None)


def _iterate(spec: LoaderSpec, target: SpanTarget, limit: Limit, home: int) -> int:
    """Runs in the child: plain iteration of the probed copy, restarting at the end of an epoch."""
    clock = SYSTEM
    copy = spec.copy(**_changes(spec, target, home, clock))
    began, batches = clock.now(), 0
    while True:
        before = batches
        for _ in copy:
            batches += 1
            if limit.reached(batches, clock.now() - began):
                return batches
        if batches == before:
            return batches


def _profile(spec: LoaderSpec, environment, spans: SpanFile, where: str, fault: Outcome | None) -> StageProfile:
    all_spans, lost = spans.read()
    reads = [s for s in all_spans if s.kind == READ]
    if fault is not None:
        suspects = [s.index for s in all_spans if s.kind == FAILED and s.index >= 0] or list(spans.being_read())
        fault = replace(fault, last_index=suspects[0] if suspects and suspects[0] >= 0 else fault.last_index)
    delays = tuple(s.delay for s in reads)
    unknown = any(math.isnan(d) for d in delays)
    return StageProfile(
        facts=spec.facts,
        environment=environment if environment is not None else NotMeasured("not asked for"),
        where=where,
        index=tuple(s.index for s in reads),
        worker=tuple(s.worker for s in reads),
        start_s=tuple(s.start for s in reads),
        wall_s=tuple(s.wall for s in reads),
        cpu_s=tuple(s.cpu for s in reads),
        delay_s=NotMeasured("this kernel does not tell run-queue delay") if unknown else delays,
        per_read=_samples_per_read(spec.facts),
        collate=_stage("collate", "collate_fn", [s for s in all_spans if s.kind == COLLATE]),
        transforms=_transforms(spec, [s for s in all_spans if s.kind == STAGE]),
        lost=lost,
        fault=fault,
    )


def _samples_per_read(facts: LoaderFacts) -> float:
    """With `__getitems__` one read is a whole batch."""
    if facts.has_getitems is True and isinstance(facts.batch_size, int):
        return float(facts.batch_size)
    return 1.0


def _stage(name: str, path: str, spans: list[Span]) -> StageSpans:
    return StageSpans(name, path, tuple(s.wall for s in spans), tuple(s.cpu for s in spans))


def _transforms(spec: LoaderSpec, spans: list[Span]) -> tuple[StageSpans, ...]:
    places = find_transforms(spec.dataset)
    by_number: dict[int, list[Span]] = {}
    for span in spans:
        by_number.setdefault(span.name, []).append(span)
    return tuple(_stage(p.name, p.path, by_number[k]) for k, p in enumerate(places) if k in by_number)


def _nothing(facts: LoaderFacts, environment, reason: str) -> StageProfile:
    missing = NotMeasured(reason)
    return StageProfile(
        facts=facts,
        environment=environment if environment is not None else NotMeasured("not asked for"),
        where="main",
        index=(),
        worker=(),
        start_s=(),
        wall_s=(),
        cpu_s=(),
        delay_s=missing,
        per_read=1.0,
        collate=missing,
    )
