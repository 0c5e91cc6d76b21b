"""Every way a child or a loader can end, planted for real: raised, died, hung, interrupted."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from loaderscope import isolation
from loaderscope.errors import BadInputError, LoaderscopeError
from loaderscope.isolation import LoaderFault, report_index, run_in_child, signals, watched
from loaderscope.records import Outcome, is_measured

METHODS = ("fork", "spawn")
# Time a child needs to get going: a spawned one imports this file, on a machine that may be busy.
READY_S = {"fork": 20, "spawn": 60}
LATE_S = 5.0


# --- what the children do ----------------------------------------------------------------------------------------


def add(a, b):
    return a + b


def fail_at(index):
    report_index(index)
    raise KeyError(f"item {index}")


def complain_and_return(text):
    print("not for the notebook")
    print(text, file=sys.stderr)
    return text


def sleep_on_a_thread_too(mark):
    report_index(41)
    print("before the hang", file=sys.stderr)
    threading.Thread(target=dormant, daemon=True).start()
    report_index(mark)
    dormant()


def dormant():
    time.sleep(120)


def spin():
    while True:
        pass


def die(number):
    os.kill(os.getpid(), number)
    dormant()


def crash():
    ctypes.string_at(0)


def leave(code):
    os._exit(code)


def leave_by_exception(code):
    sys.exit(code)


def large(megabytes):
    return np.arange(megabytes << 17, dtype=np.float64)


def size_of(array):
    return array.nbytes


def give_lambda():
    return lambda: 0


def ignore_sigterm_and_hang():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dormant()


def start_grandchildren(path, then_hang):
    """One forked in the group, one that escapes into a session of its own; their numbers go to a file."""
    plain = os.fork()
    if plain == 0:
        dormant()
    escaped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
    Path(path).write_text(f"{plain} {escaped.pid}")
    if then_hang:
        dormant()


def who_am_i():
    return os.getpgid(0) == os.getpid(), signal.getsignal(signal.SIGINT) is signal.SIG_DFL, sys.stdin.read()


def start_method():
    return multiprocessing.get_start_method(allow_none=True)


def collect_garbage():
    return gc.collect()


def parallel_sum():
    import torch

    return float(torch.ones(2_000_000).sum()), torch.get_num_threads()


def take_lock(lock):
    with lock:
        return "taken"


def watch_and_hang(loader):
    with watched(loader, deadline_s=60) as source:
        source.start()
        report_index(len(temporary_folders("")))
        dormant()


def load_everything(loader):
    return [batch.tolist() for batch in loader]


class Holder:
    def __init__(self, held):
        self.held = held


class Unreadable:
    """Pickles, and cannot be read back."""

    def __reduce__(self):
        return (fail_at, (0,))


def give_unreadable():
    return Unreadable()


def gone(pid: int, within_s: float = 3.0) -> bool:
    """Whether the process has ended (a zombie in a container without an init has)."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def temporary_folders(owner: str = f"{os.getpid()}-") -> set[str]:
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(f"loaderscope-{owner}")}


@pytest.fixture(autouse=True)
def no_temporary_folders():
    yield
    assert not temporary_folders()


# --- run_in_child: every outcome ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_value_comes_back(method):
    outcome = run_in_child(add, 20, 22, deadline_s=READY_S[method], method=method)
    assert outcome.ok, outcome
    assert outcome.value == 42
    assert outcome.method == method
    assert outcome.where == "child"
    assert outcome.cpu_s > 0
    assert not is_measured(outcome.last_index)


@pytest.mark.parametrize("method", METHODS)
def test_exception_comes_back_as_text(method):
    outcome = run_in_child(fail_at, 7, deadline_s=READY_S[method], method=method)
    assert (outcome.status, outcome.error_type, outcome.last_index) == ("exception", "KeyError", 7)
    assert "item 7" in outcome.error_text
    assert "fail_at" in outcome.traceback


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_hang_is_reported_with_the_stacks_of_all_threads(method):
    deadline_s = {"fork": 1.5, "spawn": 12}[method]
    started = time.monotonic()
    outcome = run_in_child(sleep_on_a_thread_too, 42, deadline_s=deadline_s, method=method)
    assert time.monotonic() - started < deadline_s + LATE_S
    assert outcome.status == "hang"
    assert outcome.last_index == 42
    assert "before the hang" in outcome.stderr_tail
    assert len(outcome.stacks) == 2
    for stack in outcome.stacks:
        assert "in dormant" in stack.frames[0]
    assert outcome.stacks[0].frames[-1].endswith("in sleep_on_a_thread_too"), "our own frames are not shown"
    assert outcome.cpu_s < 0.7 * outcome.elapsed_s


def test_a_child_that_works_is_told_from_one_that_waits():
    busy = run_in_child(spin, deadline_s=1.5)
    idle = run_in_child(dormant, deadline_s=1.5)
    assert busy.status == idle.status == "hang"
    assert busy.cpu_s > 5 * idle.cpu_s


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR2])
def test_signal(number):
    outcome = run_in_child(die, number, deadline_s=20)
    assert (outcome.status, outcome.signal_number, outcome.signal_name) == ("signal", number, number.name)


@pytest.mark.parametrize("method", METHODS)
def test_crash_brings_its_stack(method):
    outcome = run_in_child(crash, deadline_s=READY_S[method], method=method)
    assert (outcome.status, outcome.signal_name) == ("signal", "SIGSEGV")
    assert "Segmentation fault" in outcome.stderr_tail
    assert any("in crash" in frame for frame in outcome.stacks[0].frames)


@pytest.mark.parametrize("method", METHODS)
def test_exit_without_an_answer(method):
    outcome = run_in_child(leave, 3, deadline_s=READY_S[method], method=method)
    assert (outcome.status, outcome.exit_code) == ("exit", 3)


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (5, 5), ("some words", 1)])
def test_sys_exit_is_an_exit(code, expected):
    outcome = run_in_child(leave_by_exception, code, deadline_s=20)
    assert (outcome.status, outcome.exit_code) == ("exit", expected)
    assert ("some words" in outcome.stderr_tail) == (code == "some words")


def test_an_exit_of_zero_without_an_answer_is_not_ok():
    outcome = run_in_child(leave, 0, deadline_s=20)
    assert (outcome.status, outcome.exit_code) == ("exit", 0)


@pytest.mark.parametrize("method", METHODS)
def test_large_value_passes(method):
    outcome = run_in_child(large, 40, deadline_s=READY_S[method], method=method)
    assert outcome.ok
    assert np.array_equal(outcome.value, large(40))


def test_large_argument_reaches_a_spawned_child():
    outcome = run_in_child(size_of, large(20), deadline_s=60, method="spawn")
    assert outcome.value == 20 << 20


def test_value_that_does_not_pickle_is_an_exception():
    outcome = run_in_child(give_lambda, deadline_s=20)
    assert outcome.status == "exception"
    assert "cannot be pickled" in outcome.error_text
    assert "function" in outcome.error_text


def test_value_that_cannot_be_read_back_is_an_exception():
    outcome = run_in_child(give_unreadable, deadline_s=20)
    assert outcome.status == "exception"
    assert "cannot be unpickled" in outcome.error_text


@pytest.mark.parametrize("method", METHODS)
def test_output_of_the_child_stays_out_of_the_notebook(method, capfd):
    text = "x" * 5000 + " the end"
    outcome = run_in_child(complain_and_return, text, deadline_s=READY_S[method], method=method)
    assert outcome.value == text
    assert outcome.stderr_tail.endswith(" the end\n")
    assert len(outcome.stderr_tail) <= 2048
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("method", METHODS)
def test_child_has_its_own_group_default_signals_and_no_input(method):
    outcome = run_in_child(who_am_i, deadline_s=READY_S[method], method=method)
    assert outcome.value == (True, True, "")


@pytest.mark.parametrize("method", METHODS)
def test_the_readers_start_method_is_the_default_in_the_child_too(method):
    outcome = run_in_child(start_method, deadline_s=READY_S[method], method=method)
    assert outcome.value == multiprocessing.get_start_method(allow_none=True)


# --- run_in_child: nothing is left, nothing hangs ----------------------------------------------------------------


def test_child_that_ignores_sigterm_is_killed():
    started = time.monotonic()
    outcome = run_in_child(ignore_sigterm_and_hang, deadline_s=1)
    assert outcome.status == "hang"
    assert time.monotonic() - started < 1 + LATE_S


@pytest.mark.parametrize("then_hang", [False, True])
def test_grandchildren_end_too(tmp_path, then_hang):
    file = tmp_path / "pids"
    outcome = run_in_child(start_grandchildren, str(file), then_hang, deadline_s=2 if then_hang else 20)
    assert outcome.status == ("hang" if then_hang else "ok")
    plain, escaped = map(int, file.read_text().split())
    assert gone(plain)
    assert gone(escaped)
    if then_hang:
        assert any(str(plain) in stack.process and "in dormant" in stack.frames[0] for stack in outcome.stacks)


def test_locks_held_by_other_threads_do_not_hang_the_child():
    import logging

    handler = logging.StreamHandler(sys.stderr)
    release, ready = threading.Event(), threading.Event()

    def hold():
        handler.acquire()
        ready.set()
        release.wait()
        handler.release()

    holder = threading.Thread(target=hold)
    holder.start()
    ready.wait()
    try:
        assert run_in_child(complain_and_return, "free", deadline_s=20).value == "free"
    finally:
        release.set()
        holder.join()


def test_works_on_another_thread():
    found: list[Outcome] = []
    threads = [threading.Thread(target=lambda: found.append(run_in_child(who_am_i, deadline_s=30))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.value for outcome in found] == [(True, True, "")] * 3


def test_forked_child_of_a_process_with_a_warm_thread_pool_does_not_hang():
    """Measured in a fresh process: the pool must have been used in parallel before the fork."""
    script = """
        import torch
        torch.set_num_threads(2)
        torch.ones(2_000_000).sum(); torch.ones(300, 300) @ torch.ones(300, 300)
        from loaderscope.isolation import run_in_child
        from test_isolation import parallel_sum
        print(run_in_child(parallel_sum, deadline_s=20).value, torch.get_num_threads())
    """
    assert run_script(script) == "(2000000.0, 1) 2\n"


def run_script(script: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_garbage_of_the_parent_is_not_finalised_in_the_child():
    """A loader iterator in a cycle would send its (the parent's) workers home from inside the child."""
    fds = os.pipe()

    class Telltale:
        def __init__(self):
            self.me = self

        def __del__(self):
            os.write(fds[1], b"%d;" % os.getpid())

    gc.collect()
    gc.disable()
    try:
        Telltale()
        outcome = run_in_child(collect_garbage, deadline_s=20)
    finally:
        gc.enable()
    gc.collect()
    assert outcome.ok
    assert os.read(fds[0], 1000) == b"%d;" % os.getpid()
    for fd in fds:
        os.close(fd)


def interrupt_after(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("seconds", [0.001, 0.005, 0.03, 0.6])
@pytest.mark.parametrize("method", METHODS)
def test_interrupt_ends_the_child_and_goes_on(method, seconds):
    with pytest.raises(KeyboardInterrupt):
        timer = interrupt_after(seconds)
        try:
            run_in_child(dormant, deadline_s=60, method=method)
        finally:
            timer.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_bad_arguments_are_named():
    with pytest.raises(BadInputError, match="deadline"):
        run_in_child(add, 1, 2, deadline_s=0)
    with pytest.raises(BadInputError, match="forkserver"):
        run_in_child(add, 1, 2, deadline_s=1, method="forkserver")
    with pytest.raises(BadInputError, match="function"):
        run_in_child(3, deadline_s=1)


def test_what_does_not_pickle_is_named():
    with pytest.raises(BadInputError, match=r"argument 2 \(Holder\)\.held \(dict\)\['k'\] \(lock\)"):
        run_in_child(add, 1, Holder({"k": threading.Lock()}), deadline_s=20, method="spawn")
    with pytest.raises(BadInputError, match="the function"):
        run_in_child(lambda: 0, deadline_s=20, method="spawn")
    assert not multiprocessing.active_children()


def test_what_only_a_new_process_may_receive_passes():
    lock = multiprocessing.get_context("spawn").Lock()
    assert run_in_child(take_lock, lock, deadline_s=60, method="spawn").value == "taken"


def test_function_of_a_notebook_is_an_exception_in_a_spawned_child():
    script = """
        from loaderscope.isolation import run_in_child
        def local(): return 1
        a, b = (run_in_child(local, deadline_s=60, method=m) for m in ("fork", "spawn"))
        print(a.status, a.value, b.status, b.error_type, "local" in b.error_text)
    """
    assert run_script(script) == "ok 1 exception AttributeError True\n"


def test_folders_of_a_killed_child_go_with_it(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outcome = run_in_child(watch_and_hang, make_loader(), deadline_s=2)
    assert outcome.status == "hang"
    assert outcome.last_index == 1, "the child saw one folder, its own"
    assert any("child's child" in stack.process for stack in outcome.stacks), "its watched workers answer too"
    assert temporary_folders("") == set()


def test_own_generators_do_not_move(rng_unchanged):
    assert run_in_child(add, 1, 2, deadline_s=20).ok


def test_report_index_elsewhere_does_nothing():
    assert report_index(3) is None


# --- stacks ------------------------------------------------------------------------------------------------------


def test_dump_is_parsed():
    text = textwrap.dedent(
        """\
        # ready
        Thread 0x00007f0000000001 [worker] (most recent call first):
          File "/a b/c.py", line 12 in <lambda>
          File "/a b/d.py", line 3 in run

        Current thread 0x00007f0000000002 (most recent call first):
          File "e.py", line ??? in main
          ...
        Thread 0x00007f0000000003 (most recent call first):
          <no Python frame>
        """
    )
    third, second, first = isolation.parse_dump(text, "worker 1")
    assert (first.process, first.thread) == ("worker 1", "worker")
    assert first.frames == ("/a b/c.py:12 in <lambda>", "/a b/d.py:3 in run")
    assert (second.thread, second.frames) == ("0x00007f0000000002", ("e.py:??? in main",))
    assert third.frames == ()
    assert isolation.parse_dump("nothing of the kind") == ()


# --- watched: loaders --------------------------------------------------------------------------------------------


class Items:
    """16 numbers; at one of them something happens."""

    def __init__(self, what=None, at=7, n=16):
        self.what, self.at, self.n = what, at, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if index == self.at and self.what is not None:
            self.what()
        return np.int64(index)


def raise_value_error():
    raise ValueError("item 7 is broken")


def raise_stop_iteration():
    raise StopIteration("too early")


class TwoPartError(Exception):
    """torch cannot build it again from a message alone."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def raise_two_parts():
    raise TwoPartError("this", "that")


def wait_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def segfault():
    os.kill(os.getpid(), signal.SIGSEGV)


def exit_with_3():
    os._exit(3)


def exit_with_0():
    os._exit(0)


def sleep_in_small_steps():
    for _ in range(12_000):
        time.sleep(0.01)


def burn():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass


def collate(items):
    return np.array(items)


class TellTale:
    """A reader's worker_init_fn: it leaves a file for each worker, and may fail."""

    def __init__(self, folder, fails=False):
        self.folder, self.fails = folder, fails

    def __call__(self, worker_id):
        Path(self.folder, f"worker{worker_id}").touch()
        if self.fails:
            raise OSError("no such scratch folder")


def make_loader(what=None, workers=2, **kwargs):
    from torch.utils.data import DataLoader

    kwargs = {"batch_size": 2, "collate_fn": collate, **kwargs}
    return DataLoader(Items(what), num_workers=workers, **kwargs)


def read_epoch(source) -> list:
    source.start()
    batches = []
    while True:
        try:
            batches.append(source.next())
        except StopIteration:
            return batches


def fault_of(loader, deadline_s=30.0, **kwargs) -> Outcome:
    started = time.monotonic()
    with pytest.raises(LoaderFault) as caught, watched(loader, deadline_s=deadline_s, **kwargs) as source:
        read_epoch(source)
    outcome = caught.value.outcome
    assert outcome.summary in str(caught.value)
    assert outcome.deadline_s == deadline_s
    if outcome.status == "hang":
        assert outcome.elapsed_s >= 0.9 * min(deadline_s, getattr(loader, "timeout", 0) or deadline_s)
        assert time.monotonic() - started < deadline_s + LATE_S + 2  # and 2 s for starting and ending workers
    return outcome


def on_thread(function, *args):
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*args)))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("caller", [lambda f, *a: f(*a), on_thread], ids=["main", "thread"])
def test_healthy_loader(workers, caller):
    def check():
        with watched(make_loader(workers=workers), deadline_s=30) as source:
            epochs = [np.concatenate(read_epoch(source)).tolist() for _ in range(2)]
            cpu = source.worker_cpu()
        return epochs, source.batches, cpu

    epochs, batches, cpu = caller(check)
    assert epochs == [list(range(16))] * 2
    assert batches == 16
    assert is_measured(cpu) == (workers > 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_exception_at_the_7th_item(workers):
    outcome = fault_of(make_loader(raise_value_error, workers))
    assert (outcome.status, outcome.where) == ("exception", "worker" if workers else "main")
    assert (outcome.error_type, outcome.error_text) == ("ValueError", "item 7 is broken")
    assert "raise_value_error" in outcome.traceback
    assert outcome.batches == 3


def test_the_cause_of_an_exception_in_main_is_kept():
    with pytest.raises(LoaderFault) as caught, watched(make_loader(raise_value_error, 0), deadline_s=30) as source:
        read_epoch(source)
    assert isinstance(caught.value.__cause__, ValueError)


def test_iteration_may_go_on_after_a_workers_exception():
    with watched(make_loader(raise_value_error), deadline_s=30) as source:
        source.start()
        got = []
        for _ in range(8):
            try:
                got.append(source.next().tolist())
            except LoaderFault:
                got.append(None)
        assert got == [[0, 1], [2, 3], [4, 5], None, [8, 9], [10, 11], [12, 13], [14, 15]]


@pytest.mark.parametrize("what", [raise_value_error, exit_with_3, wait_for_a_lock])
def test_a_fault_that_is_kept_keeps_no_iterator(what):
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    def iterators():
        return {id(thing): thing for thing in gc.get_objects() if issubclass(type(thing), _BaseDataLoaderIter)}

    gc.collect()
    before = iterators()  # a test that failed earlier is kept by pytest with all that its frames hold
    gc.disable()
    try:
        with pytest.raises(LoaderFault) as caught, watched(make_loader(what), deadline_s=1.0) as source:
            read_epoch(source)
        kept = [thing for key, thing in iterators().items() if key not in before]
    finally:
        gc.enable()
    assert caught.value.outcome.batches <= 3
    assert kept == []


def test_exception_torch_cannot_rebuild_keeps_its_name():
    outcome = fault_of(make_loader(raise_two_parts))
    assert (outcome.status, outcome.error_type, outcome.error_text) == ("exception", "TwoPartError", "this and that")


def test_stop_iteration_in_a_worker_is_not_the_end_of_the_epoch():
    outcome = fault_of(make_loader(raise_stop_iteration))
    assert (outcome.status, outcome.where, outcome.error_type) == ("exception", "worker", "StopIteration")


@pytest.mark.parametrize("caller", [lambda f, *a: f(*a), on_thread], ids=["main", "thread"])
@pytest.mark.parametrize(
    ("what", "status", "detail"),
    [(segfault, "signal", "SIGSEGV"), (crash, "signal", "SIGSEGV"), (exit_with_3, "exit", 3), (exit_with_0, "exit", 0)],
)
def test_worker_that_dies(what, status, detail, caller):
    outcome = caller(fault_of, make_loader(what))
    assert (outcome.status, outcome.where) == (status, "worker")
    assert detail in (outcome.signal_name, outcome.exit_code)


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_killed_during_the_readers_step(persistent):
    """torch would raise in the middle of the step; here the next call tells it."""
    with watched(make_loader(persistent_workers=persistent), deadline_s=30) as source:
        source.start()
        source.next()
        os.kill(source.worker_pids[0], signal.SIGKILL)
        end = time.monotonic() + 1
        while time.monotonic() < end:  # the step, in Python code, where signal handlers run
            pass
        with pytest.raises(LoaderFault) as caught:
            while True:
                source.next()
    outcome = caught.value.outcome
    assert (outcome.status, outcome.where, outcome.signal_name) == ("signal", "worker", "SIGKILL")


def test_epoch_after_a_fault_has_new_workers():
    with watched(make_loader(persistent_workers=True), deadline_s=30) as source:
        source.start()
        before = source.worker_pids
        os.kill(before[0], signal.SIGKILL)
        with pytest.raises(LoaderFault):
            for _ in range(9):
                source.next()
        assert len(read_epoch(source)) == 8
        assert not set(before) & set(source.worker_pids)


def test_lock_in_a_worker_is_a_hang_with_its_stack():
    outcome = fault_of(make_loader(wait_for_a_lock), deadline_s=2.0)
    assert (outcome.status, outcome.where, outcome.batches) == ("hang", "worker", 3)
    first = outcome.stacks[0]
    assert first.process == "worker 1", "the worker that is waited for comes first"
    assert any("in wait_for_a_lock" in frame for stack in outcome.stacks for frame in stack.frames)
    assert any(stack.process == "main" for stack in outcome.stacks)
    assert not any("watchman" in frame for stack in outcome.stacks for frame in stack.frames)
    assert outcome.cpu_s < 0.2


def test_worker_that_computes_for_ever_used_cpu():
    outcome = fault_of(make_loader(spin), deadline_s=2.0)
    assert (outcome.status, outcome.where) == ("hang", "worker")
    assert outcome.cpu_s > 0.2


def test_hang_of_a_worker_seen_from_another_thread():
    outcome = on_thread(fault_of, make_loader(wait_for_a_lock), 1.5)
    assert (outcome.status, outcome.where) == ("hang", "worker")
    assert any("in wait_for_a_lock" in frame for stack in outcome.stacks for frame in stack.frames)


def test_the_loaders_own_timeout_is_a_hang():
    outcome = fault_of(make_loader(wait_for_a_lock, timeout=1), deadline_s=20)
    assert (outcome.status, outcome.where) == ("hang", "worker")
    assert "own timeout" in outcome.error_text
    assert any("in wait_for_a_lock" in frame for stack in outcome.stacks for frame in stack.frames)


class StuckSampler:
    def __iter__(self):
        yield 0
        yield 1
        time.sleep(120)

    def __len__(self):
        return 16


@pytest.mark.parametrize("workers", [0, 1])
def test_hang_in_the_sampler_is_in_main(workers):
    outcome = fault_of(make_loader(workers=workers, batch_size=1, sampler=StuckSampler()), deadline_s=1.0)
    assert (outcome.status, outcome.where) == ("hang", "main")
    assert "StuckSampler" in outcome.stacks[0].frames[0] or "__iter__" in outcome.stacks[0].frames[0]


@pytest.mark.parametrize("what", [dormant, wait_for_a_lock, spin])
def test_hang_without_workers_on_the_main_thread(what):
    outcome = fault_of(make_loader(what, 0), deadline_s=1.0)
    assert (outcome.status, outcome.where, outcome.batches) == ("hang", "main", 3)
    assert f"in {what.__name__}" in outcome.stacks[0].frames[0]
    assert (outcome.cpu_s > 0.02) == (what is spin)


def test_hang_without_workers_on_another_thread():
    outcome = on_thread(fault_of, make_loader(sleep_in_small_steps, 0), 1.0)
    assert (outcome.status, outcome.where) == ("hang", "main")
    assert any("in sleep_in_small_steps" in frame for frame in outcome.stacks[0].frames)


def test_the_callers_own_step_does_not_count():
    with watched(make_loader(), deadline_s=0.6) as source:
        source.start()
        for _ in range(2):
            source.next()
            time.sleep(1.0)


def test_a_slow_batch_within_the_deadline_is_no_hang():
    def slowly():
        for i in range(3):
            time.sleep(0.5)
            yield i

    with watched(slowly(), deadline_s=20) as source:
        assert read_epoch(source) == [0, 1, 2]


def test_a_call_that_has_returned_is_not_ended():
    with watched(range(3), deadline_s=30) as source:
        source.start()
        watchman = source._watchman
        watchman._end_call(since=-1.0, cpu_before=None)  # judged too late: the call it saw is over
        assert (source.fired, watchman.verdict, watchman.settled.is_set()) == (False, None, True)
        source.fired = True  # as the caller may see it for a moment
        assert [source.next() for _ in range(3)] == [0, 1, 2]


def test_interrupt_while_a_hang_is_judged_is_not_lost():
    with watched(range(3), deadline_s=30) as source:
        source.start()
        source.fired = True
        source._watchman.verdict = Outcome("hang", where="main")
        timer = threading.Timer(0.8, source._watchman.settled.set)
        timer.start()
        interrupter = interrupt_after(0.2)
        with pytest.raises(KeyboardInterrupt):
            source.next()
        timer.join()
        interrupter.join()
        with pytest.raises(LoaderFault):
            source.next()


def test_a_hang_is_ended_even_if_it_cannot_be_examined(monkeypatch):
    def fail(*_):
        raise OSError("no more files")

    monkeypatch.setattr(isolation.WatchedLoader, "hang_outcome", fail)
    outcome = fault_of(make_loader(wait_for_a_lock), deadline_s=1.0)
    assert (outcome.status, outcome.where) == ("hang", "worker")
    assert "no more files" in outcome.error_text


@pytest.mark.slow
def test_a_batch_that_comes_at_the_deadline_is_either_a_batch_or_a_fault():
    """The watch decides while the call returns: never an exception in the caller's own code."""

    def around(deadline_s):
        for i in range(12):
            time.sleep(deadline_s + (i % 9 - 4) * 0.004)
            yield i

    ended = []
    for _ in range(3):
        with watched(around(0.25), deadline_s=0.25) as source:
            try:
                ended.append(len(read_epoch(source)))
            except LoaderFault as fault:
                ended.append(fault.outcome.status)
    assert set(ended) <= {"hang", 12}


# --- watched: the main thread's handlers -------------------------------------------------------------------------


def test_handlers_and_timer_are_put_back():
    calls = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    own = signal.getsignal(signal.SIGALRM)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        assert fault_of(make_loader(dormant, 0), deadline_s=1.0).status == "hang"
        assert signal.getitimer(signal.ITIMER_REAL)[1] == pytest.approx(0.05)
        assert signal.getsignal(signal.SIGALRM) is own
        assert len(calls) > 3, "the caller's own timer went on while the loader was watched"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_two_watches_at_once_in_any_order():
    sources = [watched(make_loader(), deadline_s=30) for _ in range(2)]
    for source in sources:
        source.__enter__()
        source.start()
    sources[0].close()
    os.kill(sources[1].worker_pids[0], signal.SIGKILL)
    time.sleep(0.5)
    with pytest.raises(LoaderFault):
        for _ in range(9):
            sources[1].next()
    sources[1].close()
    assert not signals.HANDLERS._users
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seconds", [0.02, 0.5])
def test_interrupt_during_next_leaves_no_child(workers, seconds):
    with pytest.raises(KeyboardInterrupt):
        timer = interrupt_after(seconds)
        try:
            with watched(make_loader(dormant, workers), deadline_s=60) as source:
                read_epoch(source)
        finally:
            timer.join()
    assert not multiprocessing.active_children()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupt_while_workers_leave_leaves_none():
    """start() drops the old epoch, whose workers are busy; the interrupt comes while they are asked to leave."""
    with pytest.raises(KeyboardInterrupt), watched(make_loader(dormant), deadline_s=60) as source:
        source.start()
        source.next()
        pids, timer = source.worker_pids, interrupt_after(0.7)
        try:
            source.start()
        finally:
            timer.join()
    assert not multiprocessing.active_children()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_worker_busy_at_the_end_is_ended_within_seconds():
    with watched(make_loader(dormant), deadline_s=60) as source:
        source.start()
        source.next()
        pids, started = source.worker_pids, time.monotonic()
    assert time.monotonic() - started < LATE_S + 2
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_exception_of_the_caller_and_an_epoch_left_early():
    with pytest.raises(ZeroDivisionError), watched(make_loader(), deadline_s=30) as source:
        source.start()
        source.next()
        first = source.worker_pids
        source.start()
        assert not set(first) & set(source.worker_pids)
        source.next()
        raise ZeroDivisionError
    assert not multiprocessing.active_children()


def test_held_signals_run_after_the_block():
    order = []
    before = signal.signal(signal.SIGUSR2, lambda *_: order.append("handler"))
    try:
        with signals.held(signal.SIGUSR2):
            signal.raise_signal(signal.SIGUSR2)
            order.append("block")
        assert order == ["block", "handler"]
        with signals.held(signal.SIGUSR2, second_passes=True):
            signal.raise_signal(signal.SIGUSR2)
            signal.raise_signal(signal.SIGUSR2)
            order.append("block")
        assert order[2:] == ["handler", "block", "handler"]
    finally:
        signal.signal(signal.SIGUSR2, before)


# --- watched: other loaders --------------------------------------------------------------------------------------


def test_persistent_workers_serve_two_epochs():
    loader = make_loader(persistent_workers=True)
    with watched(loader, deadline_s=30) as source:
        read_epoch(source)
        first = source.worker_pids
        read_epoch(source)
        assert source.worker_pids == first
        assert len(first) == 2
    assert loader._iterator is None


@pytest.mark.parametrize("ran_before", [False, True])
def test_a_loader_that_is_not_ours_is_left_as_it_was(ran_before):
    loader = make_loader(persistent_workers=True)
    if ran_before:
        assert len(list(loader)) == 8
    pids = [w.pid for w in loader._iterator._workers] if ran_before else []
    with watched(loader, deadline_s=30, owned=False) as source:
        assert loader.worker_init_fn is None
        assert len(read_epoch(source)) == 8
    assert (loader._iterator is not None) == ran_before
    if ran_before:
        assert [w.pid for w in loader._iterator._workers] == pids
        assert len(list(loader)) == 8
    loader._iterator = None


def test_any_iterable():
    with watched([1, 2, 3], deadline_s=30) as source:
        assert read_epoch(source) == [1, 2, 3]
        assert read_epoch(source) == [1, 2, 3]
    numbers = (i for i in range(3))
    with watched(numbers, deadline_s=30) as source:
        source.start()
        source.next()
    assert next(numbers) == 1, "a reader's own generator is not closed"
    with watched((i for i in range(2)), deadline_s=30) as source:
        assert read_epoch(source) == [0, 1]
        assert read_epoch(source) == [], "a used-up iterator gives nothing, and no fault"
    with pytest.raises(BadInputError, match="iterated"):
        watched(3, deadline_s=30)


class Wrapped:
    """A loader that hides its DataLoader in a generator, as some trainers do."""

    def __init__(self, what=None):
        self.loader, self.num_workers = make_loader(what), 2

    def __iter__(self):
        yield from self.loader


class Prefetching(Wrapped):
    """... and one that keeps the iterator in a local."""

    def __iter__(self):
        iterator = iter(self.loader)
        yield from iterator


@pytest.mark.parametrize("cls", [Wrapped, Prefetching])
def test_loader_hidden_in_a_generator(cls):
    with watched(cls(), deadline_s=30) as source:
        assert len(read_epoch(source)) == 8
    outcome = fault_of(cls(wait_for_a_lock), deadline_s=1.5)
    assert outcome.status == "hang"
    assert not multiprocessing.active_children()


def large_batch(items):
    return np.zeros(8 << 20, dtype=np.uint8)


@pytest.fixture
def pinning(monkeypatch):
    """torch's real pinning thread, without an accelerator: it passes arrays through unpinned."""
    import torch

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda _: None)


def pinning_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "pin_memory" in thread.name]


@pytest.mark.parametrize("what", [None, wait_for_a_lock, exit_with_3])
def test_the_pinning_thread_ends_with_the_watch(pinning, what):
    with watched(make_loader(what, pin_memory=True), deadline_s=2.0) as source:
        source.start()
        assert pinning_threads()
        if what is None:
            source.next()
        else:
            with pytest.raises(LoaderFault) as caught:
                for _ in range(8):
                    source.next()
            assert caught.value.outcome.status in ("hang", "exit")
        started = time.monotonic()
    assert not pinning_threads()
    assert time.monotonic() - started < LATE_S


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_message_broken_off_by_a_kill_does_not_hold_the_pinning_thread(pinning):
    """Workers are killed while they write 8 MB: what is left in the pipe is half a message."""
    for _ in range(3):
        with watched(make_loader(pin_memory=True, collate_fn=large_batch), deadline_s=20) as source:
            source.start()
            source.next()
            for pid in source.worker_pids:
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(LoaderFault):
                for _ in range(9):
                    source.next()
            started = time.monotonic()
        assert not pinning_threads()
        assert time.monotonic() - started < LATE_S + 2


@pytest.mark.parametrize("fails", [False, True])
def test_the_readers_worker_init_fn_is_called(tmp_path, fails):
    own = TellTale(str(tmp_path), fails)
    loader = make_loader(worker_init_fn=own)
    if fails:
        outcome = fault_of(loader)
        assert (outcome.error_type, outcome.error_text) == ("OSError", "no such scratch folder")
    else:
        with watched(loader, deadline_s=30) as source:
            assert len(read_epoch(source)) == 8
    assert {path.name for path in tmp_path.iterdir()} == {"worker0", "worker1"}
    assert loader.worker_init_fn is own


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods(method, tmp_path):
    loader = make_loader(
        wait_for_a_lock, multiprocessing_context=method, worker_init_fn=TellTale(str(tmp_path)), prefetch_factor=1
    )
    with pytest.raises(LoaderFault) as caught, watched(loader, deadline_s=120) as source:
        source.start()
        source.next()
        source.deadline_s = 1.5  # what took so long was importing torch
        while True:
            source.next()
    outcome = caught.value.outcome
    assert (outcome.status, outcome.where) == ("hang", "worker")
    assert any("in wait_for_a_lock" in frame for stack in outcome.stacks for frame in stack.frames)
    assert {path.name for path in tmp_path.iterdir()} == {"worker0", "worker1"}


def test_what_cannot_be_sent_to_a_spawned_worker_is_an_exception():
    loader = make_loader(multiprocessing_context="spawn", collate_fn=lambda items: items)
    with pytest.warns(UserWarning, match="pickle"):
        outcome = fault_of(loader)
    assert (outcome.status, outcome.where) == ("exception", "main")
    assert "pickle" in outcome.error_text


# --- watched: what it measures and costs -------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
def test_cpu_of_the_workers_is_counted_over_epochs(persistent):
    with watched(make_loader(burn, persistent_workers=persistent), deadline_s=60) as source:
        read_epoch(source)
        one = source.worker_cpu()
        read_epoch(source)
        two = source.worker_cpu()
    assert 0.29 <= one < 2
    assert one + 0.25 <= two < 4
    assert source.worker_cpu() >= two - 0.05, "what was counted stays when the workers have ended"


def test_next_costs_little():
    def cpu_a_call(advance, n=20_000):
        started = time.thread_time()
        for _ in range(n):
            advance()
        return (time.thread_time() - started) / n

    plain = cpu_a_call(iter(range(10**9)).__next__)
    with watched(range(10**9), deadline_s=60) as source:
        source.start()
        best = min(cpu_a_call(source.next) for _ in range(5))
    assert best - plain < 10e-6, "2 µs on an idle machine"


def test_generators_of_the_reader_do_not_move(rng_unchanged):
    import torch

    generator = torch.Generator()
    for workers in (0, 2):
        with watched(make_loader(workers=workers, generator=generator), deadline_s=30) as source:
            read_epoch(source)
    assert fault_of(make_loader(dormant, 0, generator=generator), deadline_s=1.0).status == "hang"


def test_a_fault_pickles_and_is_one_of_ours():
    fault = LoaderFault(Outcome("exit", where="worker", exit_code=3, batches=2))
    again = pickle.loads(pickle.dumps(fault))
    assert isinstance(again, LoaderscopeError)
    assert str(again) == str(fault)
    assert again.outcome == fault.outcome


def test_a_whole_loader_in_a_child():
    outcome = run_in_child(load_everything, make_loader(), deadline_s=60)
    assert outcome.ok, outcome
    assert np.concatenate(outcome.value).tolist() == list(range(16))
    outcome = run_in_child(load_everything, make_loader(wait_for_a_lock), deadline_s=2)
    assert outcome.status == "hang"
    workers = [stack for stack in outcome.stacks if "child's child" in stack.process]
    assert any("in wait_for_a_lock" in frame for stack in workers for frame in stack.frames)
