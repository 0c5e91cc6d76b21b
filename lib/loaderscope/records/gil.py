"""Does the dataset's own code wait, compute without the GIL, hold the GIL, or queue for another lock?"""

from __future__ import annotations

from dataclasses import dataclass

from loaderscope.records import text
from loaderscope.records.base import NotMeasured, Record, Row, is_measured, register, row
from loaderscope.records.environment import Environment
from loaderscope.records.loader import LoaderFacts
from loaderscope.records.outcome import Outcome
from loaderscope.records.samples import Estimate, Samples

VERDICTS = {
    "waits": "it waits: threads and processes both scale, far beyond the core count",
    "computes": "it computes without the GIL: threads scale up to the cores",
    "gil-free": "it computes without the GIL; whether threads scale on it could not be tested",
    "holds-gil": "it holds the GIL: threads cannot help, processes can, up to the cores",
    "serialised": "it is serialised by another lock: threads cannot help although the GIL is free",
    "undecided": "undecided",
}


@register
@dataclass(frozen=True)
class ThreadScaling:
    """Calls per second of one workload on 1, 2, 4 … threads, several interleaved rounds each.

    threads: thread counts; rates[k]: the rounds' calls per second at threads[k].
    """

    name: str
    threads: tuple[int, ...]
    rates: tuple[tuple[float, ...], ...]

    def speedup(self, threads: int) -> Estimate:
        """Calls per second on `threads` threads over one thread: median of the rounds, their range as interval."""
        one = self.rates[self.threads.index(1)]
        many = self.rates[self.threads.index(threads)]
        pairs = sorted(m / o for m, o in zip(many, one, strict=False) if o > 0)
        if not pairs:
            return Estimate(float("nan"), float("nan"), float("nan"), "ratio", 0)
        return Estimate(Samples(tuple(pairs)).median, pairs[0], pairs[-1], "ratio", len(pairs), confidence=1.0)


@dataclass(frozen=True, repr=False)
class GilCheck(Record):
    """The reader's own `__getitem__` on several threads, between controls, and the share of time the GIL is held.

    user, sleep_control (scales fully), python_control (does not scale), native_control (zlib: GIL free, shows what
    the cores give). held_share: share of a side thread's wake-ups, in samples of 0.5 ms, that came late because the
    GIL was taken; held_python and held_sleep are the same on the controls. cpu_share: CPU over wall time of one call.
    verdict: a key of VERDICTS; why: the sentence that says which numbers decided.
    """

    facts: LoaderFacts
    environment: Environment | NotMeasured
    user: ThreadScaling | NotMeasured
    sleep_control: ThreadScaling | NotMeasured
    python_control: ThreadScaling | NotMeasured
    native_control: ThreadScaling | NotMeasured
    held_share: float | NotMeasured
    held_python: float | NotMeasured
    held_sleep: float | NotMeasured
    cpu_share: float | NotMeasured
    calls: int
    verdict: str
    why: str
    fault: Outcome | None = None

    title = "GIL check"

    def rows(self) -> tuple[Row, ...]:
        out = [
            Row("verdict", f"{VERDICTS[self.verdict]} ({self.why})", "warning" if self.verdict == "undecided" else "ok")
        ]
        if self.fault is not None:
            out.append(Row("ended by a fault", self.fault.summary, "bad"))
        for label, scaling in (
            ("your __getitem__", self.user),
            ("control: sleep", self.sleep_control),
            ("control: zlib", self.native_control),
            ("control: Python loop", self.python_control),
        ):
            out.append(row(label, scaling, _scaling_text))
        out.append(row("GIL held", self.held_share, self._held_text))
        return tuple(out)

    def _held_text(self, share: float) -> str:
        controls = ""
        if is_measured(self.held_python) and is_measured(self.held_sleep):
            controls = f" (controls: Python loop {text.share(self.held_python)}, sleep {text.share(self.held_sleep)})"
        return text.share(share) + controls


def _scaling_text(scaling: ThreadScaling) -> str:
    parts = [f"{t} threads {text.ratio(scaling.speedup(t).value)}" for t in scaling.threads if t > 1]
    return ", ".join(parts)
