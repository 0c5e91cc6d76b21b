"""Memory, shared memory and open files: what the machine has and what this process may use of it."""

from __future__ import annotations

import os
import re
import sys

import psutil

from loaderscope.machine.cgroups import MemoryLimit, memory_limit
from loaderscope.machine.kernel_files import at, content
from loaderscope.records import NotMeasured

Bytes = int | NotMeasured


def read_memory(root: str = "/") -> tuple[Bytes, Bytes, Bytes]:
    """Bytes of memory: the machine's total, the cgroup limit, and what is available under both."""
    total, free = _machine_memory(root)
    limit = memory_limit(total, root)
    if not isinstance(limit, MemoryLimit):
        return total, limit, free
    return total, limit.limit_bytes, min(free, limit.left_bytes)


def _machine_memory(root: str) -> tuple[int, int]:
    """Total and available; MemAvailable counts the page cache the kernel would give back."""
    text = content(at(root, "proc/meminfo")) or ""
    found = {m[1]: int(m[2]) * 1024 for m in re.finditer(r"^(MemTotal|MemAvailable):\s*(\d+) kB$", text, re.MULTILINE)}
    if len(found) == 2:
        return found["MemTotal"], found["MemAvailable"]
    memory = psutil.virtual_memory()
    return memory.total, memory.available


def read_shm(root: str = "/") -> tuple[Bytes, Bytes]:
    """Total and free bytes of /dev/shm, through which workers hand over tensors."""
    if not hasattr(os, "statvfs"):
        reason = NotMeasured(f"{sys.platform} has no /dev/shm")
        return reason, reason
    try:
        found = os.statvfs(at(root, "dev/shm"))
    except OSError as error:
        reason = NotMeasured(f"/dev/shm does not answer: {error.strerror}")
        return reason, reason
    if not found.f_blocks:
        reason = NotMeasured("/dev/shm has no size limit of its own")
        return reason, reason
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def open_files_limit() -> int | NotMeasured:
    """Files this process may have open: the soft limit, which it may raise itself up to the hard one."""
    try:
        import resource
    except ImportError:
        return NotMeasured(f"{sys.platform} has no limit on open files that can be read")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NotMeasured("no limit is set") if soft == resource.RLIM_INFINITY else soft


def open_files_now(root: str = "/") -> int | NotMeasured:
    """Files, sockets and pipes this process has open."""
    try:
        # Listing the folder has it open too.
        return len(os.listdir(at(root, "proc/self/fd"))) - 1
    except OSError:
        pass
    if root != "/" or not hasattr(psutil.Process, "num_fds"):
        return NotMeasured("this platform does not list the open files of a process")
    return psutil.Process().num_fds()
