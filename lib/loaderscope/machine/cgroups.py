"""What control groups allow this process: CPU quota and memory limit, version 1, version 2, or both at once.

A limit may sit on any group between the process and the root, so every visible level is read and the tightest
counts. Sources: the kernel's cgroup-v1 (cpu, memory) and cgroup-v2 admin guides, and proc(5) for mountinfo.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from loaderscope.machine.kernel_files import at, content
from loaderscope.records import NotMeasured

# "No limit" in version 1 is the largest page count in bytes, 2**63 less one page; nothing real comes near 2**60.
NO_LIMIT_BYTES = 2**60


@dataclass(frozen=True)
class Quota:
    """CPU time a group gets: cores (seconds of CPU a second), and the period over which it is dealt out."""

    cores: float
    period_s: float


@dataclass(frozen=True)
class MemoryLimit:
    """The tightest limit, and what is left below it on the level with the least left (page cache counts as free)."""

    limit_bytes: int
    left_bytes: int


def cpu_quota(root: str = "/") -> Quota | NotMeasured:
    """The tightest CPU quota above this process, or why there is none."""
    levels = list(_levels("cpu", root))
    if not levels:
        return NotMeasured("no cgroup with a cpu controller is visible here, so a quota would not be seen")
    found = [quota for level in levels if (quota := _quota_v2(level) or _quota_v1(level))]
    return min(found, key=lambda q: q.cores) if found else NotMeasured("no CPU quota is set")


def memory_limit(total_bytes: int | None, root: str = "/") -> MemoryLimit | NotMeasured:
    """The tightest memory limit above this process, or why there is none.

    A limit above the machine's own memory (`total_bytes`, where known) limits nothing and does not count.
    """
    levels = list(_levels("memory", root))
    if not levels:
        return NotMeasured("no cgroup with a memory controller is visible here, so a limit would not be seen")
    ceiling = min(NO_LIMIT_BYTES, total_bytes or NO_LIMIT_BYTES)
    found = [m for level in levels if (m := _memory_v2(level) or _memory_v1(level)) and m.limit_bytes < ceiling]
    if not found:
        return NotMeasured("no memory limit is set below the machine's own memory")
    return MemoryLimit(min(m.limit_bytes for m in found), min(m.left_bytes for m in found))


# --- one level ----------------------------------------------------------------------------------------------------


def _quota_v1(level: str) -> Quota | None:
    quota = _integer(os.path.join(level, "cpu.cfs_quota_us"))
    period = _integer(os.path.join(level, "cpu.cfs_period_us"))
    return Quota(quota / period, period / 1e6) if quota and period and quota > 0 and period > 0 else None


def _quota_v2(level: str) -> Quota | None:
    found = re.match(r"(\d+)\s+(\d+)\s*$", content(os.path.join(level, "cpu.max")) or "")
    if not found or not int(found[1]) or not int(found[2]):
        return None
    return Quota(int(found[1]) / int(found[2]), int(found[2]) / 1e6)


def _memory_v1(level: str) -> MemoryLimit | None:
    return _memory(level, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _memory_v2(level: str) -> MemoryLimit | None:
    return _memory(level, "memory.max", "memory.current", "inactive_file")


def _memory(level: str, limit_name: str, usage_name: str, cache_name: str) -> MemoryLimit | None:
    limit = _integer(os.path.join(level, limit_name))
    if limit is None or limit < 0:
        return None
    usage = _integer(os.path.join(level, usage_name)) or 0
    # The page cache of files read earlier counts as usage, but the kernel gives it back before the limit bites.
    found = re.search(rf"^{cache_name} (\d+)$", content(os.path.join(level, "memory.stat")) or "", re.MULTILINE)
    usage -= min(usage, int(found[1]) if found else 0)
    return MemoryLimit(limit, max(0, limit - usage))


def _integer(path: str) -> int | None:
    text = (content(path) or "").strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


# --- which levels -------------------------------------------------------------------------------------------------


def _levels(controller: str, root: str) -> Iterator[str]:
    """Folders of the groups this process is in that have the controller, innermost first, each hierarchy in turn."""
    groups = _groups(content(at(root, "proc/self/cgroup")) or "")
    for mount in _mounts(content(at(root, "proc/self/mountinfo")) or ""):
        if mount.version == 2:
            path = groups.get("")
        else:
            path = groups.get(controller) if controller in mount.options else None
        if path is not None:
            yield from (p for p in _upwards(at(root, mount.point), _below(path, mount.root)) if _has(p, controller))


def _has(folder: str, controller: str) -> bool:
    """Whether files of the controller are here: a version 2 mount beside version 1 has none of them."""
    try:
        return any(name.startswith(f"{controller}.") for name in os.listdir(folder))
    except OSError:
        return False


def _groups(text: str) -> dict[str, str]:
    """Controller -> path of this process's group; version 2 has the empty name."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for name in parts[1].split(","):
                groups[name] = parts[2]
    return groups


@dataclass(frozen=True)
class _Mount:
    version: int
    root: str
    point: str
    options: tuple[str, ...]


def _mounts(text: str) -> Iterator[_Mount]:
    """The cgroup mounts in a mountinfo file."""
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if separator and len(fields) >= 5 and len(kind) >= 3 and kind[0] in ("cgroup", "cgroup2"):
            options = tuple(kind[2].split(","))
            yield _Mount(2 if kind[0] == "cgroup2" else 1, _unescape(fields[3]), _unescape(fields[4]), options)


def _unescape(text: str) -> str:
    """Spaces and the like are written as octal numbers in mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def _below(path: str, mount_root: str) -> str:
    """The group's path below the mount point: a container often sees only its own part of the tree."""
    if mount_root == "/":
        return "" if ".." in path.split("/") else path.strip("/")
    inside = path == mount_root or path.startswith(mount_root + "/")
    return path[len(mount_root) :].strip("/") if inside else ""


def _upwards(point: str, below: str) -> Iterator[str]:
    parts = [part for part in below.split("/") if part]
    for depth in range(len(parts), -1, -1):
        yield os.path.join(point, *parts[:depth])
