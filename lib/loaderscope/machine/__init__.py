"""What machine is this? Usable cores, memory, /dev/shm, open files, pressure, start method, thread pools, GPU.

Every value that the platform does not give is `NotMeasured(reason)`; nothing here starts a device.
"""

from __future__ import annotations

import platform

from loaderscope.clock import SYSTEM, SystemClock
from loaderscope.machine import accelerator, cgroups, cores, kernel_files, memory, software
from loaderscope.machine.cores import measure_cores
from loaderscope.records import Environment, NotMeasured

__all__ = ["measure_cores", "read_environment"]


def read_environment(*, measure: bool = True, clock: SystemClock = SYSTEM, root: str = "/") -> Environment:
    """The machine and process as they are now.

    Args:
        measure: also measure the cores really received, which takes about 0.4 s (0.6 s under a CPU quota).
            Without it the reading takes a few milliseconds once torch is imported.
        clock: for the date and the measurement's patience.
        root: where /proc, /sys and /dev are; another folder plays another machine in tests.
    """
    quota, affinity = cgroups.cpu_quota(root), cores.affinity_cores()
    unmeasured = NotMeasured("not asked for: read_environment(measure=True) measures it")
    total, limit, available = memory.read_memory(root)
    shm_total, shm_free = memory.read_shm(root)
    return Environment(
        taken=clock.today(),
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        cores_logical=cores.logical_cores(),
        cores_affinity=affinity,
        cores_quota=quota.cores if isinstance(quota, cgroups.Quota) else quota,
        cores_measured=measure_cores(root=root, clock=clock) if measure else unmeasured,
        memory_total_bytes=total,
        memory_limit_bytes=limit,
        memory_available_bytes=available,
        shm_total_bytes=shm_total,
        shm_free_bytes=shm_free,
        open_files_limit=memory.open_files_limit(),
        open_files_now=memory.open_files_now(root),
        pressure_cpu=kernel_files.pressure("cpu", root),
        pressure_io=kernel_files.pressure("io", root),
        pressure_memory=kernel_files.pressure("memory", root),
        load=kernel_files.load_average(root),
        start_method=software.start_method(),
        gpu=accelerator.read_accelerator(root),
        free_threaded=software.free_threaded(),
        thread_pools=software.thread_pools(root),
        **_torch_state(),
    )


def _torch_state() -> dict[str, str | int]:
    import torch

    return {
        "torch": str(torch.__version__),
        "sharing_strategy": torch.multiprocessing.get_sharing_strategy(),
        "torch_threads": torch.get_num_threads(),
    }
