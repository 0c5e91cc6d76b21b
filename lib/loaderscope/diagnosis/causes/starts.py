"""Speed: starting workers again and again, and waiting for the slowest part."""

from __future__ import annotations

from functools import partial

from loaderscope.diagnosis.causes.cause import Cause

_cause = partial(Cause, family="speed")

STARTS = (
    _cause(
        "worker-restart",
        meaning="Workers start anew at every epoch, and the epochs are short enough for it to show.",
        decided_by="share of each epoch that passes before its first batch, with new worker ids every time",
        look_alike="slow-first-batch",
        differs="Look at the second epoch: a restart is paid again, a warm-up is not.",
        fixes=(
            "persistent_workers=True, unless the dataset must be seen afresh each epoch",
            "longer epochs: let the sampler go round several times",
            "fewer workers, or a start method that starts faster",
        ),
        notebook="03",
        explains=("slow-first-batch",),
    ),
    _cause(
        "iterator-per-step",
        meaning="The loop makes a new iterator for each batch: workers start, prefetch and are thrown away.",
        decided_by="watch: iterators made against batches used, and samples fetched against samples used",
        look_alike="worker-restart",
        differs="Count iterators: one per epoch is an ordinary restart, one per step is this.",
        fixes=(
            "make the iterator once, then call next() on it",
            "a new iterator only after StopIteration",
            "build the loader outside the loop",
        ),
        notebook="03",
        explains=("worker-restart", "repeated-init", "cache-never-hits", "slow-first-batch"),
    ),
    _cause(
        "dataset-pickling",
        meaning="The dataset is pickled once for each worker before the first batch, and it is large.",
        decided_by="time inside iter(loader) in the main process, against pickled size and number of workers",
        look_alike="repeated-init",
        differs="See where the time passes: in main before iter() returns, or in the workers afterwards.",
        fixes=(
            "big tables as shared tensors or memory maps",
            "a __getstate__ that leaves out what a worker can reopen",
            "fork, where audit_fork_safety finds nothing against it",
        ),
        notebook="03",
        explains=("worker-restart", "slow-first-batch"),
    ),
    _cause(
        "repeated-init",
        meaning="Every new worker repeats a costly preparation, such as loading an index, a tokenizer or a model.",
        decided_by="time from the start of a worker to its first sample, per worker and epoch, against its later "
        "samples",
        look_alike="worker-restart",
        differs="Start the same loader over a trivial dataset: as slow means the processes, quick means the "
        "preparation.",
        fixes=(
            "save the prepared form to disk and map it",
            "persistent workers, so that each prepares once",
            "prepare before forking, where what is prepared survives a fork",
        ),
        notebook="03",
        explains=("slow-first-batch",),
    ),
    _cause(
        "cache-never-hits",
        meaning="A cache in the dataset is filled inside the workers and lost with them, so it never helps.",
        decided_by="second epoch as slow as the first with workers, and fast with num_workers=0",
        look_alike="io-latency",
        differs="Run two epochs with num_workers=0: a fast second one means the cache works and the workers lose it.",
        fixes=(
            "fill the cache before the workers are forked",
            "a cache in shared memory or on local disk",
            "persistent workers, each of which then fills a cache of its own",
        ),
        notebook="09",
        # Whatever the cache was meant to save is done again, be it waiting or computing.
        explains=("io-latency", "cpu-bound", "python-bound", "too-few-workers"),
    ),
    _cause(
        "sampler-startup",
        meaning="The sampler writes out its whole order before it gives the first index.",
        decided_by="time and memory until the sampler's first index, against len(dataset), with and without shuffle",
        look_alike="dataset-pickling",
        differs="Take one index from the sampler alone: if that is slow, neither workers nor pickling are involved.",
        fixes=(
            "an order computed as it is needed, block by block",
            "shuffle shards, then a buffer, in an iterable dataset",
            "sampling with replacement, drawn in chunks",
        ),
        notebook="03",
        explains=("slow-first-batch",),
    ),
    _cause(
        "slow-first-batch",
        meaning="The first batch takes far longer than the rest, once, while workers start and caches fill.",
        decided_by="first_batch_latency split into making the iterator, starting workers and fetching; then a second "
        "epoch",
        look_alike="worker-restart",
        differs="The delay does not return with the next epoch, or returns only as far as the files are cold again.",
        fixes=(
            "nothing on a long run: it is paid once",
            "make the iterator early, while the model is being built",
            "copy or read the files ahead, so that the cache is warm",
        ),
        notebook="03",
    ),
    _cause(
        "slow-samples",
        meaning="A few particular samples take many times longer, and the batches behind them wait.",
        decided_by="time per index over repeated reads: the same indices are slow each time",
        look_alike="uneven-batches",
        differs="Look at the spread of sample times: a few far outliers here, a broad range that follows size there.",
        fixes=(
            "shrink, re-encode or remove the samples listed",
            "in_order=False, where the order of batches does not matter",
            "a larger prefetch_factor, so that a slow batch finds others ready",
        ),
        notebook="10",
        explains=("uneven-batches",),
    ),
    _cause(
        "uneven-batches",
        meaning="Batches differ in cost because their samples differ in size.",
        decided_by="time per batch against its bytes or lengths",
        look_alike="straggler-worker",
        differs="Group the batch times by bytes and by worker: whichever explains the spread is the cause.",
        fixes=(
            "a sampler that balances the cost of batches",
            "bucket samples of similar length",
            "a deeper queue, which averages the cost over more batches",
        ),
        notebook="10",
    ),
    _cause(
        "straggler-worker",
        meaning="One worker is slower than the others, and batches are delivered in turn, so all wait for it.",
        decided_by="time per batch by worker, and whose batches the waits precede",
        look_alike="too-few-workers",
        differs="Compare the median times of the workers: all alike means the pool is small, one far off is a "
        "straggler.",
        fixes=(
            "shards of equal bytes rather than equal count",
            "in_order=False, so that the others may overtake",
            "see what is special about that worker: its shard, its disk, its core",
        ),
        notebook="10",
        explains=("io-latency", "too-few-workers"),
    ),
    _cause(
        "idle-workers",
        meaning="Some workers never deliver anything, because there are fewer shards than workers.",
        decided_by="number of workers that deliver a batch in an epoch, against num_workers",
        look_alike="straggler-worker",
        differs="Count the batches of each worker: a straggler delivers late, an idle worker nothing.",
        fixes=(
            "several smaller shards per worker",
            "no more workers than shards",
            "split by sample inside a shard",
        ),
        notebook="11",
        explains=("io-latency", "too-few-workers"),
    ),
    _cause(
        "several-pools",
        meaning="More than one loader keeps its workers alive, so processes and memory add up.",
        decided_by="watch: live workers by loader, and the CPU time of each pool while another is in use",
        look_alike="orphaned-workers",
        differs="Ask for the parent: an idle pool belongs to a loader that is still alive here, an orphan's parent "
        "is gone.",
        fixes=(
            "persistent_workers=False for the loader that runs seldom",
            "let go of the old iterator before the next pool starts",
            "fewer workers for validation",
        ),
        notebook="03",
    ),
)
