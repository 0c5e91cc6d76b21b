"""A Job without a browser: real threads, real interrupts."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter

import pytest
from torch.utils.data import DataLoader

from loaderscope import faults
from loaderscope.records import is_measured
from loaderscope.views import interrupts
from loaderscope.views import job as jobs
from loaderscope.views.job import Job
from loaderscope.views.panels.panel import time_left

RUN = threading.Thread.run.__code__


def until(condition, timeout: float = 10.0) -> bool:
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def counting(job: Job, steps: int = 20, pause: float = 0.01) -> list[int]:
    """Work that answers Stop as the instruments answer Ctrl-C: with what there is."""
    done: list[int] = []
    try:
        for k in range(steps):
            time.sleep(pause)
            done.append(k)
            job.progress(f"step {k}", (k + 1) / steps, list(done))
    except KeyboardInterrupt:
        pass
    return done


# --- runs ------------------------------------------------------------------------------------------------------


def test_a_job_runs_to_the_end_in_another_thread():
    seen = []
    job = Job(lambda job: threading.current_thread().name)
    job.listen(lambda status: seen.append(status.state))
    assert job.state == "idle" and job.start()
    assert job.wait(5) == job.result == "loaderscope-job"
    assert seen[0] == "running" and seen[-1] == job.state == "done"


def test_a_second_start_is_refused_while_it_runs_and_accepted_after():
    gate, runs = threading.Event(), []
    job = Job(lambda job: (runs.append(1), gate.wait(5)))
    assert [job.start() for _ in range(3)] == [True, False, False]
    gate.set()
    job.wait(5)
    assert job.start() and (job.wait(5) or True) and len(runs) == 2


def test_an_error_is_kept_raised_by_wait_and_cleared_by_the_next_run():
    fail = [True]
    job = Job(lambda job: 1 / 0 if fail else "fine")
    job.start()
    with pytest.raises(ZeroDivisionError):
        job.wait(5)
    assert job.state == "failed" and isinstance(job.error, ZeroDivisionError) and "1 / 0" in job.status().trace
    fail.clear()
    job.start()
    assert job.wait(5) == "fine" and job.error is None and job.status().trace == ""


def test_a_kept_error_keeps_nothing_else_alive():
    class Held:
        pass

    alive = []

    def fails(job):
        held = Held()
        alive.append(weakref.ref(held))
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    job = Job(fails)
    job.start()
    with pytest.raises(ValueError):
        job.wait(5)
    gc.collect()
    assert alive[0]() is None


def test_the_last_result_stays_while_the_next_run_is_going():
    gate = threading.Event()
    gate.set()
    job = Job(lambda job: gate.wait(5) and object())
    job.start()
    first = job.wait(5)
    gate.clear()
    job.start()
    assert job.result is first and not job.status().fresh and job.status().running
    gate.set()
    assert job.wait(5) is job.result is not first


def test_wait_says_that_it_is_still_running():
    gate = threading.Event()
    job = Job(lambda job: gate.wait(5))
    job.start()
    with pytest.raises(TimeoutError, match=r"stop\(\)"):
        job.wait(0.05)
    gate.set()
    job.wait(5)


def test_the_state_is_failed_where_no_thread_can_be_had(monkeypatch):
    def no_more(self):
        raise RuntimeError("can't start new thread")

    job = Job(lambda job: 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        job.start()
    assert job.state == "failed" and not job.status().running
    with pytest.raises(RuntimeError):
        job.wait(1)


# --- Stop ------------------------------------------------------------------------------------------------------


def test_stop_reaches_code_that_asks_nothing_and_only_answers_ctrl_c():
    inside = threading.Event()

    def measure(job):
        count = 0
        inside.set()
        try:
            while True:
                count += 1
        except KeyboardInterrupt:
            return count

    job = Job(measure)
    job.start()
    inside.wait(5)
    assert job.stop()
    assert job.wait(5) > 0 and job.state == "stopped"


def test_a_job_that_answers_nothing_keeps_its_last_partial_result():
    def measure(job):
        while True:
            job.progress("going", 0.5, partial="so far")
            time.sleep(0.001)

    job = Job(measure)
    job.start()
    until(lambda: job.status().partial)
    job.stop()
    assert job.wait(5) == "so far" and job.state == "stopped" and job.error is None


def test_a_stop_before_there_is_anything_leaves_no_result():
    job = Job(lambda job: time.sleep(0.05) or [time.sleep(0.001) for _ in range(10_000)])
    job.start()
    job.stop()
    assert job.wait(5) is None and job.state == "stopped" and not job.status().fresh


def test_stop_is_polite_too():
    def measure(job):
        try:
            while job.progress("going"):
                time.sleep(0.001)
        except KeyboardInterrupt:
            assert job.stopping
        return "asked"

    job = Job(measure)
    job.start()
    until(lambda: job.status().text)
    job.stop()
    assert job.wait(5) == "asked"


def test_stop_on_a_job_that_does_not_run_does_nothing():
    job = Job(lambda job: 7)
    assert not job.stop()
    job.start()
    job.wait(5)
    assert not job.stop() and job.state == "done"


def test_a_second_stop_does_not_hit_the_tidying_up_of_the_first(monkeypatch):
    def measure(job, tidied):
        try:
            while True:
                time.sleep(0.001)
        except KeyboardInterrupt:
            time.sleep(0.1)
            tidied.append(1)
            return "partial"

    tidied: list[int] = []
    job = Job(lambda job: measure(job, tidied))
    job.start()
    time.sleep(0.02)
    for _ in range(5):
        job.stop()
    assert job.wait(5) == "partial" and tidied
    assert jobs.AGAIN_S > 1  # a later Stop does interrupt again: see the next test


def test_a_later_stop_reaches_code_that_swallowed_the_first(monkeypatch):
    monkeypatch.setattr(jobs, "AGAIN_S", 0.05)

    def stubborn(job):
        for _ in range(2):
            try:
                while True:
                    time.sleep(0.001)
            except KeyboardInterrupt:
                pass
        return "gave in"

    job = Job(stubborn)
    job.start()
    time.sleep(0.02)
    assert until(lambda: job.stop() or not job.status().running)
    assert until(lambda: (job.stop(), time.sleep(0.06), not job.status().running)[-1])
    assert job.wait(5) == "gave in"


@pytest.fixture
def hasty(monkeypatch):
    """Interrupts are sent at once, so that they meet the end of a short run."""
    monkeypatch.setattr(jobs, "GAP_S", 0.0005)
    monkeypatch.setattr(jobs, "LOOK_S", 0.0001)


def short_run(job: Job) -> str:
    for _ in range(6):
        time.sleep(0.0005)
    return "whole"


def test_no_interrupt_outlives_the_run_it_was_meant_for(hasty):
    """Stop at the very moment a run ends, many times: nothing is lost, nothing escapes, the next run is clean."""
    escaped, seen = [], Counter()
    hook, threading.excepthook = threading.excepthook, lambda args: escaped.append(args.exc_type)
    try:
        for k in range(80):
            job = Job(short_run)
            job.start()
            time.sleep(0.0003 * (k % 16))
            job.stop()
            value = job.wait(5)
            assert job.error is None
            seen[job.state, value] += 1
            job.start()
            assert job.wait(5) == "whole" and job.state == "done"
    finally:
        threading.excepthook = hook
    assert escaped == []
    # Whole runs, runs stopped as they ended, runs cut short: nothing else can be.
    assert set(seen) <= {("done", "whole"), ("stopped", "whole"), ("stopped", None)}
    assert seen["stopped", None] > 0, "not one interrupt met a run: this test tests nothing"


def test_a_returned_result_survives_an_interrupt_on_the_way_out(hasty):
    for k in range(100):
        returned = []

        def measure(job, returned=returned):
            with contextlib.suppress(KeyboardInterrupt):
                short_run(job)
            returned.append(1)
            return "whole"

        job = Job(measure)
        job.start()
        time.sleep(0.0003 * (k % 16))
        job.stop()
        value = job.wait(5)
        # Without a result only where fn itself was cut short before its return.
        assert value == "whole" or not returned or job.state == "stopped"
        assert job.error is None


# --- Stop: where an interrupt would do harm ----------------------------------------------------------------------


def frame_of(work) -> tuple[threading.Thread, object]:
    """A thread that runs `work` until it waits somewhere, and the frame it waits in."""
    thread = threading.Thread(target=lambda: work(), daemon=True)
    thread.start()
    time.sleep(0.1)
    return thread, sys._current_frames()[thread.ident]


@contextlib.contextmanager
def slow_to_leave(gate):
    yield
    gate.wait(5)


class SlowToDie:
    def __init__(self, gate):
        self.gate = gate

    def __del__(self):
        self.gate.wait(5)


def leaves_slowly(gate):
    with slow_to_leave(gate):
        pass


def stays_inside(gate):
    with slow_to_leave(threading.Event() if gate.is_set() else gate):
        gate.wait(5)


def dies_slowly(gate):
    SlowToDie(gate)


def takes_a_condition(gate):
    with gate._cond:  # Event and Queue take their locks in Python: an interrupt in there would leave them taken
        pass


@pytest.mark.parametrize(
    ("work", "safe"),
    [
        (lambda gate: gate.wait(5), True),
        (stays_inside, True),
        (leaves_slowly, False),
        (dies_slowly, False),
    ],
    ids=["waiting", "in a with block", "leaving a with block", "in __del__"],
)
def test_an_interrupt_waits_for_a_better_moment(work, safe):
    gate = threading.Event()
    thread, frame = frame_of(lambda: work(gate))
    try:
        assert interrupts.is_safe(frame, end=RUN) is safe
    finally:
        gate.set()
        thread.join(5)
        del frame


def test_no_interrupt_while_a_lock_is_taken_in_python():
    gate = threading.Event()
    with gate._cond:
        thread, frame = frame_of(lambda: takes_a_condition(gate))
        assert not interrupts.is_safe(frame, end=RUN) and not interrupts.interrupt(thread, end=RUN)
        del frame
    thread.join(5)
    assert not thread.is_alive()


def test_no_interrupt_while_something_is_logged():
    handler = logging.StreamHandler(io.StringIO())
    record = logging.LogRecord("test", logging.WARNING, "", 0, "waits for the handler", (), None)
    with handler.lock:
        thread, frame = frame_of(lambda: handler.handle(record))
        assert not interrupts.is_safe(frame, end=RUN)
        del frame
    thread.join(5)


@pytest.mark.slow
def test_nothing_is_left_locked_however_stop_meets_the_starting_and_ending_of_workers():
    """What once hung the whole process: an interrupt between taking and holding the lock that a fork takes."""

    def epochs(job):
        loader = DataLoader(faults.InMemoryDataset(32), batch_size=8, num_workers=2)
        try:
            while True:
                for _ in loader:
                    pass
        except KeyboardInterrupt:
            return "stopped"

    for k in range(12):
        job = Job(epochs)
        job.start()
        time.sleep(0.03 + 0.017 * k)
        job.stop()
        assert job.wait(30) == "stopped" and job.state == "stopped"
        gc.collect()
        for lock in (logging._lock, threading._active_limbo_lock):
            assert lock.acquire(timeout=5)
            lock.release()


# --- progress --------------------------------------------------------------------------------------------------


def test_progress_is_throttled_and_its_last_state_is_told():
    told = []

    def measure(job):
        for k in range(2000):
            job.progress(f"step {k}", k / 2000)
            time.sleep(0.0005)
        job.progress("the last one", 1.0)

    job = Job(measure, [lambda status: told.append((time.monotonic(), status))])
    began = time.monotonic()
    job.start()
    job.wait(30)
    took = time.monotonic() - began
    assert len(told) <= 10 * took + 4
    assert told[-1][1].text == "the last one" and told[-1][1].state == "done" and told[-1][1].share == 1.0


def test_a_throttled_step_is_told_although_nothing_follows_it():
    """Two messages at once, then silence: the second must be shown during the silence, not at the end."""
    gate, told = threading.Event(), []

    def measure(job):
        job.progress("first", 0.1)
        job.progress("second", 0.2)
        gate.wait(10)

    job = Job(measure, [lambda status: told.append(status.text)])
    job.start()
    assert until(lambda: told and told[-1] == "second")
    gate.set()
    job.wait(5)


def test_time_left_follows_the_share_or_the_expected_length(fake_clock):
    steps = [threading.Event() for _ in range(3)]
    reached = [threading.Event() for _ in range(3)]

    def measure(job):
        for k, gate in enumerate(steps):
            if k == 1:
                job.progress("half", 0.5)
            if k == 2:
                job.expect(100)
            reached[k].set()
            gate.wait(5)

    job = Job(measure, clock=fake_clock)
    job.start()
    reached[0].wait(5)
    assert not is_measured(job.status().left_s) and time_left(job.status()) == "time left unknown"
    fake_clock.advance(10)
    steps[0].set()
    reached[1].wait(5)
    assert job.status().left_s == pytest.approx(10) and "10 s left" in time_left(job.status())
    fake_clock.advance(4)
    assert job.status().left_s == pytest.approx(6)
    steps[1].set()
    reached[2].wait(5)
    fake_clock.advance(46)
    assert job.status().left_s == pytest.approx(40) and job.status().share == pytest.approx(0.6)
    steps[2].set()
    job.wait(5)
    assert job.status().share == 1.0 and job.status().elapsed_s == pytest.approx(60)


def test_time_keeps_counting_while_nothing_is_said(monkeypatch):
    monkeypatch.setattr(jobs, "TICK_S", 0.02)
    gate, told = threading.Event(), []

    def measure(job):
        job.expect(60)
        gate.wait(10)

    job = Job(measure, [lambda status: told.append(status.elapsed_s)])
    job.start()
    assert until(lambda: len(told) > 4)
    gate.set()
    job.wait(5)
    assert told == sorted(told)


def test_a_failing_listener_does_not_stop_the_job_nor_the_others():
    seen = []

    def broken(status):
        raise RuntimeError("listener")

    job = Job(lambda job: "fine", [broken, lambda status: seen.append(status.state)])
    job.start()
    assert job.wait(5) == "fine" and seen[-1] == "done" and isinstance(job.listener_error, RuntimeError)


def test_listeners_are_never_called_on_the_thread_that_can_be_interrupted():
    names = set()
    job = Job(counting, [lambda status: status.running and names.add(threading.current_thread().name)])
    job.start()
    job.wait(10)
    assert names and "loaderscope-job" not in names


EXIT = """
import sys, threading, time
from loaderscope.views.job import Job
from loaderscope.views.panels.panel import time_left
inside = threading.Event()
def work(job):
    inside.set()
    {body}
Job(work).start()
inside.wait()
"""


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("while True: time.sleep(0.01)", 1.5),
        ("time.sleep(600)", 5),
        ("""
    while True:
        try:
            while True: time.sleep(0.01)
        except KeyboardInterrupt: pass""", 5),
    ],
    ids=["listens", "deaf in C", "swallows"],
)  # fmt: skip
def test_the_end_of_the_interpreter_does_not_hang_on_a_job(body, most):
    code = EXIT.format(body=body) + "sys.stdout.write(str(time.monotonic()))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - float(done.stdout) < 5 * most
    assert "Error" not in done.stderr and "Traceback" not in done.stderr
