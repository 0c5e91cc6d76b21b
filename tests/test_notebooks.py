"""Every notebook keeps to the form that makes it readable, has fresh outputs, and runs from top to bottom."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from notebook_tools import LIMIT_S, NOTEBOOKS, check_fresh, notebook_paths, run, source_hash, tidy

MAX_CELLS = 40
MAX_LINES = 15
SECTIONS = (
    "Symptom",
    "Hypothesis",
    "Experiment",
    "Reading the plot",
    "Fix",
    "Your own loader",
    "Exercise",
    "Claims",
)
TOOL = Path(__file__).parent / "notebook_tools.py"


def notebooks(paths: list[Path]):
    """One test for each notebook; with none written yet, one skipped test that says so."""
    none = [pytest.param(None, marks=pytest.mark.skip(reason="no such notebook is written yet"))]
    return pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in paths] or none)


ALL = notebooks(notebook_paths())
MAIN = notebooks([path for path in notebook_paths() if path.parent == NOTEBOOKS])
LESSONS = notebooks([path for path in notebook_paths() if path.parent == NOTEBOOKS and "01" <= path.name[:2] <= "13"])


def read(path: Path):
    return nbformat.read(path, as_version=4)


def code_cells(path: Path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


# --- form: instant ------------------------------------------------------------------------------------------------


def test_the_folder_holds_only_numbered_notebooks_solutions_and_pictures():
    tracked = subprocess.run(["git", "ls-files", "notebooks"], cwd=NOTEBOOKS.parent, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    named = re.compile(r"notebooks/((solutions/)?\d\d_[a-z0-9_]+\.ipynb|images/[a-z0-9_]+\.png)")
    assert [name for name in tracked.stdout.split() if not named.fullmatch(name)] == []
    numbers = [path.name[:2] for path in notebook_paths() if path.parent == NOTEBOOKS]
    assert len(set(numbers)) == len(numbers), "two notebooks share a number"


@ALL
def test_size(path):
    cells = read(path).cells
    assert len(cells) <= MAX_CELLS
    long = [cell.source for cell in code_cells(path) if len(cell.source.splitlines()) > MAX_LINES]
    assert not long, f"cells of more than {MAX_LINES} lines:\n\n" + "\n\n".join(long)


@ALL
def test_prose_stands_between_code_cells(path):
    cells = read(path).cells
    assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# "), "the first cell is the title"
    bare = [cell.source for previous, cell in pairwise(cells) if cell.cell_type == previous.cell_type == "code"]
    assert not bare, "code cells that follow a code cell:\n\n" + "\n\n".join(bare)
    assert not [cell for cell in cells if not cell.source.strip()], "there is an empty cell"


@ALL
def test_nothing_reaches_around_the_installed_package(path):
    assert not [cell.source for cell in code_cells(path) if "sys.path" in cell.source]


@ALL
def test_saved_state(path):
    notebook = read(path)
    assert "widgets" not in notebook.metadata, "saved widget state breaks viewers: make render strips it"
    errors = [output for cell in code_cells(path) for output in cell.outputs if output.output_type == "error"]
    assert not errors, f"saved with an error: {errors[0].ename}: {errors[0].evalue}"


@ALL
def test_outputs_are_fresh(path):
    reason = check_fresh(path)
    assert not reason, f"{path.name} {reason}; run: make render ARGS={path.stem}"


@LESSONS
def test_sections_in_order(path):
    headings = [
        match[1].strip().lower()
        for cell in read(path).cells
        if cell.cell_type == "markdown"
        for match in re.finditer(r"^##+ +(.+)$", cell.source, re.MULTILINE)
    ]
    places = {
        name: next((i for i, heading in enumerate(headings) if heading.startswith(name.lower())), None)
        for name in SECTIONS
    }
    missing = [name for name, place in places.items() if place is None]
    assert not missing, f"no heading for: {', '.join(missing)}; there are: {headings}"
    assert list(places.values()) == sorted(places.values()), f"sections out of order: {headings}"


@MAIN
def test_parameters_are_plain_literals(path):
    """One tagged cell holds what a reader or another program may change, as `name = literal` lines."""
    tagged = [cell for cell in code_cells(path) if "parameters" in cell.metadata.get("tags", [])]
    if path.name.startswith("00") and not tagged:
        return  # The table of symptoms has nothing to set.
    assert len(tagged) == 1, f"{len(tagged)} cells are tagged `parameters`, not one"
    for statement in ast.parse(tagged[0].source).body:
        assert isinstance(statement, ast.Assign | ast.AnnAssign), ast.unparse(statement)
        ast.literal_eval(statement.value)


# --- running them: slow -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.notebook
@ALL
def test_runs_from_top_to_bottom(path):
    """In a process of its own, so that kernels, event loops and settings end with it."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(TOOL), "run", str(path)], capture_output=True, text=True, timeout=LIMIT_S + 60
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert time.monotonic() - start < LIMIT_S


# --- the tools themselves -----------------------------------------------------------------------------------------


def made(*sources: str, **metadata):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"name": "python3", "display_name": "anything", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, **metadata})


def test_the_hash_follows_the_code_and_not_the_prose():
    one = made("a = 1", "b = 2")
    same = made("a = 1", "b = 2")
    same.cells.insert(1, nbformat.v4.new_markdown_cell("A word."))
    assert source_hash(one) == source_hash(same)
    assert source_hash(one) != source_hash(made("a = 1", "b = 3"))
    assert source_hash(one) != source_hash(made("a = 1b = 2"))


def test_tidy_drops_what_differs_between_machines():
    notebook = made("1", widgets={"state": {}}, language_info={"version": "3.99", "name": "python"})
    cell = notebook.cells[0]
    cell.metadata.update({"execution": {"iopub.status.busy": "now"}, "tags": ["parameters"]})
    view = "application/vnd.jupyter.widget-view+json"
    cell.outputs = [
        nbformat.v4.new_output("stream", name="stdout", text=f"{NOTEBOOKS.parent}/data_samples "),
        nbformat.v4.new_output("stream", name="stdout", text="and /tmp/ipykernel_12/345.py:1\n"),
        nbformat.v4.new_output("stream", name="stdout", text="\r\x1b[K 1 of 2\r\x1b[K 2 of 2\r\n"),
        nbformat.v4.new_output("stream", name="stdout", text=f"Writing {tempfile.gettempdir()}/tmpa_1b/train.py"),
        nbformat.v4.new_output("display_data", data={view: {"model_id": "x"}, "text/plain": "VBox(...)"}),
        nbformat.v4.new_output("display_data", data={view: {"model_id": "x"}, "image/png": "aGk="}),
    ]
    tidy(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info", "loaderscope"}
    assert "version" not in notebook.metadata.language_info
    assert cell.metadata == {"tags": ["parameters"]}
    text, note, picture = cell.outputs
    assert text.text == "…/data_samples and cell:1\n 2 of 2\nWriting …/train.py"
    assert note.data == {"text/plain": "(an interactive panel: run this cell to use it)"}
    assert picture.data == {"image/png": "aGk="}
    nbformat.validate(notebook)


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.leaks_ok(reason="nbclient keeps the event loop it made for its next run")
def test_render_saves_outputs_and_check_sees_a_later_change(tmp_path, monkeypatch):
    import notebook_tools

    monkeypatch.setattr(notebook_tools, "ROOT", tmp_path)
    path = tmp_path / "made.ipynb"
    nbformat.write(made("x = 20", "x + 1"), path)
    assert check_fresh(path) == "was never rendered"
    notebook_tools.render(path)
    notebook = read(path)
    assert notebook.cells[1].outputs[0].data["text/plain"] == "21"
    assert check_fresh(path) == ""
    notebook.cells[0].source = "x = 30"
    nbformat.write(notebook, path)
    assert "changed after" in check_fresh(path)


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.leaks_ok(reason="nbclient keeps the event loop it made for its next run")
def test_a_notebook_that_outlives_its_limit_fails(tmp_path):
    path = tmp_path / "made.ipynb"
    nbformat.write(made("import time; time.sleep(600)"), path)
    with pytest.raises(Exception, match="timed out"):
        run(path, limit_s=5)
