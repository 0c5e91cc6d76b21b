"""The table of symptoms: what a person sees, what folklore answers, which causes compete, and what decides.

The folk answers are shown as folk answers: a notebook says so, with numbers, where a measurement contradicts one.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from loaderscope.diagnosis.causes import CAUSES
from loaderscope.errors import BadInputError


@dataclass(frozen=True)
class Symptom:
    """One complaint.

    Args:
        id: "S1" to "S24".
        seen, seen_zh: what is seen, in English and in Chinese.
        folk_cause, folk_check: the usual explanation, and the usual check or cure.
        rivals: ids of the causes that compete.
        other_rivals: what else it may be, in words.
        decides: the experiment that tells the rivals apart.
        notebooks: numbers of the notebooks that run it.
    """

    id: str
    seen: str
    seen_zh: str
    folk_cause: str
    folk_check: str
    rivals: tuple[str, ...]
    other_rivals: tuple[str, ...]
    decides: str
    notebooks: tuple[str, ...]


_ANY_SPEED_CAUSE = tuple(cause.id for cause in CAUSES.values() if cause.family == "speed")

_GROWING_MEMORY = (
    "dataset-leak",
    "copy-on-read",
    "duplicated-data",
    "consumer-leak",
    "prefetch-memory",
    "handle-leak",
)

SYMPTOMS = (
    Symptom(
        id="S1",
        seen="GPU utilisation is low, and the CPU has little to do either",
        seen_zh="GPU 利用率偏低，同时 CPU 也很空闲",
        folk_cause="too few processes are reading",
        folk_check="double num_workers",
        rivals=(
            "io-latency",
            "no-overlap",
            "too-few-workers",
            "lock-contention",
            "transfer-bound",
            "compute-bound",
        ),
        other_rivals=("the step itself waits for something",),
        decides="headroom first, then waiting against CPU time per sample",
        notebooks=("01", "02", "03"),
    ),
    Symptom(
        id="S2",
        seen="GPU utilisation drops to zero at regular intervals",
        seen_zh="GPU 利用率每隔一段时间就掉到 0（周期性）",
        folk_cause="the workers are created again for every epoch",
        folk_check="persistent_workers=True",
        rivals=("worker-restart", "repeated-init", "slow-first-batch", "slow-samples", "too-few-workers"),
        other_rivals=("bursts: workers of equal speed deliver in turn, then all are busy again",),
        decides="the period of the gaps: once per epoch, once per num_workers batches, or irregular",
        notebooks=("03", "10"),
    ),
    Symptom(
        id="S3",
        seen="the time of a step jumps up and down",
        seen_zh="每一步的耗时忽高忽低，波动剧烈",
        folk_cause="samples differ greatly in size",
        folk_check="a sampler that balances the cost of batches",
        rivals=("uneven-batches", "slow-samples", "straggler-worker", "remote-jitter", "interference"),
        other_rivals=("a noisy machine",),
        decides="the list of slow samples, batch time against bytes, and times by worker",
        notebooks=("10",),
    ),
    Symptom(
        id="S4",
        seen="memory climbs until the job dies",
        seen_zh="内存不断上涨，最后 OOM",
        folk_cause="too much is prefetched, or something keeps references",
        folk_check="lower prefetch_factor",
        rivals=_GROWING_MEMORY,
        other_rivals=(),
        decides="watch_memory over several epochs: private or shared, in which process, with a plateau or without",
        notebooks=("06",),
    ),
    Symptom(
        id="S5",
        seen="ranks of one job run at different speeds",
        seen_zh="多卡训练时各卡速度不一致",
        folk_cause="shards of unequal size",
        folk_check="look at the shards and the caches of each rank",
        rivals=("uneven-ranks", "straggler-worker", "idle-workers", "too-many-workers"),
        other_rivals=("one slow disk",),
        decides="the merged report of all ranks",
        notebooks=("11",),
    ),
    Symptom(
        id="S6",
        seen="reads from remote storage stall for seconds now and then",
        seen_zh="读取远程存储时偶尔卡住几秒",
        folk_cause="the network jitters",
        folk_check="a cache on a local SSD",
        rivals=("remote-jitter", "io-bandwidth", "slow-samples"),
        other_rivals=(),
        decides="latency of single reads, against a local copy of the same files",
        notebooks=("09",),
    ),
    Symptom(
        id="S7",
        seen="GPU utilisation is low",
        seen_zh="GPU 利用率低",
        folk_cause="the data loader is the bottleneck",
        folk_check="more workers, lighter preprocessing",
        rivals=_ANY_SPEED_CAUSE,
        other_rivals=(),
        decides="headroom, before anything else",
        notebooks=("01",),
    ),
    Symptom(
        id="S8",
        seen="memory keeps rising",
        seen_zh="内存占用一直上升（持续上涨）",
        folk_cause="the workers leak, or the data set is too large",
        folk_check="fewer workers, and a look for caches",
        rivals=_GROWING_MEMORY,
        other_rivals=(),
        decides="watch_memory: what grows, whose it is, and whether it stops",
        notebooks=("06",),
    ),
    Symptom(
        id="S9",
        seen="a run cannot be reproduced",
        seen_zh="训练结果无法复现（不可复现）",
        folk_cause="some source of random numbers is not seeded",
        folk_check="seed torch and NumPy, and give the loader a generator",
        rivals=("rng-unreproducible", "rng-duplicate-workers", "rng-repeats-epochs", "order-repeats-epochs"),
        other_rivals=("threads that share one generator",),
        decides="audit_randomness",
        notebooks=("07",),
    ),
    Symptom(
        id="S10",
        seen="data of varying length raise an error",
        seen_zh="变长数据组成 batch 时报错",
        folk_cause="the default collate cannot stack unequal tensors",
        folk_check="pad in collate_fn",
        rivals=("ragged-batch", "outlier-sample"),
        other_rivals=(),
        decides="whether all samples differ in shape, or only one",
        notebooks=("10", "13"),
    ),
    Symptom(
        id="S11",
        seen="the last batch of the epoch fails",
        seen_zh="最后一个 batch 出错",
        folk_cause="it has another size than the rest",
        folk_check="drop_last=True",
        rivals=("last-batch", "undersized-batches", "missing-samples"),
        other_rivals=(),
        decides="audit_coverage: sizes of the batches, and what drop_last removes once per worker",
        notebooks=("10",),
    ),
    Symptom(
        id="S12",
        seen="pickling errors appear as soon as there are workers",
        seen_zh="开启多进程后出现 pickle 报错",
        folk_cause="a lambda, a connection or an open file inside the dataset",
        folk_check="look for them by eye, or use num_workers=0",
        rivals=("unpicklable", "notebook-class", "shared-handle"),
        other_rivals=(),
        decides="audit_pickling: the path to the attribute that refuses",
        notebooks=("08", "13"),
    ),
    Symptom(
        id="S13",
        seen="more workers made it slower",
        seen_zh="num_workers 调得越多反而越慢",
        folk_cause="processes compete for the disk, the data set is small, or scheduling costs too much",
        folk_check="try fewer workers",
        rivals=(
            "workers-not-worth-it",
            "too-many-workers",
            "ipc-pickle",
            "ipc-bandwidth",
            "ipc-object-count",
            "ipc-oversized-storage",
            "ipc-per-sample",
            "thread-oversubscription",
            "io-bandwidth",
            "small-files",
        ),
        other_rivals=(),
        decides="predicted against measured scaling, then the return trip",
        notebooks=("03", "05"),
    ),
    Symptom(
        id="S14",
        seen="the first batch or the first epoch is slow, and the rest is fine",
        seen_zh="第一个 batch 或第一个 epoch 特别慢，之后正常",
        folk_cause="everything has to warm up",
        folk_check="a deeper prefetch queue",
        rivals=("slow-first-batch", "dataset-pickling", "sampler-startup", "repeated-init"),
        other_rivals=("a cold page cache, which is healthy",),
        decides="the start divided into its parts",
        notebooks=("03", "09"),
    ),
    Symptom(
        id="S15",
        seen="DataLoader worker (pid …) is killed by signal",
        seen_zh="DataLoader worker 被信号杀死",
        folk_cause="out of memory",
        folk_check="fewer workers",
        rivals=("worker-killed", "worker-crash", "shm-exhausted"),
        other_rivals=(),
        decides="exit signal, memory limit, and the last index",
        notebooks=("13",),
    ),
    Symptom(
        id="S16",
        seen="nothing happens: the job hangs at 0 % CPU and the first epoch never begins",
        seen_zh="程序卡死没有反应，CPU 占用为 0，第一个 epoch 一直不开始",
        folk_cause="a thread pool was copied by fork",
        folk_check="num_workers=0",
        rivals=("fork-unsafe", "shared-handle", "hang", "fd-exhausted", "timeout-too-short"),
        other_rivals=("it is working, only slower than the timeout allows",),
        decides="audit_fork_safety: the stacks of every process",
        notebooks=("08",),
    ),
    Symptom(
        id="S17",
        seen="threads do not help, or make it slower",
        seen_zh="用了多线程却没有加速，甚至更慢",
        folk_cause="the GIL",
        folk_check="use processes",
        rivals=("python-bound", "gil-contention", "lock-contention", "per-item-overhead"),
        other_rivals=(),
        decides="gil_check, between its two controls",
        notebooks=("02", "04"),
    ),
    Symptom(
        id="S18",
        seen="the CPU is full and the GPU starves",
        seen_zh="CPU 满载，GPU 却在等数据（饥饿）",
        folk_cause="preprocessing is too heavy",
        folk_check="preprocess offline, vectorise, or move the work to DALI",
        rivals=(
            "cpu-bound",
            "python-bound",
            "thread-oversubscription",
            "collate-bound",
            "ipc-pickle",
            "cpu-affinity",
        ),
        other_rivals=("a cgroup CPU quota below the number of visible cores",),
        decides="profile_stages, and the cores that are really usable",
        notebooks=("02", "05"),
    ),
    Symptom(
        id="S19",
        seen="augmented images look alike",
        seen_zh="数据增强的结果重复、看起来都一样",
        folk_cause="NumPy has the same seed in all workers",
        folk_check="seed NumPy in worker_init_fn",
        rivals=("rng-duplicate-workers", "rng-repeats-epochs", "rng-constant", "shared-transform"),
        other_rivals=(),
        decides="audit_randomness: the same index asked of every worker, in two epochs",
        notebooks=("07",),
    ),
    Symptom(
        id="S20",
        seen="too many open files, no space left on device, or cannot allocate memory",
        seen_zh="打开文件过多、共享内存不足，或 Errno 12",
        folk_cause="a limit of the system is too low",
        folk_check="raise ulimit or --shm-size, or use fewer workers",
        rivals=("fd-exhausted", "consumer-leak", "handle-leak", "shm-exhausted", "prefetch-memory"),
        other_rivals=(),
        decides="preflight, then whether the number in use is level or rising",
        notebooks=("06", "13"),
    ),
    Symptom(
        id="S21",
        seen="the loss becomes NaN in the middle of training",
        seen_zh="训练到一半 loss 变成 NaN",
        folk_cause="a single corrupt or empty sample",
        folk_check="check batches for NaN in collate_fn",
        rivals=("corrupt-sample", "samples-replaced"),
        other_rivals=("causes outside the loader",),
        decides="a guard on every sample that names the index",
        notebooks=("10",),
    ),
    Symptom(
        id="S22",
        seen="an IterableDataset trains on repeated data, or every rank sees the same",
        seen_zh="IterableDataset 样本重复，或各卡拿到相同的数据",
        folk_cause="the dataset does not divide itself among workers and ranks",
        folk_check="DistributedSampler and set_epoch",
        rivals=("duplicate-samples", "missing-samples", "rank-overlap", "set-epoch-missing", "stale-worker-state"),
        other_rivals=(),
        decides="audit_coverage over ranks and workers",
        notebooks=("11",),
    ),
    Symptom(
        id="S23",
        seen="thousands of small files are slow to read",
        seen_zh="大量小文件（海量）读取很慢",
        folk_cause="the metadata of the file system",
        folk_check="pack them into larger files",
        rivals=("small-files", "io-latency", "read-amplification"),
        other_rivals=(),
        decides="metadata time against data time, and compare_storage",
        notebooks=("09",),
    ),
    Symptom(
        id="S24",
        seen="evaluation scores shift with the number of GPUs",
        seen_zh="评估指标随 GPU 卡数变化",
        folk_cause="no common answer",
        folk_check="no common check",
        rivals=("padding-duplicates", "missing-samples", "uneven-ranks"),
        other_rivals=(),
        decides="audit_coverage with role='eval'",
        notebooks=("11",),
    ),
)

_BY_ID = {row.id: row for row in SYMPTOMS}


def symptom(id: str) -> Symptom:
    """The row with this id.

    Raises:
        BadInputError: there is no such row.
    """
    try:
        return _BY_ID[id]
    except (KeyError, TypeError):
        raise BadInputError(
            "There is no symptom with this id", seen=repr(id), way_out=f"use one of {', '.join(_BY_ID)}"
        ) from None


def search(words: str) -> tuple[Symptom, ...]:
    """The symptoms whose text contains all the words, in English or Chinese; no words, all symptoms.

    Rows that match in what is seen come before rows that match only in the folk answer.
    """
    wanted = _folded(words).split()
    in_seen = [row for row in SYMPTOMS if _holds(_seen_text(row), wanted)]
    in_folklore = [row for row in SYMPTOMS if row not in in_seen and _holds(_whole_text(row), wanted)]
    return (*in_seen, *in_folklore)


def _holds(text: str, wanted: list[str]) -> bool:
    return all(word in text for word in wanted)


def _folded(text: str) -> str:
    # Full-width letters and digits are usual in Chinese input: compare them as ordinary ones.
    return unicodedata.normalize("NFKC", text).casefold()


def _seen_text(row: Symptom) -> str:
    # Some write a space between Chinese and Latin letters, some do not: both spellings are searched.
    return _folded(f"{row.id} {row.seen} {row.seen_zh} {row.seen_zh.replace(' ', '')}")


def _whole_text(row: Symptom) -> str:
    return f"{_seen_text(row)} {_folded(row.folk_cause)} {_folded(row.folk_check)}"
