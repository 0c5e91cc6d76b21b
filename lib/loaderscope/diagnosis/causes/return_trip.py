"""Speed: what it costs to bring a batch from the workers back to the main process."""

from __future__ import annotations

from functools import partial

from loaderscope.diagnosis.causes.cause import Cause

_cause = partial(Cause, family="speed")

RETURN_TRIP = (
    _cause(
        "ipc-pickle",
        meaning="Batches return to the main process as pickled bytes through a pipe instead of shared memory.",
        decided_by="return_trip: leaf types of the batch, and CPU time the main process spends unpickling",
        look_alike="ipc-object-count",
        differs="Look at the leaves: arrays, bytes and objects cost by the byte, small tensors cost by the piece.",
        fixes=(
            "torch.from_numpy in collate_fn, so that leaves are tensors",
            "drop the fields the step never reads",
            "strings and dictionaries as ids or byte tensors",
        ),
        notebook="05",
        # Cure the trip and the workers may pay again: advising num_workers=0 first would hide that.
        explains=("workers-not-worth-it",),
    ),
    _cause(
        "ipc-bandwidth",
        meaning="Batches are so large that copying them between processes sets the pace.",
        decided_by="return_trip: time of a replayed batch grows with its bytes, not with its number of tensors",
        look_alike="transfer-bound",
        differs="Leave the device out: this copy happens before the step sees the batch and remains, the other "
        "disappears.",
        fixes=(
            "uint8 or half precision until the batch is on the device",
            "crop and resize before returning, not after",
            "threads in place of processes: nothing is copied",
        ),
        notebook="05",
    ),
    _cause(
        "ipc-object-count",
        meaning="A batch is made of many small tensors, and each is sent separately.",
        decided_by="return_trip: tensors per batch, and the time of the same content packed into a few",
        look_alike="ipc-bandwidth",
        differs="Keep the bytes and change the number of tensors: time follows the pieces here and the bytes there.",
        fixes=(
            "one tensor and a tensor of lengths in place of a list",
            "stack targets in collate_fn",
            "rebuild nested structures after the loader, as views of the packed tensor",
        ),
        notebook="05",
        explains=("workers-not-worth-it",),
    ),
    _cause(
        "ipc-oversized-storage",
        meaning="A small tensor is a view into a large one, and the whole storage is sent with it.",
        decided_by="bytes of each leaf against the bytes of its untyped_storage()",
        look_alike="ipc-bandwidth",
        differs="The batch's own bytes are few: only the storage behind them is large, where a large batch has both "
        "equal.",
        fixes=(
            "clone() the slice before it leaves the worker",
            "stack in collate_fn, so that the batch owns its memory",
        ),
        notebook="05",
        explains=("ipc-bandwidth", "workers-not-worth-it"),
    ),
    _cause(
        "ipc-per-sample",
        meaning="Workers send one sample per message, and batching happens in the main process.",
        decided_by="return_trip: messages per second equal samples per second",
        look_alike="per-item-overhead",
        differs="Set num_workers=0: the cost of messages disappears, the cost of fetching items one by one does not.",
        fixes=(
            "batch in the workers: give the loader a batch_size",
            "yield ready batches from the iterable dataset, with batch_size=None",
        ),
        notebook="05",
        explains=("workers-not-worth-it",),
    ),
    _cause(
        "collate-bound",
        meaning="Putting the samples together takes longer than fetching them.",
        decided_by="profile_stages: collate against fetch per batch",
        look_alike="cpu-bound",
        differs="Run collate_fn alone on samples already fetched: most of the time is there, or it is in the samples.",
        fixes=(
            "write into one preallocated tensor instead of stacking twice",
            "pad to the longest of the batch, not of the data set",
            "one operation on the batch in place of a Python loop over fields",
        ),
        notebook="05",
    ),
    _cause(
        "workers-not-worth-it",
        meaning="Samples are so cheap that sending them back costs more than making them.",
        decided_by="throughput with num_workers=0 against the best with workers, start-up included",
        look_alike="too-many-workers",
        differs="Try a single worker: slower than none means the trip is the cost, faster means only the number was "
        "wrong.",
        fixes=(
            "num_workers=0",
            "index a whole batch at once",
            "keep the data on the device where it fits",
        ),
        notebook="05",
    ),
    _cause(
        "per-item-overhead",
        meaning="The calls made for each item cost more than the data they return.",
        decided_by="time per batch is linear in batch_size and far above one batched index into the same data",
        look_alike="python-bound",
        differs="Fetch the batch with one index: overhead of calls vanishes, Python work on each sample remains.",
        fixes=(
            "__getitems__, which receives all indices of a batch",
            "a BatchSampler as sampler, with batch_size=None",
            "larger batches, where the step allows them",
        ),
        notebook="05",
    ),
    _cause(
        "proxy-rpc",
        meaning="The samples or their list live in a multiprocessing Manager, and each access asks another process.",
        decided_by="CPU time of the manager process, and time per access against a plain list",
        look_alike="io-latency",
        differs="Look for a busy process that is neither main nor worker: a manager works while it is waited for, "
        "storage does not.",
        fixes=(
            "a shared tensor or array in place of Manager().list",
            "one byte buffer with offsets",
            "one request per batch instead of one per field",
        ),
        notebook="06",
        explains=("io-latency",),
    ),
)
