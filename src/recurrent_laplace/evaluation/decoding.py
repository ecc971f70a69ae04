"""Decoders: fitted on some tasks, chosen on others, judged on the rest.

Steps of one task are alike, so whole tasks are held out, never steps.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from recurrent_laplace.models.mlp import MLP

Kind = Literal["exclusive", "chances", "numbers"]
"""What is decoded: probabilities that sum to one, probabilities each by itself, or any numbers."""

PENALTIES = tuple(10.0**power for power in range(-5, 5))
"""Of a ridge regression on standardised features, per row; the last leaves nothing but the mean."""

HIDDEN_SIZES = (64,)
"""Of the networks that decode."""
ROUNDS = 20
"""How often such a network is tried on the validation tasks while it is trained; the best is kept."""
UPDATES_A_ROUND = 100
ROWS = 512
"""Of a batch."""
LEARNING_RATE = 3e-3


class Split(NamedTuple):
    """An array on the tasks to fit on, to choose by, and to judge on."""

    fit: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_tasks(values: Float[np.ndarray, "E ..."]) -> Split:
    """Half of the tasks to fit on, a quarter to choose by, and a quarter to judge on."""
    half, most = len(values) // 2, len(values) - len(values) // 4
    return Split(values[:half], values[half:most], values[most:])


class Ridge(NamedTuple):
    """A linear decoder: `x @ weight + bias`."""

    weight: Float[np.ndarray, "F K"]
    bias: Float[np.ndarray, " K"]

    def __call__(self, x: Float[np.ndarray, "... F"]) -> Float[np.ndarray, "... K"]:
        return x @ self.weight + self.bias


def fit_ridge(x: Split, y: Split) -> Ridge:
    """Ridge regression on all but the last axes, with the penalty that is best on the validation tasks.

    ```python
    decoder = fit_ridge(split_tasks(mean), split_tasks(belief))
    decoder(split_tasks(mean).test)
    ```
    """
    rows, targets = _rows(x.fit), _rows(y.fit)
    center, scale = _standard(rows)
    standard, middle = (rows - center) / scale, targets.mean(axis=0)
    gram, cross = standard.T @ standard / len(rows), standard.T @ (targets - middle) / len(rows)
    candidates = []
    for penalty in PENALTIES:
        weight = np.linalg.solve(gram + penalty * np.eye(len(gram)), cross) / scale[:, None]
        candidates.append(Ridge(weight, middle - center @ weight))
    return min(candidates, key=lambda one: np.sum((one(x.validation) - y.validation) ** 2))


class Decoder(NamedTuple):
    """A network on standardised features; `numbers` are standardised for it as well."""

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
    """A network from features to targets, trained by their likelihood; the best on the validation tasks.

    Without hidden layers it is linear in the logits.

    ```python
    decoder = fit_network(split_tasks(mean), split_tasks(probabilities), "exclusive")
    ```
    """
    center, scale = _standard(_rows(x.fit))
    shift, spread = _standard(_rows(y.fit)) if kind == "numbers" else (np.zeros(1), np.ones(1))
    sizes = (x.fit.shape[-1], *hidden_sizes, y.fit.shape[-1])
    inputs, held_inputs = (jnp.asarray((_rows(part) - center) / scale) for part in x[:2])
    targets, held_targets = (jnp.asarray((_rows(part) - shift) / spread) for part in y[:2])
    # Small weights in the last layer: the first guess is close to the mean of all.
    model = MLP.init(sizes, last_gain=0.1, key=jax.random.key(0))
    model = _train(model, (inputs, targets), (held_inputs, held_targets), kind)
    return Decoder(model, center, scale, kind, shift, spread)


@eqx.filter_jit
def _train(model: MLP, rows: tuple[Array, Array], held: tuple[Array, Array], kind: Kind) -> MLP:
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, ROUNDS * UPDATES_A_ROUND)
    optimizer = optax.adam(schedule)

    def loss(model: MLP, x: Array, y: Array) -> Array:
        raw = model(x)
        if kind == "exclusive":
            each = -jnp.sum(y * jax.nn.log_softmax(raw), axis=-1)
        elif kind == "chances":
            each = jnp.sum(optax.sigmoid_binary_cross_entropy(raw, y), axis=-1)
        else:
            each = jnp.sum((raw - y) ** 2, axis=-1)
        return jnp.mean(each)

    def update(now: Any, index: Array) -> tuple[Any, None]:
        model, state = now
        chosen = jax.random.randint(jax.random.fold_in(jax.random.key(1), index), (ROWS,), 0, len(rows[0]))
        gradient = jax.grad(loss)(model, rows[0][chosen], rows[1][chosen])
        updates, state = optimizer.update(gradient, state)
        return (eqx.apply_updates(model, updates), state), None

    def round_of_updates(now: Any, index: Array) -> tuple[Any, None]:
        model, state, best, least = now
        numbers = index * UPDATES_A_ROUND + jnp.arange(UPDATES_A_ROUND)
        (model, state), _ = jax.lax.scan(update, (model, state), numbers)
        value = loss(model, *held)
        best = jax.tree.map(lambda new, old: jnp.where(value < least, new, old), model, best)
        return (model, state, best, jnp.minimum(value, least)), None

    start = (model, optimizer.init(model), model, loss(model, *held))  # pyright: ignore[reportArgumentType]
    return jax.lax.scan(round_of_updates, start, jnp.arange(ROUNDS))[0][2]


@eqx.filter_jit
def _apply(model: MLP, x: Array) -> Array:
    return model(x)


def _rows(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, values.shape[-1])


def _standard(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of columns; 1 for a column that is constant."""
    scale = rows.std(axis=0)
    return rows.mean(axis=0), np.where(scale > 1e-9, scale, 1.0)
