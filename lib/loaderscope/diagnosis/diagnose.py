"""`diagnose`: is it the loader, why, what to change, and what the change did here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from loaderscope import clock as clocks
from loaderscope import thresholds
from loaderscope.diagnosis import costs, proofs, rules
from loaderscope.diagnosis.evidence import Evidence
from loaderscope.diagnosis.first_look import first_look
from loaderscope.diagnosis.report import Report
from loaderscope.diagnosis.state import CountedStep, restored
from loaderscope.errors import BadInputError, StepFailedError
from loaderscope.experiments.headroom import headroom
from loaderscope.experiments.preflight import preflight
from loaderscope.loaders import LoaderSpec
from loaderscope.machine import read_environment
from loaderscope.probes.gil import gil_check
from loaderscope.probes.stages import profile_stages
from loaderscope.records import NotMeasured, Outcome, is_measured, text

CHECKS = ("speed", "memory", "correctness", "safety")
ROLES = (None, "train", "eval")

# How the budget is divided: bound before blame, then where, then why; the rest proves the leading fix.
HEADROOM_SHARE, PROFILE_SHARE, GIL_SHARE, PROOF_SHARE = 0.38, 0.12, 0.18, 0.30


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
        loader: a DataLoader, a factory `make_loader(**overrides)`, or any iterable of batches. It is never altered.
        step: called with each batch; its result is ignored. Without it the question is what limits the loader itself.
        budget_s: seconds to spend; kept within 20 % or 5 s, whichever is larger, and one step.
        checks: "auto", "all", or any of "speed", "memory", "correctness", "safety".
        role: "train", "eval" or None: what depends on it is at most undecided with None.
        val: the other split, to find what the two share.
        state: objects with state_dict (model, optimizer), saved before and restored after.
        progress: called with what is being done and the share of the budget used (0..1).

    Returns:
        Report. Ctrl-C returns the report so far.

    Raises:
        BadInputError: an argument cannot be used.
        StepFailedError: the reader's step raised on the first batch it was given.
    """
    _check_arguments(step, budget_s, checks, role)
    spec = LoaderSpec.read(loader)
    session = _Session(spec, step, float(budget_s), progress, clock)
    with ExitStack() as stack:
        stack.callback(clocks.release)
        stack.enter_context(spec.preserved())
        stack.enter_context(restored(state))
        try:
            session.run()
        except KeyboardInterrupt:
            session.ended = "interrupted"
    return session.report(bool(tuple(state)))


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
        environment = read_environment(measure=budget_s >= 5, clock=clock)
        self.evidence = Evidence(spec.facts, environment, step is not None)
        self.deadline_s = min(
            max(thresholds.HANG_SHARE_OF_BUDGET * budget_s, thresholds.HANG_MIN_S), thresholds.HANG_MAX_S
        )

    @property
    def left_s(self) -> float:
        return self.budget_s - (self.clock.now() - self.began)

    def doing(self, what: str) -> None:
        self.tell(what, min(1.0, 1 - self.left_s / self.budget_s))

    def add(self, **parts: Any) -> None:
        self.evidence = replace(self.evidence, **parts)

    def run(self) -> None:
        self.doing("preflight")
        self.add(preflight=preflight(self.spec, measure=False))
        refusal = self.spec.refusal()
        if refusal:
            self._nothing_to_iterate(refusal)
            return
        if not self._first_look():
            self._headroom()
        self._stop_if_interrupted()
        self._profile()
        self._gil()
        self.findings = rules.judge(self.evidence)
        self._prove()

    def _nothing_to_iterate(self, refusal: str) -> None:
        """No private copy can be made, and the reader's own loader is not used up by us."""
        missing = NotMeasured(f"the loader cannot be copied: {refusal}")
        self.add(headroom=missing, profile=missing, gil=missing)
        self.notes.append(f"nothing was iterated: {refusal}. Pass a function make_loader() that makes the loader")

    def _first_look(self) -> bool:
        """Without workers, the first items in a child; True when the loader must not be iterated here."""
        if self.spec.kind == "any" or self.spec.facts.workers:
            return False
        self.doing("first items, in a child process")
        outcome, confirmed = first_look(self.spec, self.deadline_s, max(self.deadline_s, self.left_s - self.deadline_s))
        if outcome.ok or outcome.status == "exception":
            return False
        self.add(
            fault=outcome,
            confirmed=confirmed,
            headroom=NotMeasured(f"not run: in a child process the loader {outcome.summary}"),
        )
        return True

    def _headroom(self) -> None:
        share = HEADROOM_SHARE if self.step else HEADROOM_SHARE / 2
        room = headroom(
            self.spec,
            self.step,
            budget_s=share * self.budget_s,
            deadline_s=self.deadline_s,
            environment=self.evidence.environment,
            progress=self.doing,
            clock=self.clock,
        )
        loops = [loop for loop in (room.both, room.alone) if is_measured(loop)]
        fault = next((loop.fault for loop in loops if loop.fault is not None), None)
        self.add(headroom=room, fault=fault)
        if fault is not None and fault.where == "step":
            self._step_fault(fault)
        if any(loop.ended == "interrupted" for loop in loops):
            self.ended = "interrupted"
        if not room.alone.batches and fault is None and self.ended == "complete":
            self.notes.append(_empty_note(self.spec))

    def _step_fault(self, fault: Outcome) -> None:
        if not self.step.done:
            raise StepFailedError(
                "Your step raised on the first batch it was given",
                seen=f"{fault.error_type}: {fault.error_text}",
                likely="step= takes one batch as the loader gives it; moving it to the device is the step's own work",
                way_out="call step(next(iter(loader))) by hand, or leave step= out to look at the loader alone",
            ) from fault.value
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
            self.notes.append(
                f"the profiled copy of the loader {profile.fault.summary}; the loader itself ran while it was timed"
            )

    def _gil(self) -> None:
        if self.evidence.fault is not None:
            self.add(gil=NotMeasured("not run: the loader has a fault"))
            return
        if costs.bound(self.evidence) not in ("input-bound", "no step"):
            self.add(gil=NotMeasured("not needed: the loader is not the problem"))
            return
        seconds = GIL_SHARE * self.budget_s
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
        else:
            self.findings = proofs.with_code(self.findings, self.spec)

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


def _empty_note(spec: LoaderSpec) -> str:
    if spec.kind == "any":
        return "the iterable gave no batch: one that was used up stays empty; pass a list, a DataLoader or a factory"
    facts = spec.facts
    length = text.count(facts.length, "sample") if is_measured(facts.length) else "a dataset of unknown length"
    return f"the loader gave no batch: {length}, batch_size={facts.batch_size}, drop_last={facts.drop_last}"


def _check_arguments(step, budget_s, checks, role) -> None:
    if step is not None and not callable(step):
        raise BadInputError(
            "step must be callable with one batch",
            seen=type(step).__name__,
            way_out="pass a function, e.g. step=lambda batch: model(batch)",
        )
    if not isinstance(budget_s, (int, float)) or isinstance(budget_s, bool) or not 0 < budget_s < float("inf"):
        raise BadInputError(
            "budget_s must be a number of seconds above 0", seen=repr(budget_s), way_out="leave it out for 60 s"
        )
    asked = (checks,) if isinstance(checks, str) else tuple(checks)
    unknown = [c for c in asked if c not in (*CHECKS, "auto", "all")]
    if unknown or not asked:
        raise BadInputError(
            "checks names what is not there",
            seen=repr(checks),
            way_out=f'use "auto", "all" or any of {", ".join(CHECKS)}',
        )
    if role not in ROLES:
        raise BadInputError("role is not known", seen=repr(role), way_out='use "train", "eval" or None')
