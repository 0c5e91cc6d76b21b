"""The command line: the same engine as the notebooks.

Exit status: 0 nothing found, 1 findings, 2 could not run.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from typing import Any

from loaderscope.errors import BadInputError, LoaderscopeError

NOTHING_FOUND, FINDINGS, COULD_NOT_RUN = 0, 1, 2


def main(arguments: list[str] | None = None) -> int:
    """Entry point of `loaderscope` and `python -m loaderscope`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.run is None:
        parser.print_help()
        return COULD_NOT_RUN
    try:
        return options.run(options)
    except LoaderscopeError as error:
        print(f"loaderscope: {error}", file=sys.stderr)
        return COULD_NOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "loaderscope", description="Why does the training loop wait for data, or does it at all?"
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands")
    diagnose = commands.add_parser("diagnose", help="find out what limits a loader, and prove a fix")
    diagnose.add_argument("loader", help="module_or_file:name of a DataLoader or of a function that makes one")
    diagnose.add_argument("--step", help="module_or_file:name of a function that takes one batch")
    diagnose.add_argument("--budget", type=float, default=60.0, metavar="SECONDS", help="seconds to spend (default 60)")
    diagnose.add_argument("--role", choices=("train", "eval"), help="what the loader is for")
    diagnose.add_argument(
        "--checks", default="auto", help="auto, all, or a comma-separated choice of speed, memory, correctness, safety"
    )
    diagnose.add_argument("--html", metavar="FILE", help="also write the report as one HTML file")
    diagnose.add_argument("--json", metavar="FILE", help="also write the report as JSON")
    diagnose.set_defaults(run=_diagnose)
    preflight = commands.add_parser(
        "preflight", help="check this machine, and a loader's configuration, without iterating anything"
    )
    preflight.add_argument(
        "loader", nargs="?", help="module_or_file:name of a DataLoader or of a function that makes one"
    )
    preflight.add_argument("--json", metavar="FILE", help="also write the checks as JSON")
    preflight.set_defaults(run=_preflight)
    return parser


def _diagnose(options: argparse.Namespace) -> int:
    from loaderscope.diagnosis.diagnose import diagnose

    loader, step = load_name(options.loader), load_name(options.step) if options.step else None
    checks = options.checks if options.checks in ("auto", "all") else tuple(options.checks.split(","))
    report = diagnose(loader, step, budget_s=options.budget, checks=checks, role=options.role, progress=_progress())
    _end_progress()
    print(report)
    for path, ending in ((options.html, ".html"), (options.json, ".json")):
        if path:
            _save(report, path, ending)
    return FINDINGS if report.top is not None else NOTHING_FOUND


def _preflight(options: argparse.Namespace) -> int:
    from loaderscope.experiments.preflight import preflight

    result = preflight(load_name(options.loader) if options.loader else None)
    width = max(len(r.label) for r in result.rows())
    for row in result.rows():
        mark = {"bad": "FAIL", "warning": "warn", "missing": "n/a", "ok": "ok"}[row.status]
        print(f"{mark:>4}  {row.label:<{width}}  {row.value}")
    if options.json:
        _save(result, options.json, ".json")
    return FINDINGS if result.failed or result.warned else NOTHING_FOUND


def _save(record: Any, path: str, ending: str) -> None:
    if not path.endswith(ending):
        raise BadInputError(
            f"The file for --{ending[1:]} must end in {ending}", seen=path, way_out=f"--{ending[1:]} report{ending}"
        )
    try:
        record.save(path)
    except OSError as error:
        raise BadInputError(
            "The report could not be written", seen=f"{path}: {error}", way_out="choose a folder you may write to"
        ) from error


def load_name(name: str) -> Any:
    """The object that "module:name" or "path/to/file.py:name" stands for.

    Raises:
        BadInputError: no colon, no such file or module, no such name, or the module raises when imported.
    """
    source, _, attribute = name.rpartition(":")
    if not source or not attribute:
        raise BadInputError(
            "A loader is named as module:name or file.py:name", seen=name, way_out="for example train.py:make_loader"
        )
    try:
        module = _from_file(source) if source.endswith(".py") else _from_module(source)
    except Exception as error:  # the reader's module may raise anything
        raise BadInputError(
            f"{source} could not be imported",
            seen=f"{type(error).__name__}: {error}",
            way_out="run it with python first",
        ) from error
    if not hasattr(module, attribute):
        known = ", ".join(k for k in vars(module) if not k.startswith("_"))[:200]
        raise BadInputError(
            f"{source} has no {attribute}", seen=f"it has {known}", way_out="check the name after the colon"
        )
    return getattr(module, attribute)


def _from_module(source: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    return importlib.import_module(source)


def _from_file(path: str) -> Any:
    """Import a file under its own name, so that spawned workers can import it too."""
    path = os.path.abspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(path)
    folder, name = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def _progress():
    if not sys.stderr.isatty():
        return None
    return lambda what, share: print(f"\r\033[K[{share:4.0%}] {what}", end="", file=sys.stderr, flush=True)


def _end_progress() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
