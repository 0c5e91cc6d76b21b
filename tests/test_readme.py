"""README.md promises only what is there, and shows what it talks about."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from loaderscope.cli import _parser
from loaderscope.diagnosis.causes import CAUSES
from loaderscope.diagnosis.rules import JUDGED
from make_pictures import MAX_BYTES, TARGET

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text()


def test_a_picture_comes_first_and_has_words():
    found = re.search(r"!\[(?P<alt>[^\]]*)\]\((?P<path>[^)]+)\)", TEXT)
    assert found and len(found["alt"]) > 40
    assert ROOT / found["path"] == TARGET
    assert TEXT[: found.start()].strip().count("\n") == 0, "only the title stands above it"


def test_the_picture_is_small_enough_and_one():
    assert TARGET.stat().st_size <= MAX_BYTES
    with Image.open(TARGET) as picture:
        assert picture.width >= 900 and picture.height >= 500
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20, "blank"


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT))))
def test_links_lead_somewhere(target):
    assert "://" not in target, "a link that no test can check"
    assert (ROOT / target).exists()


def test_it_claims_the_causes_that_are_judged_and_no_others():
    named = set(re.findall(r"`([a-z-]+)`", TEXT)) & set(CAUSES)
    assert named == set(JUDGED)


def test_its_python_parses_and_its_commands_are_understood():
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        ast.parse(block)
    commands = re.findall(r"^loaderscope (.+)$", TEXT, re.MULTILINE)
    assert commands
    for command in commands:
        assert _parser().parse_args(shlex.split(command)).run is not None


@pytest.mark.parametrize(
    "word", ["conda env create -f environment.yml", "torch.utils.bottleneck", "state=(model, optimizer)"]
)
def test_it_says(word):
    assert word in TEXT
