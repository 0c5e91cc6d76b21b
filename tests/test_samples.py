"""data_samples is what its README says, and make_images multiplies it the way its docstring says."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, UnidentifiedImageError

from loaderscope import samples
from loaderscope.errors import BadInputError, LoaderscopeError

KB, MB = 1000, 1000 * 1000
ALLOWED_LICENCES = {"public domain", "CC0 1.0"}
PHOTOGRAPHS = samples.photographs()


def table_rows(section: str) -> dict[str, list[str]]:
    """The cells of the table under a heading of the README, by the file named in its first column."""
    text = (samples.data_samples_folder() / "README.md").read_text(encoding="utf-8")
    part = text.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    return {row[0]: row for row in rows[2:]}


def pixels(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def contents(paths) -> list[bytes]:
    return [path.read_bytes() for path in paths]


# --- the files that are there ---


@pytest.mark.parametrize("path", PHOTOGRAPHS, ids=lambda path: path.name)
def test_every_photograph_opens_and_is_of_a_sensible_size(path):
    with Image.open(path) as image:
        image.load()
        assert image.format == "JPEG"
        assert not image.getexif()
    assert 20 * KB <= path.stat().st_size <= 1.5 * MB


def test_there_are_enough_photographs_of_different_shapes():
    sizes = [pixels(path) for path in PHOTOGRAPHS]
    assert 40 <= len(sizes) <= 60
    assert sum(path.stat().st_size for path in PHOTOGRAPHS) <= 12 * MB
    assert sum(w > h for w, h in sizes) >= 10
    assert sum(w < h for w, h in sizes) >= 5
    assert sum(w == h for w, h in sizes) >= 3
    assert sum(max(size) <= 350 for size in sizes) >= 3
    assert sum(max(size) >= 1500 for size in sizes) >= 3


def test_no_two_photographs_are_the_same():
    assert len(set(contents(PHOTOGRAPHS))) == len(PHOTOGRAPHS)


def test_readme_lists_exactly_the_photographs_with_their_sizes():
    rows = table_rows("Photographs")
    assert sorted(rows) == [path.name for path in PHOTOGRAPHS]
    for path in PHOTOGRAPHS:
        width, height = pixels(path)
        assert rows[path.name][1:3] == [f"{width} x {height}", str(path.stat().st_size)]


def test_readme_names_an_allowed_licence_and_where_it_is_stated():
    for name, row in table_rows("Photographs").items():
        shows, made_from, source, licence, stated = row[3:]
        assert licence in ALLOWED_LICENCES, name
        assert all((shows, made_from, source, stated)), name


def test_readme_lists_the_text_and_the_broken_files():
    text = samples.text_file()
    row = table_rows("text/")[text.name]
    assert row[1:3] == [str(text.stat().st_size), str(len(text.read_text(encoding="ascii").splitlines()))]
    assert row[5] in ALLOWED_LICENCES
    broken = {path.name: str(path.stat().st_size) for path in samples.broken_files().values()}
    assert {name: row[1] for name, row in table_rows("broken/").items()} == broken


def test_text_lines_spread_over_more_than_tenfold():
    text = samples.text_file()
    assert 50 * KB <= text.stat().st_size <= 300 * KB
    lengths = sorted(len(line) for line in text.read_text(encoding="ascii").splitlines())
    assert lengths[0] > 0
    assert lengths[int(0.95 * len(lengths))] >= 10 * lengths[int(0.05 * len(lengths))]


def test_broken_files_are_broken_as_their_names_say():
    broken = samples.broken_files()
    assert set(broken) == {"black", "empty", "not_an_image", "truncated"}
    assert broken["empty"].read_bytes() == b""
    for name in ("empty", "not_an_image"):
        with pytest.raises(UnidentifiedImageError):
            Image.open(broken[name])
    with Image.open(broken["truncated"]) as image, pytest.raises(OSError, match="truncated"):
        image.load()
    with Image.open(broken["black"]) as image:
        assert image.getextrema() == ((0, 0), (0, 0), (0, 0))


# --- finding them ---


def test_the_variable_wins_over_the_repository(tmp_path, monkeypatch):
    monkeypatch.setenv(samples.FOLDER_VARIABLE, str(tmp_path))
    assert samples.data_samples_folder() == tmp_path.resolve()
    for find in (samples.photographs, samples.text_file, samples.broken_files):
        with pytest.raises(LoaderscopeError, match="git checkout"):
            find()


def test_a_variable_that_names_no_folder_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv(samples.FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(BadInputError, match="unset it"):
        samples.data_samples_folder()


def test_a_package_without_its_repository_says_so(tmp_path, monkeypatch):
    monkeypatch.delenv(samples.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(samples, "__file__", str(tmp_path / "lib" / "loaderscope" / "samples.py"))
    with pytest.raises(LoaderscopeError, match="pip install -e"):
        samples.data_samples_folder()


def test_importing_samples_does_not_import_pillow():
    code = "import sys, loaderscope.samples; sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# --- multiplying them ---


def test_images_are_the_same_again_and_do_not_depend_on_n(tmp_path):
    few = samples.make_images(tmp_path / "few", 5, seed=3)
    many = samples.make_images(tmp_path / "many", 12, seed=3)
    assert [path.name for path in few] == [path.name for path in many[:5]]
    assert contents(few) == contents(many[:5])
    assert len(set(contents(many))) == 12


def test_images_do_not_depend_on_the_hash_seed_of_the_process(tmp_path):
    code = "import sys; from loaderscope import samples; samples.make_images(sys.argv[1], 3)"
    env = {**os.environ, "PYTHONHASHSEED": "123"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "there")], check=True, timeout=60, env=env)
    here = samples.make_images(tmp_path / "here", 3)
    assert contents(here) == contents(sorted((tmp_path / "there").glob("*.jpg")))


@pytest.mark.parametrize("other", [{"seed": 1}, {"size": 200}, {"quality": 50}])
def test_other_settings_give_other_images(tmp_path, other):
    usual = samples.make_images(tmp_path / "usual", 2)
    assert not set(contents(usual)) & set(contents(samples.make_images(tmp_path / "other", 2, **other)))


def test_images_have_realistic_sides_and_three_channels(tmp_path):
    for path in samples.make_images(tmp_path, 20):
        with Image.open(path) as image:
            image.load()
            assert image.mode == "RGB"
            assert 300 <= min(image.size) <= max(image.size) <= 1000


def test_size_is_the_longest_side(tmp_path):
    for path in samples.make_images(tmp_path, 8, size=128):
        assert max(pixels(path)) == 128


def test_classes_are_subfolders_filled_in_turn(tmp_path):
    paths = samples.make_images(tmp_path, 7, classes=3, size=64)
    assert [path.parent.name for path in paths] == [f"class_{k % 3:02d}" for k in range(7)]
    # What torchvision's ImageFolder reads as classes: every folder below the root, each holding at least one picture.
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["class_00", "class_01", "class_02"]
    flat = samples.make_images(tmp_path / "flat", 7, size=64)
    assert contents(paths) == contents(flat)


def test_a_second_call_keeps_what_is_there_and_makes_the_rest(tmp_path):
    first = samples.make_images(tmp_path, 4, size=64)
    before = [path.stat().st_mtime_ns for path in first]
    first[2].unlink()
    again = samples.make_images(tmp_path, 6, size=64)
    after = [path.stat().st_mtime_ns for path in again]
    assert [after[k] for k in (0, 1, 3)] == [before[k] for k in (0, 1, 3)]
    assert contents(again) == contents(samples.make_images(tmp_path / "fresh", 6, size=64))


def test_only_images_and_the_note_of_the_settings_are_left(tmp_path):
    samples.make_images(tmp_path, 3, size=64)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"image_000000.jpg", "image_000001.jpg", "image_000002.jpg", samples.SETTINGS_NAME}


def test_an_interruption_leaves_no_half_file(tmp_path, monkeypatch):
    def interrupted(self, content):
        if len(content) < 500:  # the note of the settings
            return real(self, content)
        real(self, content[: len(content) // 2])
        raise KeyboardInterrupt

    real = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        samples.make_images(tmp_path, 3)
    assert [path.name for path in tmp_path.iterdir()] == [samples.SETTINGS_NAME]
    monkeypatch.undo()
    assert len(samples.make_images(tmp_path, 3)) == 3


def test_no_images_is_fine(tmp_path):
    assert samples.make_images(tmp_path / "new", 0) == ()
    assert (tmp_path / "new").is_dir()


# --- what goes wrong ---


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": -1},
        {"n": 2.0},
        {"n": True},
        {"n": "3"},
        {"size": 0},
        {"size": 128.0},
        {"quality": 0},
        {"quality": 101},
        {"classes": -1},
        {"seed": None},
    ],
    ids=str,
)
def test_an_argument_that_cannot_be_used_names_itself(tmp_path, wrong):
    name = next(iter(wrong))
    with pytest.raises(BadInputError, match=f"{name}=.*Way out: give a whole number"):
        samples.make_images(tmp_path / "new", **{"n": 1, **wrong})
    assert not (tmp_path / "new").exists()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(BadInputError, match="is a file"):
        samples.make_images(tmp_path / "taken", 1)


@pytest.mark.parametrize("other", [{"seed": 1}, {"size": 32}, {"classes": 2}])
def test_a_folder_made_with_other_settings_is_refused(tmp_path, other):
    samples.make_images(tmp_path, 1, size=64)
    with pytest.raises(BadInputError, match=f"{next(iter(other))} .* there, .* asked"):
        samples.make_images(tmp_path, 1, **{"size": 64, **other})


@pytest.mark.parametrize("note", [None, "no JSON"])
def test_images_of_unknown_origin_are_refused(tmp_path, note):
    (tmp_path / "image_000000.jpg").write_bytes(b"mine")
    if note is not None:
        (tmp_path / samples.SETTINGS_NAME).write_text(note)
    with pytest.raises(BadInputError, match="use another folder"):
        samples.make_images(tmp_path, 1)
    assert (tmp_path / "image_000000.jpg").read_bytes() == b"mine"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder in which nobody can write, such as /proc")
def test_a_folder_that_cannot_be_written_is_an_error():
    with pytest.raises(LoaderscopeError, match="cannot be written"):
        samples.make_images("/proc/self/loaderscope", 1)


def test_a_full_disk_is_named_and_leaves_nothing_half_done(tmp_path, monkeypatch):
    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    samples.make_images(tmp_path, 0)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(LoaderscopeError, match=r"disk is full.*after 0 new files.*continues where it stopped"):
        samples.make_images(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == [samples.SETTINGS_NAME]


# --- the progress line ---


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_one_overwritten_line_in_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    samples.make_images(tmp_path, 3, size=64)
    assert re.fullmatch(r"(\rmaking images: \d of 3)+\n", sys.stderr.getvalue())


def test_progress_is_silent_when_asked_or_not_watched(tmp_path, monkeypatch, capsys):
    samples.make_images(tmp_path / "pipe", 2, size=64)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", Terminal())
    samples.make_images(tmp_path / "asked", 2, size=64, progress=False)
    assert sys.stderr.getvalue() == ""
