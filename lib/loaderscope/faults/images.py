"""JPEG photographs from files and over HTTP: real reading and decoding, nothing simulated."""

from __future__ import annotations

import io
import os
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from loaderscope.faults import work
from loaderscope.faults.speed import Sized

# A store on this machine is reached directly, whatever proxy the environment names.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class JpegDataset(Sized):
    """Opens, decodes, crops and resizes JPEG files with PIL; PIL decodes with the GIL free.

    files: paths. size: edge in pixels of the centre square the image is cut and resized to; without it images of
    different sizes need a collate of their own. transform: image -> image or tensor, after cropping.
    Samples are (float tensor 3 x H x W in 0..1, label). Cost: about 2 ms of CPU where the
    longest side is 320 pixels, 4.5 ms for 640, 9 ms for 1024. Right when files are cached: cpu-bound.
    """

    def __init__(
        self,
        files: Sequence[str | os.PathLike[str]],
        transform: Callable[[Any], Any] | None = None,
        size: int | None = None,
    ):
        super().__init__(len(files))
        self.files, self.transform, self.size = [os.fspath(file) for file in files], transform, size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        image = self.image(index)
        if self.transform is not None:
            image = self.transform(image)
        return to_tensor(image), work.label(index)

    def image(self, index: int) -> Image.Image:
        """Read, decoded, cropped and resized, not transformed."""
        with self.open(index) as file, Image.open(file) as picture:
            image = picture.convert("RGB")
        return image if self.size is None else centre_square(image, self.size)

    def open(self, index: int) -> io.IOBase:
        """The bytes of one image, as a file."""
        return open(self.files[index], "rb")


class HttpJpegDataset(JpegDataset):
    """The same images fetched by HTTP, one request and one connection a sample, nothing kept open between them.

    timeout_s: longest silence of the server before the sample raises; None waits for ever, which turns a stalled
    server into a hang. Right with a slow server: io-latency (far away) or io-bandwidth (a thin link).
    """

    def __init__(
        self,
        urls: Sequence[str],
        transform: Callable[[Any], Any] | None = None,
        size: int | None = None,
        timeout_s: float | None = 10.0,
    ):
        super().__init__(urls, transform, size)
        self.timeout_s = timeout_s

    def open(self, index: int) -> io.IOBase:
        with _DIRECT.open(self.files[index], timeout=self.timeout_s) as response:
            return io.BytesIO(response.read())


class PixelLoop:
    """A transform that walks over every pixel in pure Python, `passes` times: about 10 ms a pass at 256 x 256 x 3.

    Right when it outweighs the decoding: python-bound.
    """

    def __init__(self, passes: int = 1):
        self.passes = passes
        self.curve = [round(255 * (value / 255) ** 0.8) for value in range(256)]

    def __call__(self, image: Image.Image) -> Image.Image:
        pixels = image.tobytes()
        for _ in range(self.passes):
            pixels = bytes([self.curve[value] for value in pixels])
        return Image.frombytes(image.mode, image.size, pixels)


def centre_square(image: Image.Image, size: int) -> Image.Image:
    """The largest centred square of the image, resized to `size` x `size` pixels."""
    edge = min(image.size)
    left, top = (image.width - edge) // 2, (image.height - edge) // 2
    return image.crop((left, top, left + edge, top + edge)).resize((size, size), Image.Resampling.BILINEAR)


def to_tensor(image: Image.Image | torch.Tensor) -> torch.Tensor:
    """Float tensor, channels first, 0..1; a tensor is passed on as it is."""
    if isinstance(image, torch.Tensor):
        return image
    # In NumPy, not torch: torch would share this small copy out among threads, which on a busy machine costs more.
    return torch.from_numpy(np.ascontiguousarray((np.asarray(image, dtype=np.float32) / 255.0).transpose(2, 0, 1)))
