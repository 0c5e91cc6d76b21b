"""Training steps of a known size: computing, waiting for a device, or really training a small model."""

from __future__ import annotations

import random
import threading
from typing import Any

import torch
from torch import nn

from loaderscope.faults import work


class ComputeStep:
    """Computes `cpu_s` CPU seconds on each of `threads` threads in the main process; the batch is not looked at.

    how: "native" (zlib, GIL free) or "python" (GIL held, so that `threads` threads take `threads` times as long).
    It needs the cores that workers need too. Right when both want more than there is: interference.
    """

    def __init__(self, cpu_s: float, how: str = "native", threads: int = 1):
        if how not in ("native", "python"):
            work.reject("how", how, '"native" or "python"')
        self.cpu_s, self.how, self.threads = cpu_s, how, threads

    def __call__(self, batch: Any) -> None:
        spin = work.spin_native if self.how == "native" else work.spin_python
        # Threads of one step only: a pool kept between steps would be inherited by every forked worker.
        others = [threading.Thread(target=spin, args=(self.cpu_s,)) for _ in range(self.threads - 1)]
        for thread in others:
            thread.start()
        try:
            spin(self.cpu_s)
        finally:
            for thread in others:
                thread.join()


class WaitingStep:
    """Main waits `seconds` and uses no CPU: the stand-in that plays a GPU, for machines without one.

    jitter: share by which single steps are longer or shorter, evenly spread (0.3 is plus or minus 30 %), from a
    generator of its own. It stands for a device only as far as main is concerned: no transfer, no queue of work.
    """

    def __init__(self, seconds: float, jitter: float = 0.0, seed: int = 0):
        self.seconds, self.jitter, self.random = seconds, jitter, random.Random(seed)

    def __call__(self, batch: Any) -> None:
        work.wait(self.seconds * (1 + self.jitter * self.random.uniform(-1, 1)))


class HostBoundStep:
    """`cpu_s` CPU seconds of Python in main (metrics, logging, launching small kernels), then `device_s` of waiting.

    The waiting is the stand-in for a GPU, which idles while main computes. Right with a loader that is fast:
    compute-bound, since no loader can shorten it, however low the GPU's utilisation.
    """

    def __init__(self, cpu_s: float, device_s: float):
        self.cpu_s, self.device_s = cpu_s, device_s

    def __call__(self, batch: Any) -> None:
        work.spin_python(self.cpu_s)
        work.wait(self.device_s)


class RaisingStep:
    """A step that fails: call number `at` (counted from 0) raises `error`. The reader's own bug, not the loader's."""

    def __init__(self, at: int = 0, error: Exception | type[Exception] = RuntimeError):
        self.at, self.error, self.calls = at, error, 0

    def __call__(self, batch: Any) -> None:
        self.calls += 1
        if self.calls - 1 == self.at:
            raise self.error(f"step {self.at} failed") if isinstance(self.error, type) else self.error


class TinyTrainStep:
    """One real step of SGD with momentum on a small convolutional net; batches are (images B x 3 x H x W, labels).

    width: channels of the hidden layers; the cost grows with its square. 16 takes about 20 ms of CPU for 16 images of
    32 x 32 pixels. Weights and momenta are saved and restored together by `state_dict` and `load_state_dict`.
    """

    RATE, MOMENTUM = 0.01, 0.9

    def __init__(self, width: int = 16, classes: int = 10):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = nn.Sequential(
                nn.Conv2d(3, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(4),
                nn.Flatten(),
                nn.Linear(width * 16, classes),
            )
        # By hand: making the first optimizer of torch.optim imports torch's compiler (3 s) and sets a variable.
        self.momenta = [torch.zeros_like(weight) for weight in self.model.parameters()]

    def __call__(self, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
        images, labels = batch
        self.model.zero_grad()
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        with torch.no_grad():
            for weight, momentum in zip(self.model.parameters(), self.momenta, strict=True):
                momentum.mul_(self.MOMENTUM).add_(weight.grad)
                weight.sub_(momentum, alpha=self.RATE)
        return loss.item()

    def state_dict(self) -> dict[str, Any]:
        """Weights and momenta; as torch's own, the tensors are the live ones, so copy them before the next step."""
        return {"model": self.model.state_dict(), "momenta": list(self.momenta)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what `state_dict` gave."""
        self.model.load_state_dict(state["model"])
        for momentum, saved in zip(self.momenta, state["momenta"], strict=True):
            momentum.copy_(saved)
