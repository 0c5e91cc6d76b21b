"""The tables as HTML: complete, well formed, escaped, with links only to what exists."""

from __future__ import annotations

import ast
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loaderscope.claims import CLAIMS, Verdict
from loaderscope.diagnosis import rules
from loaderscope.diagnosis.causes import CAUSES
from loaderscope.diagnosis.symptoms import SYMPTOMS, symptom
from loaderscope.views import tables

VOID = {"br"}
RUDE = '<script>alert("x")</script> & \x00'


class Page(HTMLParser):
    """What a browser would make of it: texts of cells by row, links, and whether every tag is closed."""

    def __init__(self, source: str):
        super().__init__()
        self.open, self.rows, self.links, self.tags, self.captions = [], [], [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "caption":
            self.captions.append("")
        if tag == "a":
            self.links.append(dict(attributes)["href"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data
        elif "caption" in self.open:
            self.captions[-1] += data


def test_symptoms_are_all_there_in_both_languages():
    page = Page(tables.symptom_table())
    head, *body = page.rows
    assert [row[0] for row in body] == [row.id for row in SYMPTOMS]
    assert {len(row) for row in page.rows} == {len(head)}
    for cells, row in zip(body, SYMPTOMS, strict=True):
        assert row.seen in cells[1] and row.seen_zh in cells[1]
        assert row.folk_cause in cells[2] and row.folk_check in cells[2]
        assert all(id in cells[3] for id in row.rivals) and all(words in cells[3] for words in row.other_rivals)
        assert cells[4] == row.decides
        assert cells[5].split(", ") == list(row.notebooks)


def test_notebooks_are_linked_only_where_they_exist():
    assert Page(tables.symptom_table()).links == []
    page = Page(tables.symptom_table([symptom("S1")], {"01": "01_is_it_the_loader_at_all.ipynb", "14": "14.ipynb"}))
    assert page.links == ["01_is_it_the_loader_at_all.ipynb"]
    assert page.rows[1][-1] == "01, 02, 03"


def test_a_long_list_of_rivals_is_folded_up():
    assert "<details>" in tables.symptom_table([symptom("S7")])
    assert "<details>" not in tables.symptom_table([symptom("S1")])


def test_causes_are_all_there_by_family():
    page = Page(tables.causes_table())
    named = [row[0].replace("✓\xa0", "") for row in page.rows if row[0] != "Cause"]
    assert sorted(named) == sorted(CAUSES)
    assert {cause.family for cause in CAUSES.values()} <= set(tables.FAMILIES)
    marked = {row[0].removeprefix("✓\xa0") for row in page.rows if row[0].startswith("✓")}
    assert marked == set(rules.JUDGED)


def test_the_ledger_counts_what_was_given_a_verdict():
    page = Page(tables.ledger_table())
    assert [row[0] for row in page.rows[1:]] == list(CLAIMS)
    assert page.captions[0].startswith(f"{len(CLAIMS)} claims, 0 of them")
    some = next(iter(CLAIMS))
    verdicts = [Verdict.undecided(some, "too noisy"), Verdict.refuted(some, "ratio 0.8, n = 12")]
    page = Page(tables.ledger_table(verdicts))
    assert page.captions[0].startswith(f"{len(CLAIMS)} claims, 1 of them")
    assert page.rows[1][-1] == "refuted"


@pytest.mark.parametrize("make", [tables.symptom_table, tables.causes_table, tables.ledger_table])
def test_it_is_a_table_for_a_screen_reader_and_for_an_untrusted_notebook(make):
    page = Page(make())
    names = [tag for tag, _ in page.tags]
    assert len(page.captions) == names.count("table") and all(page.captions)
    assert all(attributes.get("scope") in ("row", "col") for tag, attributes in page.tags if tag == "th")
    assert not {"script", "style", "svg", "link", "img"} & set(names)
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]


def test_everything_is_escaped():
    rude = replace(symptom("S1"), seen=RUDE, seen_zh=RUDE, folk_cause=RUDE, folk_check=RUDE, other_rivals=(RUDE,))
    rude = replace(rude, id=RUDE, decides=RUDE, notebooks=("01", RUDE))
    cause = replace(CAUSES["io-latency"], id=RUDE, meaning=RUDE, decided_by=RUDE, look_alike=RUDE, differs=RUDE)
    shown = tables.symptom_table([rude], {"01": '"><script>'}) + tables.causes_table([cause])
    shown += tables.ledger_table([Verdict.undecided(next(iter(CLAIMS)), RUDE)])
    assert "<script" not in shown and "\x00" not in shown
    assert Page(shown).links == ['"><script>']


def test_judged_names_what_the_rules_can_say():
    """Every id that stands as a word in a rule is one a report can name, and the verdict adds `compute-bound`."""
    folder = Path(rules.__file__).parent
    words = {
        node.value
        for path in folder.glob("*.py")
        if path.name != "__init__.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    }
    assert (words & set(CAUSES)) | {"compute-bound"} == set(rules.JUDGED)
    assert len(set(rules.JUDGED)) == len(rules.JUDGED)
