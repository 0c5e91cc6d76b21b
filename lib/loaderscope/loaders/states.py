"""Random states and sampler counters that iterating a copy moves on, put back afterwards.

A copy shares its sampler with the reader's loader, so measuring would otherwise change the order of the reader's
next epoch.
"""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from loaderscope.loaders import inspection as look

Restore = Callable[[], object]
PLAIN = (bool, int, float, str, type(None))


@contextlib.contextmanager
def preserved_states(loader: Any) -> Iterator[None]:
    """Save the global generators and those of `loader` and its samplers; put them back on exit, also after an error.

    Global: torch's CPU generator, the CUDA ones where CUDA has been started, `random`, NumPy's where it is
    imported. Held by the loader, its sampler, its batch sampler or the sampler inside: torch.Generator, NumPy
    Generator and RandomState, random.Random; and the samplers' plain attributes (epoch, a position). The dataset is
    never looked at.
    """
    restores = [*_global_states(), *_held_states(loader)]
    try:
        yield
    finally:
        failed = [problem for restore in restores if (problem := _attempt(restore))]
        if failed:
            warnings.warn(f"A random state could not be put back: {'; '.join(failed)}", stacklevel=3)


def _attempt(restore: Restore) -> str:
    try:
        restore()
    except look.RAISED as error:
        return look.said(error)
    return ""


def _global_states() -> list[Restore]:
    cpu, python = torch.get_rng_state(), random.getstate()
    restores: list[Restore] = [lambda: torch.set_rng_state(cpu), lambda: random.setstate(python)]
    if torch.cuda.is_initialized():
        devices = torch.cuda.get_rng_state_all()
        restores.append(lambda: torch.cuda.set_rng_state_all(devices))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        legacy = numpy.random.get_state()
        restores.append(lambda: numpy.random.set_state(legacy))
    return restores


def _held_states(loader: Any) -> list[Restore]:
    if not look.is_loader(loader):
        return []
    restores = []
    samplers = _samplers(loader)
    for holder in (loader, *samplers):
        held = list(look.own_attributes(holder).values())
        held.append(look.given(holder, "generator"))
        restores += [restore for value in held if (restore := _generator_state(value)) is not None]
    for sampler in samplers:
        plain = {name: value for name, value in look.own_attributes(sampler).items() if type(value) in PLAIN}
        if plain:
            # `sampler` and `plain` as defaults: a closure would see the last of the loop.
            restores.append(lambda sampler=sampler, plain=plain: vars(sampler).update(plain))
    return restores


def _samplers(loader: Any) -> list[Any]:
    """The loader's sampler objects, each once: sampler, batch_sampler, and what either holds as `.sampler`."""
    outer = [look.given(loader, name) for name in ("sampler", "batch_sampler")]
    inner = [look.given(thing, "sampler") for thing in outer if thing is not None]
    return list({id(thing): thing for thing in (*outer, *inner) if thing is not None}.values())


def _generator_state(value: Any) -> Restore | None:
    """How to put this generator back to where it is now; None for anything else."""
    if isinstance(value, torch.Generator):
        torch_state = value.get_state()
        return lambda: value.set_state(torch_state)
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        python_state = value.getstate()
        return lambda: value.setstate(python_state)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        bits_state = bits.state
        return lambda: setattr(bits, "state", bits_state)
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        legacy_state = value.get_state()
        return lambda: value.set_state(legacy_state)
    return None
