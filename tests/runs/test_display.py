"""The display, with a clock that the tests move."""

import io
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from recurrent_laplace.runs.display import Display, format_seconds, join_fitting, sparkline


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def plain(**kwargs):
    file, clock = io.StringIO(), Clock()
    console = Console(file=file, width=80)
    kwargs = {"total": 300, "headline": "return", **kwargs}
    return Display("bandit", console=console, clock=clock, **kwargs), clock, file.getvalue


def live(width, *, height=30, encoding="utf-8", **kwargs) -> tuple[Any, Clock, Callable[[], list[str]]]:
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding, newline="")
    console = Console(
        file=file, force_terminal=True, width=width, height=height, color_system="standard", _environ={}
    )
    clock = Clock()
    kwargs = {"total": 300, "headline": "return", **kwargs}

    def frames():
        """What was written, control sequences taken out, line by line."""
        file.flush()
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue().decode(encoding))
        return re.split(r"[\r\n]+", text)

    return Display("bandit", console=console, clock=clock, **kwargs), clock, frames


def rows(count, **values):
    return {name: np.full(count, value) for name, value in values.items()}


# Plain lines.


def test_plain_lines():
    display, clock, text = plain()
    with display:
        assert text() == "bandit: compiling\n"
        clock.now += 8
        display.update(20, rows(20, **{"return": 3.0}))
        # The first update is shown at once.
        assert text() == "bandit: compiling\nupdate 20/300  return 3\n"
        for done in range(40, 140, 20):
            clock.now += 10
            display.update(done, {"return": [18.024] * 20, "kl": [0.31] * 20, "clip_fraction": [0.1] * 20})
        display.note("snapshot at update [120] :key:")
        clock.now += 82
        values = {"return": 19.0, "kl": np.nan, "entropy": -3.2, "policy_entropy": 0.53}
        display.update(300, rows(180, **values))
    assert text().splitlines() == [
        "bandit: compiling",
        "update 20/300  return 3",
        "update 40/300  2/s  2:10 left  return 18.02  kl 0.31",
        "update 60/300  2/s  2:00 left  return 18.02  kl 0.31",
        "update 80/300  2/s  1:50 left  return 18.02  kl 0.31",
        "update 100/300  2/s  1:40 left  return 18.02  kl 0.31",
        "update 120/300  2/s  1:30 left  return 18.02  kl 0.31",
        "snapshot at update [120] :key:",
        "update 300/300  2.2/s  took 2:20  return 19  entropy -3.2  policy_entropy 0.53",
    ]


def test_plain_lines_are_ten_seconds_apart():
    display, clock, text = plain(total=1000)
    with display:
        for done in range(1, 1001):
            clock.now += 0.1
            display.update(done, rows(1, **{"return": 1.0}))
    # 100 s: one of compiling, one of the first update, nine on the way, one at the end.
    assert 11 <= len(text().splitlines()) <= 12


def test_plain_resumed_and_stopped():
    display, clock, text = plain(start=100, headline="loss")
    with display:
        clock.now += 5
        display.update(110, rows(10, loss=0.5, squared_error=0.25))
        clock.now += 4
        display.update(130, rows(20, loss=0.25, squared_error=0.125))
    assert text().splitlines() == [
        "bandit: from update 100, compiling",
        "update 110/300  loss 0.5  squared_error 0.25",
        "stopped at update 130/300  5/s  took 0:09  loss 0.25  squared_error 0.125",
    ]


def test_plain_stopped_while_compiling():
    display, clock, text = plain()
    with display:
        clock.now += 61
    assert text().splitlines()[-1] == "stopped before the first update, after 1:01"


def test_plain_nothing_left_to_do():
    display, _, text = plain(start=300)
    with display:
        pass
    assert text() == "update 300/300  took 0:00\n"


def test_plain_on_a_dumb_terminal():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, _environ={"TERM": "dumb"})
    with Display("bandit", total=3, headline="loss", console=console) as display:
        display.update(3, {"loss": [3.0, None, 1.0]})
    assert file.getvalue() == "bandit: compiling\nupdate 3/3  took 0:00  loss 2\n"


# Time left.


def test_rate_and_time_left_leave_out_compiling():
    display, clock, _ = plain()
    with display:
        clock.now += 60
        display.update(10, rows(10, loss=1.0))
        assert display.rate is None
        assert display.seconds_left is None
        clock.now += 5
        display.update(20, rows(10, loss=1.0))
        assert display.rate == pytest.approx(2.0)
        assert display.seconds_left == pytest.approx(140.0)
        clock.now += 4
        assert display.seconds_left == pytest.approx(136.0)
        clock.now += 1000
        assert display.seconds_left == 0.0
        display.update(300, rows(280, loss=1.0))
        assert display.seconds_left == 0.0


def test_rate_is_of_late():
    display, clock, _ = plain(total=10_000)
    with display:
        for i in range(1, 101):
            clock.now += 1
            display.update(i, rows(1, loss=1.0))
        for i in range(1, 101):
            clock.now += 1
            display.update(100 + 5 * i, rows(5, loss=1.0))
            # Thirty seconds after the change, the slow beginning is forgotten.
            if i >= 30:
                assert display.rate == pytest.approx(5.0)
        # Calls rarer than that still give a rate.
        clock.now += 500
        display.update(700, rows(100, loss=1.0))
        assert display.rate == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.9, "0:59"), (100, "1:40"), (3599, "59:59"), (3600, "1:00:00"), (360_065, "100:01:05")],
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


def test_join_what_fits():
    assert join_fitting(["one", "two", "three"], 15) == "one  two  three"
    assert join_fitting(["one", "two", "three"], 14) == "one  two"
    assert join_fitting(["one", "two"], 2) == "one"


# The live picture.


@pytest.mark.parametrize("width", [10, 40, 80, 160])
def test_live(width):
    display, clock, frames = live(width)
    with display:
        clock.now += 61
        display._live.refresh()
        compiling = frames()
        clock.now += 1
        values = np.linspace(0, 18, 100)
        display.update(100, {"return": values, "kl": [None] * 100, "cumulative_regret": -1e-5 * values})
        clock.now += 10
        display.update(120, rows(20, **{"return": 18.024, "kl": np.nan, "cumulative_regret": -1.25e-05}))
        display._live.refresh()
        half = frames()[len(compiling) - 1 :]
        display.note("snapshot")
        clock.now += 90
        display.update(300, rows(180, **{"return": 20.0, "kl": 0.31}))
    everything = frames()
    end = everything[len(compiling) + len(half) - 2 :]
    assert max(map(len, everything)) == min(width, 100)
    assert "snapshot" in end
    if width == 10:
        return
    assert any(re.fullmatch(r". compiling  1:01", line) for line in compiling)
    assert any(line.startswith("update 120/300  2/s  1:30 left") for line in half)
    headline = [line for line in half if line.startswith("return")][-1]
    curve = headline.removeprefix("return").strip().removeprefix("18.02").strip()
    assert curve == "".join(sorted(curve))
    assert {curve[0], curve[-1]} == {"▁", "█"}
    assert len(headline) == min(width, 100)
    assert any(re.fullmatch("kl +\N{EN DASH} *", line) for line in half)
    assert any(re.match(r"cumulative_regret +-1.25e-05", line) for line in half)
    assert any(line.startswith("update 300/300  2/s  took 2:42") for line in end)
    assert any(re.match(r"kl +0\.31 ", line) for line in end)
    assert "━" * min(width, 100) in end


def test_live_cuts_what_is_too_long():
    display, _, frames = live(40)
    display._title = "bandit, dense Laplace, four seeds, and a long way to its folder"
    with display:
        display.update(10, rows(10, **{"return": 1.0, "a_metric_with_a_name_of_forty_columns_or_more": 1.0}))
    assert "bandit, dense Laplace, four seeds, and …" in frames()
    assert "a_metric_with_a_name_of_forty_columns_o…" in frames()


def test_live_is_refreshed_by_itself_and_not_too_often():
    display, _, _ = live(80)
    with display:
        assert display._live.auto_refresh
        assert 4 <= display._live.refresh_per_second <= 8


def test_live_follows_the_width():
    display, clock, frames = live(80)
    with display:
        display.update(10, rows(10, **{"return": 1.0, "policy_entropy": 0.5}))
        display._live.refresh()
        display._console.width = 40
        before = len(frames())
        clock.now += 1
        display._live.refresh()
    assert max(map(len, frames()[before:])) == 40


def test_live_shows_what_matters_on_a_low_terminal():
    names = ["clip_fraction", "gradient_norm", "kl", "loss", "return"]
    display, _, frames = live(60, height=6)
    with display:
        display.update(10, rows(10, **dict.fromkeys(names, 1.0)))
        display._live.refresh()
    shown = [line.split()[0] for line in frames() if line.split() and line.split()[0] in names]
    assert set(shown) == {"return", "loss"}


def test_live_in_ascii():
    display, _, frames = live(40, encoding="ascii")
    with display:
        display.update(10, {"return": list(range(10)), "kl": [None] * 10})
    assert any(re.fullmatch(r"return +4\.5 +[_.\-~=+*#]{10}", line) for line in frames())


def test_live_stopped():
    display, clock, frames = live(80)
    with display:
        display.update(10, rows(10, **{"return": 1.0}))
        clock.now += 3
    assert any(line.startswith("stopped at update 10/300  took 0:03") for line in frames())


@pytest.mark.parametrize("make", [plain, lambda: live(80)])
def test_mistakes_pass_through(make):
    display, _, _ = make()
    with pytest.raises(RuntimeError, match="boom"), display:
        raise RuntimeError("boom")


# Curves.


def test_sparkline_increasing():
    assert sparkline(range(8), 20) == "▁▂▃▄▅▆▇█"
    assert sparkline([8.0, 1.0], 2) == "█▁"


@pytest.mark.parametrize("value", [0.0, 0.1, -3e8, 1e-30])
def test_sparkline_constant(value):
    assert sparkline([value] * 5, 9) == "▅▅▅▅▅"
    # Groups of different sizes, whose means differ by rounding.
    assert sparkline([value] * 1000, 7) == "▅" * 7


def test_sparkline_gaps():
    assert sparkline([0.0, np.nan, 1.0, None, np.inf], 9) == "▁ █  "
    assert sparkline([np.nan, np.nan], 9) == "  "
    # A group has a gap only where it has no value at all.
    assert sparkline([0.0, np.nan, np.nan, np.nan, np.nan, 1.0], 3) == "▁ █"


def test_sparkline_empty():
    assert sparkline([], 9) == ""
    assert sparkline([1.0, 2.0], 0) == ""
    assert sparkline([1.0, 2.0], -3) == ""


def test_sparkline_longer_than_the_width():
    assert sparkline(np.repeat(np.arange(8.0), 125), 8) == "▁▂▃▄▅▆▇█"
    for width in (1, 7, 64, 999):
        line = sparkline(np.arange(1000.0), width)
        assert len(line) == width
        assert line == "".join(sorted(line))


def test_display_does_not_import_jax():
    script = "import sys, recurrent_laplace.runs.display; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode == 0
