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
from loaderscope.records import is_measured

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
        _end_progress()
        _say(f"loaderscope: {error}", sys.stderr)
    except KeyboardInterrupt:
        _end_progress()
        _say("loaderscope: interrupted before anything was measured", sys.stderr)
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

    for path, ending in ((options.html, ".html"), (options.json, ".json")):
        _check_target(path, ending)  # before the measurement, not after it
    loader, step = load_name(options.loader), load_name(options.step) if options.step else None
    checks = options.checks if options.checks in ("auto", "all") else tuple(options.checks.split(","))
    report = diagnose(loader, step, budget_s=options.budget, checks=checks, role=options.role, progress=_progress())
    _end_progress()
    _say(repr(report), sys.stdout)
    for path in (options.html, options.json):
        if path:
            report.save(path)
    if report.top is not None:
        return FINDINGS
    # A loader that could not be iterated is not one in which nothing was found.
    return NOTHING_FOUND if is_measured(report.headroom) and report.headroom.alone.batches else COULD_NOT_RUN


def _preflight(options: argparse.Namespace) -> int:
    from loaderscope.experiments.preflight import preflight

    _check_target(options.json, ".json")
    result = preflight(load_name(options.loader) if options.loader else None)
    width = max(len(r.label) for r in result.rows())
    for row in result.rows():
        mark = {"bad": "FAIL", "warning": "warn", "missing": "n/a", "ok": "ok"}[row.status]
        _say(f"{mark:>4}  {row.label:<{width}}  {row.value}", sys.stdout)
    if options.json:
        result.save(options.json)
    return FINDINGS if result.failed or result.warned else NOTHING_FOUND


def _check_target(path: str | None, ending: str) -> None:
    if path is None:
        return
    if not path.endswith(ending):
        raise BadInputError(
            f"The file for --{ending[1:]} must end in {ending}", seen=path, way_out=f"--{ending[1:]} report{ending}"
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise BadInputError(
            "The report could not be written", seen=path, way_out="choose a folder that exists and you may write to"
        )


def _say(words: str, stream: Any) -> None:
    """Print, also on a terminal whose encoding has no µ and no 名."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(words.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


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
    except (Exception, SystemExit) as error:  # the reader's module may raise anything, and scripts end by themselves
        raise BadInputError(
            f"{source} could not be imported",
            seen=f"{type(error).__name__}: {error}",
            way_out='run it with python first; what it does when run belongs under if __name__ == "__main__"',
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
    module = importlib.import_module(name)
    found = getattr(module, "__file__", None)
    if found is None or not os.path.samefile(found, path):
        raise ImportError(f"another module is called {name!r} ({found or 'built in'}); rename your file")
    return module


def _progress():
    if not sys.stderr.isatty():
        return None
    return lambda what, share: print(f"\r\033[K[{share:4.0%}] {what}", end="", file=sys.stderr, flush=True)


def _end_progress() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
