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


class Look(eqx.Module):
    """What a head needs of what it sees: its share of the first layer, and the moments of its numbers."""

    projected: Float[Array, "*some M"]
    mean: Float[Array, "*some 1"]
    variance: Float[Array, "*some 1"]


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
        return self.after_look(z, None if seen is None else self.look(seen))

    def look(self, seen: Float[Array, "*some C"]) -> Look:
        """What is needed of `seen`, which is the same for all draws of z: computed once for them."""
        weight = self._first_weight()[:, -seen.shape[-1] :]
        return Look(seen @ weight.T, *_moments(seen))

    def after_look(self, z: Float[Array, "*lead F"], look: Look | None) -> Float[Array, "*lead M"]:
        """The rest, for draws of z."""
        weight = self._first_weight()
        size, of_all = z.shape[-1], weight.shape[-1]
        out = z @ weight[:, :size].T
        if look is not None:
            out = out + look.projected
        if self.norm is not None:
            mean, variance = _moments(z)
            if look is not None:
                share = size / of_all
                apart = share * (1 - share) * (look.mean - mean) ** 2
                variance = share * variance + (1 - share) * look.variance + apart
            out = out * jax.lax.rsqrt(variance + EPSILON)
        return self.mlp.after_first(out + self._first_bias())

    # The first layer of `(z, seen)`, which are never put side by side. Since the norm is affine but for the
    # deviation of the row, it moves into the weights: `W (g (x - m) / s + b) = V x / s + W b`, where V is
    # `W g` less the mean of each of its rows.

    def _first_weight(self) -> Float[Array, "M N"]:
        weight = self.mlp.layers[0].weight
        if self.norm is None:
            return weight
        weight = weight * self.norm.weight
        return weight - jnp.mean(weight, axis=-1, keepdims=True)

    def _first_bias(self) -> Float[Array, " M"]:
        first = self.mlp.layers[0]
        assert first.bias is not None
        return first.bias if self.norm is None else first.bias + first.weight @ self.norm.bias


def _moments(x: Array) -> tuple[Array, Array]:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    return mean, jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
