"""The accelerator's name, read from files: no CUDA, ROCm or Metal context is made and NVML is not started."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections import Counter

from loaderscope.machine.kernel_files import at, content
from loaderscope.records import NotMeasured


def read_accelerator(root: str = "/") -> str | NotMeasured:
    """Name of the accelerators this torch can use, such as "2 x NVIDIA A100-SXM4-80GB", or why there is none."""
    import torch

    if torch.version.hip is not None:
        return _named(_amd_names(root), "this torch is built for ROCm, and no AMD GPU is listed in /sys/class/kfd")
    if sys.platform == "darwin" and root == "/":
        return "Apple GPU (MPS)" if torch.backends.mps.is_built() else NotMeasured("this torch is built without MPS")
    names = nvidia_names(root)
    if not names:
        return NotMeasured(_why_none(root, torch.version.cuda))
    if unused := unusable_gpu(root):
        return NotMeasured(f"this torch ({torch.__version__}) is built without CUDA and cannot use the {unused}")
    return _visible(_join(names))


def unusable_gpu(root: str = "/") -> str:
    """Name of the NVIDIA GPUs that are there while this torch is built without CUDA, or ""."""
    import torch

    built_for_none = torch.version.cuda is None and torch.version.hip is None
    return _join(nvidia_names(root)) if built_for_none else ""


def nvidia_names(root: str = "/") -> tuple[str, ...]:
    """Model of each NVIDIA GPU the kernel driver lists, visible to CUDA or not."""
    paths = sorted(glob.glob(at(root, "proc/driver/nvidia/gpus/*/information")))
    found = (re.search(r"^Model:\s*(.+?)\s*$", content(path) or "", re.MULTILINE) for path in paths)
    names = tuple(match[1] for match in found if match)
    if names:
        return names
    nodes = glob.glob(at(root, "dev/nvidia[0-9]*"))
    return ("NVIDIA GPU (the driver does not list its name)",) * len(nodes)


def _why_none(root: str, cuda: str | None) -> str:
    if os.path.exists(at(root, "dev/dxg")):
        return "a GPU may be there through WSL (/dev/dxg); its name is not known without starting CUDA"
    build = "and this torch is built without CUDA" if cuda is None else f"though this torch is built for CUDA {cuda}"
    return f"no NVIDIA driver found in /proc/driver/nvidia, {build}"


def _visible(name: str) -> str | NotMeasured:
    """The name, with what CUDA_VISIBLE_DEVICES leaves of it."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return name
    if chosen.strip() in ("", "-1"):
        return NotMeasured(f"CUDA_VISIBLE_DEVICES={chosen!r} hides the {name}")
    return f"{name} (CUDA_VISIBLE_DEVICES={chosen})"


def _amd_names(root: str) -> tuple[str, ...]:
    """Chip name of each GPU node of the AMD driver; CPU nodes have no SIMD units."""
    names = []
    for folder in sorted(glob.glob(at(root, "sys/class/kfd/kfd/topology/nodes/*"))):
        units = re.search(r"^simd_count (\d+)$", content(os.path.join(folder, "properties")) or "", re.MULTILINE)
        if units and int(units[1]):
            names.append(f"AMD {(content(os.path.join(folder, 'name')) or '').strip() or 'GPU'}")
    return tuple(names)


def _named(names: tuple[str, ...], reason: str) -> str | NotMeasured:
    return _join(names) if names else NotMeasured(reason)


def _join(names: tuple[str, ...]) -> str:
    return ", ".join(f"{n} x {name}" if n > 1 else name for name, n in Counter(names).items())
