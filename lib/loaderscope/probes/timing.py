"""`time_loop`: how long a loop waits for data and how long it computes, batch by batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from loaderscope import arguments, isolation
from loaderscope.clock import SYSTEM
from loaderscope.loaders import LoaderSpec
from loaderscope.records import Environment, LoopTiming, NotMeasured, Outcome, is_measured

Step = Callable[[Any], Any]

# A loader that has shown nothing for this long, and no batch is known to take longer, is treated as hung.
DEADLINE_S = 30.0
# Where no limit is asked for and nothing says how long an epoch is: some streams never end.
LONGEST_S = 60.0


@dataclass(frozen=True)
class Limit:
    """When a loop ends. It ends at the first of: epochs or batches reached, or seconds passed and at_least seen.

    hard_seconds ends it even before `at_least` batches (0: three times `seconds`).
    """

    epochs: int | None = None
    batches: int | None = None
    seconds: float | None = None
    at_least: int = 0
    hard_seconds: float = 0.0

    def reached(self, batches: int, seconds: float) -> str:
        """ "batches" or "time" once it is, else ""."""
        if self.batches is not None and batches >= self.batches:
            return "batches"
        if self.seconds is None or seconds < self.seconds:
            return ""
        hard = self.hard_seconds or 3 * self.seconds
        return "time" if batches >= self.at_least or seconds >= hard else ""

    def leaves_no_room(self, seconds: float, start_s: float) -> bool:
        """Whether starting another epoch, which takes start_s, would alone overrun the time."""
        return self.seconds is not None and seconds + start_s > (self.hard_seconds or 3 * self.seconds)


class _Log:
    """Raw lists of one loop; appending is all the hot path does."""

    def __init__(self):
        self.data: list[float] = []
        self.compute: list[float] = []
        self.samples: list[int | None] = []
        self.epoch_starts: list[int] = []
        self.iterator: list[float] = []
        self.began = float("nan")  # when the first batch came: time limits do not count starting the workers
        self.stopped = (float("nan"), float("nan"))  # wall and CPU clock at the end
        self.ended = "epochs"
        self.fault: Outcome | None = None

    def make_even(self, with_step: bool) -> None:
        """Drop what an interrupt left half noted: a batch is in all lists or in none."""
        lists = [self.data, self.samples, *([self.compute] if with_step else [])]
        whole = min(len(values) for values in lists)
        for values in lists:
            del values[whole:]


def time_loop(
    loader: Any,
    step: Step | None = None,
    *,
    epochs: int | None = None,
    batches: int | None = None,
    seconds: float | None = None,
    deadline_s: float = DEADLINE_S,
    environment: Environment | None = None,
    clock=SYSTEM,
) -> LoopTiming:
    """Run `step` over `loader` and time every wait and every step.

    Args:
        loader: a DataLoader, a factory `make_loader(**overrides)` or any iterable of batches. A DataLoader is
            iterated through a private copy and is left as it was; an iterator or generator is used up.
        step: called with each batch; None times the loader alone.
        epochs, batches, seconds: where to stop, whichever comes first; one epoch when all are None, and at most 60 s of
            it where the loader has no length, for it may have no end. With batches or seconds the loader is restarted
            at the end of an epoch, as training does.
        deadline_s: a wait longer than this counts as a hang; hung workers are ended from outside.

    Returns:
        LoopTiming. A fault (error, dead or hung worker) ends the loop and is in `.fault`; so does Ctrl-C, with
        `.ended == "interrupted"`.

    Raises:
        BadInputError: an argument cannot be used.
    """
    arguments.step(step)
    arguments.count("epochs", epochs)
    arguments.count("batches", batches)
    arguments.seconds("deadline_s", deadline_s)
    seconds = None if seconds is None else arguments.seconds("seconds", seconds)
    spec = loader if isinstance(loader, LoaderSpec) else LoaderSpec.read(loader)
    if epochs is None and batches is None and seconds is None:
        epochs, seconds = 1, None if is_measured(spec.facts.batches) else LONGEST_S
    limit = Limit(epochs, batches, seconds)
    with spec.preserved():
        return run_loop(spec, step, limit, deadline_s=deadline_s, environment=environment, clock=clock)


def run_loop(
    spec: LoaderSpec,
    step: Step | None,
    limit: Limit,
    *,
    changes: dict[str, Any] | None = None,
    deadline_s: float = DEADLINE_S,
    environment: Environment | None = None,
    keep: Callable[[Any], None] | None = None,
    clock=SYSTEM,
) -> LoopTiming:
    """`time_loop` on a LoaderSpec, with configuration changes, without saving the random states around it.

    Args:
        keep: called with each batch after it was timed (to keep a few for later).
    """
    with _no_advice_on_workers():
        return _run(spec, step, limit, changes or {}, deadline_s, environment, keep, clock)


@contextmanager
def _no_advice_on_workers():
    """torch warns when workers outnumber cores, whatever they wait for; in our own trials that is noise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


def _run(spec, step, limit, changes, deadline_s, environment, keep, clock) -> LoopTiming:
    copy = spec.copy(**changes)
    facts = LoaderSpec.read(copy).facts if changes else spec.facts
    log, source = _Log(), None
    cpu, began = clock.process_cpu(), clock.now()
    log.stopped = began, cpu
    try:
        with isolation.watched(copy, deadline_s=deadline_s, clock=clock, owned=copy is not spec.loader) as source:
            try:
                _epochs(source, spec, step, limit, log, keep, clock)
            except isolation.LoaderFault as fault:
                log.ended, log.fault = "fault", fault.outcome
            finally:
                log.stopped = clock.now(), clock.process_cpu()
    except KeyboardInterrupt:  # also one that came while the workers were ended
        log.ended = "interrupted"
    log.make_even(step is not None)
    return LoopTiming(
        facts=facts,
        environment=environment if environment is not None else NotMeasured("not asked for"),
        data_time_s=tuple(log.data),
        compute_time_s=tuple(log.compute) if step is not None else NotMeasured("no step was given"),
        samples=_whole(log.samples),
        epoch_starts=tuple(log.epoch_starts),
        iterator_s=tuple(log.iterator),
        wall_s=log.stopped[0] - began,
        cpu_main_s=log.stopped[1] - cpu,
        cpu_workers_s=source.worker_cpu() if source is not None else NotMeasured("interrupted before the first epoch"),
        ended=log.ended,
        fault=log.fault,
    )


def _epochs(source, spec, step, limit, log, keep, clock) -> None:
    done = 0
    while True:
        before = len(log.data)
        reason = _one_epoch(source, spec, step, limit, log, keep, clock)
        done += 1
        if reason:
            log.ended = reason
            return
        if limit.epochs is not None and done >= limit.epochs:
            return
        if len(log.data) == before:  # an empty epoch: going on would spin for ever
            return
        if limit.leaves_no_room(clock.now() - log.began, log.data[before]):
            log.ended = "time"
            return


def _one_epoch(source, spec, step, limit, log, keep, clock) -> str:
    """The hot loop. Returns why the whole loop ends, or "" when only the epoch did."""
    now, samples_in = clock.now, spec.samples_in
    asked = now()
    source.start()
    log.iterator.append(now() - asked)
    first = True
    while True:
        try:
            batch = source.next()
        except StopIteration:
            return ""
        came = now()
        if first:
            log.epoch_starts.append(len(log.data))
            log.began = log.began if log.data else came
            first = False
        if step is not None:
            call_step(step, batch, len(log.data))
            ended = now()
            log.compute.append(ended - came)
        else:
            ended = came
        log.data.append(came - asked)
        log.samples.append(samples_in(batch))
        if keep is not None:
            keep(batch)
        del batch
        reason = limit.reached(len(log.data), ended - log.began)
        if reason:
            return reason
        asked = now()


def call_step(step: Step, batch: Any, number: int) -> None:
    """Call the reader's step; what it raises becomes a LoaderFault whose outcome says where="step"."""
    try:
        step(batch)
    except (KeyboardInterrupt, isolation.LoaderFault):
        raise
    except Exception as error:
        raise isolation.LoaderFault(_step_outcome(error, number)) from error


def _step_outcome(error: Exception, number: int) -> Outcome:
    import traceback

    text = "".join(traceback.format_exception(error))
    return Outcome(
        "exception",
        where="step",
        error_type=type(error).__name__,
        error_text=str(error),
        traceback=text,
        value=error,
        batches=number,
    )


def _whole(samples: list[int | None]) -> tuple[int, ...] | NotMeasured:
    if any(s is None for s in samples):
        return NotMeasured("a batch does not tell how many samples it holds")
    return tuple(samples)


def join(parts: list[LoopTiming]) -> LoopTiming:
    """Several loops over the same configuration as one, each part starting an epoch of its own."""
    first = parts[0]
    starts: list[int] = []
    segments: list[int] = []
    for k, part in enumerate(parts):
        offset = sum(p.batches for p in parts[:k])
        starts += [offset + s for s in part.epoch_starts]
        segments += [offset + s for s in part.segment_starts]
    return replace(
        first,
        data_time_s=sum((p.data_time_s for p in parts), ()),
        compute_time_s=_joined([p.compute_time_s for p in parts]),
        samples=_joined([p.samples for p in parts]),
        epoch_starts=tuple(starts),
        segment_starts=tuple(segments),
        iterator_s=sum((p.iterator_s for p in parts), ()),
        wall_s=sum(p.wall_s for p in parts),
        cpu_main_s=_added([p.cpu_main_s for p in parts]),
        cpu_workers_s=_added([p.cpu_workers_s for p in parts]),
        ended=parts[-1].ended,
        fault=next((p.fault for p in parts if p.fault is not None), None),
    )


def _joined(values: list) -> tuple | NotMeasured:
    missing = [v for v in values if isinstance(v, NotMeasured)]
    return missing[0] if missing else sum(values, ())


def _added(values: list) -> float | NotMeasured:
    missing = [v for v in values if isinstance(v, NotMeasured)]
    return missing[0] if missing else float(sum(values))
