"""What machine a measurement was made on."""

from __future__ import annotations

from dataclasses import dataclass

from loaderscope.records import text
from loaderscope.records.base import NotMeasured, Record, Row, is_measured, register, row


@register
@dataclass(frozen=True)
class ThreadPool:
    """A native thread pool of this process: library ("torch", "openblas", "opencv", …) and its thread count."""

    library: str
    threads: int


@dataclass(frozen=True, repr=False)
class Environment(Record):
    """The machine and process a record was measured in.

    Cores are counts of CPU cores (a quota may be a fraction); memory and shm in bytes; pressure values are the
    10-second "some" averages of /proc/pressure in percent; load is the 1-minute load average.
    """

    taken: str
    platform: str
    python: str
    torch: str
    cores_logical: int
    cores_affinity: int | NotMeasured
    cores_quota: float | NotMeasured
    cores_measured: float | NotMeasured
    memory_total_bytes: int | NotMeasured
    memory_limit_bytes: int | NotMeasured
    memory_available_bytes: int | NotMeasured
    shm_total_bytes: int | NotMeasured
    shm_free_bytes: int | NotMeasured
    open_files_limit: int | NotMeasured
    open_files_now: int | NotMeasured
    pressure_cpu: float | NotMeasured
    pressure_io: float | NotMeasured
    pressure_memory: float | NotMeasured
    load: float | NotMeasured
    start_method: str
    sharing_strategy: str
    torch_threads: int
    thread_pools: tuple[ThreadPool, ...]
    gpu: str | NotMeasured
    free_threaded: bool = False

    title = "Environment"

    @property
    def cores_allowed(self) -> float:
        """The cores this process may use by affinity and by quota, whichever is less."""
        limits = [c for c in (self.cores_affinity, self.cores_quota) if is_measured(c)]
        return float(min(limits)) if limits else float(self.cores_logical)

    @property
    def usable_cores(self) -> float:
        """The cores this process really gets: measured where that was done, never more than allowed."""
        if is_measured(self.cores_measured):
            return min(float(self.cores_measured), self.cores_allowed)
        return self.cores_allowed

    @property
    def busy(self) -> bool:
        """Other jobs take a noticeable part of the allowed cores (measured 15 % less than allowed)."""
        return is_measured(self.cores_measured) and self.cores_measured < 0.85 * self.cores_allowed

    def rows(self) -> tuple[Row, ...]:
        status = "warning" if self.busy or self.cores_allowed < self.cores_logical else "ok"
        memory = self.memory_limit_bytes if is_measured(self.memory_limit_bytes) else self.memory_total_bytes
        return (
            Row("cores", self._cores_text(), status),
            row("memory", memory, text.size),
            row("/dev/shm", self.shm_total_bytes, text.size),
            row("open files", self.open_files_limit, lambda v: f"{v:,} at most"),
            Row("start method", self.start_method),
            row("GPU", self.gpu),
            Row(
                "software", f"Python {self.python}, torch {self.torch} ({self.torch_threads} threads), {self.platform}"
            ),
            row("CPU pressure", self.pressure_cpu, lambda v: f"{v:.0f} % of the last 10 s"),
        )

    def _cores_text(self) -> str:
        parts = [f"{self.usable_cores:.3g} usable of {self.cores_logical}"]
        if is_measured(self.cores_affinity) and self.cores_affinity < self.cores_logical:
            parts.append(f"affinity allows {self.cores_affinity}")
        if is_measured(self.cores_quota):
            parts.append(f"cgroup quota {self.cores_quota:.3g}")
        if is_measured(self.cores_measured):
            parts.append(f"measured {self.cores_measured:.2f}" + (", other jobs are running" if self.busy else ""))
        return "; ".join(parts)
