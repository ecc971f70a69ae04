"""What the command line can ask of a benchmark; free of JAX, so that help is quick."""

import dataclasses
import os
from pathlib import Path
from typing import ClassVar, Literal

from recurrent_laplace.benchmarks.variants import GROWN, METHODS, OPERATIONS, TESTED, VARIANTS, WINDOWED
from recurrent_laplace.errors import check_choice, check_number, check_size

Preset = Literal["smoke", "small", "laptop", "paper"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """What every benchmark has."""

    choices: ClassVar[tuple[str, ...]]
    """What `only` may name."""

    json: Path | None = None
    """Write the rows to this file as JSON."""
    only: tuple[str, ...] = ()
    """What to run."""

    def check(self) -> None:
        """Refuse what cannot be run, in words, before anything is measured."""
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
                check_size(field.name, value)
            elif isinstance(value, tuple) and field.name != "only":
                for size in value:
                    check_size(field.name, size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TurnsBench(Bench):
    """A benchmark whose programs take turns."""

    repeats: int = 10
    """Turns that each program gets; the fastest counts."""
    seconds: float = 120.0
    """Turns of programs that are compared end early when they would take longer than this."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PosteriorBench(TurnsBench):
    """Time the gradient of (unroll, one sample, KL): ours beside `jax.jacfwd` inside the scan."""

    choices = tuple(VARIANTS)

    only: tuple[str, ...] = choices
    """Variants to run."""
    batch: int = 64
    """Sequences in a batch, B."""
    steps: int = 50
    """Inputs in a sequence, T."""
    input_size: int = 512
    """Length of an input, D."""
    hidden_size: int = 128
    """Size of the LSTM, H."""
    features: int = 64
    """Size of the belief, F."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateBench(TurnsBench):
    """Time a whole training update on the gridworld, in units of the RNN's.

    Rollout, loss, gradient and step: the compiled program that `train` runs where observations are no
    short list. On the gridworld itself it looks them up, which is left to `--tables`.
    """

    choices = tuple(METHODS)

    only: tuple[str, ...] = choices
    """Methods to run; the RNN runs in any case, since the others are compared with it."""
    preset: Preset = "paper"
    """Where the sizes come from."""
    batch: int | None = None
    """Tasks in a batch, B; the preset's by default."""
    steps: int | None = None
    """Length of a task, T; the preset's by default."""
    acting_samples: int | None = None
    """Draws from the belief at each step of acting, each of which goes through the heads; the preset's by
    default. The RNN has one in any case."""
    tables: bool = False
    """Embed each of the gridworld's few inputs once in an update, as `train` does, and not at every step."""
    product_size: int = 2048
    """Rows and columns of the matrices whose product gives the rate of the machine."""
    seconds: float = 300.0
    """Turns end early when they would take longer than this."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateBench(Bench):
    """Time the evaluation of an agent on test tasks of 200 steps, each method in a process of its own."""

    choices = tuple(TESTED)

    only: tuple[str, ...] = choices
    """Methods to run; the RNN runs in any case, since the others are compared with it."""
    preset: Preset = "paper"
    """Where the sizes come from."""
    tasks: int = 128
    """Test tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveBench(TurnsBench):
    """Time factorisations and solves of many small matrices: ours beside LAPACK's."""

    choices = OPERATIONS

    only: tuple[str, ...] = choices
    """Operations to run."""
    count: int = 3200
    """Matrices in a batch."""
    sizes: tuple[int, ...] = (8, 16, 32, 64, 128)
    """Rows of a matrix."""
    seconds: float = 20.0
    """Turns of an operation at one size end early when they would take longer than this."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedsBench(TurnsBench):
    """Time an update of several seeds on the gridworld: all in one program, or one after another."""

    choices = tuple(METHODS)

    only: tuple[str, ...] = choices
    """Methods to run."""
    preset: Preset = "laptop"
    """Where the sizes come from."""
    seeds: int = 8
    """How many seeds."""
    batch: int | None = None
    """Tasks in a batch, B; the preset's by default."""
    steps: int | None = None
    """Length of a task, T; the preset's by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartupBench(Bench):
    """Time what comes before the first answer: help, imports, and compiling a training update."""

    choices = tuple(METHODS)

    only: tuple[str, ...] = choices
    """Methods whose update is compiled, with an empty cache of compiled programs and with a filled one."""
    preset: Preset = "paper"
    """Where the sizes of the update come from."""
    repeats: int = 10
    """Starts of each command; the median counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrowthBench(TurnsBench):
    """Follow time and memory of the gradient of (unroll, one sample, KL) as one size grows.

    One size at a time leaves the others as they are. A series may be empty.
    """

    choices = tuple(GROWN)

    only: tuple[str, ...] = choices
    """Variants to run."""
    lengths: tuple[int, ...] = (50, 100, 200, 500, 1000)
    """Series of the inputs in a sequence, T."""
    hidden_sizes: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Series of the size of the LSTM, H."""
    feature_sizes: tuple[int, ...] = (8, 16, 32, 64, 128)
    """Series of the size of the belief, F."""
    windows: tuple[int, ...] = (2, 5, 10, 20, 50)
    """Series of the window, W, for the variant that has one."""
    batches: tuple[int, ...] = (2, 8, 32, 128)
    """Series of the sequences in a batch, B."""
    steps: int = 100
    """T while another size grows."""
    hidden_size: int = 128
    """H while another size grows."""
    features: int = 32
    """F while another size grows."""
    window: int = 10
    """W while another size grows."""
    batch: int = 8
    """B while another size grows."""
    input_size: int = 64
    """Length of an input, D."""
    repeats: int = 5
    """Turns that each program gets; the fastest counts."""
    seconds: float = 20.0
    """Turns at one size end early when they would take longer than this."""
    plot: Path | None = None
    """Draw the series to this file: .png, .pdf or .svg."""

    def check(self) -> None:
        super().check()
        for name in ("lengths", "hidden_sizes", "feature_sizes", "windows", "batches"):
            sizes = getattr(self, name)
            if len(sizes) == 1 or list(sizes) != sorted(set(sizes)):
                raise ValueError(f"{name} must be none, or two and more that grow; got {sizes}.")
        for_all = self.lengths + self.hidden_sizes + self.feature_sizes + self.batches
        if not for_all and not (self.windows and WINDOWED in self.only):
            raise ValueError(
                f"nothing to measure: {WINDOWED!r} alone has a window, and other series are empty."
            )
        if self.plot is not None:
            check_choice("the end of plot", self.plot.suffix, (".png", ".pdf", ".svg"))


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder.")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: No such file or directory.")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"cannot write {path}: Permission denied.")
