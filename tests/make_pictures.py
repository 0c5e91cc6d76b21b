"""Makes the picture at the top of README.md from a real report: `python tests/make_pictures.py`, on a quiet machine.

It diagnoses a loader of the bundled photographs, saves the report as its one HTML page, and photographs the top of
that page in Chromium. Nothing in it is drawn by hand.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

from conftest import chromium_path
from lab import CHROMIUM_FLAGS
from notebook_tools import NOTEBOOKS

TARGET = NOTEBOOKS / "images" / "report.png"
MAX_BYTES = 300_000
WIDTH, SCALE = 960, 1.5
BUDGET_S = 60.0


def diagnosed():
    """The report on photographs decoded in the main process, with a stand-in for a GPU as the step."""
    from torch.utils.data import DataLoader

    import loaderscope as ls
    from loaderscope import faults, samples

    with tempfile.TemporaryDirectory() as folder:
        photographs = samples.make_images(folder, 400, size=400)
        loader = DataLoader(faults.JpegDataset(photographs, size=160), batch_size=8, shuffle=True)
        return ls.diagnose(loader, faults.WaitingStep(0.008), budget_s=BUDGET_S)


def photograph(page: Path, target: Path) -> None:
    """The page from its top to the end of the first fix."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=CHROMIUM_FLAGS)
        try:
            shown = browser.new_page(viewport={"width": WIDTH, "height": 1400}, device_scale_factor=SCALE)
            shown.goto(page.as_uri())
            # Folded, as the reader finds it in a notebook; without the margins of a printed page.
            shown.evaluate("() => document.querySelectorAll('details').forEach(part => part.open = false)")
            bottom = shown.evaluate(
                "() => document.querySelector('section section > div').getBoundingClientRect().bottom"
            )
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": bottom + 16}
            shown.screenshot(path=target, clip=clip, full_page=True)
        finally:
            browser.close()


def shrink(path: Path) -> None:
    """Fewer colours: flat areas and text need no more, and the README loads faster."""
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    if path.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{path.name} has {path.stat().st_size} bytes, more than {MAX_BYTES}: take fewer colours")


def main() -> int:
    if chromium_path() is None:
        raise SystemExit("needs a Chromium on the PATH (Debian: apt-get install chromium)")
    report = diagnosed()
    print(report)
    if report.top is None or not report.top.fixes:
        print("not saved: a report without a fix is a poor picture; repeat on a quieter machine", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        photograph(Path(report.save(f"{folder}/report.html")), TARGET)
    shrink(TARGET)
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
