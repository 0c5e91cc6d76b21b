"""The command line: exit status, files, names, and what is printed where."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

import loaderscope as ls
from loaderscope import cli
from loaderscope.diagnosis.report import Report
from loaderscope.records import Preflight

READER = """
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __init__(self, wait_s):
            self.wait_s = wait_s
        def __len__(self):
            return 400
        def __getitem__(self, index):
            time.sleep(self.wait_s)
            return torch.full((4,), float(index))

    def make_slow(**overrides):
        return DataLoader(Slow(0.004), **{"batch_size": 8, **overrides})

    fast = DataLoader(Slow(0.0), batch_size=8)
    empty = DataLoader([], batch_size=8)
    raises = DataLoader([1, "two", None], batch_size=3)
    contradicts = DataLoader(Slow(0.0), batch_size=8, timeout=3)
    once = (torch.zeros(4) for _ in range(9))
    number = 7

    def step(batch):
        time.sleep(0.02)

    def failing_step(batch):
        raise ValueError("no such label")
"""


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A file of the reader's, in the current folder; the name differs each time, for modules are imported once."""
    name = f"reader_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(READER))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield f"{name}.py"
    sys.modules.pop(name, None)


def run(capsys, *words):
    status = cli.main([str(word) for word in words])
    said = capsys.readouterr()
    return status, said.out, said.err


# --- exit status ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_findings_are_1_and_the_report_goes_to_files(reader, capsys, tmp_path):
    status, out, err = run(
        capsys, "diagnose", f"{reader}:make_slow", "--budget", "10", "--html", "r.html", "--json", tmp_path / "r.json"
    )
    assert status == cli.FINDINGS and err == "", "no progress where nobody looks"
    assert "io-latency" in out and "loaderscope report" in out
    loaded = ls.load("r.json")
    assert isinstance(loaded, Report) and loaded.top.cause == "io-latency" and repr(loaded) == out.strip()
    page = Path("r.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "io-latency" in page


@pytest.mark.slow
def test_nothing_found_is_0_with_a_step_by_name(reader, capsys):
    status, out, _ = run(capsys, "diagnose", f"{reader}:fast", "--step", f"{reader}:step", "--budget", "5")
    assert status == cli.NOTHING_FOUND and "a perfect loader would save" in out


def test_a_fault_of_the_loader_is_a_finding(reader, capsys):
    status, out, _ = run(capsys, "diagnose", f"{reader}:raises", "--budget", "2")
    assert status == cli.FINDINGS and "worker-error" in out
    status, out, _ = run(capsys, "diagnose", f"{reader}:empty", "--budget", "2")
    assert status == cli.FINDINGS and "bad-configuration" in out


def test_what_could_not_be_measured_is_2(reader, capsys):
    status, out, _ = run(capsys, "diagnose", f"{reader}:once", "--budget", "2")
    assert status == cli.COULD_NOT_RUN and "only once" in out
    status, out, err = run(capsys, "diagnose", f"{reader}:fast", "--step", f"{reader}:failing_step", "--budget", "2")
    assert status == cli.COULD_NOT_RUN and "ValueError: no such label" in err and not out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("make_slow", "module:name or file.py:name"),
        (":make_slow", "module:name or file.py:name"),
        ("{reader}:", "module:name or file.py:name"),
        ("{reader}:nothing", "has no nothing"),
        ("nowhere.py:make_slow", "FileNotFoundError"),
        ("no.such.module:make_slow", "ModuleNotFoundError"),
        ("{reader}:number", "neither a loader"),
        ("{reader}:Slow", "raised when called"),
    ],
)
def test_a_name_that_stands_for_nothing_is_2(name, said, reader, capsys):
    status, out, err = run(capsys, "diagnose", name.format(reader=reader), "--budget", "1")
    assert status == cli.COULD_NOT_RUN and said in err and not out
    assert err.startswith("loaderscope: ") and "Traceback" not in err


@pytest.mark.parametrize("body", ["raise OSError('no <such> drive')", "import sys; sys.exit(0)", "def f(:", "1 / 0"])
def test_a_file_that_cannot_be_imported_is_2(body, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / f"broken_{tmp_path.name}.py"
    path.write_text(body)
    status, _, err = run(capsys, "diagnose", f"{path}:make_loader")
    assert status == cli.COULD_NOT_RUN and "could not be imported" in err and "Traceback" not in err


def test_a_file_with_the_name_of_another_module_is_not_taken_for_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "textwrap.py").write_text("make_loader = [1, 2]")
    status, _, err = run(capsys, "diagnose", f"{tmp_path / 'textwrap.py'}:make_loader")
    assert status == cli.COULD_NOT_RUN and "another module is called 'textwrap'" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "0"], "budget_s"),
        (["--budget", "-3"], "budget_s"),
        (["--budget", "nan"], "budget_s"),
        (["--checks", "speed,everything"], "checks"),
        (["--html", "report.pdf"], "must end in .html"),
        (["--json", "no/such/folder/r.json"], "could not be written"),
    ],
)
def test_an_option_that_cannot_be_used_is_2_before_anything_runs(words, said, reader, capsys):
    status, out, err = run(capsys, "diagnose", f"{reader}:fast", *words)
    assert status == cli.COULD_NOT_RUN and said in err and not out


@pytest.mark.parametrize("words", [["--budget", "much"], ["--role", "training"], ["--speed"]])
def test_an_option_that_cannot_be_read_is_2(words, reader, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["diagnose", f"{reader}:fast", *words])
    assert left.value.code == cli.COULD_NOT_RUN and words[0] in capsys.readouterr().err


def test_no_command_prints_the_help(capsys):
    status, out, _ = run(capsys)
    assert status == cli.COULD_NOT_RUN and "diagnose" in out and "preflight" in out


def test_ctrl_c_before_a_report_is_2(reader, capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "load_name", interrupted)
    status, _, err = run(capsys, "diagnose", f"{reader}:fast")
    assert status == cli.COULD_NOT_RUN and "interrupted" in err


# --- preflight --------------------------------------------------------------------------------------------------------


def test_preflight_says_what_fails_first(reader, capsys):
    status, out, _ = run(capsys, "preflight", f"{reader}:contradicts", "--json", "p.json")
    assert status == cli.FINDINGS and out.splitlines()[0].startswith("FAIL  options") and "timeout=3" in out
    assert isinstance(ls.load("p.json"), Preflight)


def test_preflight_of_a_healthy_loader_fails_nothing(reader, capsys):
    status, out, _ = run(capsys, "preflight", f"{reader}:fast")
    assert "FAIL" not in out and "50 batches" in out
    assert status == (cli.FINDINGS if "\nwarn" in f"\n{out}" else cli.NOTHING_FOUND)


def test_preflight_of_the_machine_alone(capsys):
    status, out, _ = run(capsys, "preflight")
    assert "cores" in out and "memory" in out and status in (cli.NOTHING_FOUND, cli.FINDINGS)


# --- where it prints --------------------------------------------------------------------------------------------------


class Terminal:
    """Standard error as a terminal shows it."""

    def __init__(self):
        self.words = []

    def isatty(self):
        return True

    def write(self, words):
        self.words.append(words)

    def flush(self):
        pass


def test_progress_is_for_terminals(reader, monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert cli.main(["diagnose", f"{reader}:raises", "--budget", "1"]) == cli.FINDINGS
    shown = "".join(terminal.words)
    assert "%] preflight" in shown and "\r\033[K" in shown and shown.endswith("\r\033[K")
    assert "\033" not in capsys.readouterr().out


def elsewhere(command, folder, **environment):
    """The command in a process of its own, in `folder`."""
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


@pytest.mark.slow
def test_an_encoding_without_our_signs_does_not_stop_it(reader, tmp_path):
    command = [sys.executable, "-m", "loaderscope", "diagnose", f"{reader}:fast", "--budget", "1"]
    done = elsewhere(command, tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert done.returncode in (cli.NOTHING_FOUND, cli.FINDINGS) and "Traceback" not in done.stderr
    assert "loaderscope report" in done.stdout


@pytest.mark.slow
def test_module_and_script_are_the_same_command(reader, tmp_path):
    script = shutil.which("loaderscope", path=sysconfig.get_path("scripts"))
    assert script, "the package is installed with its script"
    module = reader.removesuffix(".py")
    for command in ([sys.executable, "-m", "loaderscope"], [script]):
        # A module by its name, found in the current folder.
        done = elsewhere([*command, "preflight", f"{module}:contradicts"], tmp_path)
        assert done.returncode == cli.FINDINGS and done.stdout.startswith("FAIL  options"), done.stderr
