"""What the machine says about itself: on made-up /proc and /sys trees, in pinned children, and under a real quota."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from loaderscope import records
from loaderscope.errors import BadInputError
from loaderscope.machine import cgroups, cores, kernel_files, measure_cores, memory, read_environment, software
from loaderscope.records import NotMeasured, is_measured

GIB = 2**30
HUGE_V1 = 9223372036854771712
V1_CPU = "33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct"
V1_MEMORY = "36 32 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"


@pytest.fixture
def machine(tmp_path):
    """Makes a folder that plays /: a path and its content each."""

    def make(files: dict[str, object]) -> str:
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return str(tmp_path)

    return make


def group_files(where: str, groups: str, *mounts: str, **files: object) -> dict[str, object]:
    listed = {f"{where}/{name.replace('__', '.')}": text for name, text in files.items()}
    return {"proc/self/cgroup": groups, "proc/self/mountinfo": "\n".join(mounts), **listed}


def run_python(code: str, *, timeout: float = 60) -> dict:
    """Run code in a fresh interpreter; it prints one line of JSON."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# --- CPU quota ----------------------------------------------------------------------------------------------------


def v1_level(folder: str, quota: object, period: object = 100000) -> dict[str, object]:
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}


def test_quota_of_version_1_is_found_and_the_parent_counts_too(machine):
    base = "sys/fs/cgroup/cpu,cpuacct"
    root = machine(
        group_files("", "4:cpu,cpuacct:/a/b\n0::/", V1_CPU)
        | v1_level(base, -1) | v1_level(f"{base}/a", 150000) | v1_level(f"{base}/a/b", 400000)
    )  # fmt: skip
    assert cgroups.cpu_quota(root) == cgroups.Quota(1.5, 0.1)


def test_no_quota_in_version_1_is_a_reason_not_a_number(machine):
    base = "sys/fs/cgroup/cpu,cpuacct"
    root = machine(group_files("", "4:cpu,cpuacct:/a", V1_CPU) | v1_level(base, -1) | v1_level(f"{base}/a", -1))
    quota = cgroups.cpu_quota(root)
    assert quota == NotMeasured("no CPU quota is set")


def test_quota_of_version_2_walks_up_to_the_tightest(machine):
    base = "sys/fs/cgroup"
    files = {
        f"{base}/cgroup.procs": "",
        f"{base}/pod/cpu.max": "25000 50000",
        f"{base}/pod/job/cpu.max": "300000 100000",
        f"{base}/pod/job/step/cpu.max": "max 100000",
    }
    root = machine(group_files("", "0::/pod/job/step", V2) | files)
    assert cgroups.cpu_quota(root) == cgroups.Quota(0.5, 0.05)


def test_hybrid_reads_version_1_beside_an_empty_version_2(machine):
    files = v1_level("sys/fs/cgroup/cpu,cpuacct/x", 80000) | {"sys/fs/cgroup/unified/cgroup.procs": "1"}
    root = machine(group_files("", "1:cpu,cpuacct:/x\n0::/x", V1_CPU, UNIFIED) | files)
    assert cgroups.cpu_quota(root) == cgroups.Quota(0.8, 0.1)
    only_unified = machine(group_files("", "0::/x", UNIFIED))
    assert "no cgroup with a cpu controller" in cgroups.cpu_quota(only_unified).reason


def test_container_sees_only_its_part_of_the_tree(machine):
    mount = "33 32 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu"
    root = machine(group_files("", "3:cpu:/docker/abc/inner", mount) | v1_level("sys/fs/cgroup/cpu", 200000))
    assert cgroups.cpu_quota(root) == cgroups.Quota(2.0, 0.1)
    # A group outside what is mounted: the mount itself is the nearest there is.
    root = machine({"proc/self/cgroup": "3:cpu:/elsewhere"})
    assert cgroups.cpu_quota(root) == cgroups.Quota(2.0, 0.1)
    # Seen from a cgroup namespace below it.
    root = machine(group_files("", "3:cpu:/../..", mount.replace("/docker/abc", "/")))
    assert cgroups.cpu_quota(root) == cgroups.Quota(2.0, 0.1)


def test_a_mount_point_with_a_space(machine):
    mount = r"33 32 0:29 / /mnt/c\040g rw - cgroup2 cgroup2 rw"
    root = machine(group_files("", "0::/q", mount) | {"mnt/c g/q/cpu.max": "70000 100000"})
    assert cgroups.cpu_quota(root).cores == pytest.approx(0.7)


@pytest.mark.parametrize(
    "content", ["", "max", "max 100000", "abc 100000", "100000", "0 0", "50000 0", "-1 100000", "\0"]
)
def test_odd_contents_of_cpu_max_are_no_quota(machine, content):
    root = machine(group_files("", "0::/q", V2) | {"sys/fs/cgroup/q/cpu.max": content})
    assert cgroups.cpu_quota(root) == NotMeasured("no CPU quota is set")


@pytest.mark.parametrize("quota, period", [("", 100000), (0, 100000), (50000, 0), ("x", "y"), (50000, "")])
def test_odd_contents_of_version_1_are_no_quota(machine, quota, period):
    root = machine(group_files("", "4:cpu,cpuacct:/", V1_CPU) | v1_level("sys/fs/cgroup/cpu,cpuacct", quota, period))
    assert cgroups.cpu_quota(root) == NotMeasured("no CPU quota is set")


@pytest.mark.parametrize(
    "groups, mounts", [("garbage", "x - y"), ("0::/a", "1 2 3 - cgroup2"), ("", ""), (":::", " - ")]
)
def test_unreadable_group_lists_are_a_reason(machine, groups, mounts):
    root = machine({"proc/self/cgroup": groups, "proc/self/mountinfo": mounts})
    assert "no cgroup with a cpu controller" in cgroups.cpu_quota(root).reason
    assert "no cgroup with a memory controller" in cgroups.memory_limit(GIB, root).reason


# --- memory -------------------------------------------------------------------------------------------------------


MEMINFO = "MemTotal:       67108864 kB\nMemFree:  1 kB\nMemAvailable:   50331648 kB"


def test_memory_of_version_1_and_its_no_limit_value(machine):
    base = "sys/fs/cgroup/memory"
    files = {
        "proc/meminfo": MEMINFO,
        f"{base}/memory.limit_in_bytes": HUGE_V1,
        f"{base}/job/memory.limit_in_bytes": HUGE_V1,
    }
    root = machine(group_files("", "5:memory:/job", V1_MEMORY) | files)
    total, limit, available = memory.read_memory(root)
    assert (total, available) == (64 * GIB, 48 * GIB)
    assert "no memory limit is set" in limit.reason

    root = machine(
        {
            f"{base}/job/memory.limit_in_bytes": 8 * GIB,
            f"{base}/job/memory.usage_in_bytes": 7 * GIB,
            # Page cache that the kernel gives back before the limit bites.
            f"{base}/job/memory.stat": f"cache 1\ninactive_file 5\ntotal_inactive_file {3 * GIB}",
        }
    )
    assert memory.read_memory(root) == (64 * GIB, 8 * GIB, 4 * GIB)


def test_memory_of_version_2_takes_the_tightest_and_the_fullest_level(machine):
    base = "sys/fs/cgroup"
    files = {
        "proc/meminfo": MEMINFO,
        f"{base}/pod/memory.max": 10 * GIB,
        f"{base}/pod/memory.current": 9 * GIB,
        f"{base}/pod/job/memory.max": 4 * GIB,
        f"{base}/pod/job/memory.current": 2 * GIB,
        f"{base}/pod/job/step/memory.max": "max",
    }
    root = machine(group_files("", "0::/pod/job/step", V2) | files)
    assert memory.read_memory(root) == (64 * GIB, 4 * GIB, 1 * GIB)


def test_a_limit_above_the_machine_limits_nothing(machine):
    files = {"proc/meminfo": MEMINFO, "sys/fs/cgroup/q/memory.max": 65 * GIB, "sys/fs/cgroup/q/memory.current": GIB}
    root = machine(group_files("", "0::/q", V2) | files)
    total, limit, available = memory.read_memory(root)
    assert not is_measured(limit) and available == 48 * GIB and total == 64 * GIB


def test_available_never_exceeds_what_the_machine_has_left(machine):
    little = "MemTotal: 67108864 kB\nMemAvailable: 1048576 kB"
    files = {"proc/meminfo": little, "sys/fs/cgroup/q/memory.max": 32 * GIB, "sys/fs/cgroup/q/memory.current": 0}
    root = machine(group_files("", "0::/q", V2) | files)
    assert memory.read_memory(root) == (64 * GIB, 32 * GIB, GIB)


def test_real_memory_shm_and_files_are_plausible(tmp_path):
    total, _, available = memory.read_memory()
    assert 0 < available <= total == psutil.virtual_memory().total
    shm_total, shm_free = memory.read_shm()
    if is_measured(shm_total):
        assert 0 <= shm_free <= shm_total
    assert "does not answer" in memory.read_shm(str(tmp_path))[0].reason
    before = memory.open_files_now()
    with open(os.devnull), open(os.devnull):
        assert memory.open_files_now() == before + 2


def test_the_soft_limit_of_open_files_is_the_one_read():
    seen = run_python("""
        import json, resource
        from loaderscope.machine import memory
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        print(json.dumps({"limit": memory.open_files_limit()}))
    """)
    assert seen["limit"] == 300


# --- pressure and load --------------------------------------------------------------------------------------------


def test_pressure_is_the_short_average_of_the_some_line(machine):
    psi = "some avg10=12.50 avg60=3.00 avg300=1.00 total=99\nfull avg10=7.00 avg60=0.00 avg300=0.00 total=1"
    root = machine({"proc/pressure/io": psi, "proc/pressure/cpu": "some avg10=oops", "proc/loadavg": "3.25 1 1 1/9 7"})
    assert kernel_files.pressure("io", root) == 12.5
    assert "no readable" in kernel_files.pressure("cpu", root).reason
    assert "gives no /proc/pressure/memory" in kernel_files.pressure("memory", root).reason
    assert kernel_files.load_average(root) == 3.25


# --- the whole record ---------------------------------------------------------------------------------------------


def test_an_empty_machine_gives_reasons_everywhere_and_survives_saving(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    env = read_environment(measure=False, root=str(root))
    for name in (
        "cores_quota cores_measured memory_limit_bytes shm_total_bytes shm_free_bytes open_files_now "
        "pressure_cpu pressure_io pressure_memory load gpu"
    ).split():
        value = getattr(env, name)
        assert isinstance(value, NotMeasured) and len(value.reason) > 10, name
    assert env.thread_pools == ()
    assert records.load(env.save(tmp_path / "env.json")) == env


def test_a_limited_machine_reaches_the_record(machine):
    files = {"sys/fs/cgroup/q/cpu.max": "50000 100000", "proc/meminfo": MEMINFO, "sys/fs/cgroup/q/memory.max": GIB}
    env = read_environment(measure=False, root=machine(group_files("", "0::/q", V2) | files))
    assert env.cores_quota == 0.5 == env.cores_allowed == env.usable_cores
    assert env.memory_limit_bytes == GIB
    shown = {row.label: row for row in env.rows()}
    assert shown["cores"].status == "warning" and "cgroup quota 0.5" in shown["cores"].value
    assert shown["/dev/shm"].status == "missing"


def test_without_measuring_no_process_is_started(monkeypatch, fake_clock):
    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    env = read_environment(measure=False, clock=fake_clock)
    assert env.taken == fake_clock.today() and "measure=True" in env.cores_measured.reason
    assert env.cores_logical == os.cpu_count() and env.torch_threads >= 1


def test_reading_changes_no_state_and_starts_no_device():
    seen = run_python("""
        import json, multiprocessing, os, sys
        import psutil, torch
        from loaderscope.machine import read_environment
        def drivers():
            return {m.path for m in psutil.Process().memory_maps() if "libcuda.so" in m.path or "nvidia-ml" in m.path}
        loaded = drivers()
        threads, environ, children = psutil.Process().num_threads(), dict(os.environ), psutil.Process().children()
        env = read_environment()
        fixed = multiprocessing.get_start_method(allow_none=True)
        assert psutil.Process().num_threads() == threads and dict(os.environ) == environ
        assert psutil.Process().children() == children
        multiprocessing.set_start_method("spawn")
        print(json.dumps({
            "fixed": fixed, "default": env.start_method, "set": read_environment(measure=False).start_method,
            "expected": multiprocessing.get_all_start_methods()[0], "drivers": sorted(drivers() - loaded),
            "cuda": torch.cuda.is_initialized(), "strategy": env.sharing_strategy,
            "cv2": "cv2" in sys.modules, "measured": isinstance(env.cores_measured, float),
        }))
    """)
    assert seen["fixed"] is None, "reading the start method fixed it for the reader"
    assert seen["default"] == seen["expected"] and seen["set"] == "spawn"
    assert not seen["drivers"] and not seen["cuda"] and not seen["cv2"] and seen["measured"]
    assert seen["strategy"] in ("file_descriptor", "file_system")


def test_native_pools_tell_their_own_count():
    seen = run_python("""
        import json, os
        os.environ["OPENBLAS_NUM_THREADS"] = "3"
        import numpy, types, sys
        from loaderscope.machine import software
        before = [(p.library, p.threads) for p in software.thread_pools()]
        sys.modules["cv2"] = types.SimpleNamespace(getNumThreads=lambda: 7)
        print(json.dumps({"pools": before, "after": [(p.library, p.threads) for p in software.thread_pools()]}))
    """)
    maps = Path("/proc/self/maps")
    if not maps.exists() or "openblas" not in maps.read_text():
        pytest.skip("this NumPy brings no OpenBLAS, so there is no pool to ask")
    # OpenBLAS itself never starts more threads than there are cores.
    assert ["openblas", min(3, os.cpu_count())] in seen["pools"]
    assert seen["after"] == [*seen["pools"], ["opencv", 7]]


def test_libraries_that_are_not_loaded_are_not_loaded_by_asking(machine):
    root = machine(
        {"proc/self/maps": "7f00-7f01 r-xp 0 08:01 7   /nowhere/libopenblas.so.0\n7f01-7f02 rw-p 0 0:0 0 [heap]"}
    )
    assert software.thread_pools(root) == ()


# --- accelerator --------------------------------------------------------------------------------------------------


def nvidia(*models: str) -> dict[str, str]:
    return {
        f"proc/driver/nvidia/gpus/0000:0{i}:00.0/information": f"Model: \t\t {model}\nIRQ:   \t\t 37"
        for i, model in enumerate(models)
    }


@pytest.fixture
def torch_build(monkeypatch):
    import torch

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def build(cuda: str | None = None, hip: str | None = None) -> None:
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", hip)

    return build


def gpu_of(root: str) -> str | NotMeasured:
    return read_environment(measure=False, root=root).gpu


def test_nvidia_names_come_from_the_driver_files(machine, torch_build, monkeypatch):
    torch_build(cuda="13.0")
    root = machine(nvidia("NVIDIA H200", "NVIDIA H200", "NVIDIA L4"))
    assert gpu_of(root) == "2 x NVIDIA H200, NVIDIA L4"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpu_of(root) == "2 x NVIDIA H200, NVIDIA L4 (CUDA_VISIBLE_DEVICES=1)"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "hides the 2 x NVIDIA H200" in gpu_of(root).reason


def test_a_driver_without_names_still_shows_its_devices(machine, torch_build):
    torch_build(cuda="13.0")
    assert gpu_of(machine({"dev/nvidia0": "", "dev/nvidiactl": ""})) == "NVIDIA GPU (the driver does not list its name)"


def test_no_accelerator_says_why(machine, torch_build):
    torch_build(cuda="13.0")
    assert "no NVIDIA driver found" in gpu_of(machine({})).reason
    torch_build()
    assert "built without CUDA" in gpu_of(machine({})).reason
    assert "/dev/dxg" in gpu_of(machine({"dev/dxg": ""})).reason
    found = gpu_of(machine(nvidia("NVIDIA L4")))
    assert "built without CUDA and cannot use the NVIDIA L4" in found.reason


def test_amd_names_leave_out_the_cpu_node(machine, torch_build):
    torch_build(hip="6.3")
    nodes = "sys/class/kfd/kfd/topology/nodes"
    assert "no AMD GPU" in gpu_of(machine({f"{nodes}/0/properties": "cpu_cores_count 64\nsimd_count 0"})).reason
    root = machine({f"{nodes}/1/properties": "cpu_cores_count 0\nsimd_count 304", f"{nodes}/1/name": "aqua_vanjaram"})
    assert gpu_of(root) == "AMD aqua_vanjaram"


# --- cores, really ------------------------------------------------------------------------------------------------

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this platform cannot pin a process")


def test_measured_cores_are_near_what_there_is():
    allowed = cores.affinity_cores() if is_measured(cores.affinity_cores()) else os.cpu_count()
    if allowed > cores.MAX_SPINNERS:
        pytest.skip("more cores than the measurement loads")
    assert 0.3 <= measure_cores() <= allowed * 1.1


@needs_affinity
def test_a_pinned_child_counts_and_gets_one_core():
    seen = run_python("""
        import json, os
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        from loaderscope.machine import cores
        print(json.dumps({"affinity": cores.affinity_cores(), "one": cores.measure_cores(),
                          "asked for four": cores.measure_cores(0.3, 4)}))
    """)
    assert seen["affinity"] == 1
    assert 0.1 <= seen["one"] <= 1.15 and 0.1 <= seen["asked for four"] <= 1.15


@pytest.mark.parametrize(
    "quota, seconds",
    [
        (NotMeasured("none"), 0.3),
        (cgroups.Quota(0.5, 0.1), 0.5),
        (cgroups.Quota(0.5, 0.01), 0.3),
        (cgroups.Quota(2, 1), 2),
    ],
)
def test_the_window_spans_several_whole_periods_of_a_quota(monkeypatch, quota, seconds):
    monkeypatch.setattr(cores, "cpu_quota", lambda root: quota)
    monkeypatch.setattr(cores, "_run_spinners", lambda processes, window_s, clock: (processes, window_s))
    assert measure_cores(0.3, 1.5) == (2, pytest.approx(seconds))


def test_bad_requests_and_too_many_cores():
    with pytest.raises(BadInputError, match="seconds=0"):
        measure_cores(0)
    with pytest.raises(BadInputError, match="cores=-1"):
        measure_cores(0.1, -1)
    assert "at most 64" in measure_cores(0.1, 65).reason


def test_an_interpreter_that_cannot_start_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert "No such file" in measure_cores(0.1).reason
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "gave no answer" in measure_cores(0.1).reason


def test_callers_with_many_files_or_ignored_children_can_measure():
    seen = run_python("""
        import json, os, resource, signal
        from loaderscope.machine import cores
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1500, hard), hard))
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(min(1500, hard) - 50)]
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print(json.dumps({"cores": cores.measure_cores(0.2, 1), "most": max(held)}))
    """)
    assert isinstance(seen["cores"], float) and seen["cores"] > 0.05


def spinners(mark: str) -> list[psutil.Process]:
    """Running processes of the measurement whose window is `mark` seconds long."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if mark in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def gone(mark: str, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while spinners(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def wait_for_spinners(mark: str, at_least: int) -> None:
    deadline = time.monotonic() + 20
    while len(spinners(mark)) < at_least:
        assert time.monotonic() < deadline, "the spinners did not start"
        time.sleep(0.02)


def test_an_interrupt_ends_the_measurement_and_leaves_nothing():
    mark = "61.25"

    def interrupt() -> None:
        wait_for_spinners(mark, 2)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=interrupt)
    presser.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        measure_cores(61.25, 1)
    presser.join()
    assert time.monotonic() - begun < 30, "the interrupt waited for the window to end"
    assert spinners(mark) == []


def test_a_killed_caller_leaves_no_spinners():
    mark = "62.75"
    code = "from loaderscope.machine import measure_cores; measure_cores(62.75, 1)"
    caller = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_for_spinners(mark, 2)
    finally:
        caller.kill()
        caller.wait()
    assert gone(mark)


# --- a real quota -------------------------------------------------------------------------------------------------


@pytest.fixture
def half_a_core():
    """A cgroup v1 group that gets 50 ms of CPU time in 100 ms; the path of its cgroup.procs file."""
    base = Path("/sys/fs/cgroup/cpu")
    if not os.access(base / "cgroup.procs", os.W_OK) or not (base / "cpu.cfs_quota_us").exists():
        pytest.skip("needs root and a writable cgroup v1 cpu controller at /sys/fs/cgroup/cpu")
    group = base / f"loaderscope_test_{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made in {base}: {error.strerror}")
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("50000")
        yield group / "cgroup.procs"
    finally:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.05)
    assert not group.exists()


def test_a_real_quota_is_read_and_measured(half_a_core):
    seen = run_python(f"""
        import json, os
        import torch
        from loaderscope.machine import read_environment
        open({str(half_a_core)!r}, "w").write(str(os.getpid()))
        env = read_environment()
        print(json.dumps({{"quota": env.cores_quota, "measured": env.cores_measured, "usable": env.usable_cores}}))
    """)
    assert seen["quota"] == 0.5
    # Upwards the quota holds however idle the machine is; downwards other jobs may take their part.
    assert 0.15 <= seen["measured"] <= 0.65
    assert seen["usable"] <= 0.5
