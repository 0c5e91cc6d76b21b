"""Pictures of records: what they must show, whatever the reader's objects are called."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import matplotlib
import pytest

from loaderscope.errors import BadInputError
from loaderscope.records import Preflight, Samples
from loaderscope.views import html, plots
from loaderscope.views.plots import style
from records_by_hand import (
    ABSENT,
    DRAWN,
    FAULT,
    make_comparison,
    make_environment,
    make_facts,
    make_gil,
    make_headroom,
    make_report,
    make_stages,
    make_timing,
)

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("record", DRAWN.values(), ids=DRAWN.keys())
def test_every_record_is_drawn_to_png_and_said_in_words(record):
    picture = plots.png(record)
    assert picture.startswith(PNG) and len(picture) > 4000
    assert re.search(r"\d", plots.describe(record)), "the alternative text has no number"


@pytest.mark.parametrize(
    ("name", "axis", "unit"),
    [
        ("timing", "y", "time per batch (ms)"),
        ("timing", "x", "batch number"),
        ("headroom", "x", "time per batch (ms)"),
        ("stages", "x", "time per sample (ms)"),
        ("gil", "x", "threads (number)"),
        ("gil", "y", "times those of one thread"),
        ("comparison", "x", "time per sample (ms)"),
        ("few samples", "x", "time (ms)"),
        ("many samples", "y", "samples (number)"),
    ],
)
def test_axes_say_their_unit(name, axis, unit):
    ax = plots.draw(DRAWN[name])
    assert unit in (ax.get_xlabel() if axis == "x" else ax.get_ylabel())


def test_bars_have_the_heights_of_the_record_in_milliseconds():
    timing = make_timing(12, 1, wait=0.02, compute=0.01)
    waiting, computing = (patch.get_data() for patch in plots.draw(timing).patches)
    # Every second step is the gap between two bars. The first batch is 40 times as slow as the others: it is cut off.
    assert waiting.values[2::2] == pytest.approx([1e3 * v for v in timing.data_time_s[1:]])
    assert computing.values[2::2] == pytest.approx([1e3 * v for v in timing.step_time_s[1:]])
    assert computing.baseline[2::2] == pytest.approx(waiting.values[2::2])
    assert waiting.values[0] < 200 and "↑ 810 ms" in words_of(plots.draw(timing))


def test_hundreds_of_batches_have_no_gaps_and_thousands_are_averaged():
    many = make_timing(300, 2)
    assert len(plots.draw(many).patches[0].get_data().values) == 300
    more = plots.draw(make_timing(2000, 2))
    assert "mean of 3 batches" in more.get_xlabel()
    assert len(more.patches[0].get_data().values) == 667


def test_stage_bars_add_up_and_every_bar_has_its_number():
    stages = make_stages()
    ax = plots.draw(stages)
    first = [bar.get_width() for bar in ax.patches if bar.get_y() < 0 < bar.get_y() + bar.get_height()]
    assert sum(first) == pytest.approx(1e3 * stages.wall.mean)
    written = words_of(ax)
    for share in stages.shares.values():
        assert f"{share * 100:.0f} %" in written
    for name in ("Resize", "ToTensor", "collate"):
        assert name in [label.get_text() for label in ax.get_yticklabels()]


def test_long_names_lose_their_middle_and_many_transforms_share_a_bar():
    long = "ColourJitterWithAVeryLongNameThatEndsInTransform"
    names = [label.get_text() for label in plots.draw(make_stages(names=(long,))).get_yticklabels()]
    assert any(name.startswith("ColourJ") and name.endswith("Transform") and len(name) <= 24 for name in names)
    many = plots.draw(make_stages(names=tuple(f"t{i}" for i in range(20))))
    assert "13 other transforms" in [label.get_text() for label in many.get_yticklabels()]


def test_queueing_that_was_not_measured_is_not_drawn_as_nothing():
    ax = plots.draw(make_stages(delay_s=ABSENT))
    assert "waiting or queueing" in words_of(ax) and "queueing for a core 0" not in words_of(ax)
    assert ABSENT.reason in ax.get_xlabel().replace("\n", " ")
    assert "queueing for a core" not in plots.describe(make_stages(delay_s=ABSENT))


def test_missing_parts_are_grey_words_with_the_reason():
    ax = plots.draw(make_headroom(cached_s=ABSENT, both=ABSENT))
    said = [t for t in ax.texts if ABSENT.reason in t.get_text().replace("\n", " ")]
    assert len(said) == 2 and all(t.get_color() == style.GREY and t.get_style() == "italic" for t in said)
    assert len(ax.patches) == 1, "a bar was drawn for what was not measured"
    gil = plots.draw(make_gil(native_control=ABSENT))
    assert ABSENT.reason in gil.get_xlabel().replace("\n", " ") and "zlib 2" not in words_of(gil)


@pytest.mark.parametrize(
    "record",
    [
        make_timing(0, 1, epoch_starts=(), fault=FAULT),
        make_stages(0, fault=FAULT, transforms=(), collate=ABSENT),
        make_gil(user=ABSENT, sleep_control=ABSENT, python_control=ABSENT, native_control=ABSENT, verdict="undecided"),
        make_comparison(before_s=Samples(()), after_s=Samples(())),
        Samples(()),
    ],
    ids=["timing", "stages", "gil", "comparison", "samples"],
)
def test_nothing_measured_is_a_panel_that_says_so(record):
    ax = plots.draw(record)
    assert not ax.patches and not ax.lines and ax.texts[-1].get_style() == "italic"
    assert plots.png(record).startswith(PNG) and plots.describe(record)


def test_a_report_draws_what_is_there():
    axes = plots.report_figure(make_report()).axes
    assert ["batch number" in axes[0].get_xlabel(), "per sample" in axes[1].get_xlabel()] == [True, True]
    partial = plots.report_figure(make_report(timing=ABSENT, headroom=ABSENT, profile=ABSENT)).axes
    assert ABSENT.reason in words_of(partial[0]) and "threads" in partial[1].get_xlabel()
    figure = plots.report_figure(make_report(verdict="word " * 60))
    assert "\n" in figure.get_suptitle()
    assert ABSENT.reason in plots.describe(make_report(timing=ABSENT, headroom=ABSENT))


def test_a_report_on_given_axes_draws_its_timeline():
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert plots.draw(make_report(), ax) is ax and "batch number" in ax.get_xlabel()


@pytest.mark.parametrize("record", [make_environment(), make_facts(), FAULT, Preflight(make_environment(), ABSENT, ())])
def test_records_without_a_picture_say_what_to_use(record):
    assert not plots.has_plot(record)
    with pytest.raises(BadInputError, match=r"no picture.*rows\(\)"):
        record.plot()


def test_any_name_can_be_drawn_without_a_warning():
    names = ("写真データセット", "набор", "صور", "😀 $\\frac$ _x^2", "a\x00b\x1b[31m", "caf\udce9.jpg", "", "x" * 500)
    all_of_them = " ".join(names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for record in (
            make_stages(names=names),
            make_comparison(label=all_of_them, before_label=names[0], after_label=names[4], note=all_of_them),
            make_timing(fault=dataclasses.replace(FAULT, error_text=all_of_them)),
        ):
            assert "data:image/png" in html.page(record).encode("utf-8").decode()
    labels = [label.get_text() for label in plots.draw(make_stages(names=names)).get_yticklabels()]
    assert "набор" in labels and "□" * 8 in labels and "caf\\udce9.jpg" in labels


def test_axes_and_figure_show_themselves_in_a_notebook():
    ax = make_comparison().plot()
    assert ax._repr_png_() == ax.figure._repr_png_() == plots.png(make_comparison())


def test_a_function_can_be_drawn_too():
    picture = plots.png(lambda ax: ax.plot([1, 2]), size=(3, 2), dpi=50)
    width, height = int.from_bytes(picture[16:20], "big"), int.from_bytes(picture[20:24], "big")
    assert (width, height) == (150, 100)


def test_the_readers_matplotlib_settings_neither_change_nor_leak_in():
    plain = plots.png(make_timing())
    with matplotlib.rc_context({"figure.facecolor": "black", "text.color": "white", "font.size": 20}):
        before = dict(matplotlib.rcParams)
        assert plots.png(make_timing()) == plain
        assert dict(matplotlib.rcParams) == before
        with pytest.raises(BadInputError):
            plots.draw(object())
        assert dict(matplotlib.rcParams) == before


def test_threads_draw_the_same_pictures():
    records = [make_timing(), make_gil(), make_stages(), Samples((0.1, 0.2))]
    with ThreadPoolExecutor(8) as pool:
        pictures = list(pool.map(plots.png, records * 2))
    assert pictures[:4] == pictures[4:] == [plots.png(record) for record in records]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux lists open files there")
def test_no_font_file_stays_open():
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(plots.png, [Samples((0.1, 0.2))] * 4))
    plots.draw(make_gil())
    assert count() == before


def test_pyplot_stays_out_and_matplotlib_waits_until_something_is_drawn():
    code = """
import sys
from loaderscope.records import Samples
from loaderscope.views import html, plots
Samples((1.0, 2.0))._repr_html_()
assert "matplotlib" not in sys.modules
Samples((1.0, 2.0)).plot()._repr_png_()
html.page(Samples((1.0, 2.0)))
assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    source = os.path.dirname(os.path.dirname(sys.modules["loaderscope"].__file__))
    environment = os.environ | {"PYTHONPATH": source}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def words_of(ax) -> str:
    """Everything written on the axes, lines joined."""
    legend = ax.get_legend()
    texts = [*ax.texts, *(legend.get_texts() if legend else ())]
    return " | ".join(t.get_text().replace("\n", " ").replace("\xa0", " ") for t in texts)
