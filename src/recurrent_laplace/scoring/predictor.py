"""Predictive heads fitted to rows of features, queries and targets."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from recurrent_laplace.cells import Affine
from recurrent_laplace.models.layers import MLP, Head, ResidualHead
from recurrent_laplace.posterior import AbstractLikelihood, JointLikelihood, Predictor

PENALTIES = tuple(10.0**power for power in range(-5, 5))
"""Ridge penalties per row, for standardised inputs; the largest leaves only the mean."""
ROUNDS = 20
"""Rounds of training of the network, after each of which it is validated; the best is kept."""
UPDATES_PER_ROUND = 50
"""Gradient steps per round."""
ROWS = 512
"""Rows per batch."""
LEARNING_RATE = 3e-3
"""Initial learning rate of a cosine schedule."""
LEAST_NOISE = 1e-3
"""Lower bound of the noise of a Gaussian target, relative to its standard deviation."""


class Rows(NamedTuple):
    """Steps of several episodes: features, queries and targets."""

    z: Float[Array, "N F"]
    query: Float[Array, "N Q"]
    target: Float[Array, "N K"]


def fit_head(
    fit: Rows, validation: Rows, likelihood: JointLikelihood, actions: int, hidden_sizes: tuple[int, ...]
) -> Predictor:
    """Fit a head, in the units of the rows; penalty, network and noise are the best on the validation rows.

    It is a ridge regression, plus a network with hidden layers of `hidden_sizes` if that is better.
    """
    context_size = fit.query.shape[1] - actions
    moments = [_moments(fit.z), _moments(fit.query[:, :context_size])]

    def standardized(rows: Rows) -> Rows:
        (z_center, z_scale), (center, scale) = moments
        context = (rows.query[:, :context_size] - center) / scale
        query = jnp.concatenate([context, rows.query[:, context_size:]], axis=-1)
        return Rows((rows.z - z_center) / z_scale, query, rows.target)

    rows, held_out = standardized(fit), standardized(validation)
    build = functools.partial(Predictor, likelihood=likelihood, context_size=context_size, actions=actions)
    candidates = [
        build(ResidualHead(Head(None, MLP([affine])), None))
        for affine in _ridge_path(rows, likelihood, actions, context_size)
    ]
    best = _with_noise(_best_of_each_target(candidates, held_out), held_out)
    if hidden_sizes:
        best = _with_network(best, rows, held_out, hidden_sizes)
        best = _with_noise(best, held_out)
    center, scale = (jnp.concatenate(parts) for parts in zip(*moments, strict=True))
    return eqx.tree_at(lambda p: p.head, best, _in_units(best.head, center, scale))


def _ridge_path(rows: Rows, likelihood: AbstractLikelihood, actions: int, context_size: int) -> list[Affine]:
    """Ridge regressions of the working responses at a constant, one for each penalty.

    From a constant prediction with mean m, one Newton step on the log-likelihood is a least-squares fit of
    the responses `F^+ (target - m)`, with the Fisher information F of the outputs. Actions have a fit each.
    """
    target = np.asarray(rows.target, float)
    count, size = target.shape
    # As if one more target with equal chances had been observed, so that logits are finite.
    mean = (target.sum(axis=0) + np.asarray(likelihood.mean(jnp.zeros(size, rows.target.dtype)))) / (
        count + 1
    )
    constant = likelihood.outputs_of(jnp.asarray(mean, rows.target.dtype))
    root = np.asarray(likelihood.fisher_root(constant), float)
    response = (target - mean) @ np.linalg.pinv(root @ root.T)
    x = np.concatenate([rows.z, rows.query[:, :context_size]], axis=-1).astype(float)
    groups = [np.ones(count, bool)]
    if actions:
        groups = [np.asarray(rows.query[:, context_size + action]) > 0 for action in range(actions)]
    path = []
    for penalty in PENALTIES:
        fits = [_ridge(x[group], response[group], penalty) for group in groups]
        weight = np.concatenate([weight for weight, _ in fits])
        bias = np.concatenate([np.asarray(constant) + bias for _, bias in fits])
        path.append(Affine(jnp.asarray(weight, rows.z.dtype), jnp.asarray(bias, rows.z.dtype)))
    return path


def _ridge(x: np.ndarray, y: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias that minimise `|y - x W^T - b|^2 / N + penalty |W|^2`; zero without rows."""
    if len(x) == 0:
        return np.zeros((y.shape[1], x.shape[1])), np.zeros(y.shape[1])
    center, mean = x.mean(axis=0), y.mean(axis=0)
    deviation = x - center
    gram = deviation.T @ deviation / len(x) + penalty * np.eye(x.shape[1])
    weight = np.linalg.solve(gram, deviation.T @ (y - mean) / len(x)).T
    return weight, mean - weight @ center


def _best_of_each_target(candidates: list[Predictor], rows: Rows) -> Predictor:
    """Affine predictor that has, for each target, the outputs of the candidate with the least deviance."""
    joint = candidates[0].likelihood
    assert isinstance(joint, JointLikelihood)
    deviances = np.array([_deviances(candidate, rows) for candidate in candidates])
    best = np.repeat(np.argmin(deviances, axis=0), [part.size for part in joint.parts])
    # Outputs of the first action, of the second, and so on.
    best = np.tile(best, max(candidates[0].actions, 1))
    layers = [candidate.head.affine.mlp.layers[0] for candidate in candidates]
    weight, bias = (
        jnp.stack([getattr(layers[index], name)[row] for row, index in enumerate(best)])
        for name in ("weight", "bias")
    )
    return eqx.tree_at(lambda p: p.head.affine.mlp.layers[0], candidates[0], Affine(weight, bias))


@eqx.filter_jit
def _deviances(predictor: Predictor, rows: Rows) -> list[Float[Array, ""]]:
    """Mean deviance of each target; entries of a Gaussian one are divided by their variances."""
    joint = predictor.likelihood
    assert isinstance(joint, JointLikelihood)
    outputs, targets = joint.split(predictor(rows.z, rows.query)), joint.split(rows.target)
    deviances = []
    for part, own, target in zip(joint.parts, outputs, targets, strict=True):
        if part.is_gaussian:
            spread = jnp.std(target, axis=0)
            spread = jnp.where(spread > 0, spread, 1)
            own, target = own / spread, target / spread
        deviances.append(jnp.mean(part.deviance(own, target)))
    return deviances


def _with_noise(predictor: Predictor, rows: Rows) -> Predictor:
    """Predictor whose Gaussian targets have the noise of the residuals of these rows."""
    joint = predictor.likelihood
    assert isinstance(joint, JointLikelihood)
    outputs = joint.split(eqx.filter_jit(predictor)(rows.z, rows.query))
    parts = []
    for part, own, target in zip(joint.parts, outputs, joint.split(rows.target), strict=True):
        spread = jnp.std(target, axis=0)
        least = LEAST_NOISE * jnp.where(spread > 0, spread, 1)
        residual = jnp.sqrt(jnp.mean((own - target) ** 2, axis=0))
        parts.append(part.with_noise_stddev(jnp.maximum(residual, least)))
    return eqx.tree_at(lambda p: p.likelihood, predictor, JointLikelihood(joint.names, tuple(parts)))


def _with_network(
    predictor: Predictor, rows: Rows, validation: Rows, hidden_sizes: tuple[int, ...]
) -> Predictor:
    """Predictor with a trained network added, or without one if none is better on the validation rows."""
    inputs = rows.z.shape[1] + predictor.context_size
    outputs = max(predictor.actions, 1) * predictor.likelihood.size
    mlp = MLP.init((inputs, *hidden_sizes, outputs), last_gain=0.0, key=jax.random.key(0))
    mlp = jax.tree.map(lambda leaf: leaf.astype(rows.z.dtype), mlp)
    head = predictor.head
    assert isinstance(head, ResidualHead)
    start = eqx.tree_at(lambda p: p.head, predictor, ResidualHead(head.affine, Head(None, mlp)))
    trained, improved = _train(start, rows, validation)
    return trained if improved else predictor


@eqx.filter_jit
def _train(predictor: Predictor, rows: Rows, validation: Rows) -> tuple[Predictor, Array]:
    """Maximise the likelihood, with its noise fixed.

    Returns the predictor of the best round, and whether it is better than the initial one.
    """
    head, rest = predictor.head, predictor
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, ROUNDS * UPDATES_PER_ROUND))

    def loss(head: Any, rows: Rows) -> Array:
        made = eqx.tree_at(lambda p: p.head, rest, head)
        return -jnp.mean(made.likelihood.log_prob(made(rows.z, rows.query), rows.target))

    def update(carry: Any, index: Array) -> tuple[Any, None]:
        head, state = carry
        key = jax.random.fold_in(jax.random.key(1), index)
        chosen = jax.random.randint(key, (ROWS,), 0, len(rows.z))
        gradient = jax.grad(loss)(head, jax.tree.map(lambda leaf: leaf[chosen], rows))
        updates, state = optimizer.update(gradient, state)
        return (eqx.apply_updates(head, updates), state), None

    def round_of_updates(carry: Any, index: Array) -> tuple[Any, None]:
        head, state, best, least = carry
        indices = index * UPDATES_PER_ROUND + jnp.arange(UPDATES_PER_ROUND)
        (head, state), _ = jax.lax.scan(update, (head, state), indices)
        value = loss(head, validation)
        best = jax.tree.map(lambda new, old: jnp.where(value < least, new, old), head, best)
        return (head, state, best, jnp.minimum(value, least)), None

    first = loss(head, validation)
    start = (head, optimizer.init(head), head, first)
    _, _, best, least = jax.lax.scan(round_of_updates, start, jnp.arange(ROUNDS))[0]
    return eqx.tree_at(lambda p: p.head, rest, best), least < first


def _in_units(head: ResidualHead, center: Array, scale: Array) -> ResidualHead:
    """Head of inputs in their units, from one of standardised inputs."""

    def first_layer(head: Head) -> Head:
        layer = head.mlp.layers[0]
        weight = layer.weight / scale
        assert layer.bias is not None
        return eqx.tree_at(lambda h: h.mlp.layers[0], head, Affine(weight, layer.bias - weight @ center))

    return ResidualHead(first_layer(head.affine), None if head.network is None else first_layer(head.network))


def _moments(x: Float[Array, "N C"]) -> tuple[Array, Array]:
    """Means and standard deviations of columns; 1 for a constant column."""
    scale = jnp.std(x, axis=0)
    return jnp.mean(x, axis=0), jnp.where(scale > 1e-6, scale, 1)
