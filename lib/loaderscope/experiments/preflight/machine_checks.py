"""Checks of the machine: pure functions of an Environment."""

from __future__ import annotations

import math

from loaderscope.records import Check, Environment, NotMeasured, is_measured, text

# Other jobs that leave us less than this part of the allowed cores decide what a loader can do; above it they only
# make measurements noisy, which is a note.
BUSY_WARN_SHARE = 0.5
# A process that has imported torch holds 0.2 to 0.5 GiB of its own (seen: 0.5 GiB with the CUDA build); below this a
# few spawned workers do not fit.
MEMORY_WARN_BYTES = 2 * 2**30
# Containers start with 64 MB, which one prefetched image batch per worker overruns; 1 GiB holds 8 workers x 2 batches
# of 64 MB.
SHM_WARN_BYTES = 2**30
# The usual soft limit of a Linux shell. Fewer is unusual, and each tensor on its way from a worker may hold a file.
OPEN_FILES_WARN = 1024
# With this part of the limit in use before a loader starts, something is already leaking or the limit is too low.
OPEN_FILES_USED_SHARE = 0.8
# "some" averages over 10 s, in percent. Cores and disks are often waited for in healthy training, so these are notes.
PRESSURE_NOTE = {"CPU": 25.0, "I/O": 20.0}
# Tasks that wait for memory mean that the kernel is taking pages back from somebody: never healthy.
PRESSURE_MEMORY_WARN = 10.0
# A thread pool of this many times the cores allowed is throttled by the quota instead of running in parallel.
THREADS_WARN_RATIO = 2.0


def machine_checks(env: Environment, idle_gpu: str = "") -> tuple[Check, ...]:
    """One or more checks for each of: cores, memory, /dev/shm, open files, pressure, threads, software, GPU.

    Args:
        env: the machine.
        idle_gpu: name of a GPU that is there and that this build of torch cannot use, or "".
    """
    pressures = (_pressure("CPU", env.pressure_cpu), _pressure("I/O", env.pressure_io), _memory_pressure(env))
    checks = (_cores(env), _busy(env), _memory(env), _shm(env), _open_files(env), *pressures)
    return (*checks, _threads(env), _start_method(env), _python(env), _gpu(env, idle_gpu))


def _missing(name: str, value: NotMeasured, way_out: str = "") -> Check:
    return Check(name, "missing", str(value), way_out)


def _cores(env: Environment) -> Check:
    allowed = env.cores_allowed
    if allowed >= env.cores_logical:
        return Check("cores", "ok", f"all {text.count(env.cores_logical, 'core')} may be used")
    affinity = env.cores_affinity if is_measured(env.cores_affinity) else env.cores_logical
    quota = env.cores_quota if is_measured(env.cores_quota) else math.inf
    if quota < affinity:
        way_out = "plan workers and threads for that number, or ask for more CPU (docker --cpus, limits.cpu)"
        seen = f"a cgroup quota allows {quota:.3g} of {text.count(env.cores_logical, 'core')}, unseen by os.cpu_count()"
        return Check("cores", "warn" if quota < 1 else "note", seen, way_out)
    seen = f"this process is bound to {affinity} of {text.count(env.cores_logical, 'core')}"
    if affinity > 1:
        return Check("cores", "note", seen, "plan workers and threads for that number, or widen it (taskset, srun -c)")
    way_out = "look for what binds it: taskset, srun -c, or a library that sets the affinity when imported"
    return Check("cores", "warn", seen, way_out, "cpu-affinity")


def _busy(env: Environment) -> Check:
    name, measured = "cores received", env.cores_measured
    if not is_measured(measured):
        return _missing(name, measured)
    seen = f"{measured:.2f} of the {env.cores_allowed:.3g} allowed, measured with spinning processes"
    if not env.busy:
        return Check(name, "ok", seen)
    way_out = "close other jobs, or read every time measured now as one on a busy machine"
    much = measured < BUSY_WARN_SHARE * env.cores_allowed
    return Check(name, "warn" if much else "note", f"{seen}: other jobs are running", way_out)


def _memory(env: Environment) -> Check:
    available, limit = env.memory_available_bytes, env.memory_limit_bytes
    if not is_measured(available):
        return _missing("memory", available)
    seen = f"{text.size(available)} available"
    if is_measured(limit):
        seen += f" under a cgroup limit of {text.size(limit)}"
    if is_measured(env.memory_total_bytes):
        seen += f"; the machine has {text.size(env.memory_total_bytes)}"
    if available < MEMORY_WARN_BYTES:
        way_out = (
            "close other programs, raise the container's limit, or use fewer workers and a smaller prefetch_factor"
        )
        return Check("memory", "warn", seen, way_out)
    return Check("memory", "note" if is_measured(limit) else "ok", seen)


def _shm(env: Environment) -> Check:
    total, free = env.shm_total_bytes, env.shm_free_bytes
    if not is_measured(total):
        return _missing("/dev/shm", total)
    seen = f"{text.size(free)} free of {text.size(total)}; workers hand over their tensors through it"
    if total < SHM_WARN_BYTES:
        way_out = "start the container with --shm-size=8g or --ipc=host (Kubernetes: an emptyDir with medium: Memory)"
        return Check("/dev/shm", "warn", seen, way_out, "shm-exhausted")
    if free < SHM_WARN_BYTES:
        way_out = "see what fills it: ls -lS /dev/shm; names that start with torch_ may be left from a killed run"
        return Check("/dev/shm", "warn", seen, way_out, "shm-exhausted")
    return Check("/dev/shm", "ok", seen)


def _open_files(env: Environment) -> Check:
    limit, now = env.open_files_limit, env.open_files_now
    if not is_measured(limit):
        return _missing("open files", limit)
    seen = f"{limit:,} at most" + (f", {now:,} open now" if is_measured(now) else "")
    used = is_measured(now) and now > OPEN_FILES_USED_SHARE * limit
    if limit >= OPEN_FILES_WARN and not used:
        return Check("open files", "ok", seen)
    if env.sharing_strategy == "file_descriptor":
        seen += "; each tensor on its way from a worker holds one"
    way_out = "raise it before Python starts (ulimit -n 65536) or inside it (resource.setrlimit)"
    return Check("open files", "warn", seen, way_out, "fd-exhausted")


def _pressure(what: str, value: float | NotMeasured) -> Check:
    name = f"{what} pressure"
    if not is_measured(value):
        return _missing(name, value)
    seen = f"some task waited for it in {value:.0f} % of the last 10 s"
    if value <= PRESSURE_NOTE[what]:
        return Check(name, "ok", seen)
    return Check(name, "note", f"{seen}: measurements will be noisy", "close other jobs, or repeat with more batches")


def _memory_pressure(env: Environment) -> Check:
    value = env.pressure_memory
    if not is_measured(value):
        return _missing("memory pressure", value)
    seen = f"some task waited for memory in {value:.0f} % of the last 10 s"
    if value <= PRESSURE_MEMORY_WARN:
        return Check("memory pressure", "ok", seen)
    return Check("memory pressure", "warn", seen, "use fewer workers or a smaller prefetch_factor, or close programs")


def _threads(env: Environment) -> Check:
    pools = [("torch", env.torch_threads), *((pool.library, pool.threads) for pool in env.thread_pools)]
    seen = ", ".join(f"{library} {threads}" for library, threads in pools)
    seen += f" for {text.count(math.ceil(env.cores_allowed), 'core')} allowed"
    most = max(threads for _, threads in pools)
    if most < THREADS_WARN_RATIO * math.ceil(env.cores_allowed) or most == 1:
        return Check("thread pools", "ok", seen)
    way_out = f"OMP_NUM_THREADS={math.ceil(env.cores_allowed)} before Python starts, or torch.set_num_threads"
    return Check("thread pools", "warn", seen, way_out, "thread-oversubscription")


def _start_method(env: Environment) -> Check:
    if env.start_method == "fork":
        return Check(
            "start method", "ok", "fork: workers begin as copies of this process, with its open files and locks"
        )
    seen = f"{env.start_method}: the dataset is pickled for each worker, and its class must be importable there"
    return Check(
        "start method", "note", seen, "keep datasets in a module, and scripts under if __name__ == '__main__':"
    )


def _python(env: Environment) -> Check:
    seen = f"Python {env.python}, torch {env.torch}"
    if env.free_threaded:
        return Check("software", "note", f"{seen}, without a GIL: threads may replace worker processes")
    return Check("software", "ok", seen)


def _gpu(env: Environment, idle: str) -> Check:
    if is_measured(env.gpu):
        return Check("GPU", "ok", str(env.gpu))
    if idle:
        way_out = 'install torch\'s CUDA build (pytorch.org, "Get started"): no loader can help a GPU that is not used'
        return Check("GPU", "warn", f"the {idle} cannot be used: torch {env.torch} is built without CUDA", way_out)
    return _missing("GPU", env.gpu)
