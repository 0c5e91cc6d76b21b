"""Private copies of a DataLoader, and the certain end of their workers.

A copy is a new object of the same class with the same `__dict__`: subclass behaviour, the kind of dataset and
the sampler objects stay what they are, and `__init__` (which may scan a disk) does not run again.
"""

from __future__ import annotations

import inspect
from multiprocessing import connection
from types import MethodType
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import _BaseDataLoaderIter

from loaderscope.clock import SYSTEM
from loaderscope.loaders import inspection as look
from loaderscope.loaders.changes import edits

POLITE_S = 5.0  # for all workers together; DataLoader's own shutdown gives each of them that long
PIN_THREAD_S = 5.0


def clone(loader: DataLoader) -> DataLoader:
    """A copy that shares dataset, sampler and functions with `loader`, but no iterator and no workers."""
    twin = object.__new__(type(loader))
    state = {name: _for_twin(value, loader, twin) for name, value in vars(loader).items()}
    if "_dataset_kind" not in state:
        # This object only forwards to the DataLoader it holds (see inspection.state_holder).
        state = {name: clone(value) if look.is_loader(value) else value for name, value in state.items()}
    if "_iterator" in state:
        state["_iterator"] = None
    vars(twin).update(state)
    for name in _slots(type(loader)):
        if hasattr(loader, name):
            object.__setattr__(twin, name, _for_twin(getattr(loader, name), loader, twin))
    return twin


def _for_twin(value: Any, loader: DataLoader, twin: DataLoader) -> Any:
    # A subclass may keep its own bound method (collate_fn=self.collate): it must speak of the copy.
    return MethodType(value.__func__, twin) if inspect.ismethod(value) and value.__self__ is loader else value


def _slots(cls: type) -> list[str]:
    found = (vars(base).get("__slots__", ()) for base in cls.__mro__ if base not in DataLoader.__mro__)
    names = [name for slots in found for name in ((slots,) if isinstance(slots, str) else slots)]
    return [name for name in names if name not in ("__dict__", "__weakref__") and not name.startswith("__")]


def edit(loader: DataLoader, changes: dict[str, Any]) -> DataLoader:
    """Put checked changes on a loader that is private to us; returns it."""
    holder = look.state_holder(loader)
    wanted = edits(holder, changes) if changes else {}
    context = {name: wanted.pop(name) for name in ("multiprocessing_context",) if name in wanted}
    vars(holder).update(wanted)  # past __setattr__, which refuses dataset, sampler and the like
    for name, value in context.items():  # through its own property, which turns "spawn" into a context
        setattr(holder, name, value)
    return loader


def release(loader: Any) -> None:
    """End the workers of a private copy that was iterated with persistent workers.

    Workers are asked to stop, and what still runs after POLITE_S seconds (all together) is killed. Never call it
    on the reader's own loader. What is not a DataLoader is left alone.
    """
    if not look.is_loader(loader):
        return
    for name, value in look.own_attributes(loader).items():
        if isinstance(value, _BaseDataLoaderIter):
            _end(value)
            if name == "_iterator":
                vars(loader)[name] = None
        elif look.is_loader(value) and value is not loader:
            release(value)


def _end(iterator: _BaseDataLoaderIter) -> None:
    workers = list(getattr(iterator, "_workers", ()))
    if not workers or iterator._shutdown:
        return
    iterator._workers_done_event.set()
    for queue in iterator._index_queues:
        queue.put(None)  # wakes a worker that waits for work
    stuck = _still_running(workers)
    if stuck:
        _kill(iterator, stuck)
    if stuck and hasattr(iterator, "_pin_memory_thread"):
        # A worker killed in the middle of a message leaves the pinning thread reading for ever: do not join it so.
        iterator._shutdown = True
        iterator._pin_memory_thread_done_event.set()
        iterator._worker_result_queue.put((None, None))
        iterator._pin_memory_thread.join(PIN_THREAD_S)
    else:
        iterator._shutdown_workers()


def _still_running(workers: list) -> list:
    deadline = SYSTEM.now() + POLITE_S
    running = [w for w in workers if w.is_alive()]
    while running and (left := deadline - SYSTEM.now()) > 0:
        connection.wait([w.sentinel for w in running], left)
        running = [w for w in running if w.is_alive()]
    return running


def _kill(iterator: _BaseDataLoaderIter, workers: list) -> None:
    # Torch watches these pids and would raise in the main thread about a killed worker.
    if iterator._worker_pids_set:
        signal_handling._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(POLITE_S)
