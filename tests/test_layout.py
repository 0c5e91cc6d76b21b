"""What the project promises about its own shape: what lies where, who may import what, how large things get."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
LIB = ROOT / "lib"
PACKAGE = LIB / "loaderscope"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

FOLDERS = {"notebooks", "lib", "data_samples", "tests"}
FILES = {
    "environment.yml",
    "README.md",
    "pyproject.toml",
    "Makefile",
    "LICENSE",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
}

# Who may import what: a module, or a folder of modules of that name. The linter says the same (pyproject.toml,
# banned-api), but lifts all bans at once in a home.
HOMES = {
    "matplotlib": "views/plots",
    "ipywidgets": "views/panels",
    "pynvml": "probes/gpu",
    "time": "clock",
    "timeit": "clock",
    "datetime": "clock",
}
BARRED_FROM_RECORDS = {"torch", "torchvision", "matplotlib", "ipywidgets"}

MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 400
# Data written as Python: as long as what they list.
TABLES = ("diagnosis/causes*", "diagnosis/symptoms.py", "claims.py", "diagnosis/causes/*")

CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}

MIB = 2**20


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def inside(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


# --- what lies where -----------------------------------------------------------------------------------------------


def test_nothing_unexpected_at_the_top_level():
    names = tracked()
    folders = {name.split("/")[0] for name in names if "/" in name and not name.startswith(".")}
    files = {name for name in names if "/" not in name and not name.startswith(".")}
    assert folders <= FOLDERS, f"move elsewhere: {sorted(folders - FOLDERS)}"
    assert files <= FILES, f"move elsewhere: {sorted(files - FILES)}"


@pytest.mark.parametrize("name", sorted(FOLDERS | FILES))
def test_everything_promised_is_there(name):
    names = tracked()
    assert name in names or any(entry.startswith(f"{name}/") for entry in names)


def test_lib_is_a_source_root_with_one_package():
    assert {name.split("/")[1] for name in tracked() if name.startswith("lib/")} == {"loaderscope"}
    assert PYPROJECT["tool"]["setuptools"]["packages"]["find"]["where"] == ["lib"]


@pytest.mark.parametrize("path", ["lib/loaderscope/new.py", "lib/loaderscope/probes/new.py", "lib/new/x.py"])
def test_git_never_ignores_the_source_root(path):
    tracked()
    ignored = subprocess.run(["git", "check-ignore", "--no-index", path], cwd=ROOT, capture_output=True)
    assert ignored.returncode == 1, f"{path} would be ignored"


def test_no_notebook_touches_sys_path():
    for name in tracked():
        if name.endswith(".ipynb"):
            cells = json.loads((ROOT / name).read_text())["cells"]
            assert not [cell for cell in cells if "sys.path" in "".join(cell["source"])], name


def test_readme_names_the_two_commands():
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("README.md is not written yet")
    text = readme.read_text()
    assert "make lab" in text and "make test" in text
    assert PYPROJECT["project"].get("readme") == "README.md", "name it in pyproject.toml, so that it is packaged"


# --- importing it --------------------------------------------------------------------------------------------------

LOOK_AFTER_IMPORT = """
import json, sys, threading
threads = threading.active_count()
import loaderscope
import psutil
styles = sys.modules.get("matplotlib")
torch = sys.modules.get("torch")
print(json.dumps({
    "file": loaderscope.__file__,
    "threads": threading.active_count() - threads,
    "children": len(psutil.Process().children()),
    "heavy": [name for name in ("matplotlib.pyplot", "ipywidgets", "pynvml", "pandas") if name in sys.modules],
    "cuda": bool(torch and torch.cuda.is_initialized()),
    "restyled": bool(styles and dict(styles.rcParams) != dict(styles.rcParamsOrig)),
}))
"""


@pytest.fixture(scope="module")
def after_import(tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = subprocess.run([sys.executable, "-c", LOOK_AFTER_IMPORT], cwd=elsewhere, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_works_from_another_folder(after_import):
    assert Path(after_import["file"]).is_relative_to(PACKAGE)


@pytest.mark.parametrize("what", ["threads", "children", "heavy", "cuda", "restyled"])
def test_import_starts_nothing(after_import, what):
    assert not after_import[what]


# --- walls ---------------------------------------------------------------------------------------------------------


def imports(path: Path) -> set[str]:
    """First names of every absolute import in a file, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("module", HOMES)
def test_each_walled_module_has_one_home(module):
    homes = (f"{HOMES[module]}.py", f"{HOMES[module]}/")
    assert [inside(path) for path in modules() if module in imports(path) and not inside(path).startswith(homes)] == []


def test_records_are_plain_data():
    barred = {inside(path): imports(path) & BARRED_FROM_RECORDS for path in (PACKAGE / "records").rglob("*.py")}
    assert {name: found for name, found in barred.items() if found} == {}


def test_records_load_without_what_made_them():
    """Nor by a detour: a record saved on a GPU machine must open where torch is not even installed."""
    look = "import sys, loaderscope.records; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.split()
    assert BARRED_FROM_RECORDS & set(loaded) == set()


@pytest.mark.parametrize("module", [*HOMES, "torch"])
def test_the_linter_keeps_the_same_walls(module):
    code = f"import {module}\n\n{module}\n"
    place = ["--stdin-filename", "lib/loaderscope/records/new.py", "-"]
    command = [sys.executable, "-m", "ruff", "check", "--output-format", "json", *place]
    said = subprocess.run(command, cwd=ROOT, input=code, capture_output=True, text=True)
    assert {"TID251", "TID253"} & {entry["code"] for entry in json.loads(said.stdout)}, said.stderr


def test_the_linter_and_this_file_list_the_same_homes():
    lint = PYPROJECT["tool"]["ruff"]["lint"]
    assert set(lint["flake8-tidy-imports"]["banned-api"]) == set(HOMES)
    lifted = {path for path, rules in lint["per-file-ignores"].items() if "TID251" in rules and path.startswith("lib/")}
    assert lifted == {f"lib/loaderscope/{home}{end}" for home in HOMES.values() for end in (".py", "/**")}


# --- sizes ---------------------------------------------------------------------------------------------------------


def hand_written() -> list[Path]:
    return [path for path in modules() if not any(path.relative_to(PACKAGE).match(table) for table in TABLES)]


def test_functions_stay_short():
    long = [
        f"{inside(path)}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in hand_written()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_files_stay_short():
    lengths = {inside(path): len(path.read_text().splitlines()) for path in hand_written()}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_no_drawer_for_odds_and_ends():
    assert [inside(path) for path in modules() if path.stem in {"utils", "util", "common", "helpers", "misc"}] == []


def test_no_large_file_is_tracked():
    sizes = {name: (ROOT / name).stat().st_size for name in tracked()}
    assert {name: size for name, size in sizes.items() if size > 1.5 * MIB} == {}
    assert sum(size for name, size in sizes.items() if name.startswith("data_samples/")) <= 12.5e6


# --- one project, any machine --------------------------------------------------------------------------------------


def test_no_file_names_a_path_of_one_machine():
    found = []
    for name in tracked():
        content = (ROOT / name).read_bytes()
        if name != "tests/test_layout.py" and b"\0" not in content and not content.startswith(b"\xff\xd8"):
            found += [f"{name}: {path.decode()}" for path in (b"/work/", b"/root/") if path in content]
    assert found == []


def test_conda_environment_is_in_step():
    """conda itself is not run here: this test is what keeps environment.yml and pyproject.toml together."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    plain = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    assert [entry for entry in environment["dependencies"] if not isinstance(entry, str)] == [{"pip": ["-e ."]}]
    expected = {conda_spelling(entry) for entry in PYPROJECT["project"]["dependencies"]}
    assert set(plain) == expected | {f"python{PYPROJECT['project']['requires-python']}", "pip"}
    assert len(plain) == len(set(plain))


def conda_spelling(requirement: str) -> str:
    name, bound = requirement.split(">=")
    return f"{CONDA_NAMES.get(name, name)}>={bound}"
