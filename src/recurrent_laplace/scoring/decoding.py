"""Decoders of ground truth from features, with splits into training, validation and test tasks.

Steps of one task are correlated, so whole tasks are held out, never steps.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Shaped

from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.models.layers import MLP

Kind = Literal["exclusive", "chances", "numbers"]
"""Kind of target: probabilities that sum to one, separate probabilities, or real numbers."""

PENALTIES = tuple(10.0**power for power in range(-5, 5))
"""Ridge penalties per row, for standardised features; the largest leaves only the mean."""

HIDDEN_SIZES = (64,)
"""Sizes of the hidden layers of a decoder network."""
ROUNDS = 20
"""Rounds of training, after each of which the network is validated; the best is kept."""
UPDATES_PER_ROUND = 100
"""Gradient steps per round."""
ROWS = 512
"""Rows per batch."""
LEARNING_RATE = 3e-3
"""Initial learning rate of a cosine schedule."""
NOISE_PENALTY = 0.01
"""Weight of the variance over samples in fits to beliefs, so that coordinates that tell nothing about the
target are ignored."""


JUDGED_SAMPLES = 64
"""Samples of a belief whose decoded numbers have its moments."""
LINEAR_MARGIN = 0.05
"""Fraction of the variance that a network must explain beyond a linear decoder to replace it."""


class Split(NamedTuple):
    """Array split into tasks for fitting, validation and test."""

    fit: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_tasks(values: Shaped[np.ndarray, "E ..."]) -> Split:
    """Split along the leading axis: half for fitting, a quarter for validation, a quarter for test."""
    half, three_quarters = len(values) // 2, len(values) - len(values) // 4
    return Split(values[:half], values[half:three_quarters], values[three_quarters:])


class Moments(NamedTuple):
    """Mean and variance of each decoded number under a belief."""

    mean: Float[Array | np.ndarray, "*lead K"]
    variance: Float[Array | np.ndarray, "*lead K"]


class Ridge(NamedTuple):
    """Linear decoder `x @ weight + bias`."""

    weight: Float[np.ndarray, "F K"]
    bias: Float[np.ndarray, " K"]

    def __call__(self, x: Float[np.ndarray, "... F"]) -> Float[np.ndarray, "... K"]:
        return x @ self.weight + self.bias

    def moments(self, beliefs: AbstractBelief, *, key: Array) -> Moments:
        """Moments of what beliefs decode to, in closed form; `key` is not used."""
        del key
        weight = jnp.asarray(self.weight)
        return Moments(beliefs.mean @ weight + self.bias, projected_variance(beliefs, weight))


def projected_variance(beliefs: AbstractBelief, weight: Float[Array, "F P"]) -> Float[Array, "*lead P"]:
    """Variances of `z @ weight` under beliefs over z."""
    covariance = beliefs.covariance()
    if covariance.ndim == beliefs.mean.ndim:
        return covariance @ weight**2
    return jnp.einsum("fp,...fg,gp->...p", weight, covariance, weight)


def fit_ridge(x: Split, y: Split, *, noise: Float[np.ndarray, " F"] | float = 0.0) -> Ridge:
    """Fit a ridge regression, with the penalty that is best on the validation tasks.

    If `x` are means of beliefs, `noise` is the average variance of each coordinate, with a small penalty.

    ```python
    decoder = fit_ridge(split_tasks(mean), split_tasks(belief))
    decoder(split_tasks(mean).test)
    ```
    """
    rows, targets = _rows(x.fit), _rows(y.fit)
    center, scale = _moments(rows)
    standard, mean = (rows - center) / scale, targets.mean(axis=0)
    gram, cross = standard.T @ standard / len(rows), standard.T @ (targets - mean) / len(rows)
    gram = gram + np.diag(NOISE_PENALTY * np.broadcast_to(noise, scale.shape) / scale**2)
    candidates = []
    for penalty in PENALTIES:
        weight = np.linalg.solve(gram + penalty * np.eye(len(gram)), cross) / scale[:, None]
        candidates.append(Ridge(weight, mean - center @ weight))
    return min(candidates, key=lambda ridge: np.sum((ridge(x.validation) - y.validation) ** 2))


class Decoder(NamedTuple):
    """Decoder network on standardised features; targets of kind `numbers` are standardised too."""

    model: MLP
    center: np.ndarray
    scale: np.ndarray
    kind: Kind
    shift: np.ndarray
    spread: np.ndarray

    def __call__(self, x: Float[np.ndarray, "... F"]) -> Float[np.ndarray, "... K"]:
        return np.asarray(_decode(self, jnp.asarray(x)), float)

    def decode(self, x: Float[Array, "... F"]) -> Float[Array, "... K"]:
        """Decode traced features."""
        raw = self.model((x - self.center) / self.scale)
        if self.kind == "exclusive":
            return jax.nn.softmax(raw)
        if self.kind == "chances":
            return jax.nn.sigmoid(raw)
        return raw * self.spread + self.shift

    def moments(self, beliefs: AbstractBelief, *, key: Array) -> Moments:
        """Moments of what beliefs decode to, from samples."""
        decoded = self.decode(beliefs.sample(key, (JUDGED_SAMPLES,)))
        return Moments(jnp.mean(decoded, axis=0), jnp.var(decoded, axis=0, ddof=1))


def fit_network(x: Split, y: Split, kind: Kind, *, hidden_sizes: tuple[int, ...] = HIDDEN_SIZES) -> Decoder:
    """Fit a network by maximum likelihood; keep the round that is best on the validation tasks.

    Without hidden layers, it is linear in the logits.

    ```python
    decoder = fit_network(split_tasks(mean), split_tasks(probabilities), "exclusive")
    ```
    """
    return _fit(x, y, kind, hidden_sizes, _LOSSES[kind])


def fit_sample_network(x: Split, y: Split) -> Decoder:
    """Fit a network from samples of beliefs, `(E, T, S, F)`, to numbers, by the mean of its outputs.

    Minimises an unbiased estimate of the squared error of the expected output under each belief,
    `(y - E[f(z)])^2`, so that the spread of the outputs has no part in the fit: it is the belief's own, and
    zero for a point. With a linear network it is the fit from the mean of each belief.

    ```python
    samples = np.random.default_rng(0).normal(parameters[:, :, None], 0.1, (64, 5, 8, 2))
    decoder = fit_sample_network(split_tasks(samples), split_tasks(parameters))
    ```
    """
    return _fit(x, y, "numbers", HIDDEN_SIZES, _error_of_mean)


def fit_beliefs(mean: Split, samples: Split, y: Split) -> Ridge | Decoder:
    """Fit a decoder of beliefs to numbers: linear, unless a network explains more of their variance.

    Both are fitted by their mean under each belief, so that neither can create a spread: that of a point is
    zero. The network is fitted to `samples`, `(E, T, S, F)`; those of the test tasks are not needed.

    ```python
    decoder = fit_beliefs(split_tasks(beliefs.mean), split_tasks(samples), split_tasks(parameters))
    decoder.moments(beliefs, key=jax.random.key(0))
    ```
    """
    linear = fit_ridge(mean, y, noise=samples.fit.var(axis=2, ddof=1).mean(axis=(0, 1)))
    network = fit_sample_network(samples, y)
    guesses = linear(mean.validation), network(samples.validation).mean(axis=2)
    of_linear, of_network = (np.sum((y.validation - guess) ** 2) for guess in guesses)
    total = np.sum((y.validation - y.fit.mean(axis=(0, 1))) ** 2)
    return network if of_network < of_linear - LINEAR_MARGIN * total else linear


def _fit(
    x: Split, y: Split, kind: Kind, hidden_sizes: tuple[int, ...], loss: Callable[[Array, Array], Array]
) -> Decoder:
    center, scale = _moments(x.fit.reshape(-1, x.fit.shape[-1]))
    shift, spread = _moments(_rows(y.fit)) if kind == "numbers" else (np.zeros(1), np.ones(1))
    sizes = (x.fit.shape[-1], *hidden_sizes, y.fit.shape[-1])
    inputs, held_inputs = (jnp.asarray((_rows(part) - center) / scale) for part in x[:2])
    targets, held_targets = (jnp.asarray((_rows(part) - shift) / spread) for part in y[:2])
    # Small weights in the last layer, so that the first predictions are close to the mean.
    model = MLP.init(sizes, last_gain=0.1, key=jax.random.key(0))
    model = _train(model, (inputs, targets), (held_inputs, held_targets), loss)
    return Decoder(model, center, scale, kind, shift, spread)


def _squared_error(raw: Array, y: Array) -> Array:
    return jnp.sum((raw - y) ** 2, axis=-1)


def _error_of_mean(raw: Float[Array, "N S K"], y: Float[Array, "N K"]) -> Float[Array, " N"]:
    """Squared error of the mean over samples, without its variance, which falls with their number."""
    samples = raw.shape[1]
    variance = jnp.var(raw, axis=1, ddof=1)
    error = (jnp.mean(raw, axis=1) - y) ** 2 - variance / samples
    return jnp.sum(error + NOISE_PENALTY * variance, axis=-1)


_LOSSES: dict[Kind, Callable[[Array, Array], Array]] = {
    "exclusive": lambda raw, y: -jnp.sum(y * jax.nn.log_softmax(raw), axis=-1),
    "chances": lambda raw, y: jnp.sum(optax.sigmoid_binary_cross_entropy(raw, y), axis=-1),
    "numbers": _squared_error,
}


@eqx.filter_jit
def _train(
    model: MLP,
    rows: tuple[Array, Array],
    validation: tuple[Array, Array],
    row_loss: Callable[[Array, Array], Array],
) -> MLP:
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, ROUNDS * UPDATES_PER_ROUND)
    optimizer = optax.adam(schedule)

    def loss(model: MLP, x: Array, y: Array) -> Array:
        return jnp.mean(row_loss(model(x), y))

    def update(carry: Any, index: Array) -> tuple[Any, None]:
        model, state = carry
        chosen = jax.random.randint(jax.random.fold_in(jax.random.key(1), index), (ROWS,), 0, len(rows[0]))
        gradient = jax.grad(loss)(model, rows[0][chosen], rows[1][chosen])
        updates, state = optimizer.update(gradient, state)
        return (eqx.apply_updates(model, updates), state), None

    def round_of_updates(carry: Any, index: Array) -> tuple[Any, None]:
        model, state, best, least = carry
        indices = index * UPDATES_PER_ROUND + jnp.arange(UPDATES_PER_ROUND)
        (model, state), _ = jax.lax.scan(update, (model, state), indices)
        value = loss(model, *validation)
        best = jax.tree.map(lambda new, old: jnp.where(value < least, new, old), model, best)
        return (model, state, best, jnp.minimum(value, least)), None

    start = (model, optimizer.init(model), model, loss(model, *validation))  # pyright: ignore[reportArgumentType]
    return jax.lax.scan(round_of_updates, start, jnp.arange(ROUNDS))[0][2]


@eqx.filter_jit
def _decode(decoder: Decoder, x: Array) -> Array:
    return decoder.decode(x)


def _rows(values: np.ndarray) -> np.ndarray:
    """Steps of all tasks along one axis."""
    return values.reshape(-1, *values.shape[2:])


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of columns; 1 for a constant column."""
    scale = rows.std(axis=0)
    return rows.mean(axis=0), np.where(scale > 1e-9, scale, 1.0)
