"""`symptom_chooser`: from what is seen to what competes, what decides, and the notebook that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import ipywidgets as w

from loaderscope.diagnosis.causes import CAUSES
from loaderscope.diagnosis.symptoms import SYMPTOMS, Symptom, search, symptom
from loaderscope.views.panels.panel import Panel, chosen, line, words

FOLDED_FROM = 9  # more rivals than this are folded up
_CELL = "text-align:left;vertical-align:top;padding:.2em .8em .2em 0"
_NONE = "No symptom has all of these words. Try fewer or other words, in English or Chinese."


def symptom_chooser(symptoms: Sequence[Symptom] = SYMPTOMS, folder: str | Path = ".") -> Panel:
    """Find a complaint by words, in English or Chinese, and see which causes compete for it.

    Args:
        symptoms: the rows of SYMPTOMS to choose from.
        folder: where the notebooks lie that the card links to.
    """
    # An output area, not an HTML widget: JupyterLab opens links to notebooks only from there.
    card = w.Output(layout=w.Layout(width="auto"))
    box = chosen(
        w.Text, "Search", "Words of what you see, in English or Chinese", placeholder="gpu low · 内存 · slow …"
    )
    rows = chosen(w.Select, "Symptom", "What you see", rows=14, layout=w.Layout(width="auto"))
    panel = Panel(
        "What do you see?",
        {"words": box, "id": rows},
        code=_code,
        right=card,
        left_width="32em",
    )

    def narrow(_: object = None) -> None:
        found = matching(box.value, symptoms)
        kept = rows.value
        options = [(label(row, box.value), row.id) for row in found]
        rows.options = options
        rows.value = kept if kept in [row.id for row in found] else found[0].id if found else None
        show()

    def show(_: object = None) -> None:
        shown = card_html(symptom(rows.value), Path(folder)) if rows.value else f"<p>{_NONE}</p>"
        card.outputs = ({"output_type": "display_data", "metadata": {}, "data": {"text/html": shown}},)

    box.observe(narrow, "value")
    rows.observe(show, "value")
    narrow()
    return panel


def matching(asked: str, symptoms: Sequence[Symptom] = SYMPTOMS) -> tuple[Symptom, ...]:
    """Those of `symptoms` that have all the words, best first."""
    return tuple(row for row in search(asked) if row in symptoms)


def label(row: Symptom, asked: str = "") -> str:
    """A row of the list, in the language it was asked for in."""
    chinese = any(ord(letter) > 0x2E7F for letter in asked)
    return f"{row.id}  {row.seen_zh if chinese else row.seen}"


def card_html(row: Symptom, folder: Path = Path(".")) -> str:
    """All that is known about one symptom."""
    parts = [
        line(f'<strong>{words(row.seen)}</strong><br><span lang="zh">{words(row.seen_zh)}</span>'),
        line(f"<strong>The folk answer</strong>, not tested on your loader: {words(row.folk_cause)}."),
        line(f"<strong>The folk check or cure:</strong> {words(row.folk_check)}."),
        line(f"<strong>What it may be</strong>, {len(row.rivals) + len(row.other_rivals)} rivals:"),
        _rivals(row),
        line(f"<strong>What decides:</strong> {words(row.decides)}."),
        line(f"<strong>Run it:</strong> {', '.join(notebook_link(number, folder) for number in row.notebooks)}"),
    ]
    return "".join(parts)


def notebook_link(number: str, folder: Path) -> str:
    """A link to the notebook of this number, relative to the folder; its number alone where there is no such file."""
    found = sorted(path.name for path in folder.glob(f"{number}_*.ipynb")) if number.isdigit() else []
    if not found:
        return f"notebook {words(number)}"
    target = quote((folder / found[0]).as_posix() if not folder.is_absolute() else found[0])
    return f'<a href="{words(target)}">{words(found[0])}</a>'


def _rivals(row: Symptom) -> str:
    known = [(f'<code style="white-space:nowrap">{words(id)}</code>', words(CAUSES[id].meaning)) for id in row.rivals]
    lines = known + [("something else", words(other)) for other in row.other_rivals]
    cells = "".join(f"<tr><td style='{_CELL}'>{a}</td><td style='{_CELL}'>{b}</td></tr>" for a, b in lines)
    table = f'<table style="border-collapse:collapse">{cells}</table>'
    if len(lines) < FOLDED_FROM:
        return table
    return f"<details><summary>Show all {len(lines)}</summary>{table}</details>"


def _code(words: str, id: str | None) -> str:
    chosen = f"\nsymptom({id!r})" if id else ""
    return f"from loaderscope.diagnosis.symptoms import search, symptom\n\nsearch({words!r}){chosen}"
