"""Figures without pyplot: the only module that imports matplotlib, and itself imported only when something is drawn.

pyplot keeps a global list of figures, which threads and widget callbacks mix up; a figure made here belongs to
whoever holds it. It still shows itself when it, or one of its axes, is the last value of a notebook cell.
"""

from __future__ import annotations

import functools
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
import matplotlib.style
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from loaderscope.views.plots import style

DPI = 96

# matplotlib's settings and font cache are shared by all threads, so only one of ours draws at a time.
LOCK = threading.RLock()


class ShownFigure(Figure):
    """A figure that IPython can show although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        return render(self)


class ShownAxes(Axes):
    """Axes that show their whole figure, because `record.plot()` returns axes."""

    def _repr_png_(self) -> bytes:
        return render(self.get_figure(root=True))


@contextmanager
def styled() -> Iterator[None]:
    """Our settings over matplotlib's defaults, under the lock; the reader's settings are back afterwards."""
    with LOCK, matplotlib.rc_context():
        matplotlib.style.use(["default", style.RC])
        try:
            yield
        finally:
            _close_fonts()


def _close_fonts() -> None:
    """matplotlib keeps every font file open for each thread that ever drew; it has no public way to let go."""
    cache_clear = getattr(getattr(font_manager, "_get_font", None), "cache_clear", None)
    if cache_clear is not None:
        cache_clear()


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty figure of `size` inches."""
    figure = ShownFigure(figsize=size, layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def new_axes(figure: Figure, columns: int = 1, widths: tuple[float, ...] | None = None) -> list[Axes]:
    """A row of axes side by side."""
    grid = figure.add_gridspec(1, columns, width_ratios=widths)
    return [figure.add_subplot(cell, axes_class=ShownAxes) for cell in grid]


def render(figure: Figure, dpi: float = DPI) -> bytes:
    """The figure as PNG bytes."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


@functools.cache
def _known_characters() -> frozenset[int]:
    return frozenset(font_manager.get_font(font_manager.findfont(style.FONT)).get_charmap())


def drawable(text: str) -> str:
    """`text` with a box for every character the font cannot draw: matplotlib would warn in the reader's cell."""
    known = _known_characters()
    return "".join(c if ord(c) in known or c == "\n" else "□" for c in text)
