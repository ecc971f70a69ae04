"""RecurrentPPO agents of Stable-Baselines3, with a posterior over the state of one of their LSTMs.

Reading a file needs neither torch nor Stable-Baselines3, and executes nothing in it.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from recurrent_laplace.cells import Memory
from recurrent_laplace.errors import check_choice
from recurrent_laplace.interop._optional import require
from recurrent_laplace.interop.sb3_files import Normalization, read_model, read_normalization
from recurrent_laplace.interop.sb3_network import Description, Networks, convert, describe
from recurrent_laplace.monitoring import Forecast, Monitor, Reading
from recurrent_laplace.monitoring.recording import query_of, target_of
from recurrent_laplace.posterior import AbstractPosterior, LaplacePosterior

if TYPE_CHECKING:
    from recurrent_laplace.interop.sb3_callback import UncertaintyCallback as UncertaintyCallback

Network = Literal["actor", "critic", "shared"]
MakePosterior = Callable[[Memory], AbstractPosterior]


@dataclasses.dataclass(frozen=True)
class DiscreteActions:
    """Categorical distribution over actions: unnormalised log-probabilities, and probabilities."""

    logits: np.ndarray
    probs: np.ndarray


@dataclasses.dataclass(frozen=True)
class ContinuousActions:
    """Independent normal distributions over actions, before clipping to their bounds."""

    mean: np.ndarray
    stddev: np.ndarray


@dataclasses.dataclass(frozen=True)
class SB3Step:
    """Output of an `SB3Agent` at one step; with several streams, all fields have a leading axis.

    `distribution` and `value` are those of the RecurrentPPO networks; `reading` is that of the belief.
    """

    distribution: DiscreteActions | ContinuousActions
    value: np.ndarray
    reading: Reading


class SB3Agent:
    """RecurrentPPO agent with an online belief over the state of one of its LSTMs.

    `rl.interop.sb3.load` and `from_model` make one. The attributes `posterior` and `monitor` are those of the
    chosen LSTM; `networks` has all networks of the agent.
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
        self.network: Network = network
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
        """Reset all streams: the belief to the prior, the networks to their initial carries."""
        self.monitor.reset()
        carries = self.networks.init()
        if self._lead:
            carries = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self._lead[0], axis=0), carries)
        self._carries = carries
        self._observed: np.ndarray | None = None

    def with_posterior(self, posterior: AbstractPosterior) -> "SB3Agent":
        """This agent with another posterior over the same LSTM, such as that of `rl.fit_predictor`."""
        if not eqx.tree_equal(posterior.memory, self.posterior.memory):
            raise ValueError(
                "posterior must be over the LSTM of this agent; it is over another one: fit it on episodes "
                f"of this agent, with network={self.network!r}."
            )
        return SB3Agent(
            self.networks,
            self.description,
            network=self.network,
            normalization=self.normalization,
            posterior=lambda memory: posterior,
            streams=self.monitor.streams,
        )

    def step(
        self, observation: Any, episode_start: Any, *, action: Any = None, reward: Any = None
    ) -> SB3Step:
        """Update the networks and the belief with an observation of the environment.

        **Arguments:**

        - `observation`: that of the environment, not normalised.
        - `episode_start`: true for the first observation of an episode, which resets the stream before it;
          one boolean or one per stream.
        - `action`, `reward`: what led to this observation. An agent whose posterior has the curvature of a
          likelihood needs the action after the first step; with the reward, it reads the surprise.
        """
        x, observed = self.inputs(observation), self.observed(observation)
        start = np.broadcast_to(np.asarray(episode_start, bool), self._lead)
        answered = self._answered(start, action, reward, observed)
        reading = self.monitor.step(x, reset=start, **answered)
        self._observed = observed
        self._carries, actions, value = _advance(bool(self._lead), self.networks, self._carries, x, start)
        return SB3Step(_distribution(jax.device_get(actions)), jax.device_get(value), reading)

    def act(self, step: SB3Step, *, deterministic: bool = False, key: jax.Array | None = None) -> np.ndarray:
        """Sample an action within the environment's bounds, or take the most likely if `deterministic`."""
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

    def predict(self, action: Any) -> Forecast:
        """Forecast of what follows an action at the last observation, in the units of the environment.

        It needs the posterior of `rl.fit_predictor` (`with_posterior`).
        """
        if self.posterior.likelihood is None or self._observed is None:
            raise ValueError(
                "predict needs the posterior of rl.fit_predictor (with_posterior) and an observation "
                f"(step); this agent has a {type(self.posterior).__name__}."
            )
        return self.monitor.predict(self._query(action))

    def _query(self, action: Any) -> np.ndarray:
        """Query of an action at the last observation."""
        action, actions = np.asarray(action), self.posterior.query_actions
        action = action if actions else action.reshape(*self._lead, -1)
        return query_of(self._observed, action, actions)

    def _answered(self, start: np.ndarray, action: Any, reward: Any, observed: np.ndarray) -> dict[str, Any]:
        """Query and target of the last step, NaN where an episode starts, for posteriors that need them."""
        likelihood, query_size = self.posterior.likelihood, self.posterior.query_size
        if likelihood is None or query_size is None:
            return {}
        names = [name for name, _ in likelihood.named_parts]
        if start.all() or self._observed is None:
            sizes = {"query": query_size, "target": likelihood.size}
            return {name: np.full((*self._lead, size), np.nan) for name, size in sizes.items()}
        if action is None:
            raise ValueError(
                "action must be the one that led to this observation, since the belief of this agent "
                "predicts what follows an action; got None."
            )
        answered = {"query": self._query(action)}
        if reward is not None or "reward" not in names:
            answered["target"] = target_of(names, np.nan if reward is None else reward, observed)
        return {name: np.where(start[..., None], np.nan, values) for name, values in answered.items()}

    @property
    def actions(self) -> int | None:
        """Number of discrete actions; None if they are continuous."""
        if self.description.bounds is not None:
            return None
        z = jax.ShapeDtypeStruct((self.networks.actor.feature_size,), self.networks.actor.dtype)
        return eqx.filter_eval_shape(self.networks.policy, z, None).size

    def observed(self, observation: Any) -> np.ndarray:
        """Observation as it is predicted: flattened in the units of the environment, or one-hot."""
        if self.description.discrete_observations:
            return self.inputs(observation)
        return np.reshape(np.asarray(observation, float), (*self._lead, -1))

    def normalize(self, observation: Any) -> np.ndarray:
        """Observation normalised as in training."""
        return np.asarray(observation) if self.normalization is None else self.normalization(observation)

    def inputs(self, observation: Any) -> np.ndarray:
        """Input of the LSTMs: the normalised observation, flattened or one-hot."""
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
        return (observation.astype(int)[..., None] == np.arange(size)).astype(np.float32)

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
    """Load an agent from a file of `RecurrentPPO.save`.

    The policy must be the default one on flat observations (`Box` or `Discrete`), with `Box` or `Discrete`
    actions; a model that cannot be converted exactly is refused.

    **Arguments:**

    - `path`: the zip file.
    - `network`: network whose LSTM has the belief: `"actor"`, read through the policy; `"critic"`, read
      through the value; or `"shared"`, read through both.
    - `vec_normalize`: file of `VecNormalize.save`, if the agent was trained with it.
    - `posterior`: function from a `Memory` to a posterior on it; by default a diagonal `rl.LaplacePosterior`
      that accumulates precision with a window of 1.
    - `trust`: whether to unpickle `vec_normalize` with `pickle`, which executes the code in it.
    - `streams`: number of environments played at once. With None there is a single one and no stream axis.

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
    """Agent with a copy of the weights of a `RecurrentPPO` model, on observations as that model gets them.

    **Arguments:** `model`, the `RecurrentPPO`; `network`, `posterior` and `streams` as for `load`.
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
    """Memory that has the belief."""
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
    """Distribution over actions from the policy's output."""
    if isinstance(actions, tuple):
        mean, log_stddev = actions
        return ContinuousActions(mean, np.exp(log_stddev))
    odds = np.exp(actions - actions.max(axis=-1, keepdims=True))
    return DiscreteActions(actions, odds / odds.sum(axis=-1, keepdims=True))


@functools.partial(jax.jit, static_argnums=0)
def _advance(many: bool, networks: Networks, carries: Any, x: Any, start: Any) -> Any:
    """Step the networks of one stream or many: new carries, the policy's output, and the value."""
    return (jax.vmap(networks.step) if many else networks.step)(carries, x, start)


def __getattr__(name: str) -> Any:
    """Import the callback on first use: it needs Stable-Baselines3, and the rest does not."""
    if name != "UncertaintyCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from recurrent_laplace.interop.sb3_callback import UncertaintyCallback

    return UncertaintyCallback
