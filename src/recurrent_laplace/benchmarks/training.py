"""Training updates of the gridworld, as `train` compiles them."""

import dataclasses
import time
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array

from recurrent_laplace.benchmarks.measure import program_mb
from recurrent_laplace.benchmarks.variants import Variant
from recurrent_laplace.experiments.config import Run, config_from, merge
from recurrent_laplace.experiments.estimate import estimate
from recurrent_laplace.experiments.memory import require_memory
from recurrent_laplace.experiments.presets import load_preset
from recurrent_laplace.learning import Config, Train, TrainState, make_train
from recurrent_laplace.tasks import Gridworld


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnlistedGridworld(Gridworld):
    """A gridworld that does not tell which few observations it has."""

    def alphabet(self) -> None:
        return None


def config_of(variant: Variant, preset: str, *, tables: bool = True, **learning: int | None) -> Config:
    """The preset's configuration of a variant on the gridworld; what is None in `learning` stays.

    Without `tables` every input is embedded.
    """
    config = config_from(
        merge(
            {"task": {"name": "gridworld"}},
            load_preset(preset, "gridworld", variant.kind),
            {"posterior": dataclasses.asdict(variant)},
            {"learning": {name: value for name, value in learning.items() if value is not None}},
        )
    )
    if not tables:
        config = dataclasses.replace(config, task=UnlistedGridworld(**dataclasses.asdict(config.task)))
    config.check()
    return config


def require_room(config: Config, what: str, *, seeds: int = 1) -> None:
    """Refuse a training that would not fit in memory."""
    needed = estimate(Run(config=config, seeds=seeds)).memory
    require_memory(needed, what, "Take a smaller --batch or --steps, or another --preset.")


class Training:
    """States that one compiled program advances by an update each, one after another, at every call."""

    def __init__(self, train: Train, keys: Sequence[Array]):
        self.train = train
        self.states: list[TrainState] = [train.spread(train.init(key)) for key in keys]
        before = time.perf_counter()
        self.program = train.lower(self.states[0]).compile()
        self.compile_seconds = time.perf_counter() - before
        self.peak_mb = program_mb(self.program)

    @classmethod
    def of(cls, config: Config) -> "Training":
        """One seed."""
        return cls(make_train(config), [jax.random.key(0)])

    def __call__(self) -> list[TrainState]:
        updates = self.train.config.learning.updates
        for index, state in enumerate(self.states):
            until = int(np.max(state.update)) + 1
            self.states[index], _ = self.program(state, until, updates)
        return self.states
