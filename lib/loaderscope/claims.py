"""The claims ledger: what practitioners say about loading data, as data to be tested rather than believed.

`figures` are the numbers that came with a claim. `hint` is what we saw ourselves on one noisy machine with
2 cores: it says where the truth may lie and never stands in for a measurement on the reader's machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from loaderscope.errors import BadInputError
from loaderscope.records.base import Record, Row

VERDICTS = ("confirmed", "refuted", "depends", "not testable here", "undecided")


@dataclass(frozen=True)
class Claim:
    """One thing that is said.

    Args:
        id: letter and number, such as "A3": a contract, like the id of a cause.
        claim: what is said, in one or two sentences.
        notebook: number of the notebook that tests it.
        figures: the numbers given with it, or "".
        hint: what we saw, or "".
        experiment: dotted name of the function that tests it, or None while there is none.
    """

    id: str
    claim: str
    notebook: str
    figures: str = ""
    hint: str = ""
    experiment: str | None = None


_SPEED = "loaderscope.experiments.claims_speed."

_THREADS_INSIDE_THE_DATASET = (
    Claim(
        "A1",
        "With small images worker processes are limited by sending samples back, not by decoding them.",
        "05",
        figures="3 ms to decode, 2 ms to send; 4 workers less than twice as fast, 8 slower than 4",
    ),
    Claim(
        "A2",
        "Tensors cross in shared memory; PIL images, other objects and nested dictionaries are pickled on one side and "
        "unpickled on the other.",
        "05",
    ),
    Claim(
        "A3",
        "Threads scale on reading files, decoding and resizing JPEG and on NumPy operations, because these release the "
        "GIL.",
        "02",
        hint="zlib and sha256: 2.2 times on 2 threads; JPEG decoding in PIL 1.3 times. torch.randn and "
        "np.random.rand leave the GIL free and still gain nothing, since their global generator has a lock of its "
        "own: releasing the GIL and scaling on threads are two questions",
        experiment=_SPEED + "claim_a3",
    ),
    Claim(
        "A4",
        "A __getitem__ in pure Python can be slower on 4 threads than on 1.",
        "02",
        hint="0.84 times the speed on 2 threads",
        experiment=_SPEED + "claim_a4",
    ),
    Claim(
        "A5",
        "Whether a dataset waits or computes shows when __getitem__ is timed once whole and once without its I/O.",
        "02",
        experiment=_SPEED + "claim_a5",
    ),
    Claim(
        "A6",
        "Inside __getitem__, submit() followed directly by result() brings little concurrency.",
        "04",
        hint="with one caller it brings none",
    ),
    Claim("A7", "A window of 2 to 4 samples in flight per thread keeps the threads busy.", "04"),
    Claim(
        "A8",
        "Submitting the next consecutive indices ahead of time respects a shuffled order.",
        "04",
        hint="it does not: with a shuffling sampler it loads samples nobody asked for, discards them and ends in a "
        "KeyError; a window must follow the order of the sampler",
    ),
    Claim(
        "A9",
        "For data that waits on I/O the best set-up is num_workers=0 with a thread pool.",
        "04",
        figures="8 cores with 16 hardware threads, 20 000 JPEG files of 300 KB, crop 224: among processes 4 were "
        "best, 8 and 16 worse; 8 threads beat 4 processes; 16 threads took 7 s",
        hint="decode and crop on 2 cores: 8 processes 549/s, 2 threads 455/s, 16 threads 171/s, which refutes it "
        "there; reads of 10 ms: 8 processes 330/s, 8 threads 256/s",
    ),
    Claim(
        "A10",
        "Two workers that each make a few threads of their own are faster still.",
        "04",
        figures="2 to 4 (or 8) threads each: 6 s where the thread pool alone took 7 s; said to risk deadlock, since "
        "the two kinds of concurrency multiply",
    ),
    Claim("A11", "Where threads wait, there may be more of them than cores.", "04"),
    Claim(
        "A12",
        "A prefetch window costs its length times the size of a sample in memory.",
        "04",
        figures="32 samples of 2 MB: 64 MB",
    ),
    Claim(
        "A13",
        "Call next(iter(loader)) a few times to warm up, then time 100 batches.",
        "03",
        hint="every iter() starts the workers again and throws away what they had prefetched, so nothing is warmed",
    ),
    Claim("A14", "Threads do not pay for tiny samples that are already in memory.", "04"),
    Claim(
        "A15",
        "On very few cores neither threads nor processes get far.",
        "04",
        figures="2 cores with 4 hardware threads",
    ),
    Claim(
        "A16",
        "A pool made before the fork hangs the worker, which gets a copy of its locks but none of its threads.",
        "08",
        figures="0 % CPU, and the first epoch never ends",
        hint="reproduced: a worker that uses a pool of its parent does not return",
    ),
    Claim(
        "A17",
        "Threads that share one global generator can draw the same number at the same moment.",
        "07",
        hint="a draw is atomic, so none is handed out twice; what is lost is the order, hence reproducibility",
    ),
    Claim(
        "A18",
        "Each thread should have a generator seeded with the id of the thread.",
        "07",
        hint="ids of threads differ from run to run, so that does not repeat either; (base seed, epoch, index) does",
    ),
    Claim(
        "A19",
        "Running each task inside torch.random.fork_rng makes the randomness of torchvision safe on threads.",
        "07",
        hint="it saves and restores a state that belongs to the whole process",
    ),
    Claim(
        "A20",
        "A dictionary of futures from which nothing is removed grows by gigabytes.",
        "06",
        figures="about 2 GB in 1 000 epochs",
    ),
    Claim("A21", "Image.open reads late and keeps its file open, so it belongs in a with-block.", "06"),
    Claim("A22", "Breakpoints stop in threads with num_workers=0, and not in worker processes.", "04"),
    Claim(
        "A23",
        "A library whose cache is not thread-safe fails now and then in a background thread, where nobody sees it.",
        "04",
    ),
    Claim("A24", "Read and decode in threads, and leave random augmentation to collate_fn or the GPU.", "04"),
    Claim(
        "A25",
        "In most real image, audio and text loaders the time goes into waiting.",
        "02",
        figures="80 % of the cases",
        experiment=_SPEED + "claim_a25",
    ),
)

_WORKERS_PREFETCH_PINNING = (
    Claim(
        "B1",
        "Four workers make a dataset of 10 ms a sample almost three times as fast.",
        "03",
        figures="11 batches of 32: 3.52 s, then 1.28 s",
    ),
    Claim(
        "B2",
        "The best num_workers follows from the number of cores.",
        "03",
        figures="variously 70 to 80 % of the cores; min(8, cores); all cores; half; 0.5, 0.8 or 0.3 of them for "
        "light, ordinary and heavy samples",
        hint="the rules contradict one another, and for data that waits the best number is above the cores",
    ),
    Claim(
        "B3",
        "Speed rises with workers up to some point; past it only memory grows.",
        "03",
        figures="8 cores, 50 000 images, batches of 64; 0, 2, 4, 8, 16 workers: 142, 68, 47, 45, 46 s; 1.2, 2.1, "
        "3.4, 6.2, 11.5 GB; 25, 55, 80, 95, 98 % CPU",
    ),
    Claim("B4", "Add one or two workers at a time and stop once that gains less than 5 %.", "03"),
    Claim("B5", "Between 4 and 16 workers speed rises, at 32 it fluctuates.", "03"),
    Claim("B6", "Very small data sets, below a thousand samples, load fastest with num_workers=0.", "03"),
    Claim(
        "B7",
        "Workers that do not persist cost time at each epoch, which persistent_workers=True saves.",
        "03",
        figures="1 to 2 s an epoch, or more",
    ),
    Claim(
        "B8",
        "The first iteration is slow while workers start and queues fill, and a deeper queue helps.",
        "03",
        figures="prefetch_factor 3 to 4",
    ),
    Claim(
        "B9",
        "Each worker prefetches 2 batches unless told otherwise; more hides slow storage at the price of memory.",
        "03",
    ),
    Claim(
        "B10",
        "Copies to the device overlap only from pinned memory: without pin_memory=True, non_blocking=True changes "
        "nothing; without a GPU pinning is waste, and with little memory it can exhaust it.",
        "12",
    ),
    Claim(
        "B11",
        "Too many workers end in OSError 12, cannot allocate memory, or in a worker killed by a signal.",
        "13",
    ),
    Claim(
        "B12",
        "Where single samples are huge, several at once exhaust memory and fewer workers are faster.",
        "06",
        figures="CT volumes of 1 GB: 2 workers three times as fast as 8",
    ),
    Claim(
        "B13",
        "num_workers counts per rank, so a node runs that many processes times its GPUs.",
        "11",
        figures="8 workers on 8 GPUs: 64 processes",
    ),
    Claim("B14", "Starting workers costs more on Windows.", "03", figures="30 to 50 % more"),
    Claim(
        "B15",
        "Low GPU utilisation beside a busy CPU proves that the loader is the bottleneck.",
        "01",
        figures="utilisation below 30 %",
        hint="NVML reports a duty cycle over 1/6 s to 1 s, which can read high on a GPU that starves",
        experiment=_SPEED + "claim_b15",
    ),
    Claim("B16", "Tuning the loader makes training at least twice as fast.", "14"),
    Claim(
        "B17",
        "On 16 to 32 cores begin with 8 workers, prefetch 2, pinned and persistent, and go on to 12 and 16; if "
        "throughput stands still, storage is the limit.",
        "03",
    ),
    Claim(
        "B18",
        "Switching between threads costs a tenth of switching between processes, and an excess of workers shows in "
        "context switches.",
        "03",
        hint="voluntary and involuntary switches can be counted apart",
    ),
    Claim(
        "B19",
        "A batch twice as large needs about twice the activation memory, and twice the learning rate.",
        "12",
        hint="the memory can be measured without a GPU; the learning rate is a rule about training, not loading",
    ),
    Claim(
        "B20",
        "The workers of all ranks together should not outnumber the cores of the node.",
        "11",
        figures="one text says cores times GPUs instead",
    ),
    Claim("B21", "Loading and NCCL compete for bandwidth.", "11", hint="needs several GPUs"),
)

_WHERE_THE_TIME_GOES = (
    Claim(
        "C1",
        "Little of the loading time is disk; decoding, augmentation and collate take the rest.",
        "02",
        figures="the disk about a tenth",
        experiment=_SPEED + "claim_c1",
    ),
    Claim(
        "C2",
        "Timing the loader alone, then the training step alone, and comparing the two shows which side is at fault.",
        "01",
        experiment=_SPEED + "claim_c2",
    ),
    Claim("C3", "Workers that read the same disk compete, until more of them are slower.", "09"),
    Claim("C4", "Step time jumps when batches differ in cost, and a sampler that balances cost evens it out.", "10"),
    Claim(
        "C5",
        "Padding, masks and conversion to half precision belong in collate_fn; for text, padding to the longest of the "
        "batch matters more than workers.",
        "05",
    ),
    Claim(
        "C6",
        "A single corrupt or empty sample makes the loss NaN; a check in collate_fn that prints the index finds it.",
        "10",
    ),
    Claim("C7", "A small queue that buffers twice between loader and step hides part of the wait.", "12"),
)

_STORAGE = (
    Claim(
        "D1",
        "With hundreds of thousands of loose files metadata is the bottleneck, and tar shards are much faster.",
        "09",
        figures="webdataset about three times",
    ),
    Claim(
        "D2",
        "Shuffling the shards, and then inside a buffer, is in practice as good as shuffling everything.",
        "09",
    ),
    Claim(
        "D3",
        "Random reads from LMDB are far faster than from loose files.",
        "09",
        figures="10 to 100 times",
    ),
    Claim("D4", "A memory-mapped array needs no explicit read and performs steadily.", "09"),
    Claim("D5", "HDF5 and Parquet mean fewer copies and fewer fragments.", "09"),
    Claim(
        "D6",
        "A cache in tiers (local disk, page cache, remote prefetch) halves the training time, where plain remote reads "
        "stall for seconds now and then.",
        "09",
    ),
    Claim("D7", "Compressing remote data trades CPU for network, and usually gains.", "09"),
    Claim(
        "D8",
        "Everything together multiplies the speed: shards, persistent and pinned workers just below the cores, "
        "prefetch 4, local NVMe, decoding in hardware, one merged collate, even batches.",
        "09",
        figures="6 times; GPU utilisation from 60 to 95 %",
    ),
    Claim(
        "D9",
        "NVIDIA DALI speeds loading up.",
        "12",
        figures="200 to over 1 000 samples/s in one case, 20 to 30 % in another",
    ),
)

_MEMORY = (
    Claim("E1", "A dataset that appends what it has read grows without end.", "06"),
    Claim(
        "E2",
        "Python's reference counts make forked workers copy the pages they read, so a large list multiplies.",
        "06",
    ),
    Claim("E3", "Reading everything in __init__ multiplies memory by the number of workers.", "06"),
    Claim("E4", "The queues hold num_workers times prefetch_factor batches.", "06"),
    Claim(
        "E5",
        "Log files, writers and database connections accumulate where workers are created again and again.",
        "06",
    ),
    Claim(
        "E6",
        "First tell host memory from GPU memory; then suspect prefetch and workers, and last the attributes of the "
        "dataset.",
        "06",
    ),
)

_RANDOMNESS_ORDER_SHARDS = (
    Claim(
        "F1",
        "To repeat a run one needs the seed of torch, the seed of NumPy and the loader's generator.",
        "07",
        hint="torch 2.14.1 seeds Python's generator, NumPy's global one and its own in each worker; a generator held "
        "by the dataset is copied instead, and repeats",
    ),
    Claim(
        "F2",
        "Workers of an IterableDataset all deliver the same samples, unless the dataset divides them.",
        "11",
        hint="reproduced",
    ),
    Claim(
        "F3",
        "A shuffle inside such a dataset repeats samples: randomness belongs outside the workers.",
        "11",
    ),
    Claim(
        "F4",
        "With W ranks, a DistributedSampler gives rank r the samples r, r+W and so on, in an order that never changes "
        "unless set_epoch is called.",
        "11",
    ),
    Claim("F5", "Divide streams by file, and have many more shards than processes.", "11"),
    Claim(
        "F6",
        "The global batch is the batch of a rank times the ranks, and results change where that is forgotten.",
        "11",
    ),
    Claim(
        "F7",
        "shuffle=True beside a sampler raises an error, and on an IterableDataset it merely has no effect.",
        "13",
        hint="both raise",
    ),
    Claim("F8", "drop_last=True protects BatchNorm from a last batch with hardly anything in it.", "10"),
    Claim(
        "F9",
        "Validation and test data are never shuffled, so that outputs stay aligned with them.",
        "11",
        hint="so an evaluation loader that does not shuffle is right",
    ),
)

_ERRORS = (
    Claim(
        "G1",
        "'DataLoader worker (pid …) is killed by signal' stands for too little memory or a crash in native code.",
        "13",
    ),
    Claim(
        "G2",
        "'cannot pickle _thread.lock' means that the dataset has a connection, handle or lock among its attributes.",
        "13",
        hint="only where workers are not forked",
    ),
    Claim(
        "G3",
        "With workers, a lambda as collate_fn fails to pickle.",
        "13",
        hint="with spawn or forkserver; forked workers accept it",
    ),
    Claim("G4", "On Windows, a loader used at module level starts processes without end.", "13"),
    Claim("G5", "Samples of varying length cannot be stacked by the default collate.", "10"),
    Claim("G6", "Exceptions raised in workers reach the main process with part of their stack missing.", "13"),
)

_ENVIRONMENT = (
    Claim(
        "H1",
        "A ready-made CUDA container with Jupyter makes environments equal.",
        "00",
        hint="the 64 MB of /dev/shm a container gets by default is a fault of its own",
    ),
    Claim(
        "H2",
        "strace -f -c, perf stat, py-spy, nvidia-smi, htop and torch.profiler show where a loader spends its time.",
        "02",
        hint="torch.utils.bottleneck, often named with them, is gone from torch 2.14",
    ),
)

CLAIMS: Mapping[str, Claim] = MappingProxyType(
    {
        claim.id: claim
        for claim in (
            *_THREADS_INSIDE_THE_DATASET,
            *_WORKERS_PREFETCH_PINNING,
            *_WHERE_THE_TIME_GOES,
            *_STORAGE,
            *_MEMORY,
            *_RANDOMNESS_ORDER_SHARDS,
            *_ERRORS,
            *_ENVIRONMENT,
        )
    }
)


def claim(id: str) -> Claim:
    """The claim with this id.

    Raises:
        BadInputError: there is no such claim.
    """
    if id not in CLAIMS:
        raise BadInputError("There is no claim with this id", seen=repr(id), way_out=f"use one of {', '.join(CLAIMS)}")
    return CLAIMS[id]


@dataclass(frozen=True, repr=False)
class Verdict(Record):
    """What an experiment says about a claim on this machine; make one with a constructor named after the verdict.

    Args:
        claim_id: an id from `CLAIMS`.
        verdict: one of `VERDICTS`.
        depends_on: the variable that decides, for "depends".
        evidence: what was measured, each with its number, unit and sample count.
        reason: why there is no answer, for "not testable here" and "undecided"; otherwise a remark.
    """

    claim_id: str
    verdict: str
    depends_on: str = ""
    evidence: tuple[str, ...] = ()
    reason: str = ""

    title = "Verdict on a claim"

    def __post_init__(self):
        # The id is left to the constructors below: a file saved by a version with more claims must still open.
        problem = _problem(self)
        if problem:
            raise BadInputError("This is not a verdict on a claim", seen=f"{self.claim_id}: {problem}")

    @classmethod
    def confirmed(cls, claim_id: str, *evidence: str, reason: str = "") -> Verdict:
        return cls(claim(claim_id).id, "confirmed", evidence=evidence, reason=reason)

    @classmethod
    def refuted(cls, claim_id: str, *evidence: str, reason: str = "") -> Verdict:
        return cls(claim(claim_id).id, "refuted", evidence=evidence, reason=reason)

    @classmethod
    def depends(cls, claim_id: str, on: str, *evidence: str, reason: str = "") -> Verdict:
        """It holds for some values of the variable `on` and not for others."""
        return cls(claim(claim_id).id, "depends", depends_on=on, evidence=evidence, reason=reason)

    @classmethod
    def not_testable(cls, claim_id: str, reason: str, *evidence: str) -> Verdict:
        """This machine lacks what the experiment needs, or the claim is not about loading."""
        return cls(claim(claim_id).id, "not testable here", evidence=evidence, reason=reason)

    @classmethod
    def undecided(cls, claim_id: str, reason: str, *evidence: str) -> Verdict:
        """It was measured, and the noise or the number of samples allows no answer."""
        return cls(claim(claim_id).id, "undecided", evidence=evidence, reason=reason)

    @property
    def status(self) -> str:
        """The verdict in words, with what decides or why there is none."""
        if self.verdict == "depends":
            return f"depends on {self.depends_on}"
        if self.verdict in ("not testable here", "undecided") and self.reason:
            return f"{self.verdict}: {self.reason}"
        return self.verdict

    def rows(self) -> tuple[Row, ...]:
        known = CLAIMS.get(self.claim_id)
        without_answer = self.verdict in ("not testable here", "undecided")
        remark = [] if without_answer or not self.reason else [Row("remark", self.reason)]
        return (
            Row("claim", f"{self.claim_id}: {known.claim if known else 'not in the ledger of this version'}"),
            Row("verdict", self.status, "missing" if without_answer else "ok"),
            *(Row("evidence", line) for line in self.evidence),
            *remark,
        )


def _problem(verdict: Verdict) -> str:
    """What is missing from a verdict, or "" when nothing is."""
    if verdict.verdict not in VERDICTS:
        return f"{verdict.verdict!r} is none of {', '.join(VERDICTS)}"
    if isinstance(verdict.evidence, str):
        return "evidence is a tuple of strings, not one string"
    if verdict.verdict in ("confirmed", "refuted") and not any(line.strip() for line in verdict.evidence):
        return f"{verdict.verdict!r} without evidence is an opinion: pass what was measured"
    if not all(any(character.isdigit() for character in line) for line in verdict.evidence):
        return "every piece of evidence needs its number"
    if verdict.verdict == "depends" and not verdict.depends_on.strip():
        return "'depends' needs the variable that decides"
    if verdict.verdict == "not testable here" and not verdict.reason.strip():
        return "'not testable here' needs the reason"
    return ""


class LedgerRow(NamedTuple):
    """One line of the ledger as it is shown."""

    id: str
    claim: str
    figures: str
    notebook: str
    status: str


def ledger_rows(verdicts: Iterable[Verdict] = ()) -> tuple[LedgerRow, ...]:
    """All claims in order, each with its verdict or with what is still missing; of two verdicts the later counts."""
    given = {claim(verdict.claim_id).id: verdict for verdict in verdicts}
    return tuple(
        LedgerRow(row.id, row.claim, row.figures, row.notebook, _status(row, given.get(row.id)))
        for row in CLAIMS.values()
    )


def _status(row: Claim, verdict: Verdict | None) -> str:
    if verdict is not None:
        return verdict.status
    if row.experiment is None:
        return "experiment not built yet"
    return f"not yet measured here: run notebook {row.notebook}"
