"""Layers between the recurrent parts."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.cells import Affine

EPSILON = 1e-6


class LayerNorm(eqx.Module):
    """Zero mean and unit variance over the last axis, then a learned scale and shift."""

    weight: Float[Array, " N"]
    bias: Float[Array, " N"]

    @classmethod
    def init(cls, size: int) -> "LayerNorm":
        """The identity scale."""
        return cls(jnp.ones(size), jnp.zeros(size))

    def __call__(self, x: Float[Array, "*lead N"]) -> Float[Array, "*lead N"]:
        mean, variance = _moments(x)
        return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * self.weight + self.bias


class MLP(eqx.Module):
    """Affine layers with leaky-ReLU between them, acting on the last axis of any array."""

    layers: list[Affine]

    @classmethod
    def init(cls, sizes: Sequence[int], *, last_gain: float = 1.0, key: Array) -> "MLP":
        """Weights normal with variance 1/inputs, the last layer's times `last_gain` squared; biases 0."""
        keys = jax.random.split(key, len(sizes) - 1)
        layers = []
        for k, (inputs, outputs) in zip(keys, itertools.pairwise(sizes), strict=True):
            gain = last_gain if len(layers) == len(sizes) - 2 else 1.0
            weight = gain * inputs**-0.5 * jax.random.normal(k, (outputs, inputs))
            layers.append(Affine(weight, jnp.zeros(outputs)))
        return cls(layers)

    def __call__(self, x: Float[Array, "*lead N"]) -> Float[Array, "*lead M"]:
        return self.after_first(self.layers[0](x))

    def after_first(self, x: Float[Array, "*lead N"]) -> Float[Array, "*lead M"]:
        """All but the first layer, on that layer's output."""
        for layer in self.layers[1:]:
            x = layer(jax.nn.leaky_relu(x))
        return x


class Embedder(eqx.Module):
    """What the memory gets to see of one of its inputs."""

    mlp: MLP
    norm: LayerNorm | None

    @classmethod
    def init(cls, input_size: int, sizes: Sequence[int], *, layer_norm: bool, key: Array) -> "Embedder":
        """Every layer is followed by a leaky-ReLU, then by the norm if there is one."""
        return cls(MLP.init((input_size, *sizes), key=key), LayerNorm.init(sizes[-1]) if layer_norm else None)

    def __call__(self, x: Float[Array, "*lead N"]) -> Float[Array, "*lead E"]:
        embedding = jax.nn.leaky_relu(self.mlp(x))
        return embedding if self.norm is None else self.norm(embedding)


class Head(eqx.Module):
    """From draws of the belief, and what else it sees, to a prediction."""

    norm: LayerNorm | None
    mlp: MLP

    @classmethod
    def init(
        cls,
        input_size: int,
        sizes: Sequence[int],
        output_size: int,
        *,
        layer_norm: bool,
        last_gain: float = 1.0,
        key: Array,
    ) -> "Head":
        """Hidden layers of `sizes`, and an affine last one."""
        norm = LayerNorm.init(input_size) if layer_norm else None
        return cls(norm, MLP.init((input_size, *sizes, output_size), last_gain=last_gain, key=key))

    def __call__(
        self, z: Float[Array, "*lead F"], seen: Float[Array, "*some C"] | None = None
    ) -> Float[Array, "*lead M"]:
        """`seen` broadcasts against the leading axes of `z`."""
        return self.mlp.after_first(self._first(z, seen))

    def _first(self, z: Array, seen: Array | None) -> Array:
        """The first layer of the normalised `(z, seen)`, which are never put side by side.

        What is seen is the same for all draws of z, so its share is computed once; and since the norm is
        affine but for the row's deviation, it moves into the weights:
        `W (g (x - m) / s + b) = V x / s + W b`, where V is `W g` less the mean of each of its rows.
        """
        first = self.mlp.layers[0]
        weight, bias = first.weight, first.bias
        assert bias is not None
        if self.norm is not None:
            weight, bias = weight * self.norm.weight, bias + weight @ self.norm.bias
            weight = weight - jnp.mean(weight, axis=-1, keepdims=True)
        size = z.shape[-1]
        out = z @ weight[:, :size].T
        if seen is not None:
            out = out + seen @ weight[:, size:].T
        if self.norm is not None:
            out = out * jax.lax.rsqrt(_joint_variance(z, seen) + EPSILON)
        return out + bias


def _joint_variance(z: Array, seen: Array | None) -> Array:
    """Variance of the rows of `(z, seen)`, of shape `(*lead, 1)`."""
    mean, variance = _moments(z)
    if seen is None:
        return variance
    seen_mean, seen_variance = _moments(seen)
    share = z.shape[-1] / (z.shape[-1] + seen.shape[-1])
    return share * variance + (1 - share) * seen_variance + share * (1 - share) * (seen_mean - mean) ** 2


def _moments(x: Array) -> tuple[Array, Array]:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    return mean, jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
