"""`bench growth`: how time and memory grow with every size, and how they must."""

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import matplotlib
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from recurrent_laplace.benchmarks.measure import compile_program, time_together
from recurrent_laplace.benchmarks.options import GrowthBench
from recurrent_laplace.benchmarks.posterior import mean_objective, posterior_of, require_room
from recurrent_laplace.benchmarks.rows import Row, Say, make_table
from recurrent_laplace.benchmarks.variants import GROWN, WINDOWED
from recurrent_laplace.cells import LSTM, Memory
from recurrent_laplace.posterior import AbstractPosterior, LaplacePosterior, PointPosterior
from recurrent_laplace.report.tasks import STYLE, save_figure


class Axis(NamedTuple):
    """A size that grows: its letter, its field when it stands still, the field of its series."""

    letter: str
    field: str
    series: str
    words: str


AXES = (
    Axis("T", "steps", "lengths", "inputs in a sequence, T"),
    Axis("H", "hidden_size", "hidden_sizes", "size of the LSTM, H"),
    Axis("F", "features", "feature_sizes", "size of the belief, F"),
    Axis("W", "window", "windows", "window, W"),
    Axis("B", "batch", "batches", "sequences in a batch, B"),
)


class Point(NamedTuple):
    """A variant at one size: what was measured, and what counting says."""

    size: int
    milliseconds: float
    megabytes: float
    counted_multiplications: int
    counted_bytes: int


Series = list[Point]


def title(bench: GrowthBench) -> str:
    """What is measured."""
    return (
        "Gradient of (unroll, one sample, KL) as one size grows; the others are "
        f"B {bench.batch}, T {bench.steps}, D {bench.input_size}, H {bench.hidden_size}, F {bench.features}, "
        f"W {bench.window}, float32. Exponents are slopes of least squares through logarithms; 'counted' is "
        "that of multiplications, and of the numbers kept, at the same sizes."
    )


def table(rows: Sequence[Row]) -> Table:
    """The series, for people."""
    headings = ("series", "largest, ms", "smallest, ms", "exponent of time", "memory of largest, MB")
    return make_table(headings, [row for row in rows if row.more])


def run(bench: GrowthBench, say: Say) -> Iterator[Row]:
    """Rows `VARIANT/T=100` for sizes, whose ratio is to the smallest; then `VARIANT/T` for the series.

    A series has the times of its largest and smallest size, and for its ratio the fitted exponent of time.
    """
    for axis in AXES:
        for size in getattr(bench, axis.series):
            _require_room(bench, axis, size)
    drawn: dict[Axis, dict[str, Series]] = {}
    for axis in AXES:
        series: dict[str, Series] = defaultdict(list)
        for size in getattr(bench, axis.series):
            say(f"{axis.letter} {size}: compile, then take turns")
            for name, point in _measure(bench, axis, size).items():
                series[name].append(point)
                first = series[name][0].milliseconds
                label = f"{name}/{axis.letter}={size}"
                say(f"{label}: {point.milliseconds:.1f} ms, {point.megabytes:.1f} MB")
                yield Row(label, point.milliseconds, first, point.milliseconds / first, point.megabytes)
        for name, points in series.items():
            yield _fit(f"{name}/{axis.letter}", points)
        drawn[axis] = series
    if bench.plot is not None:
        say(f"written: {save_figure(draw(drawn), bench.plot)}")


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of least squares of `log values` against `log sizes`."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def counted(posterior: AbstractPosterior, steps: int, batch: int) -> tuple[int, int]:
    """Multiplications of the gradient, and bytes kept by the unroll, by counting.

    What learns is gone through three times, forward and twice backward. Curvatures are constants.
    """
    own = posterior.cost(steps, batch)
    learned = own
    if isinstance(posterior, LaplacePosterior):
        learned = PointPosterior(posterior.memory).cost(steps, batch)
    return own.multiplications + 2 * learned.multiplications, own.bytes


def draw(drawn: dict[Axis, dict[str, Series]]) -> Figure:
    """Time on top and memory below, a column for each size that grows.

    Dotted: what counting says, drawn through the largest size.
    """
    axes = [axis for axis, series in drawn.items() if series]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.6 * max(len(axes), 2), 6), layout="constrained")
        panels = figure.subplots(2, len(axes), squeeze=False, sharex="col", sharey="row")
        lines = {}
        for (above, below), axis in zip(panels.T, axes, strict=True):
            for name, points in drawn[axis].items():
                sizes, times, memory, multiplications, numbers = zip(*points, strict=True)
                colour = f"C{list(GROWN).index(name)}"
                (lines[name],) = above.loglog(sizes, times, "o-", color=colour, ms=3)
                below.loglog(sizes, memory, "o-", color=colour, ms=3)
                for panel, measured, count in ((above, times, multiplications), (below, memory, numbers)):
                    expected = np.array(count) * measured[-1] / count[-1]
                    panel.loglog(sizes, expected, ":", color=colour, linewidth=1)
            sizes = sorted({point.size for points in drawn[axis].values() for point in points})
            below.set_xticks(sizes, [str(size) for size in sizes])
            below.minorticks_off()
            below.set_xlabel(axis.words)
        panels[0, 0].set_ylabel("time, ms")
        panels[1, 0].set_ylabel("memory, MB")
        figure.legend(list(lines.values()), list(lines), loc="outside upper center", ncols=4)
    return figure


def _shape(bench: GrowthBench, axis: Axis, size: int) -> GrowthBench:
    return dataclasses.replace(bench, **{axis.field: size})


def posteriors_at(bench: GrowthBench, axis: Axis, size: int) -> dict[str, AbstractPosterior]:
    """The variants for which the size means something."""
    shape = _shape(bench, axis, size)
    key_cell, key_readout = jax.random.split(jax.random.key(0))
    cell = LSTM(shape.input_size, shape.hidden_size, key=key_cell)
    memory = Memory(cell, features=shape.features, key=key_readout)
    variants = {name: GROWN[name] for name in bench.only if axis.field != "window" or name == WINDOWED}
    if WINDOWED in variants:
        variants[WINDOWED] = dataclasses.replace(variants[WINDOWED], window=shape.window)
    return {name: posterior_of(memory, variant) for name, variant in variants.items()}


def _require_room(bench: GrowthBench, axis: Axis, size: int) -> None:
    shape = _shape(bench, axis, size)
    shapes_only = jax.eval_shape(functools.partial(posteriors_at, bench, axis, size))
    for name, posterior in shapes_only.items():
        what = f"bench growth --only {name} with {axis.letter} {size}"
        require_room(posterior, what, steps=shape.steps, batch=shape.batch)


def _measure(bench: GrowthBench, axis: Axis, size: int) -> dict[str, Point]:
    shape = _shape(bench, axis, size)
    posteriors = posteriors_at(bench, axis, size)
    if not posteriors:
        return {}
    k1, k2 = jax.random.split(jax.random.key(1))
    inputs = jax.random.normal(k1, (shape.batch, shape.steps, shape.input_size))
    noise = jax.random.normal(k2, (shape.batch, shape.steps, shape.features))
    args = {name: (posterior, inputs, noise) for name, posterior in posteriors.items()}
    compiled = {name: compile_program(jax.grad(mean_objective), *args[name]) for name in posteriors}
    programs = {name: program for name, (program, _) in compiled.items()}
    times = time_together(programs, args, bench.repeats, bench.seconds)
    return {
        name: Point(size, times[name], compiled[name][1], *counted(posterior, shape.steps, shape.batch))
        for name, posterior in posteriors.items()
    }


def _fit(name: str, points: Series) -> Row:
    sizes, times, memory, multiplications, numbers = zip(*points, strict=True)
    slope = exponent(sizes, times)
    more = {
        "counted": f"{exponent(sizes, multiplications):.2f}",
        "exponent of memory": f"{exponent(sizes, memory):.2f}",
        "counted, memory": f"{exponent(sizes, numbers):.2f}",
    }
    return Row(name, times[-1], times[0], slope, memory[-1], more)
