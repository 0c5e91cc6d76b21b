"""Names, paths and exception texts of the reader: shown as they are in text, never as markup in HTML."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import bad_data as bad
import loaderscope as ls
from loaderscope.errors import RecordError
from running import reported

PLACES = {"words": "/data/Müller/名前/<script>x</script>", "bytes": "/data/\udcff\x07"}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_names_and_paths_of_the_reader_are_text_everywhere(place, tmp_path):
    report = reported(DataLoader(bad.Résumé名前(place), batch_size=4), bad.ignore)
    assert "Résumé名前" in report.facts.dataset and "FileNotFoundError" in report.verdict
    repr(report).encode("utf-8")
    repr(report.timing).encode("utf-8")
    page = report._repr_html_()
    assert "<script>" not in page and "\udcff" not in page
    assert "Résumé名前" in Path(report.save(tmp_path / "名前.html")).read_text(encoding="utf-8")
    assert repr(ls.load(report.save(tmp_path / "名前.json"))) == repr(report)


@pytest.mark.parametrize(
    "name", ["no/such/folder/report.html", "no/such/folder/report.json", "report.json/report.json"]
)
def test_a_place_that_cannot_be_written_is_named(name, tmp_path):
    report = reported(DataLoader(bad.Rows(0), batch_size=4))
    report.save(tmp_path / "report.json")
    with pytest.raises(RecordError) as caught:
        report.save(tmp_path / name)
    assert name in str(caught.value) and "folder" in caught.value.way_out


def test_an_ending_that_means_nothing_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"\.json or \.html"):
        reported(DataLoader(bad.Rows(0), batch_size=4)).save(tmp_path / "report.pdf")
