"""`bench growth`: measured and theoretical growth of time and memory with each size."""

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from recurrent_laplace.benchmarks.measure import compile_program, time_together
from recurrent_laplace.benchmarks.options import GrowthBench
from recurrent_laplace.benchmarks.posterior import build_posterior, mean_objective, require_gradient_memory
from recurrent_laplace.benchmarks.rows import ProgressCallback, Row
from recurrent_laplace.benchmarks.variants import SCALED, WINDOWED
from recurrent_laplace.cells import LSTM, Memory
from recurrent_laplace.posterior import AbstractPosterior, PointPosterior
from recurrent_laplace.report.style import STYLE, save_figure


class Axis(NamedTuple):
    """A size that is varied: its letter, the option of its fixed value, the option of its series."""

    letter: str
    field: str
    series: str
    label: str


AXES = (
    Axis("T", "steps", "lengths", "sequence length T"),
    Axis("H", "hidden_size", "hidden_sizes", "hidden size H"),
    Axis("F", "features", "feature_sizes", "feature size F"),
    Axis("W", "window", "windows", "window W"),
    Axis("B", "batch", "batches", "batch size B"),
)


class Point(NamedTuple):
    """Measured and theoretical cost of a variant at one size."""

    size: int
    milliseconds: float
    megabytes: float
    counted_multiplications: int
    counted_bytes: int


Series = list[Point]

HEADINGS = ("series", "largest, ms", "smallest, ms", "exponent of time", "memory of largest, MB")


def title(bench: GrowthBench) -> str:
    """Title of the table, with the measured sizes."""
    return (
        "Gradient of (unroll, one sample, KL) as one size grows; the others are fixed at "
        f"B {bench.batch}, T {bench.steps}, D {bench.input_size}, H {bench.hidden_size}, F {bench.features}, "
        f"W {bench.window}, float32. Exponents are least-squares slopes in log-log space; 'counted' is "
        "the exponent of the multiplications, and of the stored numbers, at the same sizes."
    )


def run(bench: GrowthBench, progress: ProgressCallback) -> Iterator[Row]:
    """Yield a row `VARIANT/T=100` per size, its ratio to the smallest; then `VARIANT/T` per series.

    The row of a series has the times of its largest and smallest size, and the fitted exponent of time as
    its ratio.
    """
    for axis in AXES:
        for size in getattr(bench, axis.series):
            _require_memory(bench, axis, size)
    measured: dict[Axis, dict[str, Series]] = {}
    for axis in AXES:
        series: dict[str, Series] = defaultdict(list)
        for size in getattr(bench, axis.series):
            progress(f"{axis.letter} {size}: compile, then time in turn")
            for name, point in _measure(bench, axis, size).items():
                series[name].append(point)
                first = series[name][0].milliseconds
                label = f"{name}/{axis.letter}={size}"
                progress(f"{label}: {point.milliseconds:.1f} ms, {point.megabytes:.1f} MB")
                yield Row(label, point.milliseconds, first, point.milliseconds / first, point.megabytes)
        for name, points in series.items():
            yield _fit(f"{name}/{axis.letter}", points)
        measured[axis] = series
    if bench.plot is not None:
        progress(f"written: {save_figure(draw(measured), bench.plot)}")


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares slope of `log values` against `log sizes`."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def theoretical_cost(posterior: AbstractPosterior, steps: int, batch: int) -> tuple[int, int]:
    """Multiplications of the gradient, and bytes stored by the unroll, in closed form.

    Trained operations count three times, once forward and twice backward; curvatures are constants.
    """
    total = posterior.cost(steps, batch)
    trained = total
    if not posterior.covariance_has_gradient:
        trained = PointPosterior(posterior.memory).cost(steps, batch)
    return total.multiplications + 2 * trained.multiplications, total.bytes


def draw(measured: dict[Axis, dict[str, Series]]) -> Figure:
    """Plot time above memory, a column per varied size.

    Dotted lines are the theoretical cost, scaled to pass through the largest size.
    """
    axes = [axis for axis, series in measured.items() if series]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.6 * max(len(axes), 2), 6), layout="constrained")
        panels = figure.subplots(2, len(axes), squeeze=False, sharex="col", sharey="row")
        lines = {}
        for (time_panel, memory_panel), axis in zip(panels.T, axes, strict=True):
            for name, points in measured[axis].items():
                sizes, times, memory, multiplications, numbers = zip(*points, strict=True)
                colour = f"C{list(SCALED).index(name)}"
                (lines[name],) = time_panel.loglog(sizes, times, "o-", color=colour, ms=3)
                memory_panel.loglog(sizes, memory, "o-", color=colour, ms=3)
                for panel, values, counts in (
                    (time_panel, times, multiplications),
                    (memory_panel, memory, numbers),
                ):
                    expected = np.array(counts) * values[-1] / counts[-1]
                    panel.loglog(sizes, expected, ":", color=colour, linewidth=1)
            sizes = sorted({point.size for points in measured[axis].values() for point in points})
            memory_panel.set_xticks(sizes, [str(size) for size in sizes])
            memory_panel.minorticks_off()
            memory_panel.set_xlabel(axis.label)
        panels[0, 0].set_ylabel("time, ms")
        panels[1, 0].set_ylabel("memory, MB")
        figure.legend(list(lines.values()), list(lines), loc="outside upper center", ncols=4)
    return figure


def _shape(bench: GrowthBench, axis: Axis, size: int) -> GrowthBench:
    return dataclasses.replace(bench, **{axis.field: size})


def posteriors_at(bench: GrowthBench, axis: Axis, size: int) -> dict[str, AbstractPosterior]:
    """Posteriors of the variants that the size applies to."""
    shape = _shape(bench, axis, size)
    key_cell, key_readout = jax.random.split(jax.random.key(0))
    cell = LSTM(shape.input_size, shape.hidden_size, key=key_cell)
    memory = Memory(cell, features=shape.features, key=key_readout)
    variants = {name: SCALED[name] for name in bench.only if axis.field != "window" or name == WINDOWED}
    if WINDOWED in variants:
        variants[WINDOWED] = dataclasses.replace(variants[WINDOWED], window=shape.window)
    return {name: build_posterior(memory, variant) for name, variant in variants.items()}


def _require_memory(bench: GrowthBench, axis: Axis, size: int) -> None:
    shape = _shape(bench, axis, size)
    shapes_only = jax.eval_shape(functools.partial(posteriors_at, bench, axis, size))
    for name, posterior in shapes_only.items():
        command = f"bench growth --only {name} with {axis.letter} {size}"
        require_gradient_memory(posterior, command, steps=shape.steps, batch=shape.batch)


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
        name: Point(
            size, times[name], compiled[name][1], *theoretical_cost(posterior, shape.steps, shape.batch)
        )
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
