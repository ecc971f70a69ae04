"""Decoders of ground truth from features, with splits into training, validation and test tasks.

Steps of one task are correlated, so whole tasks are held out, never steps.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Shaped

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


class Split(NamedTuple):
    """Array split into tasks for fitting, validation and test."""

    fit: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_tasks(values: Shaped[np.ndarray, "E ..."]) -> Split:
    """Split along the leading axis: half for fitting, a quarter for validation, a quarter for test."""
    half, three_quarters = len(values) // 2, len(values) - len(values) // 4
    return Split(values[:half], values[half:three_quarters], values[three_quarters:])


class Ridge(NamedTuple):
    """Linear decoder `x @ weight + bias`."""

    weight: Float[np.ndarray, "F K"]
    bias: Float[np.ndarray, " K"]

    def __call__(self, x: Float[np.ndarray, "... F"]) -> Float[np.ndarray, "... K"]:
        return x @ self.weight + self.bias


def fit_ridge(x: Split, y: Split) -> Ridge:
    """Fit a ridge regression, with the penalty that is best on the validation tasks.

    ```python
    decoder = fit_ridge(split_tasks(mean), split_tasks(belief))
    decoder(split_tasks(mean).test)
    ```
    """
    rows, targets = _rows(x.fit), _rows(y.fit)
    center, scale = _moments(rows)
    standard, mean = (rows - center) / scale, targets.mean(axis=0)
    gram, cross = standard.T @ standard / len(rows), standard.T @ (targets - mean) / len(rows)
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
        raw = _apply(self.model, jnp.asarray((x - self.center) / self.scale))
        if self.kind == "exclusive":
            return np.asarray(jax.nn.softmax(raw), float)
        if self.kind == "chances":
            return np.asarray(jax.nn.sigmoid(raw), float)
        return np.asarray(raw, float) * self.spread + self.shift


def fit_network(x: Split, y: Split, kind: Kind, *, hidden_sizes: tuple[int, ...] = HIDDEN_SIZES) -> Decoder:
    """Fit a network by maximum likelihood; keep the round that is best on the validation tasks.

    Without hidden layers, it is linear in the logits.

    ```python
    decoder = fit_network(split_tasks(mean), split_tasks(probabilities), "exclusive")
    ```
    """
    center, scale = _moments(_rows(x.fit))
    shift, spread = _moments(_rows(y.fit)) if kind == "numbers" else (np.zeros(1), np.ones(1))
    sizes = (x.fit.shape[-1], *hidden_sizes, y.fit.shape[-1])
    inputs, held_inputs = (jnp.asarray((_rows(part) - center) / scale) for part in x[:2])
    targets, held_targets = (jnp.asarray((_rows(part) - shift) / spread) for part in y[:2])
    # Small weights in the last layer, so that the first predictions are close to the mean.
    model = MLP.init(sizes, last_gain=0.1, key=jax.random.key(0))
    model = _train(model, (inputs, targets), (held_inputs, held_targets), kind)
    return Decoder(model, center, scale, kind, shift, spread)


@eqx.filter_jit
def _train(model: MLP, rows: tuple[Array, Array], validation: tuple[Array, Array], kind: Kind) -> MLP:
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, ROUNDS * UPDATES_PER_ROUND)
    optimizer = optax.adam(schedule)

    def loss(model: MLP, x: Array, y: Array) -> Array:
        raw = model(x)
        if kind == "exclusive":
            losses = -jnp.sum(y * jax.nn.log_softmax(raw), axis=-1)
        elif kind == "chances":
            losses = jnp.sum(optax.sigmoid_binary_cross_entropy(raw, y), axis=-1)
        else:
            losses = jnp.sum((raw - y) ** 2, axis=-1)
        return jnp.mean(losses)

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
def _apply(model: MLP, x: Array) -> Array:
    return model(x)


def _rows(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, values.shape[-1])


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of columns; 1 for a constant column."""
    scale = rows.std(axis=0)
    return rows.mean(axis=0), np.where(scale > 1e-9, scale, 1.0)
