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
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + EPSILON) * self.weight + self.bias


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
        for layer in self.layers[:-1]:
            x = jax.nn.leaky_relu(layer(x))
        return self.layers[-1](x)


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
        if seen is not None:
            z = jnp.concatenate([z, jnp.broadcast_to(seen, (*z.shape[:-1], seen.shape[-1]))], axis=-1)
        return self.mlp(z if self.norm is None else self.norm(z))
