"""Feed-forward layers: layer normalisation, multilayer perceptrons, embedders and heads."""

import abc
import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.cells import Affine

EPSILON = 1e-6
"""Added to the variance in layer normalisation."""


class LayerNorm(eqx.Module):
    """Layer normalisation over the last axis, with a learned scale and shift."""

    weight: Float[Array, " N"]
    bias: Float[Array, " N"]

    @classmethod
    def init(cls, size: int) -> "LayerNorm":
        """Initialise with unit scale and zero shift."""
        return cls(jnp.ones(size), jnp.zeros(size))

    def __call__(self, x: Float[Array, "*lead N"]) -> Float[Array, "*lead N"]:
        mean, variance = _moments(x)
        return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * self.weight + self.bias


class MLP(eqx.Module):
    """Multilayer perceptron along the last axis, with leaky ReLU between its affine layers."""

    layers: list[Affine]

    @classmethod
    def init(cls, sizes: Sequence[int], *, last_gain: float = 1.0, key: Array) -> "MLP":
        """Initialise normal weights of variance 1/inputs, in the last layer times `last_gain`; biases 0."""
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
        """Apply all layers after the first to the output of the first."""
        for layer in self.layers[1:]:
            x = layer(jax.nn.leaky_relu(x))
        return x


class AbstractEmbedder(eqx.Module):
    """Interface of an embedder of one of the agent's inputs."""

    @property
    @abc.abstractmethod
    def input_size(self) -> int:
        """Length of an input."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "*lead N"]) -> Float[Array, "*lead E"]:
        """Embed inputs."""


class Embedder(AbstractEmbedder):
    """Multilayer perceptron with leaky ReLU after every layer and optional layer normalisation."""

    mlp: MLP
    norm: LayerNorm | None

    @classmethod
    def init(cls, input_size: int, sizes: Sequence[int], *, layer_norm: bool, key: Array) -> "Embedder":
        """Initialise layers of `sizes`."""
        return cls(MLP.init((input_size, *sizes), key=key), LayerNorm.init(sizes[-1]) if layer_norm else None)

    @property
    def input_size(self) -> int:
        return self.mlp.layers[0].weight.shape[1]

    def __call__(self, x: Float[Array, "*lead N"]) -> Float[Array, "*lead E"]:
        embedding = jax.nn.leaky_relu(self.mlp(x))
        return embedding if self.norm is None else self.norm(embedding)


class HeadContext(eqx.Module):
    """Contribution of a context to a head: its product with the first layer, its mean and its variance."""

    projected: Float[Array, "*some M"]
    mean: Float[Array, "*some 1"]
    variance: Float[Array, "*some 1"]


class AbstractHead(eqx.Module):
    """Interface of a head: from samples of the belief, and an optional context, to a prediction."""

    @abc.abstractmethod
    def __call__(
        self, z: Float[Array, "... F"], context: Float[Array, "... C"] | None = None
    ) -> Float[Array, "... M"]:
        """`context` broadcasts against the leading axes of `z`."""


class Head(AbstractHead):
    """Multilayer perceptron on samples of the belief and an optional context."""

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
        """Initialise hidden layers of `sizes` and an affine output layer."""
        norm = LayerNorm.init(input_size) if layer_norm else None
        return cls(norm, MLP.init((input_size, *sizes, output_size), last_gain=last_gain, key=key))

    def __call__(
        self, z: Float[Array, "... F"], context: Float[Array, "... C"] | None = None
    ) -> Float[Array, "... M"]:
        """`context` broadcasts against the leading axes of `z`."""
        return self.apply_with(z, None if context is None else self.project(context))

    def project(self, context: Float[Array, "*some C"]) -> HeadContext:
        """Compute the contribution of `context`, once for all samples of z."""
        weight = self._first_weight()[:, -context.shape[-1] :]
        return HeadContext(context @ weight.T, *_moments(context))

    def apply_with(self, z: Float[Array, "... F"], context: HeadContext | None) -> Float[Array, "... M"]:
        """Apply the head to samples of z, with the contribution of the context; leading axes broadcast."""
        weight = self._first_weight()
        size, total = z.shape[-1], weight.shape[-1]
        out = z @ weight[:, :size].T
        if context is not None:
            out = out + context.projected
        if self.norm is not None:
            mean, variance = _moments(z)
            if context is not None:
                # Variance of the concatenation: within its two parts, and between their means.
                fraction = size / total
                between = fraction * (1 - fraction) * (context.mean - mean) ** 2
                variance = fraction * variance + (1 - fraction) * context.variance + between
            out = out * jax.lax.rsqrt(variance + EPSILON)
        return self.mlp.after_first(out + self._first_bias())

    # First layer of `(z, context)` without concatenating them. Layer normalisation is affine up to the
    # standard deviation s of the row, so it moves into the weights: `W (g (x - m) / s + b) = V x / s + W b`,
    # where V is `W g` minus the mean of each of its rows.

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


class EmbeddedHead(AbstractHead):
    """Head whose context is embedded first."""

    embedder: AbstractEmbedder
    head: AbstractHead

    def __call__(
        self, z: Float[Array, "... F"], context: Float[Array, "... C"] | None = None
    ) -> Float[Array, "... M"]:
        """`context` broadcasts against the leading axes of `z`."""
        return self.head(z, None if context is None else self.embedder(context))


class ResidualHead(AbstractHead):
    """Sum of an affine head and, optionally, a network."""

    affine: Head
    network: Head | None

    def __call__(
        self, z: Float[Array, "... F"], context: Float[Array, "... C"] | None = None
    ) -> Float[Array, "... M"]:
        """`context` broadcasts against the leading axes of `z`."""
        out = self.affine(z, context)
        return out if self.network is None else out + self.network(z, context)


def _moments(x: Array) -> tuple[Array, Array]:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    return mean, jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
