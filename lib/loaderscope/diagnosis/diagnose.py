"""`diagnose`: is it the loader, why, what to change, and what the change did here."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from loaderscope import clock as clocks
from loaderscope import thresholds
from loaderscope.diagnosis import costs, proofs, rules
from loaderscope.diagnosis.evidence import Evidence, fault_of, loops_of
from loaderscope.diagnosis.first_look import first_look, second_look
from loaderscope.diagnosis.report import Report
from loaderscope.diagnosis.request import check_arguments, refuse_while_spawning, unanswered
from loaderscope.diagnosis.silence import hang_deadline_s
from loaderscope.diagnosis.state import CountedStep, restored, stateful, step_failed
from loaderscope.diagnosis.wording import no_batches
from loaderscope.experiments.headroom import headroom, merged
from loaderscope.experiments.preflight import preflight
from loaderscope.isolation import signals
from loaderscope.loaders import LoaderSpec
from loaderscope.machine import read_environment
from loaderscope.probes.gil import LEAST_S, gil_check
from loaderscope.probes.stages import profile_stages
from loaderscope.records import Headroom, NotMeasured, Outcome, is_measured, text

# How the budget is divided: bound before blame, then where, then why; the rest proves the leading fix.
# Where the first rounds leave it open whether the loader matters, more of them are worth their time.
MORE_SHARE = 0.25
HEADROOM_SHARE, PROFILE_SHARE, GIL_SHARE, PROOF_SHARE = 0.38, 0.12, 0.18, 0.30
# The budget may be overrun by the larger of the two, and by one step.
OVERRUN_S, OVERRUN_SHARE = 5.0, 0.20


def diagnose(
    loader: Any,
    step: Callable[[Any], Any] | None = None,
    *,
    budget_s: float = 60.0,
    checks: str | Iterable[str] = "auto",
    role: str | None = None,
    val: Any = None,
    state: Iterable[Any] = (),
    progress: Callable[[str, float], None] | None = None,
    clock=clocks.SYSTEM,
) -> Report:
    """Say whether the training loop waits for its loader, why, and what a change brings, proved on this machine.

    Args:
        loader: a DataLoader, a factory `make_loader(**overrides)`, or any iterable of batches. It is never altered:
            what measuring would use up (a generator, a sampler that is an iterator) is not iterated, and the report
            says so.
        step: called with each batch; its result is ignored. Without it the question is what limits the loader itself.
        budget_s: seconds to spend; kept within 20 % or 5 s, whichever is larger, and one step.
        checks: "auto", "all", or any of "speed", "memory", "correctness", "safety".
        role: "train", "eval" or None: what depends on it is at most undecided with None.
        val: the other split, to find what the two share.
        state: objects with state_dict (model, optimizer), saved before and restored after, with their gradients.
        progress: called with what is being done and the share of the budget used (0..1).

    Returns:
        Report. Ctrl-C returns the report so far, once the loader has been read.

    Raises:
        BadInputError: an argument cannot be used.
        StepFailedError: the reader's step raised on the first batch it was given.
        LoaderscopeError: a script without `if __name__ == "__main__"` is being imported by a process it has spawned.
    """
    refuse_while_spawning()
    check_arguments(step, budget_s, checks, role, progress)
    objects = stateful(state)
    spec = LoaderSpec.read(loader)
    with ExitStack() as stack:
        stack.callback(clocks.release)
        stack.enter_context(spec.preserved())
        stack.enter_context(restored(objects))
        try:
            with signals.held(signal.SIGINT):  # from here on there is a report
                session = _Session(spec, step, float(budget_s), progress, clock)
                session.notes += unanswered(checks, val)
            session.run()
        except KeyboardInterrupt:
            session.ended = "interrupted"
    return session.report(bool(objects))


class _Session:
    """One run of `diagnose`: what was measured so far, and how much of the budget is left."""

    def __init__(self, spec: LoaderSpec, step, budget_s: float, progress, clock):
        self.spec, self.budget_s, self.clock = spec, budget_s, clock
        self.step = CountedStep(step) if step is not None else None
        self.tell = progress or (lambda text, share: None)
        self.began = clock.now()
        self.ended = "complete"
        self.notes: list[str] = []
        self.findings: tuple = ()
        self.evidence = Evidence(spec.facts, read_environment(measure=False, clock=clock), step is not None)
        self.deadline_s = hang_deadline_s(spec.facts, budget_s)

    @property
    def left_s(self) -> float:
        return self.budget_s - (self.clock.now() - self.began)

    def doing(self, what: str) -> None:
        self.tell(what, min(1.0, 1 - self.left_s / self.budget_s))

    def add(self, **parts: Any) -> None:
        self.evidence = replace(self.evidence, **parts)

    def run(self) -> None:
        self.doing("preflight")
        if self.budget_s >= 5:
            self.add(environment=read_environment(clock=self.clock))
        self.add(preflight=preflight(self.spec, measure=False))
        refusal = self.spec.refusal() or self._one_shot()
        if refusal:
            self._nothing_to_iterate(refusal)
            return
        if not self._first_look():
            self._headroom()
        self._stop_if_interrupted()
        self._profile()
        self._gil()
        self.findings = proofs.with_code(rules.judge(self.evidence), self.spec)
        self._prove()

    def _one_shot(self) -> str:
        """What going through it here would leave empty for the reader; a factory's and a worker's are copies."""
        if self.spec.factory is not None or self.spec.facts.workers:
            return ""
        checks = self.evidence.preflight.checks
        return next((check.text for check in checks if check.cause == "one-shot-iterator"), "")

    def _nothing_to_iterate(self, refusal: str) -> None:
        """No private copy can be made, and the reader's own loader is not used up by us."""
        missing = NotMeasured(f"nothing was iterated: {refusal}")
        self.add(headroom=missing, profile=missing, gil=missing)
        if "pass a function" not in refusal:
            self.notes.append("pass a function make_loader() that makes the loader, and it will be iterated")

    def _first_look(self) -> bool:
        """Without workers, the first items in a child; True when the loader must not be iterated here."""
        if self.spec.kind == "any" or self.spec.facts.workers:
            return False
        self.doing("first items, in a child process")
        outcome = first_look(self.spec, self.deadline_s)
        if outcome.ok and outcome.value and self.spec.factory is None:
            self._nothing_to_iterate("its dataset gives out one and the same iterator, which would be used up")
            return True
        if outcome.ok or outcome.status == "exception":
            # The same exception would be raised in the reader's process: the loop there will tell it better.
            return False
        self.doing("first items, in a fresh process")
        spare = min(self.left_s + thresholds.HANG_OVERRUN_S, thresholds.HANG_FRESH_S)
        confirmed = second_look(self.spec, max(spare, self.left_s - self.deadline_s))
        self.add(
            fault=outcome,
            confirmed=confirmed,
            headroom=NotMeasured(f"not run: in a child process the loader {outcome.summary}"),
        )
        return True

    def _headroom(self) -> None:
        share = HEADROOM_SHARE if self.step else HEADROOM_SHARE / 2
        room = self._measure_headroom(share * self.budget_s)
        self.add(headroom=room, fault=fault_of(room))
        if self._goes_on(room) and costs.bound(self.evidence) == "undecided" and self.left_s > 0.5 * self.budget_s:
            more = self._measure_headroom(MORE_SHARE * self.budget_s)
            self.add(headroom=merged(room, more), fault=fault_of(more))
            self._goes_on(more)

    def _measure_headroom(self, seconds: float) -> Headroom:
        return headroom(
            self.spec,
            self.step,
            budget_s=seconds,
            limit_s=max(0.1, self.left_s + max(OVERRUN_S, OVERRUN_SHARE * self.budget_s)),
            deadline_s=self.deadline_s,
            environment=self.evidence.environment,
            progress=self.doing,
            clock=self.clock,
        )

    def _goes_on(self, room: Headroom) -> bool:
        """Note how a measurement of the headroom ended; False where there is no point in measuring on."""
        fault = fault_of(room)
        if fault is not None and fault.where == "step":
            self._step_fault(fault)
        if any(loop.ended == "interrupted" for loop in loops_of(room)):
            self.ended = "interrupted"
        if not room.alone.batches and fault is None and self.ended == "complete":
            self.notes.append(no_batches(self.spec.facts))
            return False
        return fault is None and self.ended == "complete"

    def _step_fault(self, fault: Outcome) -> None:
        if not self.step.done:
            raise step_failed(fault) from fault.value
        fault.value.with_traceback(None)  # its frames would keep the reader's batch alive as long as the report
        self.notes.append(
            f"your step raised {fault.error_type} after {text.count(self.step.done, 'good call')}: {fault.error_text}"
        )

    def _stop_if_interrupted(self) -> None:
        if self.ended == "interrupted":
            raise KeyboardInterrupt

    def _profile(self) -> None:
        fault = self.evidence.fault
        seconds = PROFILE_SHARE * self.budget_s
        if fault is not None and fault.status == "hang" and self.left_s < self.deadline_s:
            self.add(profile=NotMeasured("the loader hangs and the budget does not allow to wait for it twice"))
            return
        if fault is None and not self._room_for(seconds, "profile"):
            return
        self.doing("where a sample's time goes")
        profile = profile_stages(
            self.spec,
            seconds=seconds,
            deadline_s=self.deadline_s,
            environment=self.evidence.environment,
            clock=self.clock,
        )
        self.add(profile=profile)
        if fault is not None and profile.fault is not None and is_measured(profile.fault.last_index):
            self.add(fault=replace(fault, last_index=profile.fault.last_index))
        elif fault is None and profile.fault is not None:
            self._profile_fault(profile.fault)

    def _profile_fault(self, fault: Outcome) -> None:
        """The loader ran while it was timed, and its profiled copy, which may have come further, did not."""
        if fault.status != "hang" and is_measured(fault.last_index):
            # Inside the dataset's own code: it is the reader's, not the copy's.
            self.add(fault=fault, confirmed=NotMeasured("it came up in the last part of the measurement"))
            return
        self.notes.append(f"the profiled copy of the loader {fault.summary}; the loader itself ran while it was timed")

    def _gil(self) -> None:
        if self.evidence.fault is not None:
            self.add(gil=NotMeasured("not run: the loader has a fault"))
            return
        bound = costs.bound(self.evidence)
        if bound not in ("input-bound", "no step"):
            why = (
                "not needed: the loader is not the problem" if bound == "compute-bound" else "not run: too little known"
            )
            self.add(gil=NotMeasured(why))
            return
        seconds = GIL_SHARE * self.budget_s
        if seconds < LEAST_S:
            needed = text.seconds(LEAST_S / GIL_SHARE)
            self.add(gil=NotMeasured(f"it needs a budget_s of {needed} or more, and had {text.seconds(self.budget_s)}"))
            return
        if self._room_for(seconds, "gil"):
            self.doing("GIL check")
            self.add(gil=gil_check(self.spec, budget_s=min(seconds, 12.0), environment=self.evidence.environment))

    def _room_for(self, seconds: float, part: str) -> bool:
        if self.left_s >= 0.5 * seconds and seconds >= 0.1:
            return True
        self.ended = "budget" if self.ended == "complete" else self.ended
        self.add(**{part: NotMeasured(f"the budget of {text.seconds(self.budget_s)} was used up")})
        return False

    def _prove(self) -> None:
        seconds = min(PROOF_SHARE * self.budget_s, self.left_s)
        if self.evidence.fault is None and seconds > 0.05 * self.budget_s:
            self.findings = proofs.prove(
                self.findings,
                self.spec,
                self.step,
                seconds,
                deadline_s=self.deadline_s,
                progress=self.doing,
                clock=self.clock,
            )

    def report(self, restored_state: bool) -> Report:
        if not self.findings:
            self.findings = proofs.with_code(rules.judge(self.evidence), self.spec)
        calls = self.step.calls if self.step else 0
        if calls and not restored_state:
            self.notes.append(
                f"your step ran {text.count(calls, 'time')} and what it changed was kept: "
                "pass state=(model, optimizer) to have it restored"
            )
        if self.ended == "interrupted":
            self.notes.append("interrupted: this is what was measured until then")
        return Report(
            self.evidence,
            self.findings,
            steps_run=calls,
            state_restored=restored_state,
            budget_s=self.budget_s,
            elapsed_s=self.clock.now() - self.began,
            ended=self.ended,
            notes=tuple(self.notes),
        )
