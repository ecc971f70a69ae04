"""Training updates on the gridworld, compiled as `train` compiles them."""

import dataclasses
import time
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array

from recurrent_laplace.benchmarks.measure import program_mb
from recurrent_laplace.benchmarks.variants import Variant
from recurrent_laplace.learning import Config, Train, TrainState, make_train
from recurrent_laplace.machine.memory import require_memory
from recurrent_laplace.runs.config import Run, config_from
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.presets import load_preset
from recurrent_laplace.runs.toml import Tables, merge


def variant_config(
    variant: Variant,
    preset: str,
    *,
    lookup: bool = True,
    tables: Tables | None = None,
    **learning: float | None,
) -> Config:
    """The preset's configuration of a variant on the gridworld.

    Values in `learning` that are not None replace the preset's, and `tables` both. Without `lookup`, the
    input of every step is embedded.
    """
    config = config_from(
        merge(
            {"task": {"name": "gridworld"}},
            load_preset(preset, "gridworld", variant.kind),
            {"posterior": dataclasses.asdict(variant)},
            {"learning": {name: value for name, value in learning.items() if value is not None}},
            {"learning": {"lookup": lookup}},
            tables or {},
        )
    )
    config.check()
    return config


def require_training_memory(config: Config, command: str, *, seeds: int = 1) -> None:
    """Raise an error if the training would not fit in memory."""
    needed = estimate(Run(config=config, seeds=seeds)).memory
    require_memory(needed, command, "Take a smaller --batch or --steps, or another --preset.")


class Training:
    """Training states and their compiled update; every call advances each state by one update."""

    def __init__(self, train: Train, keys: Sequence[Array]):
        self.train = train
        self.states: list[TrainState] = [train.place(train.init(key)) for key in keys]
        before = time.perf_counter()
        self.program = train.lower(self.states[0]).compile()
        self.compile_seconds = time.perf_counter() - before
        self.peak_mb = program_mb(self.program)

    @classmethod
    def single_seed(cls, config: Config) -> "Training":
        """Training of one seed."""
        return cls(make_train(config), [jax.random.key(0)])

    def __call__(self) -> list[TrainState]:
        updates = self.train.config.learning.updates
        for index, state in enumerate(self.states):
            until = int(np.max(state.update)) + 1
            self.states[index], _ = self.program(state, until, updates)
        return self.states
