"""What became of something dangerous: ok, exception, hang, signal or exit, with stacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from loaderscope.records import text
from loaderscope.records.base import NotMeasured, Record, Row, register


@register
@dataclass(frozen=True)
class ThreadStack:
    """Frames of one thread, innermost first, as "file:line in function"."""

    process: str
    thread: str
    frames: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Outcome(Record):
    """How a child process, or a loader under watch, ended.

    status: "ok", "exception" (error_type, error_text, traceback), "hang" (no answer before the deadline; stacks),
    "signal" (ended by signal_number), "exit" (ended by itself with exit_code and no answer).
    elapsed_s: seconds until then. cpu_s: CPU seconds the process (or the workers) used in that time.
    where: "child", "worker" or "main". last_index: dataset index being read at the end, where known.
    value: what the child returned (not saved).
    """

    status: str
    where: str = "child"
    elapsed_s: float = 0.0
    deadline_s: float | NotMeasured = NotMeasured("no deadline was set")
    cpu_s: float | NotMeasured = NotMeasured("not asked for")
    error_type: str = ""
    error_text: str = ""
    traceback: str = ""
    signal_number: int = 0
    signal_name: str = ""
    exit_code: int | None = None
    stacks: tuple[ThreadStack, ...] = ()
    stderr_tail: str = ""
    last_index: int | NotMeasured = NotMeasured("not known")
    batches: int = 0
    method: str = ""
    value: Any = field(default=None, compare=False, metadata={"saved": False})

    title = "Outcome"

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def summary(self) -> str:
        """One sentence."""
        after = text.seconds(self.elapsed_s)
        return {
            "ok": f"ended normally after {after}",
            "exception": f"raised {self.error_type}: {self.error_text}",
            "hang": f"gave no answer within {after}",
            "signal": f"was ended by signal {self.signal_number} ({self.signal_name}) after {after}",
            "exit": f"left with exit code {self.exit_code} after {after}, without an answer",
        }[self.status]

    def rows(self) -> tuple[Row, ...]:
        out = [Row("status", f"the {self.where} process {self.summary}", "ok" if self.ok else "bad")]
        for stack in self.stacks[:4]:
            out.append(Row(f"stack of {stack.process} {stack.thread}", " < ".join(stack.frames[:3])))
        if self.stderr_tail:
            out.append(Row("stderr", self.stderr_tail.strip().splitlines()[-1]))
        return tuple(out)
