"""What a loader's failure means: exceptions and exit codes become Outcomes."""

from __future__ import annotations

import re
import signal
import traceback
from typing import Any

from loaderscope.errors import LoaderscopeError
from loaderscope.records import Outcome
from loaderscope.records import text as wording

_FROM_WORKER = re.compile(r"Caught (\S+) in DataLoader worker process (\d+)\.\nOriginal (Traceback.*)", re.DOTALL)
_OWN_TIMEOUT = re.compile(r"DataLoader timed out after ([\d.]+) seconds")
_TYPE_PREFIX = re.compile(r"^(?:\w+\.)*(\w+): ?")
# Where torch's iterator waits for its workers.
_WAITING = re.compile(r"dataloader\.py:\d+ in (?:_get_data|_try_get_data)$")

_ADVICE = {
    "exception": ("", "see .outcome.traceback; the dataset, the transforms or collate_fn raised it"),
    "hang": ("a lock copied by fork, a nested thread pool, or a read that never returns", "see .outcome.stacks"),
    "signal": ("out of memory (SIGKILL) or a native library that crashed", "see .outcome, and the kernel's log"),
    "exit": ("the dataset or a library ended the process itself", "see .outcome"),
    "ok": ("", ""),
}


class LoaderFault(LoaderscopeError):
    """A loader raised, died or hung under watch; `.outcome` is the whole story."""

    def __init__(self, outcome: Outcome):
        self.outcome = outcome
        who = {"worker": "A worker of the loader", "main": "The loader in the main process"}
        likely, way_out = _ADVICE[outcome.status]
        seen = f"after {wording.count(outcome.batches, 'batch', 'batches')}"
        super().__init__(
            f"{who.get(outcome.where, 'The child process')} {outcome.summary}",
            seen=seen,
            likely=likely,
            way_out=way_out,
        )

    def __reduce__(self):
        return (LoaderFault, (self.outcome,))


def is_from_worker(error: BaseException) -> bool:
    """Whether torch carried this exception over from a worker (one that names StopIteration ends no epoch)."""
    return _FROM_WORKER.search(_message(error)) is not None


def own_timeout(error: BaseException) -> str:
    """The text of the loader's own `timeout=`, or ""."""
    found = _OWN_TIMEOUT.search(_message(error))
    return found[0] if found else ""


def of_exception(error: BaseException, told: dict[str, Any]) -> Outcome:
    """What an exception out of the iterator says about itself: raised in a worker, or here."""
    if found := _FROM_WORKER.search(_message(error)):
        name, trace = found[1], found[3]
        return Outcome(
            "exception",
            where="worker",
            error_type=name,
            error_text=_last_line(trace),
            traceback=_message(error),
            **told,
        )
    trace = "".join(traceback.format_exception(error))
    return Outcome(
        "exception", where="main", error_type=type(error).__name__, error_text=str(error), traceback=trace, **told
    )


def of_exit_code(code: int, error: BaseException, told: dict[str, Any]) -> Outcome:
    """A worker that ended with this code; what torch made of it stays in `traceback`."""
    told = {**told, "where": "worker", "traceback": _message(error)}
    if code < 0:
        return Outcome("signal", **told, signal_number=-code, signal_name=signal_name(-code))
    return Outcome("exit", **told, exit_code=code)


def waits_for_workers(frames: tuple[str, ...]) -> bool:
    """Whether a blocked thread waits for torch's workers; if not, the hang is in the main process itself."""
    return any(_WAITING.search(frame) for frame in frames)


def release(error: BaseException | None) -> None:
    """Empty the frames an exception holds: the iterator and its batches are in them. Their lines are kept."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        for frame, _ in traceback.walk_tb(error.__traceback__):
            _ = frame.f_locals  # before Python 3.13 a copy made earlier stays with the frame until it is asked again
        error = error.__context__


def signal_name(number: int) -> str:
    """SIGSEGV for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _message(error: BaseException) -> str:
    """Text of the exception, also where its class hides the message torch gave it."""
    return next((a for a in error.args if isinstance(a, str) and "DataLoader" in a), None) or str(error)


def _last_line(trace: str) -> str:
    lines = [line for line in trace.splitlines() if line.strip()]
    return _TYPE_PREFIX.sub("", lines[-1]) if lines else ""
