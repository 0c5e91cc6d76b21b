"""Numbers as people read them: one place decides units and digits."""

from __future__ import annotations


def seconds(value: float) -> str:
    """1.2 s, 3.4 ms, 56 µs."""
    size = abs(value)
    if size >= 1 or size == 0:
        return f"{value:.3g} s" if size < 1000 else f"{value:.0f} s"
    if size >= 1e-3:
        return f"{value * 1e3:.3g} ms"
    return f"{value * 1e6:.3g} µs"


def size(value: float) -> str:
    """Bytes in binary units: 1.5 MiB."""
    amount, units = float(value), ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units:
        if abs(amount) < 1024 or unit == units[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def share(value: float) -> str:
    """A fraction 0..1 as a percentage; a small one keeps a digit."""
    return f"{value * 100:.1f} %" if 0 < abs(value) < 0.095 else f"{value * 100:.0f} %"


def rate(value: float) -> str:
    """Samples per second."""
    return f"{value:,.0f} samples/s" if value >= 100 else f"{value:.3g} samples/s"


def ratio(value: float) -> str:
    return f"{value:.2f}x" if value < 10 else f"{value:.1f}x"


def count(number: int, noun: str, plural: str = "") -> str:
    """1 batch, 3 batches."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
