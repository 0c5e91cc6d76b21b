"""What the machine and the loader's configuration already tell, before anything is iterated."""

from __future__ import annotations

from typing import Any

from loaderscope.experiments.preflight.loader_checks import loader_checks
from loaderscope.experiments.preflight.machine_checks import machine_checks
from loaderscope.machine import read_environment
from loaderscope.machine.accelerator import unusable_gpu
from loaderscope.records import NotMeasured, Preflight

__all__ = ["loader_checks", "machine_checks", "preflight"]


def preflight(loader: Any = None, *, measure: bool = True) -> Preflight:
    """Check this machine and, where one is given, a loader's configuration. No batch and no sample is read.

    Args:
        loader: a DataLoader, a factory, any iterable of batches, or a LoaderSpec; None checks the machine alone.
        measure: also measure the cores really received (about 0.4 s; 0.6 s under a CPU quota).

    Raises:
        BadInputError: `loader` is none of these.
    """
    from loaderscope.loaders import LoaderSpec

    spec = loader if loader is None or isinstance(loader, LoaderSpec) else LoaderSpec.read(loader)
    environment = read_environment(measure=measure)
    checks = machine_checks(environment, unusable_gpu())
    if spec is None:
        return Preflight(environment, NotMeasured("no loader was given"), checks)
    return Preflight(environment, spec.facts, checks + loader_checks(spec.facts, environment, spec.loader))
