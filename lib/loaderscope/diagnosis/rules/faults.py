"""Loaders that stop: errors, dead workers, hangs."""

from __future__ import annotations

import signal

from loaderscope import thresholds
from loaderscope.diagnosis import fixes
from loaderscope.diagnosis.evidence import Evidence
from loaderscope.records import Finding, Outcome, is_measured, text


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """At most one finding: what ended the iteration."""
    fault = evidence.fault
    if fault is None or fault.where == "step":
        return ()
    rule = {"exception": _error, "hang": _hang, "signal": _death, "exit": _death}.get(fault.status)
    return (rule(evidence, fault),) if rule else ()


def refused_to_start(evidence: Evidence) -> bool:
    """Whether iterating raised in the main process before any sample was read."""
    fault = evidence.fault
    return fault is not None and fault.status == "exception" and fault.where == "main" and not fault.batches


def _error(evidence: Evidence, fault: Outcome) -> Finding:
    alone = evidence.facts.kind != "any" and evidence.facts.workers == 0
    main = "the main process (num_workers=0)" if alone else "the main process"
    where = {"worker": "a worker", "main": main}.get(fault.where, "a child process")
    said = fault.error_text.strip().splitlines()[-1] if fault.error_text.strip() else "(no text)"
    sentences = [f"{where} raised {fault.error_type}: {said} (after {text.count(fault.batches, 'batch', 'batches')})"]
    sentences += _index(fault)
    place = _last_frame(fault.traceback)
    if place:
        sentences.append(f"raised at {place}, 1 traceback read")
    cause = "unpicklable" if _cannot_be_sent(evidence, fault) else "worker-error"
    return _unless_only_in_fork(evidence, Finding(cause, "present", None, tuple(sentences), fixes.for_error(fault)))


def _cannot_be_sent(evidence: Evidence, fault: Outcome) -> bool:
    """Starting a worker that is not forked failed because what it needs does not pickle."""
    sent = evidence.facts.workers > 0 and evidence.facts.start_method in ("spawn", "forkserver")
    told = is_measured(evidence.preflight) and any(c.cause == "unpicklable" for c in evidence.preflight.failed)
    said = (fault.error_text + fault.error_type).lower()
    return sent and not told and refused_to_start(evidence) and "pickle" in said


def _death(evidence: Evidence, fault: Outcome) -> Finding:
    killed = fault.status == "signal" and fault.signal_number == getattr(signal, "SIGKILL", 9)
    if fault.status == "signal":
        how = f"was ended by signal {fault.signal_number} ({fault.signal_name})"
    else:
        how = f"left with exit code {fault.exit_code} and no traceback"
    who = "1 worker" if fault.where == "worker" else "the process that read the dataset"
    sentences = [
        f"{who} {how}, after {text.count(fault.batches, 'batch', 'batches')} and {text.seconds(fault.elapsed_s)}"
    ]
    sentences += _index(fault)
    memory = evidence.environment.memory_available_bytes
    if killed and is_measured(memory):
        sentences.append(f"memory available when the measurement began: {text.size(memory)}")
    place = next((s.frames[0] for s in fault.stacks if s.frames), "")
    if place:
        sentences.append(f"it stood at {place}, 1 stack")
    elif fault.stderr_tail.strip():
        sentences.append(f"last of 1 stderr: {fault.stderr_tail.strip().splitlines()[-1]}")
    cause = "worker-killed" if killed else "worker-crash"
    return _unless_only_in_fork(
        evidence, Finding(cause, "present", None, tuple(sentences), fixes.for_death(fault, killed))
    )


def _hang(evidence: Evidence, fault: Outcome) -> Finding:
    waited = fault.elapsed_s
    sentences = [f"no batch within {text.seconds(waited)} (after {text.count(fault.batches, 'batch', 'batches')})"]
    working = is_measured(fault.cpu_s) and waited > 0 and fault.cpu_s > thresholds.HANG_CPU_SHARE * waited
    if is_measured(fault.cpu_s):
        sentences.append(f"CPU used meanwhile: {text.seconds(fault.cpu_s)} in {text.seconds(waited)}")
    sentences += _index(fault)
    sentences += [f"{s.process}, {s.thread} stands at {s.frames[0]}, 1 stack" for s in fault.stacks[:4] if s.frames]
    finding = Finding("hang", "present", None, tuple(sentences), fixes.for_hang(fault))
    if working:
        spinning = f"it used {text.seconds(fault.cpu_s)} of CPU: it may be slow rather than hung"
        return _undecided(finding, f"{spinning}; run again with a larger budget_s")
    if waited < thresholds.HANG_CERTAIN_S:
        return _undecided(
            finding, f"{text.seconds(waited)} is short for a first batch; run again with budget_s=60 or more"
        )
    return _unless_only_in_fork(evidence, finding)


def _unless_only_in_fork(evidence: Evidence, finding: Finding) -> Finding:
    """A fault seen only in our own forked child has to be seen in a spawned one too (none is used with workers)."""
    if evidence.fault.where != "child":
        return finding
    confirmed = evidence.confirmed
    if is_measured(confirmed) and confirmed.status == evidence.fault.status:
        return finding
    if is_measured(confirmed) and confirmed.status == "hang":
        waited = text.seconds(confirmed.elapsed_s)
        said = f"it happened in a forked child process; a fresh one was not through with its imports after {waited}"
    elif is_measured(confirmed):
        said = f"it happened in a forked child process and not in a fresh one, which {confirmed.summary}"
    else:
        unseen = "whether it also does in a fresh one was not seen"
        said = f"it happened in a forked child process; {unseen}: {confirmed.reason}"
    return _undecided(finding, said + "; iterate the loader once in a script of its own to decide")


def _undecided(finding: Finding, decide_by: str) -> Finding:
    return Finding(finding.cause, "undecided", None, finding.evidence, finding.fixes, decide_by)


def _index(fault: Outcome) -> list[str]:
    if not is_measured(fault.last_index):
        return []
    return [f"dataset index being read: {fault.last_index} (1 run)"]


def _last_frame(traceback: str) -> str:
    lines = [line.strip() for line in traceback.splitlines() if line.strip().startswith("File ")]
    return lines[-1].removeprefix("File ") if lines else ""
