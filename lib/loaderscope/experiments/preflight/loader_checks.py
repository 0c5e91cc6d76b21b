"""Checks of a loader's configuration: of its facts, and of the types of the objects it is made of.

No method of the reader's objects is called.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import itertools
import math
import sys
import types
from collections.abc import Iterator
from typing import Any

from loaderscope.records import Check, Environment, LoaderFacts, is_measured, text

# The start methods that send the dataset to each worker as a pickle.
PICKLING = ("spawn", "forkserver")
# How far attributes are followed: subset, dataset, Compose, its list, a transform, its function, and one more.
DEPTH = 6
# Objects looked at below one part, so that a dataset that holds half the program costs nothing.
OBJECTS = 2000
# Transforms come in lists of a few; a longer list holds samples, and is not looked through.
SHORT_LIST = 64
# Py_TPFLAGS_HEAPTYPE: made by a class statement. Built-in types have no attributes to follow.
HEAP_TYPE = 1 << 9


def loader_checks(facts: LoaderFacts, env: Environment, loader: Any = None) -> tuple[Check, ...]:
    """Checks of the configuration; `loader` is the live object, where there is one, and is only looked at.

    Args:
        facts: what LoaderSpec.read found.
        env: the machine it is to run on.
        loader: the DataLoader or iterable the facts are of.
    """
    checks = [_length(facts), _options(facts), _workers(facts, env), _pinning(facts, env)]
    checks += [_one_shot(facts, loader), *_pickled_parts(facts, loader), _idle(facts)]
    return tuple(check for check in checks if check is not None)


def _length(facts: LoaderFacts) -> Check:
    batches, name = facts.batches, "batches"
    if not is_measured(batches):
        return Check(name, "missing", str(batches))
    if batches > 0:
        return Check(name, "ok", f"{text.count(batches, 'batch', 'batches')} an epoch")
    if is_measured(facts.length) and facts.length > 0 and facts.drop_last is True:
        seen = f"none: {text.count(facts.length, 'sample')} are fewer than one batch"
        seen += f" of {facts.batch_size}" if isinstance(facts.batch_size, int) else ""
        way_out = "use a smaller batch_size or drop_last=False"
        return Check(name, "fail", f"{seen}, and drop_last=True drops it", way_out, "undersized-batches")
    way_out = "look at what fills the dataset: a wrong folder, a filter that keeps nothing, or an empty sampler"
    return Check(name, "fail", "none: len(loader) is 0, so a loop over it ends at once", way_out, "bad-configuration")


def _options(facts: LoaderFacts) -> Check | None:
    """Combinations that torch accepts and then refuses, or ignores, when it is iterated."""
    if not is_measured(facts.num_workers):
        return None
    fault = _with_workers(facts) if facts.num_workers else _without_workers(facts)
    if fault is None:
        return Check("options", "ok", "nothing contradicts")
    status, seen, way_out = fault
    return Check("options", status, seen, way_out, "bad-configuration")


def _without_workers(facts: LoaderFacts) -> tuple[str, str, str] | None:
    if is_measured(facts.timeout_s) and facts.timeout_s > 0:
        seen = f"timeout={facts.timeout_s:g} s with num_workers=0: iterating raises an AssertionError"
        return "fail", seen, "leave timeout out, or use workers"
    if facts.persistent_workers is True:
        return "warn", "persistent_workers=True with num_workers=0 keeps nothing", "set it only with workers"
    if isinstance(facts.prefetch_factor, int):
        seen = f"prefetch_factor={facts.prefetch_factor} with num_workers=0: nothing is prefetched"
        return "warn", seen, "leave prefetch_factor out, or use workers"
    return None


def _with_workers(facts: LoaderFacts) -> tuple[str, str, str] | None:
    prefetch = facts.prefetch_factor
    if prefetch is None or (is_measured(prefetch) and prefetch < 1):
        seen = f"prefetch_factor={prefetch} with {text.count(facts.num_workers, 'worker')}: iterating raises an error"
        return "fail", seen, "rebuild the loader with prefetch_factor=2, torch's own default"
    return None


def _workers(facts: LoaderFacts, env: Environment) -> Check | None:
    if not is_measured(facts.num_workers):
        return None
    workers, cores = facts.num_workers, env.usable_cores
    if workers == 0:
        return Check("workers", "ok", "0: each batch is made in the main process, while the step waits")
    seen = f"{text.count(workers, 'worker')}, {cores:.2g} usable cores"
    if workers <= math.ceil(cores):
        return Check("workers", "ok", seen)
    seen += ": right for samples that wait (disk, network), too many for samples that compute"
    return Check("workers", "note", seen, "measuring decides: loaderscope.diagnose(loader)")


def _pinning(facts: LoaderFacts, env: Environment) -> Check | None:
    if facts.pin_memory is not True or is_measured(env.gpu):
        return None
    seen = f"pin_memory=True, and no accelerator is known: {env.gpu.reason}"
    return Check("pin_memory", "note", seen, "it does nothing without an accelerator: leave it out here")


def _idle(facts: LoaderFacts) -> Check | None:
    if not is_measured(facts.batches) or not 0 < facts.batches < facts.workers:
        return None
    seen = f"{text.count(facts.workers, 'worker')} for {text.count(facts.batches, 'batch', 'batches')} an epoch"
    return Check("workers per epoch", "note", f"{seen}: some never work", "use fewer workers", "idle-workers")


# --- what can be iterated only once -------------------------------------------------------------------------------


def _one_shot(facts: LoaderFacts, loader: Any) -> Check | None:
    parts = {"loader": loader} if facts.kind == "any" else _parts(loader, "dataset", "sampler", "batch_sampler")
    for name, part in parts.items():
        kind = type(part)
        if not hasattr(kind, "__next__"):
            continue
        if _never_restarts(kind):
            seen = f"the {name} is a {kind.__name__}, which can be iterated only once: a second epoch is empty"
            way_out = f"pass a {name} whose __iter__ makes a new iterator each time (a list, or a class)"
            return Check("epochs", "warn", seen, way_out, "one-shot-iterator")
        seen = f"the {name} ({kind.__name__}) is its own iterator: a second epoch is right only if __iter__ starts over"
        return Check("epochs", "note", seen, "let __iter__ return a new iterator each time")
    return None


def _never_restarts(kind: type) -> bool:
    """Whether iter() of such an object surely gives the object itself, as far along as it is.

    True of generators, of map, zip and their like, and of classes whose __iter__ touches nothing.
    """
    made = kind.__iter__ if hasattr(kind, "__iter__") else None
    if made is Iterator.__iter__ or not isinstance(made, types.FunctionType):
        return True
    code = made.__code__
    return not code.co_names and code.co_nlocals == 1 and not code.co_freevars


# --- what workers must unpickle -----------------------------------------------------------------------------------


def _pickled_parts(facts: LoaderFacts, loader: Any) -> Iterator[Check]:
    """Parts that cannot reach a worker under the loader's start method, told from where they are defined."""
    if not facts.workers or facts.start_method not in PICKLING:
        return
    for name, part in _parts(loader, "dataset", "collate_fn", "worker_init_fn").items():
        found = itertools.islice(_reachable(name, part), OBJECTS)
        faults = (fault for path, inner in found if (fault := _unsendable(path, inner, facts)))
        yield from itertools.islice(faults, 1)


def _unsendable(path: str, part: Any, facts: LoaderFacts) -> Check | None:
    definition = part if isinstance(part, (types.FunctionType, type)) else type(part)
    where, label = definition.__module__, definition.__qualname__
    if "<lambda>" in label or "<locals>" in label:
        seen = f"{label} is defined inside a function, and {facts.start_method} workers cannot unpickle it"
        return Check(path, "fail", seen, "define it at the top level of a module", "unpicklable")
    if where == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        seen = f"{label} is defined in a notebook cell, and {facts.start_method} workers cannot import it"
        way_out = "write it to a file (%%writefile my_data.py) and import it from there"
        return Check(path, "fail", seen, way_out, "notebook-class")
    return None


def _reachable(path: str, part: Any, depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """`part` and what it holds in its attributes and short lists, as far as pickle's default way would follow them."""
    if isinstance(part, (types.FunctionType, type)):
        yield path, part
        return
    held: dict[str, Any] = {}
    if isinstance(part, functools.partial):
        held = {"": part.func}
    elif isinstance(part, types.MethodType):
        held = {"": part.__self__}
    elif type(part) in (list, tuple) and len(part) <= SHORT_LIST:
        held = {f"[{position}]": item for position, item in enumerate(part)}
    elif _pickled_by_default(type(part)):
        yield path, part
        held = {f".{name}": item for name, item in _attributes(part).items()}
    for name, item in held.items() if depth else ():
        yield from _reachable(path + name, item, depth - 1)


def _attributes(part: Any) -> dict[str, Any]:
    try:
        # Past any __getattr__ or property of the reader's.
        return dict(object.__getattribute__(part, "__dict__"))
    except AttributeError:
        return {}


def _pickled_by_default(kind: type) -> bool:
    """Whether pickle stores the name of the class and the instance's attributes, and nobody has changed that."""
    names = ("__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs_ex__", "__getnewargs__")
    changed = any(getattr(kind, name, None) is not getattr(object, name, None) for name in names)
    return kind.__flags__ & HEAP_TYPE != 0 and not changed and kind not in copyreg.dispatch_table


def _parts(loader: Any, *names: str) -> dict[str, Any]:
    """Those of the named attributes that are there; a subclass may answer any of them with an error."""
    parts = {}
    for name in names:
        with contextlib.suppress(Exception):
            parts[name] = getattr(loader, name)
    return {name: part for name, part in parts.items() if part is not None}
