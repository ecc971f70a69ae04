"""Construction of memories from a configuration, and replacement of a model's posterior."""

from typing import TypeVar

import equinox as eqx
import jax
from jaxtyping import Array

from recurrent_laplace.cells import Memory
from recurrent_laplace.models.config import CELLS, AgentConfig
from recurrent_laplace.models.initialization import Initialization, flax_initialized
from recurrent_laplace.models.posterior_config import AbstractPosteriorConfig
from recurrent_laplace.posterior import AbstractPosterior

Model = TypeVar("Model", bound=eqx.Module)


def make_memory(config: AgentConfig, input_size: int, *, key: Array) -> Memory:
    """Initialise a memory."""
    key_cell, key_readout = jax.random.split(key)
    cell = CELLS[config.cell](input_size, config.hidden_size, key=key_cell)
    return Memory(cell, config.features, key=key_readout)


def with_posterior(
    model: Model, config: AbstractPosteriorConfig, *, initialization: Initialization = "pytorch", key: Array
) -> Model:
    """Replace the posterior of a model and keep all weights of its network.

    Weights of the posterior itself are kept too if the new one is of the same class; it must then have
    weights of the same shapes.

    **Arguments:** `model`, an `rl.Agent` or `rl.Regressor`; `config` of the new posterior; `initialization`
    (`"pytorch"` or `"flax"`) and `key` of the covariance head, if the model does not have one.

    ```python
    model = rl.Regressor.init(rl.AgentConfig(), rl.PointConfig(), key=jax.random.key(0))
    bayesian = rl.with_posterior(model, rl.LaplaceConfig(), key=jax.random.key(1))
    ```
    """
    old: AbstractPosterior = model.posterior  # pyright: ignore[reportAttributeAccessIssue]
    posterior = config.build(old.memory, key=key)
    if initialization == "flax":
        fresh = flax_initialized(posterior, key=jax.random.fold_in(key, 0))
        posterior = eqx.tree_at(lambda p: p.memory, fresh, old.memory)
    if type(posterior) is type(old):
        posterior = _with_weights_of(posterior, old, config.label)
    return eqx.tree_at(lambda m: m.posterior, model, posterior)


def _with_weights_of(posterior: AbstractPosterior, old: AbstractPosterior, label: str) -> AbstractPosterior:
    """The posterior with the arrays of another one of its class, whose options may differ."""
    fresh, options = eqx.partition(posterior, eqx.is_array)
    learned = eqx.filter(old, eqx.is_array)
    has, needs = (
        {(jax.tree_util.keystr(path), leaf.shape) for path, leaf in jax.tree.leaves_with_path(arrays)}
        for arrays in (learned, fresh)
    )
    if has != needs:
        names = ", ".join(sorted({name.removeprefix(".") for name, _ in has ^ needs}))
        raise ValueError(
            f"{label} does not fit the weights: the model's posterior was trained with another {names}. "
            "Keep the options that decide their shapes."
        )
    arrays = jax.tree.unflatten(jax.tree.structure(fresh), jax.tree.leaves(learned))
    return eqx.combine(arrays, options)
