"""Is an agent's belief a belief? Measured against the exact one, with an untrained network as control."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recurrent_laplace.chunks import map_chunks
from recurrent_laplace.deploy.scores import EPISODES_AT_ONCE, Watched, play_episodes
from recurrent_laplace.errors import check_size
from recurrent_laplace.evaluation.decoding import Kind, Split, fit_network, fit_ridge, split_tasks
from recurrent_laplace.evaluation.faithfulness import (
    coverage,
    divergence,
    drift,
    drift_in_errors,
    error_over_spread,
    late_over_early,
    projected_variance,
    r_squared,
    rank_agreement,
)
from recurrent_laplace.evaluation.oracles import AbstractOracle, Followed, GridOracle, follow, make_oracle
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.learning.rollout import Experience
from recurrent_laplace.models import Agent, PosteriorConfig, with_posterior
from recurrent_laplace.posterior import LaplacePosterior, PointPosterior
from recurrent_laplace.tasks import AbstractBandit, AbstractControlTask, Gridworld
from recurrent_laplace.tasks.gridworld import MOVES

LAPLACE = {
    f"{name}, {covariance}": PosteriorConfig(kind="laplace", covariance=covariance, **options)
    for name, options in {
        "stationary": {"accumulate": "none"},
        "window 10": {"accumulate": "none", "window": 10},
        "precision": {"accumulate": "precision"},
        "mean and precision": {"accumulate": "mean_and_precision"},
    }.items()
    for covariance in ("diagonal", "dense")
} | {
    "precision, state space": PosteriorConfig(kind="laplace", covariance="dense", space="state"),
}
"""Posteriors that are put on a network which has none of its own."""

LEVELS = (0.5, 0.9)
"""Of the intervals whose coverage is measured."""
FEWEST_TASKS = 16
"""With fewer, there is no half to fit on and no quarter to judge on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaithfulnessConfig:
    """How many tasks, and how long."""

    tasks: int = 1024
    """Tasks in all: half to fit decoders on, a quarter to choose them by, a quarter to judge on."""
    steps: int = 100
    """Steps of a task."""
    seed: int = 0
    """Of problems and draws."""

    def check(self) -> None:
        """Refuse what can not be measured on."""
        for name in ("tasks", "steps"):
            check_size(name, getattr(self, name))
        if self.tasks < FEWEST_TASKS:
            raise ValueError(f"tasks must be at least {FEWEST_TASKS}; got {self.tasks}.")
        if self.steps < 4:
            raise ValueError(f"steps must be at least 4; got {self.steps}.")


class Truth(NamedTuple):
    """What can be known, task by task and step by step, and what is so.

    - `belief`: the probability of each tile, or the expected chance of each arm; `kind` says which;
    - `entropy` of the exact belief;
    - `parameter`: the goal's row and column, or the chances; `mean` and `variance` are the exact belief's
      of it;
    - `pays`: the entry of the belief which is the chance that an action pays now.
    """

    belief: Float[np.ndarray, "E T K"]
    kind: Kind
    entropy: Float[np.ndarray, "E T"]
    parameter: Float[np.ndarray, "E P"]
    mean: Float[np.ndarray, "E T P"]
    variance: Float[np.ndarray, "E T P"]
    pays: Int[np.ndarray, "E T A"]


def posteriors_of(agent: Agent) -> dict[str, Agent]:
    """The agent with its own posterior, or if it has none, with every Laplace posterior."""
    if not isinstance(agent.posterior, PointPosterior):
        return {"its own": agent}
    key = jax.random.key(0)
    return {name: with_posterior(agent, config, key=key) for name, config in LAPLACE.items()}


def faithfulness(
    agent: Agent,
    untrained: Agent,
    task: AbstractControlTask,
    learning: LearningConfig,
    config: FaithfulnessConfig,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Rows of measures: of the exact belief itself, then of each posterior, trained and untrained.

    All see the same histories: those of the trained agent. `say` is called before each row but the first.
    """
    config.check()
    key = jax.random.key(config.seed)
    played = play_episodes(agent, task, learning, episodes=config.tasks, steps=config.steps, key=key)
    truth = exact_truth(task, played, key)
    rows = [{"network": "exact", "posterior": "exact belief", **_of_the_exact(truth)}]
    for network, model in {"trained": agent, "untrained": untrained}.items():
        means: dict[str, tuple[np.ndarray, dict[str, float]]] = {}
        for name, one in posteriors_of(model).items():
            say(f"{network}: {name}")
            if (which := _which_mean(one)) not in means:
                mean, seen = _remembered(one, played.experience)
                means[which] = mean, _of_the_mean(one, mean, seen, played.experience, truth)
            mean, of_the_mean = means[which]
            of_the_spread = _of_the_spread(one, mean, played.experience, truth)
            rows.append({"network": network, "posterior": name, **of_the_mean, **of_the_spread})
    return rows


def exact_truth(task: AbstractControlTask, played: Watched, key: Array) -> Truth:
    """The exact belief along what an agent has seen; `key` is the one that it was played with."""
    if not isinstance(task, Gridworld | AbstractBandit):
        raise ValueError(f"task must be a gridworld or a bandit; got {task!r}.")
    seen = np.asarray(played.experience.observation)
    tasks, steps = seen.shape[:2]
    oracle = make_oracle(task, test=False, steps=steps)
    is_grid = isinstance(task, Gridworld)
    followed = _follow_all(oracle, played.experience)
    belief, variance = (np.asarray(each, float) for each in followed.belief)
    keys = jax.vmap(lambda k: jax.random.split(k)[0])(jax.random.split(key, tasks))
    problems: Any = jax.vmap(task.sample)(keys)
    entropy = np.asarray(followed.entropy, float)
    if not is_grid:
        pays = np.broadcast_to(np.arange(task.actions), (tasks, steps, task.actions))
        return Truth(belief, "chances", entropy, np.asarray(problems, float), belief, variance, pays)
    # In double precision they sum to one, and variances that are zero are zero.
    belief = belief / belief.sum(axis=-1, keepdims=True)
    tiles = np.stack(np.divmod(np.arange(task.size**2), task.size), axis=-1)
    mean = belief @ tiles
    variance = np.maximum(belief @ tiles**2 - mean**2, 0)
    here = np.argmax(seen.reshape(tasks, steps, 2, task.size), axis=-1)
    there = np.clip(here[:, :, None] + np.array(MOVES), 0, task.size - 1)
    pays = there @ np.array([task.size, 1])
    return Truth(belief, "exclusive", entropy, np.asarray(problems.goal, float), mean, variance, pays)


@eqx.filter_jit
def _follow_all(oracle: AbstractOracle, experience: Experience) -> Followed:
    """Beliefs as `(mean, variance)` of each arm, or the probabilities of tiles, twice."""

    def read(belief: Any) -> tuple[Array, Array]:
        if isinstance(oracle, GridOracle):
            return (belief.probabilities.reshape(-1),) * 2
        return belief.mean(), belief.variance()

    return jax.vmap(lambda one: follow(oracle, one, read=read))(experience)


def _which_mean(agent: Agent) -> str:
    """Posteriors on one network have the same mean, but for those that accumulate it."""
    posterior = agent.posterior
    if isinstance(posterior, LaplacePosterior) and posterior.accumulate == "mean_and_precision":
        return f"accumulated, {posterior.covariance}"
    return "features"


@eqx.filter_jit
def _remember(agent: Agent, experience: Experience) -> tuple[Array, Array | None]:
    def of_episode(experience: Experience) -> tuple[Array, Array | None]:
        inputs, embedded = _inputs(agent, experience)
        trace, beliefs, _ = agent.posterior.unroll_trace(inputs)
        hidden = jax.vmap(agent.posterior.memory.cell.hidden)(trace.carries)
        return beliefs.mean, agent.seen(embedded, hidden)

    return _in_chunks(of_episode, experience)


def _remembered(agent: Agent, experience: Experience) -> tuple[np.ndarray, np.ndarray | None]:
    """Means of the agent's beliefs along someone's history, and what else its heads would see."""
    mean, seen = _remember(agent, experience)
    return np.asarray(mean, float), None if seen is None else np.asarray(seen, float)


@eqx.filter_jit
def _claimed(
    agent: Agent, experience: Experience, weight: Float[Array, "F P"]
) -> tuple[Float[Array, "E T"], Float[Array, "E T"], Float[Array, "E T P"]]:
    """Entropy, KL from the belief before, and the variances of `z @ weight`."""

    def of_episode(experience: Experience) -> tuple[Array, Array, Array]:
        beliefs = agent.posterior.unroll(_inputs(agent, experience)[0])
        return beliefs.entropy(), agent.posterior.consecutive_kl(beliefs), projected_variance(beliefs, weight)

    return _in_chunks(of_episode, experience)


def _inputs(agent: Agent, experience: Experience) -> tuple[Array, Array]:
    return agent.embed(experience.observation, experience.previous_action, experience.previous_reward)


def _in_chunks(function: Callable[[Experience], Any], experience: Experience) -> Any:
    return map_chunks(jax.vmap(function), experience, EPISODES_AT_ONCE)


def _of_the_exact(truth: Truth) -> dict[str, float]:
    """What the exact belief reaches in the measures that are not one of it by definition."""
    belief, entropy = split_tasks(truth.belief), split_tasks(truth.entropy).test
    mean, variance = (split_tasks(each).test for each in (truth.mean, truth.variance))
    error = split_tasks(truth.parameter).test[:, None] - mean
    return {
        "rank_agreement": rank_agreement(entropy, entropy),
        **_covered(error, np.sqrt(variance), variance),
        "drift": drift(belief, belief),
        "drift_in_errors": drift_in_errors(belief.test),
        "kl_late_over_early": late_over_early(
            divergence(belief.test[:, 1:], belief.test[:, :-1], truth.kind)
        ),
    }


def _of_the_mean(
    agent: Agent, mean: np.ndarray, seen: np.ndarray | None, experience: Experience, truth: Truth
) -> dict[str, float]:
    """What the mean alone decides: decoding, whether decoded beliefs are a martingale, simulation."""
    features, belief = split_tasks(mean), split_tasks(truth.belief)
    exact, average = belief.test, belief.fit.mean(axis=0)
    linear = fit_ridge(features, belief)(features.test)
    logistic = fit_network(features, belief, truth.kind, hidden_sizes=())(features.test)
    network = fit_network(features, belief, truth.kind)
    decoded = Split(*map(network, features))
    uninformed = np.mean(divergence(exact, average, truth.kind))
    kl = {
        name: float(np.mean(divergence(exact, guess, truth.kind)))
        for name, guess in {"linear": logistic, "mlp": decoded.test}.items()
    }
    both = Split(*(np.concatenate(parts, axis=-1) for parts in zip(features, decoded, strict=True)))
    return {
        "linear_r2": r_squared(exact, linear, average.mean(axis=0)),
        "linear_r2_beyond_t": r_squared(exact, linear, average),
        "mlp_r2": r_squared(exact, decoded.test, average.mean(axis=0)),
        "mlp_r2_beyond_t": r_squared(exact, decoded.test, average),
        "linear_kl": kl["linear"],
        "mlp_kl": kl["mlp"],
        "uninformed_kl": float(uninformed),
        "drift": drift(decoded, both),
        "drift_in_errors": drift_in_errors(decoded.test),
        "exact_from_agent": _exact_from_agent(decoded.test, truth),
        "agent_from_exact": _agent_from_exact(agent, mean, seen, experience, truth),
    }


def _exact_from_agent(decoded: Float[np.ndarray, "E T K"], truth: Truth) -> float:
    """How well the exact machine, in the state decoded from the agent, says which actions pay.

    1 where it says what it would say in its own state, 0 where the average belief of a step does as well.
    """
    belief, pays = split_tasks(truth.belief), split_tasks(truth.pays).test

    def output(belief: np.ndarray) -> np.ndarray:
        return np.take_along_axis(belief, pays, axis=-1)

    exact = output(belief.test)
    average = output(np.broadcast_to(belief.fit.mean(axis=0), belief.test.shape))
    lost = np.mean(divergence(exact, output(decoded), "chances"))
    return float(1 - lost / np.mean(divergence(exact, average, "chances")))


def _agent_from_exact(
    agent: Agent, mean: np.ndarray, seen: np.ndarray | None, experience: Experience, truth: Truth
) -> float:
    """How well the agent, in a state made of the exact belief and the observation, acts as it does.

    1 where its policy is the same, 0 where its average state of a step does as well.
    """
    sees_state = agent.policy_input == "belief_and_hidden"
    state = mean if seen is None or not sees_state else np.concatenate([mean, seen], axis=-1)
    given = np.concatenate([truth.belief, np.asarray(experience.observation, float)], axis=-1)
    states = split_tasks(state)
    made = fit_network(split_tasks(given), states, "numbers")(split_tasks(given).test)
    other = None if seen is None or sees_state else jnp.asarray(split_tasks(seen).test)

    def policy(state: np.ndarray) -> np.ndarray:
        z, rest = jnp.split(jnp.asarray(state), [mean.shape[-1]], axis=-1)
        return np.asarray(_policy(agent, z, rest if sees_state else other), float)

    true = policy(states.test)
    average = np.broadcast_to(states.fit.mean(axis=0), states.test.shape)
    lost, most = (np.mean(divergence(true, policy(one), "exclusive")) for one in (made, average))
    return float(1 - lost / max(most, 1e-12))


@eqx.filter_jit
def _policy(agent: Agent, z: Array, seen: Array | None) -> Array:
    return jax.nn.softmax(agent.policy_head(z, seen))


def _of_the_spread(agent: Agent, mean: np.ndarray, experience: Experience, truth: Truth) -> dict[str, float]:
    """What the covariance decides: rank agreement, coverage, and the trend of the consecutive KL.

    The belief claims something of the features. Its claim about the problem is that, seen through the
    linear map from features to the parameter which fits best.
    """
    features = split_tasks(mean)
    target = split_tasks(np.repeat(truth.parameter[:, None], mean.shape[1], axis=1))
    decoder = fit_ridge(features, target)
    held = jax.tree.map(lambda leaf: leaf[len(mean) - len(features.test) :], experience)
    entropy, kl, variance = (
        np.asarray(each, float) for each in _claimed(agent, held, jnp.asarray(decoder.weight))
    )
    error = target.test - decoder(features.test)
    stddev = np.sqrt(np.maximum(variance, 0))
    return {
        "rank_agreement": rank_agreement(entropy, split_tasks(truth.entropy).test),
        **_covered(error, stddev, split_tasks(truth.variance).test),
        "kl_late_over_early": late_over_early(kl[:, 1:]),
    }


def _covered(error: np.ndarray, stddev: np.ndarray, exact_variance: np.ndarray) -> dict[str, float]:
    """Coverage where the exact belief is not yet certain: a point has no interval of 90%."""
    open_still = exact_variance > 1e-9
    error, stddev = error[open_still], stddev[open_still]
    rates = coverage(error, stddev, LEVELS)
    named = {f"coverage_{level * 100:.0f}": rate for level, rate in zip(LEVELS, rates, strict=True)}
    return {**named, "error_over_spread": error_over_spread(error, stddev)}
