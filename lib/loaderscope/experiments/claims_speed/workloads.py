"""What the experiments measure: the bundled photographs and text, read in ways that differ in one thing only."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance

from loaderscope import samples
from loaderscope.faults import JpegDataset, work
from loaderscope.faults.speed import Sized

EDGE = 224
# Larger files are panoramas, which no training set is made of.
LARGEST_BYTES = 200_000
VOCABULARY = 50_000


def photographs() -> tuple[Path, ...]:
    """The bundled photographs of ordinary size, a few ms to decode each."""
    return tuple(path for path in samples.photographs() if path.stat().st_size <= LARGEST_BYTES)


class HeldJpeg(JpegDataset):
    """The same photographs from bytes in memory: JpegDataset without its I/O."""

    def __init__(self, files: Sequence[Any], transform: Any = None, size: int | None = None):
        super().__init__(files, transform, size)
        self.held = [Path(file).read_bytes() for file in self.files]

    def open(self, index: int) -> io.IOBase:
        return io.BytesIO(self.held[index])


class FarJpeg(JpegDataset):
    """The same photographs after `wait_s` seconds of waiting: a stand-in for storage that is far away."""

    def __init__(self, files: Sequence[Any], wait_s: float, transform: Any = None, size: int | None = None):
        super().__init__(files, transform, size)
        self.wait_s = wait_s

    def open(self, index: int) -> io.IOBase:
        work.wait(self.wait_s)
        return super().open(index)


class ForgottenJpeg(JpegDataset):
    """The same photographs, each dropped from the page cache right before it is read: from the disk every time."""

    def open(self, index: int) -> io.IOBase:
        forget(self.files[index])
        return super().open(index)


class Augmentation:
    """What training usually does to a photograph: a random crop resized to `EDGE`, a flip, a change of colour.

    torchvision's own would do the same; importing it takes seconds and sets an environment variable.
    """

    def __init__(self) -> None:
        self.transforms = [RandomCrop(), RandomFlip(), RandomColour()]

    def __call__(self, image: Image.Image) -> Image.Image:
        for transform in self.transforms:
            image = transform(image)
        return image


class RandomCrop:
    """A part of 30 to 100 % of each side, resized to `EDGE` x `EDGE` pixels."""

    def __init__(self) -> None:
        self.random = random.Random(0)

    def __call__(self, image: Image.Image) -> Image.Image:
        width, height = (side * self.random.uniform(0.3, 1) for side in image.size)
        left, top = self.random.uniform(0, image.width - width), self.random.uniform(0, image.height - height)
        return image.resize((EDGE, EDGE), Image.Resampling.BILINEAR, (left, top, left + width, top + height))


class RandomFlip:
    """Left and right change places, every other time on average."""

    def __init__(self) -> None:
        self.random = random.Random(1)

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if self.random.random() < 0.5 else image


class RandomColour:
    """Brightness and saturation up to a fifth up or down."""

    def __init__(self) -> None:
        self.random = random.Random(2)

    def __call__(self, image: Image.Image) -> Image.Image:
        for kind in (ImageEnhance.Brightness, ImageEnhance.Color):
            image = kind(image).enhance(self.random.uniform(0.8, 1.2))
        return image


def forget(path: str | os.PathLike[str]) -> bool:
    """Ask the system to drop a file from its page cache; whether it did, as far as the system tells.

    The request is only advice: pages that are mapped or not yet written stay, and some systems do not know it.
    """
    if not (hasattr(os, "posix_fadvise") and hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")):
        return False
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(handle, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True  # it would have had to wait for the disk
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


class ArrayFiles(Sized):
    """Raw float arrays, read whole from files; a sample is the mean of every 64th number."""

    def __init__(self, files: Sequence[str | os.PathLike[str]]):
        super().__init__(len(files))
        self.files = [os.fspath(file) for file in files]

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(self.read(self.place(index))[::64].mean()))

    def read(self, index: int) -> np.ndarray:
        return np.fromfile(self.files[index], np.float32)


class HeldArrays(ArrayFiles):
    """The same arrays, held in memory: ArrayFiles without its I/O."""

    def __init__(self, files: Sequence[str | os.PathLike[str]]):
        super().__init__(files)
        self.held = [np.fromfile(file, np.float32) for file in self.files]

    def read(self, index: int) -> np.ndarray:
        return self.held[index]


def write_arrays(folder: str | os.PathLike[str], count: int = 8, numbers: int = 1 << 20) -> tuple[Path, ...]:
    """`count` files of `numbers` random floats (4 MiB each by default)."""
    generator = np.random.default_rng(0)
    paths = tuple(Path(folder) / f"array_{k}.f32" for k in range(count))
    for path in paths:
        generator.random(numbers, np.float32).tofile(path)
    return paths


class TextLines(Sized):
    """Lines of the bundled text, each read from its file by position, split into words and numbered.

    Samples are (int64 tensor of one number a word, label), for `pad_collate`.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        self.starts = [0]
        with open(path, "rb") as file:
            for text_line in file:
                self.starts.append(self.starts[-1] + len(text_line))
        super().__init__(len(self.starts) - 1)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        with open(self.path, "rb") as file:
            file.seek(self.starts[index])
            words = file.readline().decode("ascii", "replace").lower().split()
        return torch.tensor([number_of(word) for word in words]), work.label(index)


def number_of(word: str) -> int:
    """A word as a number below VOCABULARY, the same in every process (`hash` is not)."""
    value = 0
    for letter in word.encode():
        value = (value * 31 + letter) % VOCABULARY
    return value
