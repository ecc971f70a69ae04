"""Is an agent's belief a belief? Measured against the exact one, with an untrained network as control."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import polars as pl
from jaxtyping import Array, Float
from scipy.stats import norm, spearmanr

from recurrent_laplace.deploy.scores import Watched, play_episodes
from recurrent_laplace.evaluation.oracles import follow, make_oracle
from recurrent_laplace.gaussians import AbstractGaussian
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import Agent, PosteriorConfig, with_posterior
from recurrent_laplace.models.mlp import MLP
from recurrent_laplace.tasks import AbstractControlTask, Gridworld

LAPLACE = {
    "Laplace, accumulated": PosteriorConfig(kind="laplace", covariance="diagonal"),
    "Laplace, accumulated, dense": PosteriorConfig(kind="laplace", covariance="dense"),
    "Laplace, no accumulation": PosteriorConfig(kind="laplace", covariance="diagonal", accumulate="none"),
    "Laplace, window 10": PosteriorConfig(
        kind="laplace", covariance="diagonal", accumulate="none", window=10
    ),
    "Laplace, accumulated, over the state": PosteriorConfig(
        kind="laplace", covariance="dense", space="state"
    ),
}
"""Posteriors that are put on a network after training."""

LEVELS = (0.5, 0.9)
RIDGE = 1e-3
"""Of the linear decoders, on standardised features."""
MLP_SIZES = (64,)
MLP_UPDATES = 600
MLP_RATE = 3e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaithfulnessConfig:
    """How many tasks, and how long."""

    tasks: int = 256
    """Tasks to fit decoders on; as many again are held out."""
    steps: int = 100
    """Steps of a task."""
    seed: int = 0
    """Of problems and draws."""


class Truth(NamedTuple):
    """Along episodes: the exact belief as numbers, its entropy, and what the problem really is."""

    belief: Float[np.ndarray, "E T K"]
    entropy: Float[np.ndarray, "E T"]
    parameter: Float[np.ndarray, "E P"]


def faithfulness(
    agent: Agent,
    untrained: Agent,
    task: AbstractControlTask,
    learning: LearningConfig,
    config: FaithfulnessConfig,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """A row for each posterior on the agent's network, its own included, and for the untrained control.

    All are shown the same histories: those of the trained agent.
    """
    key = jax.random.key(config.seed)
    say("playing")
    played = play_episodes(agent, task, learning, episodes=2 * config.tasks, steps=config.steps, key=key)
    truth = exact_truth(task, played, config.steps, key)
    rows = []
    for network, model in {"trained": agent, "untrained": untrained}.items():
        shared = None
        for name, one in _posteriors(model).items():
            say(f"{network}: {name}")
            beliefs = _beliefs(one, played)
            shared = _of_the_network(one, played, truth, beliefs) if shared is None else shared
            rows.append({"network": network, "posterior": name, **shared, **_of_the_belief(beliefs, truth)})
    return rows


def _posteriors(model: Agent) -> dict[str, Agent]:
    """The model's own posterior, if it has a spread, and Laplace posteriors on its network."""
    kind = type(model.posterior).__name__
    own = {} if kind == "PointPosterior" else {f"its own ({kind.removesuffix('Posterior')})": model}
    if kind == "VariationalPosterior":
        return own
    key = jax.random.key(0)
    return own | {name: with_posterior(model, config, key=key) for name, config in LAPLACE.items()}


def exact_truth(task: AbstractControlTask, played: Watched, steps: int, key: Array) -> Truth:
    """The exact belief along what an agent has seen; problems are drawn as `play_episodes` does."""
    oracle = make_oracle(task, test=False, steps=steps)
    read: Callable[[Any], Array] = (
        (lambda belief: belief.probabilities.reshape(-1))
        if isinstance(task, Gridworld)
        else (lambda belief: belief.mean())
    )
    followed = eqx.filter_jit(jax.vmap(lambda one: follow(oracle, one, read=read)))(played.experience)
    keys = jax.vmap(lambda k: jax.random.split(k)[0])(jax.random.split(key, len(played.inputs)))
    problems = jax.vmap(task.sample)(keys)
    parameter = problems.goal if isinstance(task, Gridworld) else problems
    return Truth(
        np.asarray(followed.belief, float), np.asarray(followed.entropy, float), np.asarray(parameter, float)
    )


@eqx.filter_jit
def _beliefs(agent: Agent, played: Watched) -> AbstractGaussian:
    """The agent's posterior along the episodes, from what the agent itself makes of what was seen."""

    def of_episode(experience: Any) -> Any:
        inputs, _ = agent.embed(
            experience.observation, experience.previous_action, experience.previous_reward
        )
        return agent.posterior.unroll(inputs)

    return jax.lax.map(of_episode, played.experience, batch_size=32)


def _of_the_network(
    agent: Agent, played: Watched, truth: Truth, beliefs: AbstractGaussian
) -> dict[str, float]:
    """What the mean alone decides: decoding both ways, and whether decoded beliefs are a martingale."""
    mean = np.asarray(beliefs.mean, float)
    linear = Linear.fit(_fit_half(mean), _fit_half(truth.belief))
    guess = linear(_held_half(mean))
    held = _held_half(truth.belief)
    decoded = _fit_mlp(_fit_half(mean), _fit_half(truth.belief), _held_half(mean))
    # Martingale: what the belief says now must not tell where it is going.
    decoded_steps = [np.diff(linear(half(mean)), axis=1) for half in (_fit_half, _held_half)]
    drift = Linear.fit(_fit_half(mean)[:, :-1], decoded_steps[0])
    back = Linear.fit(_fit_half(truth.belief), _fit_half(mean))(_held_half(truth.belief))
    return {
        "linear_r2": r_squared(held, guess),
        "mlp_kl": float(np.mean(categorical_kl(held, decoded))),
        "uninformed_kl": float(np.mean(categorical_kl(held, _average(truth.belief)))),
        "drift_r2": max(r_squared(decoded_steps[1], drift(_held_half(mean)[:, :-1])), 0.0),
        "policy_kl_from_exact": _policy_kl(agent, played, back),
    }


def _of_the_belief(beliefs: AbstractGaussian, truth: Truth) -> dict[str, float]:
    """What the covariance decides: rank agreement, coverage, and the trend of the consecutive KL."""
    entropy = np.asarray(jax.jit(lambda b: b.entropy())(beliefs), float)
    mean = np.asarray(beliefs.mean, float)
    steps = mean.shape[1]
    target = np.repeat(truth.parameter[:, None], steps, axis=1)
    decoder = Linear.fit(_fit_half(mean), _fit_half(target))
    held = jax.tree.map(lambda leaf: leaf[len(leaf) // 2 :], beliefs)
    weight = jnp.asarray(decoder.weight)
    root = eqx.filter_jit(lambda b: jnp.einsum("etfg,fp->etpg", _root(b), weight))(held)
    stddev = np.sqrt(np.sum(np.asarray(root, float) ** 2, axis=-1))
    error = np.abs(_held_half(target) - decoder(_held_half(mean))) / np.maximum(stddev, 1e-12)
    kl = np.asarray(jax.jit(lambda b: b[:, 1:].kl(b[:, :-1]))(held), float)
    late, early = kl[:, -steps // 4 :].mean(), kl[:, : steps // 4].mean()
    coverage = {
        f"coverage_{level * 100:.0f}": float(np.mean(error < norm.ppf(0.5 + level / 2))) for level in LEVELS
    }
    return {
        "rank_agreement": rank_agreement(_held_half(entropy), _held_half(truth.entropy)),
        **coverage,
        "kl_late_over_early": float(late / early),
    }


def _root(beliefs: AbstractGaussian) -> Array:
    root = beliefs.covariance_root()
    return root if root.ndim > beliefs.mean.ndim else jax.vmap(jax.vmap(jnp.diag))(root)


def rank_agreement(entropy: Float[np.ndarray, "E T"], exact: Float[np.ndarray, "E T"]) -> float:
    """Spearman's correlation over tasks at each step, averaged over steps: t itself is removed.

    Steps at which all tasks are alike in either say nothing, and are left out.
    """
    correlations = []
    for t in range(entropy.shape[1]):
        if np.ptp(entropy[:, t]) > 1e-9 and np.ptp(exact[:, t]) > 1e-9:
            correlations.append(spearmanr(entropy[:, t], exact[:, t])[0])
    return float(np.mean(correlations)) if correlations else np.nan


class Linear(NamedTuple):
    """A ridge regression: `x @ weight + bias`."""

    weight: np.ndarray
    bias: np.ndarray

    @classmethod
    def fit(cls, x: Float[np.ndarray, "... F"], y: Float[np.ndarray, "... K"]) -> "Linear":
        """On all but the last axes."""
        x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
        center, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
        standard = (x - center) / scale
        gram = standard.T @ standard / len(x) + RIDGE * np.eye(x.shape[1])
        weight = np.linalg.solve(gram, standard.T @ (y - y.mean(axis=0)) / len(x)) / scale[:, None]
        return cls(weight, y.mean(axis=0) - center @ weight)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x @ self.weight + self.bias


def r_squared(y: Float[np.ndarray, "... K"], guess: Float[np.ndarray, "... K"]) -> float:
    """Share of the variance that is explained, all outputs together."""
    y, guess = y.reshape(-1, y.shape[-1]), guess.reshape(-1, y.shape[-1])
    return float(1 - np.sum((y - guess) ** 2) / np.sum((y - y.mean(axis=0)) ** 2))


def categorical_kl(p: Float[np.ndarray, "... K"], q: Float[np.ndarray, "... K"]) -> Float[np.ndarray, "..."]:
    """`KL(p || q)` of probabilities; those of a bandit's arms, which sum to one or are made to."""
    p, q = (np.maximum(each / each.sum(axis=-1, keepdims=True), 1e-9) for each in (p, q))
    return np.sum(p * (np.log(p) - np.log(q)), axis=-1)


def _average(belief: np.ndarray) -> np.ndarray:
    """The mean exact belief of each step: what can be said without looking at the agent."""
    return np.broadcast_to(_fit_half(belief).mean(axis=0), _held_half(belief).shape)


def _fit_mlp(x: np.ndarray, y: np.ndarray, ask: np.ndarray) -> np.ndarray:
    """Probabilities that a small network decodes from features, trained to the exact ones."""
    flat_x, flat_y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    flat_y = flat_y / flat_y.sum(axis=-1, keepdims=True)
    center, scale = flat_x.mean(axis=0), np.maximum(flat_x.std(axis=0), 1e-9)
    model = MLP.init((x.shape[-1], *MLP_SIZES, y.shape[-1]), key=jax.random.key(0))
    trained = _train_mlp(model, jnp.asarray((flat_x - center) / scale), jnp.asarray(flat_y))
    return np.asarray(jax.nn.softmax(trained(jnp.asarray((ask - center) / scale))), float)


@eqx.filter_jit
def _train_mlp(model: MLP, x: Array, y: Array) -> MLP:
    optimizer = optax.adam(optax.linear_schedule(MLP_RATE, 0.0, MLP_UPDATES))

    def loss(model: MLP, rows: Array) -> Array:
        return -jnp.mean(jnp.sum(y[rows] * jax.nn.log_softmax(model(x[rows])), axis=-1))

    def update(now: Any, index: Array) -> tuple[Any, None]:
        model, state = now
        rows = jax.random.randint(jax.random.fold_in(jax.random.key(1), index), (512,), 0, len(x))
        gradient = jax.grad(loss)(model, rows)
        updates, state = optimizer.update(gradient, state)
        return (eqx.apply_updates(model, updates), state), None

    start = (model, optimizer.init(model))  # pyright: ignore[reportArgumentType]
    (model, _), _ = jax.lax.scan(update, start, jnp.arange(MLP_UPDATES))
    return model


def _policy_kl(agent: Agent, played: Watched, features: Float[np.ndarray, "E T F"]) -> float:
    """The agent's policy on features made of the exact belief, against its own: does the belief suffice?"""
    seen = jax.tree.map(lambda leaf: leaf[len(leaf) // 2 :], played.seen)
    own = jax.tree.map(lambda leaf: leaf[len(leaf) // 2 :], played.experience)

    def logits(z: Array, seen: Any) -> Array:
        return jax.nn.log_softmax(agent.policy_head(z, seen))

    def true_features(experience: Any) -> Array:
        inputs, _ = agent.embed(
            experience.observation, experience.previous_action, experience.previous_reward
        )
        return agent.posterior.memory.unroll(inputs).features

    real = eqx.filter_jit(lambda: logits(jax.vmap(true_features)(own), seen))()
    made = eqx.filter_jit(logits)(jnp.asarray(features, real.dtype), seen)
    return float(jnp.mean(jnp.sum(jnp.exp(real) * (real - made), axis=-1)))


def _fit_half(values: np.ndarray) -> np.ndarray:
    return values[: len(values) // 2]


def _held_half(values: np.ndarray) -> np.ndarray:
    return values[len(values) // 2 :]


def table(rows_by_seed: Sequence[Sequence[dict[str, Any]]]) -> pl.DataFrame:
    """All rows, with the number of their agent."""
    return pl.DataFrame([{"seed": seed, **row} for seed, rows in enumerate(rows_by_seed) for row in rows])
