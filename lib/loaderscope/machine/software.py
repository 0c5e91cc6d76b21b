"""The software side of the machine: start method, native thread pools, the accelerator's name."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import sys

from loaderscope.machine.kernel_files import at, content
from loaderscope.records import ThreadPool

# Library file name -> the library, and the functions that tell its thread count (the first one found is asked).
_POOLS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        r"lib(scipy_)?openblas.*",
        "openblas",
        tuple(f"{p}openblas_get_num_threads{s}" for p in ("", "scipy_") for s in ("", "64_", "_64", "_")),
    ),
    (r"libmkl_rt.*", "mkl", ("MKL_Get_Max_Threads",)),
    (r"libblis.*", "blis", ("bli_thread_get_num_threads",)),
    (r"lib(gomp|iomp5|omp)\b.*", "openmp", ("omp_get_max_threads",)),
)


def start_method() -> str:
    """How multiprocessing starts processes here, read without fixing it (`get_start_method()` alone would)."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def free_threaded() -> bool:
    """Whether this interpreter runs without a GIL right now."""
    return not getattr(sys, "_is_gil_enabled", lambda: True)()


def thread_pools(root: str = "/") -> tuple[ThreadPool, ...]:
    """Native thread pools of libraries loaded in this process that tell their own thread count.

    Each copy of a library has a pool of its own and is listed. A library that does not tell is left out. torch's
    own number is `Environment.torch_threads`; its pool is the "openmp" one that torch brings.
    """
    pools = [pool for path in _loaded_libraries(root) if (pool := _ask(path))]
    # Asked only where the reader has imported it: importing it here would start its pool.
    cv2 = sys.modules.get("cv2")
    if hasattr(cv2, "getNumThreads"):
        pools.append(ThreadPool("opencv", int(cv2.getNumThreads())))
    return tuple(pools)


def _loaded_libraries(root: str) -> list[str]:
    """Paths of the shared libraries mapped into this process that may hold a thread pool, without repeats."""
    text = content(at(root, "proc/self/maps")) or ""
    paths = dict.fromkeys(re.findall(r"^[^/\n]*(/.*\.so[.\d]*)$", text, re.MULTILINE))
    return [path for path in paths if _kind(path)]


def _kind(path: str) -> tuple[str, tuple[str, ...]] | None:
    name = os.path.basename(path)
    return next(((library, asks) for pattern, library, asks in _POOLS if re.fullmatch(pattern, name)), None)


def _ask(path: str) -> ThreadPool | None:
    library, functions = _kind(path)
    try:
        # NOLOAD: a handle on what is loaded already, and never a library loaded by asking.
        handle = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (OSError, AttributeError):
        return None
    for name in functions:
        function = getattr(handle, name, None)
        if function is not None:
            return ThreadPool(library, int(function()))
    return None
