"""From a configuration to a memory and its posterior."""

from typing import TypeVar

import equinox as eqx
import jax
from jaxtyping import Array

from recurrent_laplace.cells import GRU, LSTM, Elman, Memory
from recurrent_laplace.models.config import AgentConfig, PosteriorConfig
from recurrent_laplace.posterior import (
    AbstractPosterior,
    LaplacePosterior,
    PointPosterior,
    VariationalPosterior,
)

CELLS = {"lstm": LSTM, "gru": GRU, "elman": Elman}

Model = TypeVar("Model", bound=eqx.Module)


def make_memory(config: AgentConfig, input_size: int, *, key: Array) -> Memory:
    """A freshly initialised memory."""
    key_cell, key_readout = jax.random.split(key)
    cell = CELLS[config.cell](input_size, config.hidden_size, key=key_cell)
    return Memory(cell, config.features, key=key_readout)


def make_posterior(config: PosteriorConfig, memory: Memory, *, key: Array) -> AbstractPosterior:
    """The posterior of that kind over a memory; `key` is for weights that the memory does not have."""
    match config.kind:
        case "point":
            return PointPosterior(memory)
        case "variational":
            return VariationalPosterior(
                memory, covariance=config.covariance, prior_stddev=config.prior_stddev, key=key
            )
        case _:
            return LaplacePosterior(
                memory,
                covariance=config.covariance,
                accumulate=config.accumulate,
                window=None if config.window == "all" else config.window,
                forgetting=config.forgetting,
                prior_stddev=config.prior_stddev,
                damping_precision=config.damping_precision,
                temperature=config.temperature,
                space=config.space,
            )


def with_posterior(model: Model, config: PosteriorConfig, *, key: Array) -> Model:
    """The same network under another posterior: all its weights are kept.

    A covariance head that the model does not have is at its initial value.

    ```python
    bayesian = rl.with_posterior(agent, rl.PosteriorConfig(kind="laplace"), key=key)
    ```
    """
    old: AbstractPosterior = model.posterior  # pyright: ignore[reportAttributeAccessIssue]
    posterior = make_posterior(config, old.memory, key=key)
    if isinstance(old, VariationalPosterior) and isinstance(posterior, VariationalPosterior):
        if old.covariance != posterior.covariance:
            raise ValueError(
                f"a {posterior.covariance} variational posterior does not fit the weights: "
                f"the model has learned a {old.covariance} covariance."
            )
        heads = lambda p: (p.log_eigenvalue_head, p.rotation_head)  # noqa: E731
        posterior = eqx.tree_at(heads, posterior, heads(old), is_leaf=lambda leaf: leaf is None)
    return eqx.tree_at(lambda m: m.posterior, model, posterior)
