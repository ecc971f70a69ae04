"""Options of the benchmarks; does not import JAX, so that `--help` is fast."""

import dataclasses
import os
from pathlib import Path
from typing import ClassVar, Literal

from recurrent_laplace.benchmarks.variants import (
    EVALUATED,
    LEARNERS,
    METHODS,
    OPERATIONS,
    SCALED,
    VARIANTS,
    WINDOWED,
)
from recurrent_laplace.errors import check_choice, check_number, check_size

Preset = Literal["smoke", "small", "laptop", "reproduction", "paper"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """Options of every benchmark."""

    choices: ClassVar[tuple[str, ...]]
    """Allowed values of `only`."""

    json: Path | None = None
    """JSON file to write the rows to."""
    only: tuple[str, ...] = ()
    """Variants to run."""

    def check(self) -> None:
        """Raise a `ValueError` for invalid options, before anything is measured."""
        if not self.only:
            raise ValueError("only must name at least one; got none.")
        for name in self.only:
            check_choice("only", name, self.choices)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Path):
                _check_writable(value)
            elif isinstance(value, float):
                check_number(field.name, value, above=0)
            elif isinstance(value, int) and not isinstance(value, bool):
                check_size(field.name, value, least=0 if field.name.endswith("_samples") else 1)
            elif isinstance(value, tuple) and field.name != "only":
                for size in value:
                    check_size(field.name, size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TurnsBench(Bench):
    """Options of benchmarks that time programs in turn."""

    repeats: int = 10
    """Repetitions of each program; the fastest counts."""
    seconds: float = 120.0
    """Time limit in seconds for a comparison; repetitions that would exceed it are skipped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PosteriorBench(TurnsBench):
    """Time the gradient of (unroll, one sample, KL) against two ways of `jax.jacfwd` inside the scan."""

    choices = tuple(VARIANTS)

    only: tuple[str, ...] = choices
    """Variants to run."""
    batch: int = 64
    """Sequences per batch, B."""
    steps: int = 50
    """Sequence length, T."""
    input_size: int = 512
    """Input size, D."""
    hidden_size: int = 128
    """Hidden size of the LSTM, H."""
    features: int = 64
    """Dimension of the belief, F."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateBench(TurnsBench):
    """Time a training update on the gridworld, relative to the RNN's; and of V-MPO, and of a continuous task.

    An update is rollout, loss, gradient and optimiser step, compiled as `train` compiles it for tasks with
    continuous observations. With `--tables`, inputs are looked up in a table, as `train` does on the
    gridworld.
    """

    choices = (*METHODS, *LEARNERS)

    only: tuple[str, ...] = choices
    """Methods to run; the RNN, which the others are compared with, always runs."""
    preset: Preset = "paper"
    """Preset that sets the sizes."""
    batch: int | None = None
    """Tasks per batch, B; the preset's by default."""
    steps: int | None = None
    """Steps per task, T; the preset's by default."""
    acting_samples: int | None = None
    """Samples of the belief that the policy is averaged over at each acting step, 0 for its mean; the
    preset's by default. The RNN always has one."""
    training_samples: int | None = None
    """Samples of the belief in the loss, 0 for its mean; the preset's by default."""
    kl_fraction: float | None = None
    """Fraction of the tasks whose covariances enter the logged KL; the preset's by default."""
    tables: bool = False
    """Embed each of the gridworld's distinct inputs once per update, as `train` does, not at every step."""
    product_size: int = 2048
    """Rows and columns of the matrix product that measures the machine's peak rate."""
    seconds: float = 300.0
    """Time limit in seconds; repetitions that would exceed it are skipped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateBench(Bench):
    """Time the evaluation of an agent on test tasks of 200 steps, each method in its own process."""

    choices = tuple(EVALUATED)

    only: tuple[str, ...] = choices
    """Methods to run; the RNN, which the others are compared with, always runs."""
    preset: Preset = "paper"
    """Preset that sets the sizes."""
    tasks: int = 128
    """Number of test tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveBench(TurnsBench):
    """Time factorisations and solves of many small matrices against LAPACK."""

    choices = OPERATIONS

    only: tuple[str, ...] = choices
    """Operations to run."""
    count: int = 3200
    """Matrices per batch."""
    sizes: tuple[int, ...] = (8, 16, 32, 64, 128)
    """Matrix sizes."""
    seconds: float = 20.0
    """Time limit in seconds per operation and size; repetitions that would exceed it are skipped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedsBench(TurnsBench):
    """Time an update of several seeds on the gridworld: in one program, against one after another."""

    choices = tuple(METHODS)

    only: tuple[str, ...] = choices
    """Methods to run."""
    preset: Preset = "laptop"
    """Preset that sets the sizes."""
    seeds: int = 8
    """Number of seeds."""
    batch: int | None = None
    """Tasks per batch, B; the preset's by default."""
    steps: int | None = None
    """Steps per task, T; the preset's by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartupBench(Bench):
    """Time the start-up: help, imports, compilation of a training update, and `train` to its first update."""

    choices = tuple(METHODS)

    only: tuple[str, ...] = choices
    """Methods whose update is compiled and made, with an empty and with a filled compilation cache."""
    preset: Preset = "paper"
    """Preset that sets the sizes of the update."""
    repeats: int = 10
    """Repetitions of each command; the median counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrowthBench(TurnsBench):
    """Measure how time and memory of the gradient of (unroll, one sample, KL) grow with each size.

    One size varies at a time. A series may be empty.
    """

    choices = tuple(SCALED)

    only: tuple[str, ...] = choices
    """Variants to run."""
    lengths: tuple[int, ...] = (50, 100, 200, 500, 1000)
    """Sequence lengths T to measure."""
    hidden_sizes: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Hidden sizes H to measure."""
    feature_sizes: tuple[int, ...] = (8, 16, 32, 64, 128)
    """Feature sizes F to measure."""
    windows: tuple[int, ...] = (2, 5, 10, 20, 50)
    """Windows W to measure, for the variant that has a window."""
    batches: tuple[int, ...] = (2, 8, 32, 128)
    """Batch sizes B to measure."""
    steps: int = 100
    """Sequence length T while another size varies."""
    hidden_size: int = 128
    """Hidden size H while another size varies."""
    features: int = 32
    """Feature size F while another size varies."""
    window: int = 10
    """Window W while another size varies."""
    batch: int = 8
    """Batch size B while another size varies."""
    input_size: int = 64
    """Input size, D."""
    repeats: int = 5
    """Repetitions of each program; the fastest counts."""
    seconds: float = 20.0
    """Time limit in seconds per size; repetitions that would exceed it are skipped."""
    plot: Path | None = None
    """File to plot the series to: .png, .pdf or .svg."""

    def check(self) -> None:
        super().check()
        for name in ("lengths", "hidden_sizes", "feature_sizes", "windows", "batches"):
            sizes = getattr(self, name)
            if len(sizes) == 1 or list(sizes) != sorted(set(sizes)):
                raise ValueError(f"{name} must be empty, or two or more increasing sizes; got {sizes}.")
        unwindowed = self.lengths + self.hidden_sizes + self.feature_sizes + self.batches
        if not unwindowed and not (self.windows and WINDOWED in self.only):
            raise ValueError(
                f"nothing to measure: only {WINDOWED!r} has a window, and the other series are empty."
            )
        if self.plot is not None:
            check_choice("the suffix of plot", self.plot.suffix, (".png", ".pdf", ".svg"))


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder.")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: No such file or directory.")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"cannot write {path}: Permission denied.")
