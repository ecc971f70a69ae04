"""Progress display of a training run: live on a terminal, plain lines elsewhere."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text


class Glyphs(NamedTuple):
    """Characters of the live display."""

    blocks: str
    spinner: str
    done: str
    remaining: str
    missing: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "━", "─", "\N{EN DASH}")
ASCII = Glyphs("_.-~=+*#", "|/-\\", "=", "-", "-")
"""Glyphs for terminals without Unicode."""

REFRESH_PER_SECOND = 6
LINE_SECONDS = 10.0
"""Minimum time between plain lines."""
RECENT_SECONDS = 30.0
"""Time window of the rate."""
AVERAGED_UPDATES = 10
"""Number of updates averaged for the displayed value of a metric."""
WIDEST = 100
"""Maximum width of the live display in columns."""
VALUE_WIDTH = 10
"""Columns reserved for a number, so that curves do not move when its length changes."""
CONSTANT = 1e-6
"""Relative range below which a curve is drawn as a constant."""

ORDER = ("return", "loss", "cumulative_regret", "kl", "entropy", "policy_entropy", "gradient_norm")
"""Metrics listed first, after the headline: a low terminal has no room for all."""
PLAIN_METRICS = ("squared_error", "kl", "entropy", "policy_entropy")
"""Metrics of a plain line, after the headline."""


class Display:
    """Context manager that shows the progress of a training run.

    A terminal shows progress, speed, time left, and each metric with its curve. Anything else (a file, a
    pipe, a dumb terminal) gets a line at the first update, about every ten seconds and at the end. The
    number beside a metric is its mean over the last ten updates.

    - `title`: name of the run;
    - `total`: updates of the whole run, of which `start` were made before it was resumed;
    - `headline`: metric that is shown first;
    - `clock`: time in seconds, from any origin.

    ```python
    with Display("two_arm_bandit", total=300, headline="return") as display:
        display.update(20, {"return": [17.5] * 20, "kl": [0.31] * 20})
        display.note("snapshot at update 20")
    ```
    """

    def __init__(
        self,
        title: str,
        *,
        total: int,
        start: int = 0,
        headline: str,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._title = title
        self._total = total
        self._start = start
        self._headline = headline
        self._console = console or Console()
        self._clock = clock
        self._began = clock()
        self._done = start
        self._compiling = start < total
        self._ended = False
        self._calls: deque[tuple[float, int]] = deque()
        self._curves: dict[str, np.ndarray] = {}
        self._live: Live | None = None
        self._last_line = self._began
        # A thread of its own draws the live display.
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._began = self._last_line = self._clock()
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(self, console=self._console, refresh_per_second=REFRESH_PER_SECOND)
            self._live.start(refresh=True)
        elif self._compiling:
            self._print(f"{self._title}: {self._compiling_words}")
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
        if self._live is None:
            self._print(self._line())
        else:
            self._live.stop()

    def update(self, done: int, rows: Mapping[str, Sequence[float | None] | np.ndarray]) -> None:
        """Show that `done` updates are made.

        `rows`: for each metric its values in the updates since the last call, averaged over seeds; NaN or
        None where it has no value.
        """
        now = self._clock()
        with self._lock:
            self._done = done
            is_first, self._compiling = self._compiling, False
            self._calls.append((now, done))
            while len(self._calls) > 2 and self._calls[1][0] <= now - RECENT_SECONDS:
                self._calls.popleft()
            for name, values in rows.items():
                self._take(name, np.atleast_1d(np.asarray(values, dtype=float)))
        is_due = is_first or now - self._last_line >= LINE_SECONDS
        if self._live is None and is_due and done < self._total:
            self._last_line = now
            self._print(self._line())

    def note(self, text: str) -> None:
        """Print a line, above the live display if there is one."""
        self._print(text)

    @property
    def rate(self) -> float | None:
        """Recent updates per second; None until two calls of `update` can be compared.

        Counting starts at the first call, since the time before it is mostly compilation.
        """
        if not self._calls:
            return None
        (first_time, first_done), (last_time, last_done) = self._calls[0], self._calls[-1]
        if last_done <= first_done or last_time <= first_time:
            return None
        return (last_done - first_done) / (last_time - first_time)

    @property
    def seconds_left(self) -> float | None:
        """Time left at the recent rate; None if unknown."""
        rate = self.rate
        if rate is None:
            return None
        since_last_call = self._clock() - self._calls[-1][0]
        return max((self._total - self._done) / rate - since_last_call, 0.0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            lines = self._render(options)
        yield from lines

    def _take(self, name: str, values: np.ndarray) -> None:
        if name not in self._curves:
            self._curves[name] = np.full(max(self._total - self._start, 0), np.nan)
        curve = self._curves[name]
        stop = min(self._done - self._start, len(curve))
        begin = max(stop - len(values), 0)
        curve[begin:stop] = values[len(values) - (stop - begin) :]

    def _curve(self, name: str) -> np.ndarray:
        return self._curves.get(name, np.empty(0))[: self._done - self._start]

    def _value(self, name: str) -> str | None:
        latest = self._curve(name)[-AVERAGED_UPDATES:]
        known = latest[~np.isnan(latest)]
        return f"{np.mean(known):.4g}" if len(known) else None

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _line(self) -> str:
        words = self._facts()
        for name in (self._headline, *PLAIN_METRICS):
            if (value := self._value(name)) is not None:
                words.append(f"{name} {value}")
        return "  ".join(words)

    def _facts(self) -> list[str]:
        """Progress, rate and time."""
        elapsed = format_seconds(self._clock() - self._began)
        if self._ended and self._compiling:
            return [f"stopped before the first update, after {elapsed}"]
        stopped = "stopped at " if self._ended and self._done < self._total else ""
        facts = [f"{stopped}update {self._done}/{self._total}"]
        if (rate := self.rate) is not None:
            facts.append(f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
        if self._ended:
            facts.append(f"took {elapsed}")
        elif (left := self.seconds_left) is not None:
            facts.append(f"{format_seconds(left)} left")
        return facts

    def _render(self, options: ConsoleOptions) -> list[Text]:
        width = min(options.max_width, WIDEST)
        glyphs = ASCII if options.ascii_only else UNICODE
        elapsed = self._clock() - self._began
        lines = [Text(self._title, style="bold")]
        if self._compiling and not self._ended:
            frame = glyphs.spinner[int(elapsed * REFRESH_PER_SECOND) % len(glyphs.spinner)]
            lines.append(
                Text.assemble((frame, "cyan"), f" {self._compiling_words}  ", format_seconds(elapsed))
            )
        else:
            facts = self._facts()
            if not self._ended:
                facts.append(f"{format_seconds(elapsed)} so far")
            lines.append(self._bar(width, glyphs))
            lines.append(Text(join_fitting(facts, width)))
            # One line stays free, otherwise the terminal scrolls.
            lines += self._table(width, options.size.height - len(lines) - 1, glyphs)
        for line in lines:
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis" if glyphs is UNICODE else "crop")
        return lines

    @property
    def _compiling_words(self) -> str:
        return f"from update {self._start}, compiling" if self._start else "compiling"

    def _bar(self, width: int, glyphs: Glyphs) -> Text:
        filled = width * min(self._done, self._total) // max(self._total, 1)
        style = "green" if self._done >= self._total else "cyan"
        return Text.assemble((glyphs.done * filled, style), (glyphs.remaining * (width - filled), "dim"))

    def _table(self, width: int, height: int, glyphs: Glyphs) -> list[Text]:
        known = [name for name in ORDER if name in self._curves]
        shown = list(dict.fromkeys((self._headline, *known, *self._curves)))[: max(height, 1)]
        texts = [self._value(name) or glyphs.missing for name in shown]
        name_width = max(map(len, shown))
        value_width = max(VALUE_WIDTH, *map(len, texts))
        lines = []
        for name, text in zip(shown, texts, strict=True):
            is_headline = name == self._headline
            curve = sparkline(self._curve(name), width - name_width - value_width - 4, blocks=glyphs.blocks)
            lines.append(
                Text.assemble(
                    (f"{name:<{name_width}}  {text:>{value_width}}", "bold" if is_headline else ""),
                    "  ",
                    (curve, "cyan" if is_headline else "dim cyan"),
                )
            )
        return lines


def sparkline(
    values: Sequence[float | None] | np.ndarray, width: int, *, blocks: str = UNICODE.blocks
) -> str:
    """Curve in one line of at most `width` characters.

    More values than `width` are averaged in groups of neighbours. The lowest of `blocks` stands for the
    smallest value, the highest for the largest; a constant is drawn at half height. Values that are not
    finite leave a gap.
    """
    values = np.asarray(values, dtype=float)
    if width < 1 or not len(values):
        return ""
    groups = min(width, len(values))
    firsts = np.arange(groups) * len(values) // groups
    finite = np.isfinite(values)
    counts = np.add.reduceat(finite.astype(int), firsts)
    means = np.add.reduceat(np.where(finite, values, 0.0), firsts) / np.maximum(counts, 1)
    known = means[counts > 0]
    if not len(known):
        return " " * groups
    low, high = np.min(known), np.max(known)
    # Rounding makes means of groups of different sizes differ even for a constant.
    is_constant = high - low <= CONSTANT * max(abs(low), abs(high))
    parts = np.full(groups, 0.5) if is_constant else (means - low) / (high - low)
    levels = np.rint(np.where(counts > 0, parts, 0.0) * (len(blocks) - 1)).astype(int)
    return "".join(blocks[level] if count else " " for level, count in zip(levels, counts, strict=True))


def format_seconds(seconds: float) -> str:
    """Format a duration as `m:ss`, or as `h:mm:ss` from an hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def join_fitting(words: Sequence[str], width: int, *, between: str = "  ") -> str:
    """Join as many words as fit into `width` columns, in order; at least the first."""
    text = words[0]
    for word in words[1:]:
        if len(text) + len(between) + len(word) > width:
            break
        text += between + word
    return text
