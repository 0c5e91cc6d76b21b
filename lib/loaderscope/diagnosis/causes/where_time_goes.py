"""Speed: where the time of loading and training goes."""

from __future__ import annotations

from functools import partial

from loaderscope.diagnosis.causes.cause import Cause

_cause = partial(Cause, family="speed")

WHERE_TIME_GOES = (
    # Named by the verdict of a report, never listed among its findings.
    _cause(
        "compute-bound",
        meaning="The training step sets the pace: batches are ready before it asks for them.",
        decided_by="headroom: step_time with the loader equals step_time on cached batches, within the noise",
        look_alike="transfer-bound",
        differs="Give the step a batch that is already on the device: step_time falls only where the copy was the "
        "cost.",
        fixes=(
            "leave the loader as it is",
            "make the step cheaper: mixed precision, a larger batch, a compiled model",
            "give back workers that bring no throughput",
        ),
        notebook="01",
    ),
    _cause(
        "no-overlap",
        meaning="Loading and training take turns in one process, so their times add up.",
        decided_by="num_workers is 0, and step_time equals the time to load a batch plus compute_time",
        look_alike="too-few-workers",
        differs="data_time is the whole cost of a batch here, whatever the step; with workers the step hides part of "
        "it.",
        fixes=(
            "start with one or two workers",
            "a background thread around the loader, where the fetch mostly waits",
            "stay with 0 workers where headroom is too small to matter",
        ),
        notebook="01",
    ),
    _cause(
        "too-few-workers",
        meaning="Batches are made in the background, but by fewer workers than the step could keep busy.",
        decided_by="sweep: throughput still rises with num_workers, as predict says it should",
        look_alike="straggler-worker",
        differs="Waits come once in num_workers batches and all workers take equally long; a straggler's waits "
        "follow one worker.",
        fixes=(
            "raise num_workers to the predicted knee",
            "go beyond the number of cores where the samples wait rather than compute",
            "threads in __getitems__ where memory forbids more processes",
        ),
        notebook="03",
    ),
    _cause(
        "too-many-workers",
        meaning="More workers compute than there are cores, so each sample takes longer and nothing is gained.",
        decided_by="wall time per sample grows with num_workers, CPU time per sample does not, throughput stays or "
        "falls",
        look_alike="thread-oversubscription",
        differs="Count busy threads per worker: one each, in more workers than usable cores, is this; many in each "
        "of a few workers is the other.",
        fixes=(
            "num_workers no higher than the measured usable cores, less what the step needs",
            "divide the cores of a node among its ranks",
            "ask the cgroup quota and the affinity mask, not os.cpu_count()",
        ),
        notebook="03",
        explains=("python-bound",),
    ),
    _cause(
        "io-latency",
        meaning="Every read waits for its answer, while cores, disk and network are mostly idle.",
        decided_by="profile_stages: waiting (wall less CPU less run-queue delay) dominates, and more reads in flight "
        "raise throughput",
        look_alike="io-bandwidth",
        differs="Put more reads in flight: bytes per second rise if latency is the limit and stay if bandwidth is.",
        fixes=(
            "more workers than cores, since they wait",
            "many reads in flight per worker: a thread pool in __getitems__",
            "fewer, larger reads: several samples per request",
            "a local copy of what is read every epoch",
        ),
        notebook="02",
    ),
    _cause(
        "io-bandwidth",
        meaning="The disk or the network already delivers as many bytes per second as it can.",
        decided_by="cold cache: bytes read per second stay level as workers are added, near a plain sequential read",
        look_alike="read-amplification",
        differs="Divide the bytes read by the bytes the samples hold: near 1 the storage is the limit, far above 1 "
        "the layout is.",
        fixes=(
            "store fewer bytes per sample: resized, compressed, in a smaller dtype",
            "local NVMe, or memory enough for the page cache to hold the data",
            "fewer readers on a disk that seeks",
        ),
        notebook="09",
    ),
    _cause(
        "small-files",
        meaning="Finding and opening many small files costs more than reading what is in them.",
        decided_by="cold cache: open and stat time against read time per sample; compare_storage with a packed copy",
        look_alike="io-latency",
        differs="Read as many pieces of one large file on the same storage: quick there means metadata was the cost, "
        "as slow means every request is.",
        fixes=(
            "pack the samples: tar shards, LMDB, or one file with an index",
            "list the folder once and keep the list",
            "no os.path.exists, stat or listdir per sample",
        ),
        notebook="09",
        explains=("io-latency",),
    ),
    _cause(
        "read-amplification",
        meaning="Far more is read or decompressed for a sample than the sample contains.",
        decided_by="bytes read and CPU spent decompressing per sample, in random and in stored order, against its size",
        look_alike="cpu-bound",
        differs="Walk the data in stored order with a cache of one chunk: the cost nearly vanishes, where honest "
        "decoding costs the same in any order.",
        fixes=(
            "chunks that hold one sample each",
            "shuffle chunks, then samples within a few open chunks",
            "a chunk cache as large as the access pattern needs",
        ),
        notebook="09",
        explains=("io-bandwidth", "cpu-bound"),
    ),
    _cause(
        "remote-jitter",
        meaning="Remote reads are usually quick, but now and then one takes many times longer.",
        decided_by="latency of single reads: 99th percentile against median, remote and from a local copy",
        look_alike="slow-samples",
        differs="Read the slow indices again: the same ones are slow if the samples are at fault, others if the "
        "network is.",
        fixes=(
            "a cache on local disk",
            "a time limit and a retry on each request",
            "a deeper queue, to ride out the tail",
        ),
        notebook="09",
    ),
    _cause(
        "cpu-bound",
        meaning="Native work on the samples, such as decoding, keeps every usable core busy.",
        decided_by="profile_stages: CPU time dominates, gil_check scales with threads, workers fill the measured cores",
        look_alike="python-bound",
        differs="Run __getitem__ on 2 threads between the two controls: native work gets faster, interpreted work "
        "does not.",
        fixes=(
            "do the part that never changes once, before training",
            "a cheaper decode: smaller stored images, reduced-size JPEG decoding, a faster library",
            "augment whole batches on the GPU",
            "one worker per usable core, then more cores",
        ),
        notebook="02",
    ),
    _cause(
        "python-bound",
        meaning="The work is interpreted Python in the dataset, which holds the GIL while it runs.",
        decided_by="gil_check: 2 threads are no faster than 1, with the thread on the CPU and the GIL held",
        look_alike="lock-contention",
        differs="Neither scales on threads, but CPU time is close to wall time here and far below it where threads "
        "sleep on a lock.",
        fixes=(
            "vectorise over the sample or the batch",
            "worker processes, up to the usable cores; threads bring nothing",
            "precompute what does not depend on the epoch",
        ),
        notebook="02",
    ),
    _cause(
        "gil-contention",
        meaning="Threads in one process wait for each other's turn at the interpreter.",
        decided_by="share of time the GIL is held, and throughput that stays or falls as dataset threads are added",
        look_alike="python-bound",
        differs="Compare the time per sample on 1 thread and on several: slow already on 1 is the code itself, slow "
        "only in company is contention.",
        fixes=(
            "fewer threads, or worker processes in their place",
            "only reading and decoding in the threads, the Python part once per batch",
            "one library call for the batch instead of one per sample",
        ),
        notebook="04",
    ),
    _cause(
        "lock-contention",
        meaning="Threads queue for a lock other than the GIL: a random generator, a handle, a library's cache.",
        decided_by="gil_check: no gain from threads although the GIL is free most of the time",
        look_alike="gil-contention",
        differs="See how much of the time the GIL is held: much means the interpreter is the queue, little means "
        "another lock is.",
        fixes=(
            "a generator, handle or connection for each thread",
            "draw random numbers once per batch, outside the threads",
            "processes, which do not share the lock",
        ),
        notebook="02",
    ),
    _cause(
        "thread-oversubscription",
        meaning="Each worker starts its own pool of native threads, and together they outnumber the cores.",
        decided_by="threads per worker times workers against measured cores; system time with the pools limited to 1",
        look_alike="too-many-workers",
        differs="Limit the pools to 1 thread and keep num_workers: throughput rises only if the pools were the excess.",
        fixes=(
            "cv2.setNumThreads(0) in worker_init_fn",
            "OMP_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1 or MKL_NUM_THREADS=1, set before the import",
            "fewer workers, each with the threads its library uses well",
        ),
        notebook="03",
    ),
    _cause(
        "one-thread-in-worker",
        meaning="A torch operation that uses several threads in the main process has only one in a worker.",
        decided_by="torch.get_num_threads() and the time of one sample, in a single worker and in the main process",
        look_alike="cpu-bound",
        differs="With the other cores idle, time one sample in main and in one worker: only here is the worker slower.",
        fixes=(
            "more workers with one thread each",
            "torch.set_num_threads in worker_init_fn, with spawned workers: after fork it can hang",
            "the heavy operation on whole batches in the main process or on the GPU",
        ),
        notebook="03",
    ),
    _cause(
        "cpu-affinity",
        meaning="The process is pinned to fewer cores than the machine offers, and its workers inherit the pin.",
        decided_by="os.sched_getaffinity in main and in every worker, before and after the imports",
        look_alike="cpu-bound",
        differs="Look at each core: the pinned ones are full and the rest idle, where CPU-bound data fill them all.",
        fixes=(
            "os.sched_setaffinity with all cores, after the import that changed it",
            "a wider request to the scheduler or launcher, such as --cpus-per-task",
            "widen the mask in worker_init_fn where only the step should stay pinned",
        ),
        notebook="02",
        # With one usable core any number of workers is too many and any work fills it: the pin comes first.
        explains=("cpu-bound", "python-bound", "too-many-workers"),
    ),
    _cause(
        "interference",
        meaning="Loader and step are each quick alone, and slow each other down: they share cores, memory or the GIL.",
        decided_by="headroom: both together are slower than the two alone predict, overlapped or in turns",
        look_alike="no-overlap",
        differs="Compare compute_time with the loader running and stopped: interference lengthens it, taking turns "
        "does not.",
        fixes=(
            "fewer workers, so that the step has cores of its own",
            "fewer intra-op threads in the main process",
            "no Python threads for loading in the process that trains",
        ),
        notebook="01",
    ),
    _cause(
        "transfer-bound",
        meaning="Copying the batch to the device takes time that no computation hides.",
        decided_by="transfer_time between device events, from pageable and from pinned memory, as a share of step_time",
        look_alike="compute-bound",
        differs="Repeat the step without its copy: a transfer-bound one loses transfer_time, a compute-bound one "
        "nothing.",
        fixes=(
            "pin_memory=True together with non_blocking=True",
            "copy the next batch on a second stream while this one is computed",
            "send uint8 and convert on the device",
        ),
        notebook="12",
    ),
)
