"""Causes that cost memory, shared memory or open files."""

from __future__ import annotations

from functools import partial

from loaderscope.diagnosis.causes.cause import Cause

_cause = partial(Cause, family="memory")

MEMORY = (
    _cause(
        "dataset-leak",
        meaning="The dataset keeps what it has read, so the workers grow with every sample.",
        decided_by="watch_memory over several epochs: private memory of the workers rises without levelling off",
        look_alike="copy-on-read",
        differs="Go on for another epoch: copying stops at the size of the shared objects, a leak does not stop.",
        fixes=(
            "a cache with a bound",
            "remove futures and results once they are used",
            "workers that end with the epoch, as a stopgap",
        ),
        notebook="06",
    ),
    _cause(
        "consumer-leak",
        meaning="The training loop keeps batches, or what refers to them, so their shared memory is never freed.",
        decided_by="watch_memory: the main process holds more descriptors or shared memory after each step, workers "
        "do not",
        look_alike="dataset-leak",
        differs="See which process grows: the main process if the loop keeps batches, the workers if the dataset does.",
        fixes=(
            "keep numbers (.item()) or a detached clone, not the batch",
            "collect predictions as copies on the CPU",
            "check hooks, loggers and lists of losses for tensors",
        ),
        notebook="06",
        # Each kept tensor holds a descriptor and a segment: running out of either is only the end of it.
        explains=("fd-exhausted", "shm-exhausted"),
    ),
    _cause(
        "copy-on-read",
        meaning="Forked workers copy memory pages merely by reading Python objects, whose reference counts change.",
        decided_by="watch_memory: private memory of each worker climbs to the size of the objects read, then stays",
        look_alike="duplicated-data",
        differs="Compare private memory before the first sample and after an epoch: here it climbs with reading, "
        "there it is full at the start.",
        fixes=(
            "one array or tensor in place of a list of objects",
            "strings as a single byte buffer with offsets",
            "a packed list in shared memory",
        ),
        notebook="06",
    ),
    _cause(
        "duplicated-data",
        meaning="Every worker holds its own copy of the data set.",
        decided_by="private memory of each worker before its first sample, against the size of the data",
        look_alike="copy-on-read",
        differs="Restart with twice the workers: memory doubles at once, without a single sample having been read.",
        fixes=(
            "a memory map, which all processes share",
            "share_memory_() on the tensors before the loader is iterated",
            "read per sample instead of everything in __init__",
        ),
        notebook="06",
    ),
    _cause(
        "prefetch-memory",
        meaning="The batches waiting in the queues fill memory: workers times prefetch_factor times batch size.",
        decided_by="shared memory in use against that product, level after the start and lower with a lower "
        "prefetch_factor",
        look_alike="consumer-leak",
        differs="Watch it over the steps: full queues stay level, kept batches add up.",
        fixes=(
            "prefetch_factor=1 where batches are large",
            "fewer processes with threads inside",
            "smaller dtypes in the queue, converted on the device",
        ),
        notebook="06",
        explains=("shm-exhausted",),
    ),
    _cause(
        "handle-leak",
        meaning="Files opened for samples are not closed, and their descriptors pile up in the workers.",
        decided_by="open descriptors of each worker after every batch, and what they point to",
        look_alike="consumer-leak",
        differs="See whose descriptors rise: data files in a worker here, shared-memory segments in the main process "
        "there.",
        fixes=(
            "a with-block around every open, including Image.open",
            "load the pixels and close the file before keeping an image",
            "one handle per worker, opened once",
        ),
        notebook="06",
        explains=("fd-exhausted",),
    ),
    _cause(
        "shm-exhausted",
        meaning="The shared memory in which batches travel is smaller than what is on its way.",
        decided_by="preflight: free space in /dev/shm against batch bytes times workers times prefetch_factor",
        look_alike="worker-killed",
        differs="Read the signal and the free space: SIGBUS or 'no space left' with /dev/shm full is this, SIGKILL "
        "at the memory limit is not.",
        fixes=(
            "a larger --shm-size, or --ipc=host, for the container",
            "smaller batches, fewer workers or a lower prefetch_factor",
            "threads or num_workers=0 where the container cannot be changed",
        ),
        notebook="13",
        # A page that cannot be provided arrives as SIGBUS, which looks like a crash in native code.
        explains=("worker-crash",),
    ),
    _cause(
        "fd-exhausted",
        meaning="A process has as many files open as its limit allows.",
        decided_by="preflight: open descriptors by kind against the soft limit of RLIMIT_NOFILE",
        look_alike="handle-leak",
        differs="Watch the count over batches: level and close to the limit means a low limit, rising means a leak.",
        fixes=(
            "ulimit -n, or resource.setrlimit before the loader is iterated",
            "fewer tensors per batch: each takes a descriptor on its way",
            "the file_system sharing strategy, whose files outlive a killed job",
        ),
        notebook="13",
    ),
    _cause(
        "shm-left-behind",
        meaning="Segments of jobs that have ended remain in /dev/shm and take its space.",
        decided_by="torch_* files in /dev/shm that no live process has open, and the sharing strategy in use",
        look_alike="shm-exhausted",
        differs="Look with no job running: what is still there was left behind, while a /dev/shm that is merely "
        "small is empty.",
        fixes=(
            "the file_descriptor strategy with a higher limit of open files",
            "delete the files that no process has open",
            "end jobs with SIGTERM and time to clean up rather than SIGKILL",
        ),
        notebook="06",
        explains=("shm-exhausted",),
    ),
)
