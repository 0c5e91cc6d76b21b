"""Reading the small text files in which Linux answers questions, below a root that tests may choose."""

from __future__ import annotations

import os

from loaderscope.records import NotMeasured


def at(root: str, *parts: str) -> str:
    """The path of a kernel file below `root` ("/" on a real machine)."""
    return os.path.join(root, *(part.lstrip("/") for part in parts))


def content(path: str) -> str | None:
    """The text of a small file, or None where it is not there or does not answer."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def pressure(resource: str, root: str = "/") -> float | NotMeasured:
    """Share of the last 10 s, in percent, in which some task waited for `resource` ("cpu", "io" or "memory").

    Source: /proc/pressure (Linux 4.20+, CONFIG_PSI). It speaks of the whole machine, not of a container.
    """
    text = content(at(root, "proc/pressure", resource))
    if text is None:
        return NotMeasured(f"this kernel gives no /proc/pressure/{resource}")
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "some":
            for name, _, value in (item.partition("=") for item in rest.split()):
                if name == "avg10" and _is_number(value):
                    return float(value)
    return NotMeasured(f"/proc/pressure/{resource} has no readable 'some avg10' value")


def load_average(root: str = "/") -> float | NotMeasured:
    """Tasks that ran or waited to run, averaged over one minute."""
    first = (content(at(root, "proc/loadavg")) or "").split()[:1]
    if first and _is_number(first[0]):
        return float(first[0])
    if root == "/" and hasattr(os, "getloadavg"):
        try:
            return os.getloadavg()[0]
        except OSError:
            pass
    return NotMeasured("this platform keeps no load average")


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False
