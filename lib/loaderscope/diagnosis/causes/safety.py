"""Causes that make workers hang, die or refuse to start."""

from __future__ import annotations

from functools import partial

from loaderscope.diagnosis.causes.cause import Cause

_cause = partial(Cause, family="safety")

SAFETY = (
    _cause(
        "fork-unsafe",
        meaning="A lock, thread pool or background thread of the parent is copied by fork in a state no worker can "
        "use.",
        decided_by="audit_fork_safety: workers asleep without CPU time, their stacks, and the same loader when spawned",
        look_alike="hang",
        differs="Spawn the workers instead: a fault of forking disappears, a dataset that waits for ever still does.",
        fixes=(
            "make pools, clients and threads inside the worker, on first use",
            "no dataset[0] or other warm-up before the workers have started",
            "multiprocessing_context='spawn' or 'forkserver'",
            "leave torch at one thread in forked workers",
        ),
        notebook="08",
        explains=("hang",),
    ),
    _cause(
        "shared-handle",
        meaning="A file, database or connection opened before the fork is used by all workers at once.",
        decided_by="records read with several workers against a single-process read: wrong or failing at changing "
        "indices",
        look_alike="corrupt-sample",
        differs="Read the failing index with num_workers=0: sound there means the handle is shared, bad there means "
        "the file is.",
        fixes=(
            "open on first use in each process, remembered by process id",
            "os.pread, which uses no shared position",
            "an LMDB environment opened in the worker, with lock=False for reading",
        ),
        notebook="08",
        explains=("corrupt-sample", "worker-error"),
    ),
    _cause(
        "hang",
        meaning="A worker never returns: it waits for something that does not come.",
        decided_by="no sample within the deadline, no CPU time and no bytes read, and the stacks of every thread",
        look_alike="timeout-too-short",
        differs="Watch CPU time and bytes read of the workers: still moving is slow, standing still is hung.",
        fixes=(
            "a time limit on every network call and lock in the dataset",
            "timeout= on the loader, which turns a hang into an error",
            "start from the frame in which the stack stands",
        ),
        notebook="08",
    ),
    _cause(
        "worker-crash",
        meaning="A worker ended by itself: a fault in native code, or an exit.",
        decided_by="exit code or signal (SIGSEGV, SIGABRT, SIGBUS, a plain status), the last index, its native stack",
        look_alike="worker-killed",
        differs="Read the exit code, not the message: -11, -6 and -7 come from inside the process, -9 from outside.",
        fixes=(
            "read the last index alone, in a child process",
            "another version of the library on top of the stack",
            "native handles opened in the worker that uses them",
        ),
        notebook="13",
    ),
    _cause(
        "worker-killed",
        meaning="A worker was ended from outside, most often by the kernel or the scheduler for its memory.",
        decided_by="SIGKILL or SIGTERM as exit signal, with memory in use, the limit, and the kernel's count of such "
        "kills",
        look_alike="worker-crash",
        differs="Look at memory just before the end: close to the limit and a raised oom_kill count speak for a kill.",
        fixes=(
            "find what grows before lowering anything: watch_memory",
            "fewer workers, or a smaller queue of batches",
            "a higher memory limit for the job",
        ),
        notebook="13",
    ),
    _cause(
        "worker-error",
        meaning="The dataset or collate_fn raised an ordinary exception in a worker.",
        decided_by="type, index and innermost frame of the exception, with workers and with num_workers=0",
        look_alike="corrupt-sample",
        differs="Try other indices: an error at all of them is in the code, at a single one in the sample.",
        fixes=(
            "repeat it in the main process: num_workers=0 and the index named",
            "detach() samples that require a gradient",
            "let the original exception through instead of wrapping it",
        ),
        notebook="13",
    ),
    _cause(
        "nested-workers",
        meaning="A worker tries to start processes of its own, which daemonic processes may not.",
        decided_by="an AssertionError from starting a process inside a worker, absent with num_workers=0",
        look_alike="worker-error",
        differs="Look at the innermost frames: the start of a process is among them, whatever the sample.",
        fixes=(
            "threads inside the worker",
            "leave the parallelism to the loader's own workers",
            "do the pooled work before the loader starts",
        ),
        notebook="13",
        explains=("worker-error",),
    ),
    _cause(
        "unpicklable",
        meaning="Something the worker needs cannot be pickled, so it cannot be sent to a worker that is not forked.",
        decided_by="audit_pickling: the attribute path to the object that refuses",
        look_alike="notebook-class",
        differs="Call pickle.dumps on the dataset: it fails for this, and succeeds for a class from a notebook.",
        fixes=(
            "a named function or functools.partial in place of a lambda",
            "drop the handle in __getstate__ and reopen it on first use",
            "make locks and clients in the worker",
        ),
        notebook="13",
    ),
    _cause(
        "notebook-class",
        meaning="The dataset's class is defined in a notebook cell, where a spawned worker cannot import it.",
        decided_by="the class lives in __main__ of an interactive session, and the start method is not fork",
        look_alike="unpicklable",
        differs="See which process raises: the worker while loading the class, not the main process while pickling it.",
        fixes=(
            "%%writefile the class into a module, and import it",
            "fork, on Linux, where nothing speaks against it",
            "no workers while trying things out",
        ),
        notebook="13",
        # The worker that cannot load the class ends at once, which the main process sees as an unexpected exit.
        explains=("worker-crash",),
    ),
    _cause(
        "cuda-in-worker",
        meaning="The dataset uses the GPU inside a worker.",
        decided_by="the device of the samples' tensors, and whether a forked worker touches CUDA",
        look_alike="fork-unsafe",
        differs="Look at the device of what the dataset holds and returns: an inherited lock leaves everything on "
        "the CPU.",
        fixes=(
            "return CPU tensors, and move the batch in the loop",
            "GPU transforms after the loader, on whole batches",
            "spawned workers, where one must use the device",
        ),
        notebook="13",
        explains=("worker-error",),
    ),
    _cause(
        "bad-configuration",
        meaning="The arguments contradict one another or exceed a limit, and the loader refuses at once.",
        decided_by="an exception in the main process while the loader or its iterator is made, before any sample is "
        "read",
        look_alike="worker-error",
        differs="Count what was started and read when it was raised: no worker and no index.",
        fixes=(
            "timeout=0 with num_workers=0",
            "either shuffle or a sampler, not both",
            "weighted sampling in chunks above 2**24 weights",
        ),
        notebook="13",
    ),
    _cause(
        "timeout-too-short",
        meaning="The loader's timeout is shorter than a slow but healthy batch.",
        decided_by="timeout against the first and the slowest batch, and whether workers were busy when it struck",
        look_alike="hang",
        differs="Raise the timeout tenfold: the batch arrives here, and never does where a worker hangs.",
        fixes=(
            "a timeout several times the slowest batch, the first one included",
            "shorten what makes that batch slow",
        ),
        notebook="08",
        explains=("hang",),
    ),
    _cause(
        "orphaned-workers",
        meaning="Workers outlive the process that started them, and go on holding memory, files or a device.",
        decided_by="processes in a worker's loop whose parent has ended",
        look_alike="several-pools",
        differs="Ask whether the main process still exists: orphans are left when it was killed, pools are held by it.",
        fixes=(
            "end them by process id, after checking what they are",
            "stop jobs with SIGINT or SIGTERM before SIGKILL",
            "time limits on reads: a worker notices a dead parent only between samples",
        ),
        notebook="08",
    ),
)
