"""Finds the repository's data_samples and multiplies its photographs into folders of any size.

Importing this is cheap: Pillow is imported only when a picture is made.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from loaderscope.errors import BadInputError, LoaderscopeError

if TYPE_CHECKING:
    from PIL.Image import Image

FOLDER_VARIABLE = "LOADERSCOPE_DATA_SAMPLES"
SETTINGS_NAME = ".loaderscope_images.json"

_SIDE_PX = (300, 1000)
# Originals with a shorter side are enlarged to this, so that a crop still has room to move.
_SHORTEST_PX = 400
_LONGEST_PX = 16_000


def data_samples_folder() -> Path:
    """The folder with the photographs, the text and the broken files.

    Raises:
        BadInputError: LOADERSCOPE_DATA_SAMPLES is set but names no folder.
        LoaderscopeError: the variable is not set and the package is installed without its repository.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return _named_folder(Path(named).expanduser())
    found = Path(__file__).resolve().parents[2] / "data_samples"
    if found.is_dir():
        return found
    raise LoaderscopeError(
        "The data_samples folder was not found",
        seen=f"no folder {found}",
        likely="the package is installed without its repository, which holds the data",
        way_out=f"install from a clone with 'pip install -e .', or set {FOLDER_VARIABLE} to the clone's data_samples",
    )


def _named_folder(folder: Path) -> Path:
    if folder.is_dir():
        return folder.resolve()
    raise BadInputError(
        f"{FOLDER_VARIABLE} does not name a folder",
        seen=str(folder),
        way_out="set it to the repository's data_samples folder, or unset it",
    )


def photographs() -> tuple[Path, ...]:
    """Every photograph of data_samples, sorted by name.

    Raises:
        LoaderscopeError: there is no data_samples folder, or none of its files is a photograph.
    """
    folder = data_samples_folder()
    found = tuple(sorted(folder.glob("*.jpg")))
    if not found:
        raise _missing("photographs (*.jpg)", folder)
    return found


def text_file() -> Path:
    """The text sample: one sequence a line, of very different lengths, ASCII.

    Raises:
        LoaderscopeError: it is not there.
    """
    folder = data_samples_folder() / "text"
    found = sorted(folder.glob("*.txt"))
    if not found:
        raise _missing("text (*.txt)", folder)
    return found[0]


def broken_files() -> dict[str, Path]:
    """The broken files by the name of their fault: black, empty, not_an_image, truncated.

    Raises:
        LoaderscopeError: they are not there.
    """
    folder = data_samples_folder() / "broken"
    found = {path.stem: path for path in sorted(folder.glob("*.jpg"))}
    if not found:
        raise _missing("broken files (*.jpg)", folder)
    return found


def _missing(what: str, folder: Path) -> LoaderscopeError:
    return LoaderscopeError(
        f"There are no {what} in data_samples",
        seen=str(folder),
        likely=f"an incomplete copy of the repository, or {FOLDER_VARIABLE} set to another folder",
        way_out="restore the folder with 'git checkout -- data_samples'",
    )


def make_images(
    folder: str | os.PathLike[str],
    n: int,
    *,
    seed: int = 0,
    size: int | None = None,
    quality: int = 85,
    classes: int = 0,
    progress: bool = True,
) -> tuple[Path, ...]:
    """Multiply the photographs into `n` different RGB JPEG files, by random crop, flip and encoding.

    File k depends on k, seed, size and quality only, never on n; with the same library versions its bytes are the
    same everywhere. Files already there are kept, so an interrupted call continues where it stopped; files beyond
    n, left by an earlier call, are neither removed nor returned.

    Args:
        folder: where to put them; made if missing.
        n: how many files.
        seed: another seed gives other crops.
        size: the longest side in pixels; None leaves crops as they are, sides of 300 to 1000 pixels.
        quality: JPEG quality, 1 to 95.
        classes: 0 for a flat folder; k spreads file i into the subfolder of class i modulo k (`class_00`, ...).
        progress: show how far it is, in a terminal or a notebook only.

    Returns:
        The paths, in the order of k.

    Raises:
        BadInputError: an argument cannot be used, or the folder holds images made with other settings.
        LoaderscopeError: the folder cannot be written, or the disk is full.
    """
    _check_whole("n", n, 0, None)
    _check_whole("seed", seed, None, None)
    _check_whole("quality", quality, 1, 95)
    _check_whole("classes", classes, 0, 1000)
    if size is not None:
        _check_whole("size", size, 16, _LONGEST_PX)
    originals = _Originals(photographs())
    root = Path(folder).expanduser()
    _prepare(root, {"seed": seed, "size": size, "quality": quality, "classes": classes, "from": originals.digest()})
    paths = tuple(_place(root, k, classes) for k in range(n))
    todo = [k for k, path in enumerate(paths) if not path.exists()]
    bar = _Progress(len(todo), progress)
    for done, k in enumerate(todo):
        _write_whole(paths[k], _encode(originals, k, seed, size, quality), done)
        bar.show(done + 1)
    return paths


def _check_whole(name: str, value: object, least: int | None, most: int | None) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and (least is None or value >= least) and (most is None or value <= most):
        return
    bounds = " and ".join(
        part for part in (least is not None and f"at least {least}", most is not None and f"at most {most}") if part
    )
    wanted = f"a whole number, {bounds}" if bounds else "a whole number"
    raise BadInputError(f"{name} cannot be used", seen=f"{name}={value!r}", way_out=f"give {wanted}")


def _place(root: Path, k: int, classes: int) -> Path:
    name = f"image_{k:06d}.jpg"
    return root / f"class_{k % classes:02d}" / name if classes else root / name


def _prepare(root: Path, settings: dict[str, object]) -> None:
    """Make the folders and compare the settings with those of an earlier call."""
    if root.exists() and not root.is_dir():
        raise BadInputError("The folder is a file", seen=str(root), way_out="give the name of a folder")
    noted = root / SETTINGS_NAME
    try:
        for k in range(max(1, settings["classes"])):
            _place(root, k, settings["classes"]).parent.mkdir(parents=True, exist_ok=True)
        earlier = json.loads(noted.read_text()) if noted.exists() else None
    except OSError as error:
        raise _unwritable(root, error, 0) from error
    except ValueError:
        earlier = "unreadable"
    if earlier is None and next(root.glob("image_*.jpg"), None) is not None:
        earlier = "unknown"
    if earlier is None:
        _write_whole(noted, json.dumps(settings, sort_keys=True).encode(), 0)
    elif earlier != settings:
        raise BadInputError(
            "The folder holds images made with other settings",
            seen=f"{root}: {_differences(earlier, settings)}",
            way_out="use another folder, delete this one, or repeat the settings it was made with",
        )


def _differences(earlier: object, settings: dict[str, object]) -> str:
    if not isinstance(earlier, dict):
        return f"{earlier} settings"
    changed = (key for key, value in settings.items() if earlier.get(key) != value)
    return ", ".join(f"{key} {earlier.get(key)!r} there, {settings[key]!r} asked" for key in changed)


def _write_whole(path: Path, content: bytes, done: int) -> None:
    """Write under another name, then rename: nobody ever sees half a file."""
    # The process number keeps two processes that fill the same folder apart.
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            part.write_bytes(content)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path.parent, error, done) from error


def _unwritable(folder: Path, error: OSError, done: int) -> LoaderscopeError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LoaderscopeError(
            "The disk is full, or a quota is used up",
            seen=f"{folder} after {done} new files",
            way_out="free some space or use another folder; the same call then continues where it stopped",
        )
    return LoaderscopeError(
        "The folder cannot be written",
        seen=f"{folder}: {error.strerror or error}",
        likely="missing permission, or a read-only disk",
        way_out="use a folder of your own, for instance under tempfile.mkdtemp()",
    )


class _Originals:
    """The decoded photographs, each read once, kept only as long as one call of make_images."""

    def __init__(self, paths: tuple[Path, ...]):
        self.paths = paths
        self.decoded: dict[int, Image] = {}

    def digest(self) -> str:
        """Names and sizes of the photographs in short: other originals give other images."""
        listed = "\n".join(f"{path.name} {path.stat().st_size}" for path in self.paths)
        return hashlib.sha256(listed.encode()).hexdigest()[:12]

    def take(self, number: int) -> Image:
        if number not in self.decoded:
            self.decoded[number] = _decode(self.paths[number])
        return self.decoded[number]


def _decode(path: Path) -> Image:
    from PIL import Image

    with Image.open(path) as opened:
        image = opened.convert("RGB")
    grow = _SHORTEST_PX / min(image.size)
    if grow <= 1:
        return image
    return image.resize(tuple(round(side * grow) for side in image.size), Image.Resampling.BICUBIC)


def _encode(originals: _Originals, k: int, seed: int, size: int | None, quality: int) -> bytes:
    """The bytes of file k."""
    from PIL import Image

    # A string as seed: unlike a tuple's hash it is the same in every process and version.
    rng = random.Random(f"loaderscope {seed} {k}")
    original = originals.take(rng.randrange(len(originals.paths)))
    image = original.crop(_crop_box(rng, *original.size))
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if size is not None:
        image = image.resize(_scaled(image.size, size), Image.Resampling.BILINEAR)
    held = io.BytesIO()
    # The comment makes two files differ even where chance gives the same crop twice.
    image.save(held, "JPEG", quality=quality, comment=f"loaderscope sample, seed {seed}, file {k}")
    return held.getvalue()


def _crop_box(rng: random.Random, width: int, height: int) -> tuple[int, int, int, int]:
    """A random box of realistic sides, neither longer than twice the other."""
    shortest, longest = _SIDE_PX
    w = rng.randint(shortest, min(longest, width, 2 * height))
    h = rng.randint(max(shortest, w // 2), min(longest, height, 2 * w))
    x, y = rng.randint(0, width - w), rng.randint(0, height - h)
    return x, y, x + w, y + h


def _scaled(sides: tuple[int, int], longest: int) -> tuple[int, int]:
    return tuple(max(1, round(side * longest / max(sides))) for side in sides)


class _Progress:
    """One line of text that is overwritten; silent where nobody could watch it change."""

    def __init__(self, total: int, wanted: bool):
        self.total = total
        self.stream = _watched_stream() if wanted else None

    def show(self, done: int) -> None:
        every = max(1, self.total // 50)
        if self.stream is None or (done % every and done != self.total):
            return
        end = "\n" if done == self.total else ""
        self.stream.write(f"\rmaking images: {done} of {self.total}{end}")
        self.stream.flush()


def _watched_stream() -> TextIO | None:
    # A notebook's stderr is no terminal and is shown in red; its stdout understands a carriage return.
    if "ipykernel" in sys.modules and type(sys.stdout).__module__.startswith("ipykernel"):
        return sys.stdout
    return sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
