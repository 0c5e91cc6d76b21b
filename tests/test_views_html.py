"""Records and reports as HTML: complete, escaped, self-contained, readable without colour."""

from __future__ import annotations

import dataclasses
import functools
import re
from html.parser import HTMLParser

import pytest

from loaderscope.diagnosis.causes import CAUSES
from loaderscope.records import Check, Finding, Preflight
from loaderscope.views import html
from records_by_hand import (
    ABSENT,
    EVIL,
    FAULT,
    TABLES,
    evil_records,
    make_environment,
    make_facts,
    make_findings,
    make_headroom,
    make_report,
    make_stages,
    make_timing,
)


@functools.cache
def report_html() -> str:
    return html.report(make_report())


@functools.cache
def report_page() -> str:
    return html.page(make_report())


VOID = {"img", "meta", "br", "hr"}


class Page(HTMLParser):
    """Tags, attributes and text; raises where a tag is closed that is not open."""

    def __init__(self, source: str):
        super().__init__()
        self.open, self.tags, self.attributes, self.text, self.headings = [], [], [], [], []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        self.text.append(data)

    def said(self) -> str:
        return " ".join("".join(self.text).split())


@pytest.mark.parametrize("record", TABLES, ids=lambda r: type(r).__name__)
def test_a_record_is_a_table_of_its_rows(record):
    page = Page(record._repr_html_())
    assert page.tags.count("caption") == 1 and page.tags.count("tr") == len(record.rows())
    assert sum(tag == "th" and a.get("scope") == "row" for tag, a in page.attributes) == len(record.rows())
    for row in record.rows():
        assert " ".join(f"{row.value}".split()) in page.said()


def test_a_fragment_needs_nothing_that_an_untrusted_notebook_drops():
    page = Page(report_html())
    assert not {"script", "style", "svg", "link", "iframe"} & set(page.tags)
    assert not any(name.startswith("on") or name == "class" for _, attrs in page.attributes for name in attrs)


def test_status_is_said_without_colour():
    checks = (Check("a", "warn", "w"), Check("b", "fail", "f"), Check("c", "missing", "m"), Check("d", "ok", "o"))
    source = html.record(Preflight(make_environment(), ABSENT, checks))
    assert "⚠" in source and "✖" in source and 'aria-label="warning"' in source and 'aria-label="bad"' in source
    assert re.search(r"<em[^>]*italic[^>]*>m</em>", source)


def test_what_was_not_measured_is_grey_with_its_reason_and_no_zero():
    source = html.record(make_environment())
    row = re.search(r"<tr><th[^>]*>GPU</th><td[^>]*>(.*?)</td></tr>", source).group(1)
    assert re.fullmatch(r"<em style=[^>]*>not measured \(the instrument is missing here\)</em>", row)
    assert "0" not in re.sub(r"<[^>]*>", "", row)
    report = Page(html.report(make_report(gil=ABSENT, profile=ABSENT))).said()
    assert "Not measured" in report and report.count(ABSENT.reason) >= 2


def test_a_report_says_the_verdict_first_then_findings_then_what_is_open():
    page = Page(report_html())
    said = page.said()
    assert said.startswith("The loop waits for data, because every read waits.")
    wanted = [
        "Findings", "io-latency", CAUSES["io-latency"].meaning, "62 % of the wall time", "waiting 16 %",
        "straggler-worker", "Fix 2: Raise num_workers", "measured here: 2.00x", "Not recommended", "Fix 1: Pin memory",
        "worker-restart", "Fix 3: Keep them", "Undecided", "collate-bound", "What would decide: budget_s=120",
        "All numbers", "Machine", "Loader", "Headroom", "GIL check", "Notes",
        "the training step ran 24 times", "A note.",
    ]  # fmt: skip
    places = [said.find(words) for words in wanted]
    assert -1 not in places, [w for w, p in zip(wanted, places) if p < 0]
    assert places == sorted(places)
    assert "meter" in page.tags and page.tags.count("meter") == 1, "an impact that is not known became a number"
    assert page.tags.count("pre") == 3


def test_a_report_without_findings_says_so():
    said = Page(html.report(make_report(findings=(), bound="compute-bound"))).said()
    assert "Nothing wrong was found in what was measured" in said and "Undecided" not in said
    open_question = Page(html.report(make_report(findings=(), bound="undecided"))).said()
    assert "none was ruled out" in open_question and "Nothing wrong" not in open_question


def test_portability_has_its_own_section():
    said = Page(html.report(make_report(portability=(Finding("notebook-class", "present"),)))).said()
    assert said.find("Under another start method") < said.find("notebook-class")


def test_a_cause_of_a_newer_version_is_shown_all_the_same():
    assert "does not know" in html.finding(Finding("cause-of-tomorrow", "present"))


def test_every_image_has_words_and_headings_do_not_skip():
    for source in (report_html(), report_page(), html.page(make_timing())):
        page = Page(source)
        images = [attrs for tag, attrs in page.attributes if tag == "img"]
        assert images and all(re.search(r"\d", image["alt"]) for image in images)
        assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:]))
    assert Page(report_page()).headings[0] == 1


@pytest.mark.parametrize("record", evil_records(), ids=lambda r: type(r).__name__)
def test_nothing_of_the_readers_becomes_markup(record):
    source = html.page(record)
    page = Page(source)
    assert "script" not in page.tags and "<script" not in source
    assert not any(name.startswith("on") for _, attrs in page.attributes for name in attrs)
    assert not loaded_by(page)
    # The words themselves stay readable; a headroom has none of the reader's.
    assert EVIL in page.said() or type(record).__name__ == "Headroom"


def test_a_page_loads_nothing_and_prints():
    for source in (report_page(), html.page(make_environment()), html.page(make_timing())):
        page = Page(source)
        assert not loaded_by(page)
        assert not re.search(r"url\(|@import", source) and not re.search(r"https?://", source)
        assert source.startswith("<!DOCTYPE html>") and '<meta charset="utf-8">' in source and "@media print" in source
        assert "title" in page.tags and "<details>" not in source


def loaded_by(page: Page) -> list[str]:
    """Addresses outside the file."""
    names = ("src", "href", "srcset", "data", "action", "poster")
    found = [attrs[name] for _, attrs in page.attributes for name in names if name in attrs]
    return [address for address in found if not address.startswith(("data:", "#"))]


def test_a_saved_page_is_utf8_whatever_the_path_was(tmp_path):
    record = dataclasses.replace(FAULT, error_text="/données/写真/caf\udce9.jpg")
    path = record.save(tmp_path / "fault.html")
    with open(path, encoding="utf-8") as file:
        assert "/données/写真/caf\\udce9.jpg" in file.read()


def test_the_real_report_is_shown_like_its_stand_in():
    from loaderscope.diagnosis.evidence import Evidence
    from loaderscope.diagnosis.report import Report as RealReport

    evidence = Evidence(make_facts(), make_environment(), True, headroom=make_headroom(), profile=make_stages())
    report = RealReport(evidence, make_findings(), steps_run=3, elapsed_s=1.5)
    page = Page(report._repr_html_())
    assert report.verdict in page.said() and "not run" in page.said() and "io-latency" in page.said()
    assert len(report.plot().figure.axes) == 2
    assert html.page(report).startswith("<!DOCTYPE html>")
