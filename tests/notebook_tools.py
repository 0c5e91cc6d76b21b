"""Runs the notebooks, writes their outputs, and tells whether saved outputs still belong to the code above them.

    python tests/notebook_tools.py render [NAMES]   run notebooks and save their outputs (what `make render` does)
    python tests/notebook_tools.py check [NAMES]    list the notebooks whose saved outputs are stale
    python tests/notebook_tools.py run NAME         run one notebook and save nothing

NAMES are beginnings of file names: `03` stands for `03_how_many_workers.ipynb` and for its solution.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
LIMIT_S = 120
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_NOTE = "(an interactive panel: run this cell to use it)"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
# Only the language: the version of the machine that rendered last would change with every renderer.
LANGUAGE = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}


def notebook_paths(names: list[str] | tuple[str, ...] = ()) -> list[Path]:
    """Notebooks first, then solutions, in order; with names, those whose file name begins with one of them."""
    found = sorted(NOTEBOOKS.glob("*.ipynb")) + sorted((NOTEBOOKS / "solutions").glob("*.ipynb"))
    if not names:
        return found
    chosen = [path for path in found if path.name.startswith(tuple(Path(name).name for name in names))]
    if not chosen:
        known = ", ".join(path.stem for path in found)
        raise SystemExit(f"no notebook's name begins with {' or '.join(names)}; there are: {known}")
    return chosen


def source_hash(notebook: NotebookNode) -> str:
    """Hash of the code cells in order. Prose is left out: correcting a sentence does not age an output."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def check_fresh(path: Path) -> str:
    """Why the saved outputs do not belong to the code, or an empty string when they do."""
    notebook = nbformat.read(path, as_version=4)
    saved = notebook.metadata.get("loaderscope", {}).get("source_sha256")
    if saved is None:
        return "was never rendered"
    if saved != source_hash(notebook):
        return "has code that changed after its outputs were saved"
    return ""


def run(path: Path, limit_s: float = LIMIT_S) -> NotebookNode:
    """Execute a copy of the notebook from top to bottom, in its own folder as JupyterLab would, and return it."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    clear_outputs(notebook)
    deadline = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory() as private:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            resources={"metadata": {"path": str(path.parent)}},
            timeout_func=lambda _cell: max(1, int(deadline - time.monotonic())),
            record_timing=False,
            # At each start the kernel warns that it talks over TCP, which here is this machine talking to itself.
            extra_arguments=["--IPKernelApp.log_level=ERROR"],
            store_widget_state=False,
        )
        client.execute(env=_without_user_settings(private))
    return notebook


def render(path: Path, out: Path | None = None, limit_s: float = LIMIT_S) -> float:
    """Execute the notebook and save it with its outputs; returns the seconds it took. A failure saves nothing."""
    start = time.monotonic()
    notebook = run(path, limit_s)
    taken_s = time.monotonic() - start
    tidy(notebook)
    target = out or path
    temporary = target.with_suffix(".tmp")
    nbformat.write(notebook, temporary)
    temporary.replace(target)
    return taken_s


def clear_outputs(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def tidy(notebook: NotebookNode) -> None:
    """Leave what the reader sees and drop what differs from run to run or machine to machine."""
    stamp = {"source_sha256": source_hash(notebook)}
    notebook.metadata = NotebookNode(kernelspec=KERNEL, language_info=LANGUAGE, loaderscope=stamp)
    for cell in notebook.cells:
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in ("tags", "jupyter") if key in cell.metadata})
        if cell.cell_type == "code":
            cell.outputs = [_tidy_output(output) for output in _join_streams(cell.outputs)]


def _join_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Text printed in several pieces becomes one output: where the pieces break is chance."""
    joined: list[NotebookNode] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def _tidy_output(output: NotebookNode) -> NotebookNode:
    if output.output_type == "stream":
        output.text = _without_paths(_as_a_terminal_shows(output.text))
    data = output.get("data", {})
    # A saved view whose widget no longer lives shows as an error: keep a picture or table if there is one.
    if data.pop(WIDGET_VIEW, None) is not None and set(data) <= {"text/plain"}:
        data["text/plain"] = WIDGET_NOTE
    for kind, value in data.items():
        if isinstance(value, str) and kind.startswith("text/"):
            data[kind] = _without_paths(value)
    return output


def _as_a_terminal_shows(text: str) -> str:
    """A line that was written over, as progress is, becomes what stood there last."""
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(line.replace("\x1b[K", "") for line in lines)


def _without_paths(text: str) -> str:
    """Take the folders of the machine that rendered out of warnings and reprs."""
    text = re.sub(r"\S*/ipykernel_\d+/\d+\.py", "cell", text)
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/tmp\w+", "…", text)
    text = text.replace(str(ROOT), "…").replace(sys.prefix, "…")
    # A container's home can be the root folder, and then every path would begin with it.
    return text.replace(str(Path.home()), "~") if len(Path.home().parts) > 1 else text


def _without_user_settings(folder: str) -> dict[str, str]:
    """The kernel's environment: a reader's start-up files and plot settings must not show in the outputs."""
    private = dict.fromkeys(("IPYTHONDIR", "JUPYTER_CONFIG_DIR"), folder)
    return {name: value for name, value in os.environ.items() if name != "MPLBACKEND"} | private


def _render_all(paths: list[Path]) -> int:
    failed = 0
    for path in paths:
        try:
            print(f"{path.relative_to(ROOT)}: {render(path):.0f} s", flush=True)
        except Exception as error:
            failed += 1
            print(f"{path.relative_to(ROOT)}: not saved\n{_without_paths(str(error))}", file=sys.stderr, flush=True)
    return failed


def _check_all(paths: list[Path]) -> int:
    stale = {path: reason for path in paths if (reason := check_fresh(path))}
    for path, reason in stale.items():
        print(f"{path.relative_to(ROOT)} {reason}: make render ARGS={path.stem}")
    return len(stale)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["render", "check", "run"])
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    if options.action == "run":
        path = Path(options.names[0])
        run(path if path.exists() else notebook_paths(options.names)[0])
        return 0
    paths = notebook_paths(options.names)
    return 1 if (_render_all if options.action == "render" else _check_all)(paths) else 0


if __name__ == "__main__":
    raise SystemExit(main())
