"""Records, findings and reports as HTML that survives an untrusted notebook: no style sheet, no script, no SVG.

Whatever comes from the reader's objects (class names, paths, exception texts) passes through `_text`. Every state is
said in words or by a symbol; colour only repeats it. Colours follow the notebook's theme.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable

from loaderscope.records import Comparison, Finding, Fix, NotMeasured, Row, is_measured, text
from loaderscope.views import plots
from loaderscope.views.plots.style import clean

_LINE = "1px solid var(--jp-border-color1, #999)"
_GREY = "color:var(--jp-ui-font-color2, #6b6b6b);font-style:italic"
_CELL = f"text-align:left;vertical-align:top;padding:.25em .8em .25em 0;border-bottom:{_LINE};"
_BESIDE = "border-left:3px solid var(--jp-border-color1, #999);padding-left:1em;margin:.8em 0"
_CODE = f"text-align:left;padding:.6em .8em;border:{_LINE};overflow-x:auto;white-space:pre"
_SYMBOL = {"warning": ("⚠", "warning"), "bad": ("✖", "bad")}

_PARTS = (
    ("environment", "Machine"),
    ("facts", "Loader"),
    ("timing", "Loop timing"),
    ("headroom", "Headroom"),
    ("profile", "Where a sample's time goes"),
    ("gil", "GIL check"),
)


def record(rec) -> str:
    """A record as a table, built from the same rows as its text form; a report as itself."""
    if _is_report(rec):
        return report(rec)
    return _table(rec.rows(), _title(rec))


def fix(fx: Fix, number: int | None = None, opened: bool = False) -> str:
    """A fix: what to paste, the proof, the cost; one that was tried and did not help says so first.

    Args:
        number: its place in the report, as `report.fix(number)` counts.
        opened: show the numbers behind the effect unfolded.
    """
    name = f"Fix {number}: " if number is not None else ""
    refused = "" if fx.recommended else f"✖ Not recommended: {fx.refusal}. "
    parts = [
        f"<p>{refused}<strong>{name}{_text(fx.title)}</strong></p>",
        f'<pre style="{_CODE}"><code>{_text(fx.code)}</code></pre>',
        f"<p>Effect: {_text(fx.proof)}</p>",
    ]
    if fx.cost:
        parts.append(f"<p>Cost: {_text(fx.cost)}</p>")
    if isinstance(fx.verified, Comparison):
        parts.append(_details("Before and after", fx.verified, opened))
    return f'<div style="margin:.4em 0 .8em 1.2em">{"".join(parts)}</div>'


def finding(f: Finding, level: int = 4, first_fix: int = 1, opened: bool = False) -> str:
    """A finding: the cause and what it means, the verdict, what it costs, the evidence, the fixes.

    Args:
        level: of its heading, 1..6.
        first_fix: number of its first fix in the report.
        opened: show the numbers behind its fixes unfolded.
    """
    parts = [_heading(level, f"<code>{_text(f.cause)}</code>: {_text(_meaning(f.cause))}"), f"<p>{_verdict(f)}</p>"]
    parts.append(_list(f.evidence))
    if f.explained:
        parts.append(f"<p>This explains what else was seen: {_text(', '.join(f.explained))}.</p>")
    if f.decide_by:
        parts.append(f"<p>What would decide: {_text(f.decide_by)}</p>")
    numbered = sorted(enumerate(f.fixes, first_fix), key=lambda pair: not pair[1].recommended)
    parts += [fix(fx, number, opened) for number, fx in numbered]
    return f'<section style="{_BESIDE}">{"".join(parts)}</section>'


def report(rep, level: int = 3, opened: bool = False) -> str:
    """A report: verdict, picture, findings with fixes, what stayed open, what was not measured, then all numbers.

    Args:
        level: of its top headings, 1..6.
        opened: show the numbers unfolded (paper has no mouse).
    """
    numbered = _numbered(rep.findings)
    present = [pair for pair in numbered if pair[0].verdict == "present"]
    undecided = [pair for pair in numbered if pair[0].verdict == "undecided"]
    portability = _numbered(getattr(rep, "portability", ()))
    nothing = f"<p>{_nothing_found(rep)}</p>"
    parts = [
        f'<p style="font-size:1.3em;font-weight:600;line-height:1.35">{_text(rep.verdict)}</p>',
        picture(rep, headline=False),
        _findings("Findings", present, level, opened) or _heading(level, "Findings") + nothing,
        _findings("Undecided", undecided, level, opened),
        _findings("Under another start method", portability, level, opened),
        _not_measured(rep, level),
        _heading(level, "All numbers"),
        *(_details(name, part, opened) for name, part in _measured_parts(rep)),
        _heading(level, "Notes"),
        _list([_effort(rep), *rep.notes]),
    ]
    return f'<section aria-label="loaderscope report">{"".join(parts)}</section>'


def picture(rec, headline: bool = True) -> str:
    """The record's plot as an inline image whose alternative text has its numbers.

    Args:
        headline: write a report's verdict into its picture.
    """
    data = base64.b64encode(plots.png(rec, headline=headline)).decode("ascii")
    alt = _text(plots.describe(rec))
    return f'<p><img alt="{alt}" src="data:image/png;base64,{data}" style="max-width:100%;height:auto"></p>'


def page(rec) -> str:
    """One self-contained, printable HTML file for a record or a report: nothing is loaded from anywhere."""
    if _is_report(rec):
        title, body = "Loader report", report(rec, level=2, opened=True)
    else:
        title = _title(rec)
        body = (picture(rec) if plots.has_plot(rec) else "") + record(rec)
    return _PAGE.format(title=_text(title), style=_PAGE_STYLE, body=body)


# --- parts -------------------------------------------------------------------------------------------------------


def _text(words: object) -> str:
    """Escaped for text and for attributes in double quotes."""
    return html.escape(clean(words), quote=True)


def _title(rec) -> str:
    return rec.title or type(rec).__name__


def _is_report(rec) -> bool:
    return all(hasattr(rec, name) for name in ("verdict", "findings", "headroom"))


def _row(r: Row) -> str:
    value = _text(r.value)
    if r.status == "missing":
        value = f'<em style="{_GREY}">{value}</em>'
    elif r.status in _SYMBOL:
        symbol, word = _SYMBOL[r.status]
        value = f'<span role="img" aria-label="{word}" title="{word}">{symbol}</span> {value}'
    head = f'<th scope="row" style="{_CELL}font-weight:600;white-space:nowrap">{_text(r.label)}</th>'
    return f'<tr>{head}<td style="{_CELL}">{value}</td></tr>'


def _table(rows: Iterable[Row], title: str, captioned: bool = True) -> str:
    """Rows as a table; its title is a caption, or only told to screen readers where a summary above says it."""
    caption = f'<caption style="text-align:left;font-weight:600">{_text(title)}</caption>' if captioned else ""
    body = "".join(_row(r) for r in rows)
    style = "border-collapse:collapse;color:currentColor"
    return f'<table aria-label="{_text(title)}" style="{style}">{caption}<tbody>{body}</tbody></table>'


def _heading(level: int, inner: str) -> str:
    level = min(max(level, 1), 6)
    return f"<h{level}>{inner}</h{level}>"


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _details(name: str, rec, opened: bool) -> str:
    table = _table(rec.rows(), name, captioned=False)
    return f"<details{' open' if opened else ''}><summary>{_text(name)}</summary>{table}</details>"


def _numbered(findings: Iterable[Finding]) -> list[tuple[Finding, int]]:
    """Each finding with the number of its first fix, as `report.fix(number)` counts."""
    out, number = [], 1
    for f in findings:
        out.append((f, number))
        number += len(f.fixes)
    return out


def _findings(name: str, numbered: Iterable[tuple[Finding, int]], level: int, opened: bool) -> str:
    shown = "".join(finding(f, level + 1, first_fix, opened) for f, first_fix in numbered)
    return _heading(level, _text(name)) + shown if shown else ""


def _meaning(cause: str) -> str:
    """From the table of causes; a report of a newer version may name one that this version does not know."""
    from loaderscope.diagnosis.causes import CAUSES

    return CAUSES[cause].meaning if cause in CAUSES else "a cause this version does not know"


def _verdict(f: Finding) -> str:
    word = {"present": "⚠ Present", "undecided": "? Undecided", "absent": "✓ Absent"}.get(f.verdict, f.verdict)
    if not is_measured(f.impact):
        return f"{_text(word)}."
    cost = text.share(f.impact)
    meter = f'<meter min="0" max="1" value="{float(f.impact):.4f}" aria-label="share of wall time">{cost}</meter>'
    return f"{_text(word)}. It costs {meter} {cost} of the wall time."


def _measured_parts(rep) -> list[tuple[str, object]]:
    parts = [(name, getattr(rep, attribute, None)) for attribute, name in _PARTS]
    return [(name, part) for name, part in parts if is_measured(part)]


def _not_measured(rep, level: int) -> str:
    parts = [(name, getattr(rep, attribute, None)) for attribute, name in _PARTS]
    rows = [Row(name, part.reason, "missing") for name, part in parts if isinstance(part, NotMeasured)]
    return _heading(level, "Not measured") + _table(rows, "What was left out, and why") if rows else ""


def _effort(rep) -> str:
    return f"Took {text.seconds(rep.elapsed_s)}; the training step ran {text.count(rep.steps_run, 'time')}."


_PAGE_STYLE = """
:root { color-scheme: light dark; --jp-border-color1: #b0b0b0; --jp-ui-font-color2: #666; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
pre, code { font-family: ui-monospace, monospace; font-size: .92em; }
h1 { font-size: 1.1rem; font-weight: 600; } h2 { font-size: 1.25rem; margin-top: 2rem; } h3 { font-size: 1.05rem; }
summary { cursor: pointer; margin-top: .6rem; }
img { background: white; }
@media (prefers-color-scheme: dark) { :root { --jp-border-color1: #666; --jp-ui-font-color2: #aaa; } }
@media print {
  :root { color-scheme: light; }
  body { font-size: 11pt; margin: 0; max-width: none; }
  pre { white-space: pre-wrap !important; }
  img, tr, pre { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · loaderscope</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<main>{body}</main>
</body>
</html>
"""


def _nothing_found(rep) -> str:
    """Said in place of findings: that there are none means little where the question is still open."""
    if getattr(rep, "bound", "") in ("compute-bound", "no step"):
        return "Nothing wrong was found in what was measured."
    return "No cause was found, and none was ruled out: too little is known."
