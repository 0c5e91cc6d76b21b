"""What a benchmark writes: one JSON file with everything measured, and one HTML page that a person reads."""

from __future__ import annotations

import argparse
import base64
import html as escaping
import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import loaderscope as ls
from loaderscope.records import Environment, Row
from loaderscope.views import html, plots

_VERSIONS = ("torch", "torchvision", "numpy", "pillow", "psutil")


@dataclass(frozen=True)
class Target:
    """What was promised, what was seen, and whether it was met: "met", "missed" or "undecided"."""

    promise: str
    seen: str
    verdict: str

    def row(self) -> Row:
        status = {"met": "ok", "missed": "bad"}.get(self.verdict, "warning")
        return Row(self.promise, f"{self.seen}: {self.verdict}", status)


@dataclass(frozen=True)
class Table:
    """Rows under a title; shown by `views.html` as a record is."""

    title: str
    lines: tuple[Row, ...]

    def rows(self) -> tuple[Row, ...]:
        return self.lines


def arguments(doc: str, words: list[str] | None = None) -> argparse.Namespace:
    """The same words for every benchmark, so that `make bench ARGS=…` reaches them all."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder for the JSON and HTML files")
    parser.add_argument("--quick", action="store_true", help="a smoke test: small and short, concludes nothing")
    parser.add_argument("--pairs", type=int, default=30, help="pairs of runs for each loader (bench_overhead)")
    parser.add_argument("--repeats", type=int, default=3, help="diagnoses of each loader (bench_verdict)")
    return parser.parse_args(words)


def versions() -> dict[str, str]:
    """Of Python, of loaderscope and of what it stands on."""
    found = {"python": platform.python_version(), "loaderscope": ls.__version__}
    for name in _VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def write(
    out: Path,
    name: str,
    *,
    settings: dict,
    results: dict,
    machine: Environment,
    targets: Iterable[Target],
    tables: Iterable[Table],
    picture: tuple[Callable, tuple[float, float], str] | None = None,
) -> tuple[Path, Path]:
    """Write `name`.json and `name`.html into `out`; returns both paths.

    Args:
        results: raw values and what was computed from them, JSON types only.
        machine: as it was before the first run.
        picture: a function that draws on Axes, its size in inches, and its content in words.
    """
    out.mkdir(parents=True, exist_ok=True)
    targets = tuple(targets)
    data = {
        "benchmark": name,
        "taken": machine.taken,
        "settings": settings,
        "machine": machine.to_dict(),
        "versions": versions(),
        "targets": [vars(target) for target in targets],
        **results,
    }
    as_json, as_page = out / f"{name}.json", out / f"{name}.html"
    as_json.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    sections = [Table("Targets", tuple(target.row() for target in targets)), *tables, machine]
    as_page.write_text(_page(f"loaderscope: {name}", sections, picture), encoding="utf-8")
    return as_json, as_page


def _page(title: str, sections: list, picture) -> str:
    body = [f"<section>{html.record(section)}</section>" for section in sections]
    if picture is not None:
        draw, size, words = picture
        data = base64.b64encode(plots.png(draw, size)).decode("ascii")
        body.insert(1, f'<p><img alt="{escaping.escape(words)}" src="data:image/png;base64,{data}"></p>')
    return html.page(Table(title, ())).replace("</main>", "\n".join(body) + "</main>")


def say(sections: Iterable[Table]) -> None:
    """The same tables for the terminal."""
    for section in sections:
        print(f"\n{section.title}")
        width = max((len(row.label) for row in section.rows()), default=0)
        for row in section.rows():
            print(f"  {row.label:<{width}}  {row.value}")
