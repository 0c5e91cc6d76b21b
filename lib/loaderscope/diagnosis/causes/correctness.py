"""Causes that raise no error, or the wrong one: randomness, order, coverage, shapes, bad samples."""

from __future__ import annotations

from functools import partial

from loaderscope.diagnosis.causes.cause import Cause

_cause = partial(Cause, family="correctness")

# Two causes depend on the role of the loader. set-epoch-missing and order-repeats-epochs do not: both need a loader
# that asks for shuffling. missing-samples does not either: what one drop_last batch explains is not counted.

_RANDOMNESS_AND_ORDER = (
    _cause(
        "rng-duplicate-workers",
        meaning="The workers share a random state, so different samples get the same random numbers.",
        decided_by="audit_randomness: every worker asked for the same index at the same step answers alike, while "
        "draws within a worker differ",
        look_alike="rng-constant",
        differs="Draw twice in one worker: a shared state moves on, a constant one gives the same again.",
        fixes=(
            "make the generator in the worker, from get_worker_info().seed",
            "torch.initial_seed() in worker_init_fn, never a literal",
            "a generator per sample, seeded from (base seed, epoch, index)",
        ),
        notebook="07",
        # A state copied into every worker is copied again when the workers start again.
        explains=("rng-repeats-epochs",),
    ),
    _cause(
        "rng-duplicate-ranks",
        meaning="Ranks draw the same random numbers for their different samples.",
        decided_by="audit_randomness on every rank: draws at the same step agree between ranks, not within one",
        look_alike="rank-overlap",
        differs="Compare indices as well as draws: equal draws on different indices mean the seed is shared, equal "
        "indices mean the data is.",
        fixes=(
            "add the rank to the seed of the data, not of the model",
            "a loader generator that differs from rank to rank",
        ),
        notebook="07",
    ),
    _cause(
        "rng-repeats-epochs",
        meaning="Each epoch replays the random numbers of the first, so augmentation adds nothing new.",
        decided_by="audit_randomness: draws for the same index in two epochs agree, draws of two workers do not",
        look_alike="stale-worker-state",
        differs="Switch persistent_workers: keeping workers cures a seed set at each start, and is what makes state "
        "stale.",
        fixes=(
            "mix the epoch, or torch.initial_seed(), into the seed",
            "persistent workers, whose generators run on",
            "no seeding by worker id alone",
        ),
        notebook="07",
    ),
    _cause(
        "rng-constant",
        meaning="Every sample gets the same random numbers: the state is set anew for each, or drawn once and kept.",
        decided_by="audit_randomness: draws for different indices in one worker agree",
        look_alike="rng-duplicate-workers",
        differs="One worker is enough to see it: the numbers do not change from sample to sample even there.",
        fixes=(
            "seed once per worker, not in __getitem__",
            "index and epoch in the seed, where seeding per sample is meant",
            "draw parameters in the call of a transform, not in its __init__",
        ),
        notebook="07",
        explains=("rng-duplicate-workers", "rng-repeats-epochs"),
    ),
    _cause(
        "rng-unreproducible",
        meaning="Two runs with the same seeds deliver different data.",
        decided_by="audit_randomness: the same loader in two fresh processes, and the first sample and draw that "
        "differ",
        look_alike="shared-handle",
        differs="Switch augmentation off and shuffle off: data that still differ between runs are read wrongly.",
        fixes=(
            "a seeded generator on the loader",
            "seeds for Python, NumPy and torch before the loader is made",
            "seeds that depend on the sample, so that threads and worker counts do not matter",
        ),
        notebook="07",
    ),
    _cause(
        "order-repeats-epochs",
        meaning="The loader shuffles, but into the same order in every epoch.",
        decided_by="audit_coverage: the order of indices in two epochs is equal, though it is a shuffled one",
        look_alike="set-epoch-missing",
        differs="See what the sampler's order depends on: a generator or seed that is reset here, an epoch number "
        "that is never advanced there.",
        fixes=(
            "make the generator once and let it run on",
            "the epoch number in the seed of the shuffle",
        ),
        notebook="07",
    ),
    _cause(
        "set-epoch-missing",
        meaning="A DistributedSampler repeats its order, because nobody tells it that a new epoch has begun.",
        decided_by="watch: sampler.epoch and the order of indices are the same in two epochs, with shuffling on",
        look_alike="order-repeats-epochs",
        differs="Call set_epoch by hand: an order that changes shows that only the call was missing.",
        fixes=(
            "sampler.set_epoch(epoch) before each epoch",
            "the call on the inner sampler, where a batch sampler wraps it",
        ),
        notebook="11",
        explains=("order-repeats-epochs",),
    ),
    _cause(
        "stale-worker-state",
        meaning="Workers go on with the dataset as it was when they started; later changes do not reach them.",
        decided_by="a value set on the dataset between epochs, as the workers see it and as the main process does",
        look_alike="rng-repeats-epochs",
        differs="Set an attribute in the main process and ask the workers for it: only stale state gives the old "
        "value.",
        fixes=(
            "a multiprocessing.Value or shared tensor for what changes",
            "workers that end with the epoch, where starting them is cheap",
            "pass what changes through the sampler, which lives in the main process",
        ),
        notebook="11",
        # An epoch number that never arrives makes everything seeded with it repeat.
        explains=("rng-repeats-epochs", "order-repeats-epochs"),
    ),
)

_COVERAGE = (
    _cause(
        "duplicate-samples",
        meaning="Samples come more than once in an epoch, typically once from each worker.",
        decided_by="audit_coverage: samples delivered against distinct samples, with several workers and with none",
        look_alike="rank-overlap",
        differs="Set num_workers=0: repeats among workers disappear, overlap between ranks remains.",
        fixes=(
            "divide by get_worker_info() inside __iter__, not in the constructor",
            "the splitting function of the streaming library in use",
            "a map-style dataset, whose sampler divides the work",
        ),
        notebook="11",
    ),
    _cause(
        "missing-samples",
        meaning="Some samples are never delivered: dropped once per worker, filtered out or left between shards.",
        decided_by="audit_coverage: samples never seen in an epoch, beyond what a single dropped batch explains",
        look_alike="truncated-epoch",
        differs="See where the missing ones lie: scattered at the ends of shards here, all behind one point there.",
        fixes=(
            "drop_last=False, or batches formed before the data is divided",
            "shards that hold a whole number of batches",
            "a count of everything a filter removes",
        ),
        notebook="11",
    ),
    _cause(
        "rank-overlap",
        meaning="Different ranks are given the same samples.",
        decided_by="audit_coverage over all ranks: ids seen by more than one, beyond padding",
        look_alike="padding-duplicates",
        differs="Count the shared ids: fewer than there are ranks is padding, a share of the data is overlap.",
        fixes=(
            "a DistributedSampler, or a division by rank inside __iter__",
            "divide by rank first and by worker second",
            "start the process group before the dataset asks for its rank",
        ),
        notebook="11",
    ),
    _cause(
        "padding-duplicates",
        meaning="The sampler repeats a few samples to make the ranks equal, and an evaluation counts them twice.",
        decided_by="audit_coverage over all ranks with role='eval': ids counted twice, fewer than there are ranks",
        look_alike="duplicate-samples",
        differs="Compare the surplus with the number of ranks: padding stays below it, faulty sharding multiplies "
        "the data.",
        fixes=(
            "remove repeated ids before results are merged",
            "an evaluation sampler that does not pad",
            "evaluate small sets on one rank",
        ),
        notebook="11",
        explains=("duplicate-samples", "rank-overlap"),
        role_dependent=True,
    ),
    _cause(
        "uneven-ranks",
        meaning="Ranks get different numbers of batches, so some wait for a partner that has finished.",
        decided_by="batches and samples per rank and epoch in the merged report",
        look_alike="straggler-worker",
        differs="Count before timing: unequal numbers of batches here, equal numbers at unequal speed there.",
        fixes=(
            "the same number of samples per rank: pad or drop for training",
            "the Join context of torch.distributed, where lengths must differ",
            "averages weighted by the samples of each rank",
        ),
        notebook="11",
    ),
    _cause(
        "undersized-batches",
        meaning="Many batches are smaller than asked for, because every worker ends with a remainder.",
        decided_by="audit_coverage: sizes of all batches of an epoch, by worker",
        look_alike="last-batch",
        differs="Count the small ones: a single one ends the epoch, one per worker is this.",
        fixes=(
            "form batches before dividing among workers",
            "fewer workers, or longer shards",
            "averages weighted by batch size, where small batches stay",
        ),
        notebook="10",
    ),
    _cause(
        "truncated-epoch",
        meaning="The epoch ends early, and nothing says so.",
        decided_by="batches delivered against len(loader), and against a full pass in a single process",
        look_alike="one-shot-iterator",
        differs="Compare epochs: short every time is truncated, full once and empty afterwards is a spent iterator.",
        fixes=(
            "a __len__ that counts what is really delivered",
            "no StopIteration or IndexError from inside the reading code",
            "mind that zip() over loaders ends with the shortest",
        ),
        notebook="10",
        explains=("missing-samples",),
    ),
    _cause(
        "one-shot-iterator",
        meaning="The dataset or sampler hands out the same iterator again, so later epochs are short or empty.",
        decided_by="iter(x) is x for the dataset or the sampler, and the batches of two epochs",
        look_alike="truncated-epoch",
        differs="Ask it for two iterators: if they are the same object, the second epoch begins where the first ended.",
        fixes=(
            "make the iterator inside __iter__",
            "a Sampler class or a list in place of a generator expression",
            "reopen the stream at the start of each epoch",
        ),
        notebook="10",
        explains=("truncated-epoch", "missing-samples"),
    ),
    _cause(
        "sorted-without-shuffle",
        meaning="Data stored class by class is trained on in that order, so a batch holds a single class.",
        decided_by="classes per batch against randomly drawn batches, with role='train'",
        look_alike="order-repeats-epochs",
        differs="Look into one batch: few classes mean that nothing was shuffled, a mixture means that it was, if "
        "only once.",
        fixes=(
            "shuffle=True for training",
            "a shuffled file list and a shuffle buffer for streams",
        ),
        notebook="07",
        role_dependent=True,
    ),
    _cause(
        "samples-replaced",
        meaning="The dataset hides a failed read and returns another sample in its place.",
        decided_by="different indices that deliver identical content, and exceptions caught inside __getitem__",
        look_alike="duplicate-samples",
        differs="Compare indices with contents: every index is asked for once, and only the contents repeat.",
        fixes=(
            "log the index of every failure and count them",
            "remove bad samples from the list beforehand",
            "raise when more than a stated share fails",
        ),
        notebook="10",
        explains=("duplicate-samples", "missing-samples"),
    ),
    _cause(
        "shared-transform",
        meaning="Training and validation split are views of one dataset, so a transform set on one holds for both.",
        decided_by="train.dataset is val.dataset, and whether a training sample still varies when read twice",
        look_alike="rng-constant",
        differs="Ask whether both splits hold the same object: a frozen generator needs no second split.",
        fixes=(
            "a wrapper with its own transform around each subset",
            "two datasets over the same files, divided by the same indices",
        ),
        notebook="07",
    ),
)

_SHAPES_AND_BAD_SAMPLES = (
    _cause(
        "ragged-batch",
        meaning="Samples naturally differ in shape, and the default collate cannot stack them.",
        decided_by="shapes over many samples: many different ones, and batch_size=1 works",
        look_alike="outlier-sample",
        differs="Tabulate the shapes: variety everywhere is ragged data, one exception is an outlier.",
        fixes=(
            "pad in collate_fn and return lengths or a mask",
            "group samples of similar length, then pad",
            "crop or resize to one shape in the transform",
        ),
        notebook="10",
        explains=("worker-error",),
    ),
    _cause(
        "outlier-sample",
        meaning="One sample, or very few, has another shape, dtype or set of keys than all the rest.",
        decided_by="shape, dtype and keys of every sample against the most common ones, with the indices that deviate",
        look_alike="ragged-batch",
        differs="Count how many deviate from the most common shape: a handful is a fault in the data, most is its "
        "nature.",
        fixes=(
            "repair or remove the index named",
            "convert on reading: one colour mode, one dtype, one set of keys",
            "a check in the dataset that raises with index and path",
        ),
        notebook="10",
        explains=("worker-error",),
    ),
    _cause(
        "last-batch",
        meaning="The last batch is smaller than the rest, and something downstream expects a full one.",
        decided_by="size of the last batch, and whether the failure happens there and nowhere else",
        look_alike="undersized-batches",
        differs="Note the step at which it fails: always the final one here, spread over the end of each worker there.",
        fixes=(
            "drop_last=True for training",
            "take the size from the batch, not from the configuration",
            "pad and mask, where every sample must count",
        ),
        notebook="10",
    ),
    _cause(
        "corrupt-sample",
        meaning="A damaged, empty or non-finite sample is delivered as if it were sound.",
        decided_by="a guard on every sample (decodes, not empty, finite) that names the index",
        look_alike="outlier-sample",
        differs="Read it alone: a corrupt sample is wrong by itself, an outlier only beside others.",
        fixes=(
            "check the whole set once and keep the list of bad indices",
            "raise with index and path instead of passing it on",
            "torch.isfinite in collate_fn, for data computed on the fly",
        ),
        notebook="10",
        explains=("worker-error",),
    ),
)

CORRECTNESS = (*_RANDOMNESS_AND_ORDER, *_COVERAGE, *_SHAPES_AND_BAD_SAMPLES)
