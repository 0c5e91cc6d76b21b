"""The tables of the project as HTML: symptoms, causes, the claims ledger. Pure functions of data; measure nothing.

As in `html`: no style sheet, no script, everything escaped, and nothing is said by colour alone, so that they read
the same in an untrusted notebook, on a page of a code host and in a screen reader.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from loaderscope.claims import Verdict, ledger_rows
from loaderscope.diagnosis.causes import CAUSES, Cause
from loaderscope.diagnosis.rules import JUDGED
from loaderscope.diagnosis.symptoms import SYMPTOMS, Symptom
from loaderscope.views.plots.style import clean

FOLDED_FROM = 12  # a cell with more causes than this is folded up
FAMILIES = {
    "speed": "the loop is slower than it need be",
    "memory": "memory, files or shared memory run out",
    "correctness": "training goes on, on other data than you think",
    "safety": "it stops, hangs, or would elsewhere",
}
_LINE = "1px solid var(--jp-border-color1, #999)"
_CELL = f"text-align:left;vertical-align:top;padding:.3em .9em .3em 0;border-bottom:{_LINE};"
_TABLE = "border-collapse:collapse;color:currentColor"
_NOTHING: Mapping[str, str] = {}


def symptom_table(symptoms: Iterable[Symptom] = SYMPTOMS, notebooks: Mapping[str, str] = _NOTHING) -> str:
    """What is seen, in English and Chinese, what folklore answers, which causes compete, and what decides.

    Args:
        symptoms: the rows, in the order they are shown.
        notebooks: number -> address of the notebooks that exist; they are linked, others are numbers only.
    """
    heads = ("", "What you see", "The folk answer", "What it may be", "What decides", "Notebook")
    caption = "Symptoms. A ✓ marks a cause that this release judges; the others are named and not judged yet."
    return _table(caption, heads, [_symptom(row, notebooks) for row in symptoms])


def causes_table(causes: Iterable[Cause] = tuple(CAUSES.values())) -> str:
    """Every cause by family, folded up: what it is, what decides, what it is mistaken for, its notebook."""
    causes = tuple(causes)
    heads = ("Cause", "What it is", "What decides", "Most easily mistaken for", "Notebook")
    parts = []
    for family, means in FAMILIES.items():
        rows = [_cause(cause) for cause in causes if cause.family == family]
        if rows:
            name = f"{family.capitalize()}: {means} ({len(rows)})"
            parts.append(f"<details><summary>{_text(name)}</summary>{_table(name, heads, rows)}</details>")
    return "".join(parts)


def ledger_table(verdicts: Iterable[Verdict] = ()) -> str:
    """The claims ledger: what is said, the figures that came with it, and what this machine says.

    Args:
        verdicts: results of experiments; of two on the same claim the later counts.
    """
    verdicts = tuple(verdicts)
    rows = ledger_rows(verdicts)
    tested = len({verdict.claim_id for verdict in verdicts})
    caption = f"{len(rows)} claims, {tested} of them with a verdict given here. The figures are those of the claim."
    heads = ("", "What is said", "Figures given with it", "Notebook", "Status")
    shown = [(row.id, row.claim, row.figures, row.notebook, row.status) for row in rows]
    return _table(caption, heads, [[_text(cell) for cell in cells] for cells in shown])


# --- rows: a list of cells that are HTML already; the first is the row's heading --------------------------------------


def _symptom(row: Symptom, notebooks: Mapping[str, str]) -> list[str]:
    return [
        _text(row.id),
        f'{_text(row.seen)}<br><span lang="zh">{_text(row.seen_zh)}</span>',
        f"{_text(row.folk_cause)}; cure: {_text(row.folk_check)}",
        _rivals(row),
        _text(row.decides),
        ", ".join(_notebook(number, notebooks) for number in row.notebooks),
    ]


def _cause(cause: Cause) -> list[str]:
    return [
        _named(cause.id),
        _text(cause.meaning),
        _text(cause.decided_by),
        f"<code>{_text(cause.look_alike)}</code>: {_text(cause.differs)}",
        _text(cause.notebook),
    ]


def _rivals(row: Symptom) -> str:
    listed = ", ".join([*(_named(id) for id in row.rivals), *(_text(words) for words in row.other_rivals)])
    n = len(row.rivals) + len(row.other_rivals)
    if n < FOLDED_FROM:
        return listed
    return f"<details><summary>any of {n}</summary>{listed}</details>"


def _named(cause_id: str) -> str:
    mark = "✓&nbsp;" if cause_id in JUDGED else ""
    return f'{mark}<code style="white-space:nowrap">{_text(cause_id)}</code>'


def _notebook(number: str, notebooks: Mapping[str, str]) -> str:
    address = notebooks.get(number)
    return f'<a href="{_text(address)}">{_text(number)}</a>' if address else _text(number)


# --- parts ------------------------------------------------------------------------------------------------------------


def _text(words: object) -> str:
    """Escaped for text and for attributes in double quotes."""
    return html.escape(clean(words), quote=True)


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col" style="{_CELL}">{_text(name)}</th>' for name in heads)
    body = "".join(_row(cells) for cells in rows)
    title = f'<caption style="text-align:left;padding:.3em 0">{_text(caption)}</caption>'
    return f'<table style="{_TABLE}">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _row(cells: Sequence[str]) -> str:
    first, *rest = cells
    head = f'<th scope="row" style="{_CELL}font-weight:600;white-space:nowrap">{first}</th>'
    return f"<tr>{head}" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in rest) + "</tr>"
