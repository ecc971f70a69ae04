"""Agents of Stable-Baselines3's RecurrentPPO, with a belief.

Reading a file needs torch, but not Stable-Baselines3 itself; nothing that a file holds is run.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from recurrent_laplace.cells import Memory
from recurrent_laplace.deploy import Monitor, Reading
from recurrent_laplace.errors import check_choice
from recurrent_laplace.interop._weights import require
from recurrent_laplace.interop.sb3_files import Normalization, read_model, read_normalization
from recurrent_laplace.interop.sb3_network import Description, Networks, convert, describe
from recurrent_laplace.posterior import AbstractPosterior, LaplacePosterior

if TYPE_CHECKING:
    from recurrent_laplace.interop.sb3_callback import UncertaintyCallback as UncertaintyCallback

Network = Literal["actor", "critic", "shared"]
MakePosterior = Callable[[Memory], AbstractPosterior]


@dataclasses.dataclass(frozen=True)
class DiscreteActions:
    """A distribution over the numbers of actions: log-probabilities up to a constant, and probabilities."""

    logits: np.ndarray
    probs: np.ndarray


@dataclasses.dataclass(frozen=True)
class ContinuousActions:
    """A normal distribution over actions, each by itself, before they are clipped to their bounds."""

    mean: np.ndarray
    stddev: np.ndarray


@dataclasses.dataclass(frozen=True)
class SB3Step:
    """What the agent makes of an observation. With several streams, all have a leading axis of streams.

    `distribution` and `value` are RecurrentPPO's own; `reading` is about the belief.
    """

    distribution: DiscreteActions | ContinuousActions
    value: np.ndarray
    reading: Reading


class SB3Agent:
    """A RecurrentPPO agent and the belief over one of its LSTMs, step by step.

    Made by `load` or `from_model`. `posterior` and `monitor` are of the chosen network, `networks` holds
    them all.
    """

    def __init__(
        self,
        networks: Networks,
        description: Description,
        *,
        network: Network,
        normalization: Normalization | None,
        posterior: MakePosterior | None,
        streams: int | None,
    ):
        if normalization is not None and normalization.mean.shape != description.observation_shape:
            raise ValueError(
                f"vec_normalize is for observations of shape {normalization.mean.shape}; the model's have "
                f"{description.observation_shape}."
            )
        self.networks = networks
        self.description = description
        self.normalization = normalization
        self.posterior = (posterior or _default_posterior)(_chosen(networks, network))
        self.monitor = Monitor(
            self.posterior,
            policy=None if network == "critic" else networks.policy,
            value=None if network == "actor" else networks.value,
            streams=streams,
        )
        self.reset()

    def reset(self) -> None:
        """Forget everything, in all streams."""
        self.monitor.reset()
        carries = self.networks.init()
        if self._lead:
            carries = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self._lead[0], axis=0), carries)
        self._carries = carries

    def step(self, observation: Any, episode_start: Any) -> SB3Step:
        """What the agent makes of an observation, as the environment gives it.

        `episode_start`, a boolean (for each stream, or one for all), is true of the first observation of
        an episode: everything before it is forgotten.
        """
        x = self.inputs(observation)
        start = np.broadcast_to(np.asarray(episode_start, bool), self._lead)
        reading = self.monitor.step(x, reset=start)
        self._carries, actions, value = _advance(bool(self._lead), self.networks, self._carries, x, start)
        return SB3Step(_distribution(jax.device_get(actions)), jax.device_get(value), reading)

    def act(self, step: SB3Step, *, deterministic: bool = False, key: jax.Array | None = None) -> np.ndarray:
        """An action for the environment, in its bounds: a draw, or the likeliest if `deterministic`."""
        if deterministic:
            key = None
        elif key is None:
            raise ValueError("key must be a JAX random key unless deterministic=True; got None.")
        distribution = step.distribution
        if isinstance(distribution, DiscreteActions):
            if key is None:
                return np.argmax(distribution.logits, axis=-1)
            return np.asarray(jax.random.categorical(key, distribution.logits))
        action = distribution.mean
        if key is not None:
            action = action + distribution.stddev * np.asarray(jax.random.normal(key, action.shape))
        assert self.description.bounds is not None
        low, high = self.description.bounds
        return np.clip(action.reshape(*self._lead, *low.shape), low, high).astype(np.float32)

    def normalize(self, observation: Any) -> np.ndarray:
        """An observation of the environment as the model was trained to see it."""
        return np.asarray(observation) if self.normalization is None else self.normalization(observation)

    def inputs(self, observation: Any) -> np.ndarray:
        """What the LSTMs get of an observation: all its numbers in a row, or one-hot."""
        expected = (*self._lead, *self.description.observation_shape)
        if np.shape(observation) != expected:
            raise ValueError(f"observation must have shape {expected}; got {np.shape(observation)}.")
        observation = self.normalize(observation)
        size = self.networks.actor.input_size
        assert size is not None
        if not self.description.discrete_observations:
            return observation.reshape(*self._lead, size).astype(np.float32)
        if not (np.all(observation >= 0) and np.all(observation < size)):
            raise ValueError(f"observation must be a number from 0 to {size - 1}; got {observation}.")
        return np.eye(size, dtype=np.float32)[observation.astype(int)]

    @property
    def _lead(self) -> tuple[int, ...]:
        return () if self.monitor.streams is None else (self.monitor.streams,)


def load(
    path: str | Path,
    network: Network = "actor",
    vec_normalize: str | Path | None = None,
    posterior: MakePosterior | None = None,
    trust: bool = False,
    streams: int | None = None,
) -> SB3Agent:
    """An agent from what `RecurrentPPO.save` wrote.

    The policy must be the default one on flat observations (`Box` or `Discrete`), with `Box` or `Discrete`
    actions; whatever cannot be converted exactly is refused.

    **Arguments:**

    - `path`: of the zip.
    - `network`: whose LSTM the belief is about. The actor's is read through the policy, the critic's
      through the value, one that is `"shared"` through both.
    - `vec_normalize`: what `VecNormalize.save` wrote, if the agent was trained with it.
    - `posterior`: from a `Memory` to a posterior over its hidden state; by default a diagonal
      `LaplacePosterior` that accumulates precision with a window of 1.
    - `trust`: unpickle `vec_normalize` in the ordinary way, which runs what is in it.
    - `streams`: how many environments are played at once; None: one, without an axis for it.

    ```python
    agent = rl.interop.sb3.load("model.zip", network="actor", vec_normalize="vecnormalize.pkl")
    step = agent.step(observation, episode_start=True)
    step.distribution.probs, step.value, step.reading.entropy
    ```
    """
    check_choice("network", network, ("actor", "critic", "shared"))
    data, weights = read_model(path)
    try:
        networks, description = _networks(data, weights)
    except ValueError as error:
        raise ValueError(f"{path} cannot be converted: {error}") from None
    return SB3Agent(
        networks,
        description,
        network=network,
        normalization=None if vec_normalize is None else read_normalization(vec_normalize, trust=trust),
        posterior=posterior,
        streams=streams,
    )


def from_model(
    model: Any, network: Network = "actor", posterior: MakePosterior | None = None, streams: int | None = None
) -> SB3Agent:
    """An agent with the present weights of a `RecurrentPPO`, on observations as that model sees them.

    The arguments are those of `load`.
    """
    check_choice("network", network, ("actor", "critic", "shared"))
    save_util = require("stable_baselines3.common.save_util", extra="sb3")
    # The same text that its file would have, and so the same checks.
    names = ("policy_class", "policy_kwargs", "use_sde", "observation_space", "action_space")
    data = json.loads(save_util.data_to_json({name: getattr(model, name) for name in names}))
    weights = {
        name: tensor.detach().cpu().float().numpy() for name, tensor in model.policy.state_dict().items()
    }
    networks, description = _networks(data, weights)
    return SB3Agent(
        networks, description, network=network, normalization=None, posterior=posterior, streams=streams
    )


def _networks(data: dict[str, Any], weights: dict[str, np.ndarray]) -> tuple[Networks, Description]:
    if "lstm_actor.weight_ih_l0" not in weights:
        raise ValueError(
            "the policy is not recurrent: it has no lstm_actor, as RecurrentPPO of sb3-contrib has."
        )
    description = describe(data)
    return convert(weights, description), description


def _chosen(networks: Networks, network: Network) -> Memory:
    """The memory that the belief is about."""
    shared = networks.critic is None
    if network == "shared" and not shared:
        raise ValueError("network='shared' is for shared_lstm=True; this model wants 'actor' or 'critic'.")
    if network != "shared" and shared:
        raise ValueError(f"network must be 'shared', since actor and critic share one LSTM; got {network!r}.")
    if network != "critic":
        return networks.actor
    if not isinstance(networks.critic, Memory):
        raise ValueError(
            "network='critic' needs a critic with memory; this one is linear (enable_critic_lstm=False)."
        )
    return networks.critic


def _default_posterior(memory: Memory) -> AbstractPosterior:
    return LaplacePosterior(memory, covariance="diagonal", accumulate="precision", window=1)


def _distribution(actions: Any) -> DiscreteActions | ContinuousActions:
    """What the policy's output means."""
    if isinstance(actions, tuple):
        mean, log_stddev = actions
        return ContinuousActions(mean, np.exp(log_stddev))
    odds = np.exp(actions - actions.max(axis=-1, keepdims=True))
    return DiscreteActions(actions, odds / odds.sum(axis=-1, keepdims=True))


@functools.partial(jax.jit, static_argnums=0)
def _advance(many: bool, networks: Networks, carries: Any, x: Any, start: Any) -> Any:
    """A step of the networks, in one stream or many: new carries, the policy's output, and the value."""
    return (jax.vmap(networks.step) if many else networks.step)(carries, x, start)


def __getattr__(name: str) -> Any:
    """The callback is a class of Stable-Baselines3's, which is not needed for the rest."""
    if name != "UncertaintyCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("stable_baselines3", extra="sb3")
    from recurrent_laplace.interop.sb3_callback import UncertaintyCallback

    return UncertaintyCallback
