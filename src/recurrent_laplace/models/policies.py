"""Distributions of actions, and the families of them that a policy head parametrises."""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recurrent_laplace.gaussians.base import LOG_2PI
from recurrent_laplace.models.layers import Head

if TYPE_CHECKING:
    from recurrent_laplace.models.actions import Box, Discrete

POLICY_GAIN = 0.01
"""Gain of the last policy layer at initialisation: the policy is close to uniform, or to the centre."""
INITIAL_STDDEV = 0.5
"""Initial standard deviation of a Gaussian policy, in half ranges of the action."""
LOG_STDDEVS = (-5.0, 2.0)
"""Limits of the logarithm of a Gaussian policy's standard deviation."""
QUADRATURE_NODES = 64
"""Nodes of the Gauss-Hermite quadrature in the entropy of a squashed Gaussian."""
ENTROPY_POINTS = 16
"""Points per component at which the entropy of a mixture of Gaussians is estimated."""

Averaging = Literal["average", "mixture"]
"""Policy of several samples of the belief: averaged parameters, or the mixture."""


class AbstractPolicy(eqx.Module):
    """Interface of a distribution of actions, with any leading axes.

    A policy chooses; what the environment receives is `family.action(choice)`, after squashing and clipping.
    Actions are the choices themselves if they are discrete.

    ```python
    policy = rl.Categorical(jnp.zeros(4))
    policy.log_prob(policy.mode())  # -log(4)
    ```
    """

    has_kl: ClassVar[bool]
    """Whether the KL divergence from another policy of the family has a closed form."""

    @abc.abstractmethod
    def log_prob(self, choice: Array) -> Float[Array, "*lead"]:
        """Log-probability of choices, or the log-density of their actions."""

    @abc.abstractmethod
    def entropy(self) -> Float[Array, "*lead"]:
        """Entropy of the action in nats."""

    @abc.abstractmethod
    def sample(self, noise: Any) -> Array:
        """Choice of one policy, a deterministic function of the `noise` of its family."""

    @abc.abstractmethod
    def mode(self) -> Array:
        """Choice of a greedy agent."""

    @abc.abstractmethod
    def kl_parts(self, other: Any) -> tuple[Float[Array, "*lead"], ...]:
        """Terms of `KL(self || other)` in nats, one for each constraint of a learner; see `kl_names`."""


class Categorical(AbstractPolicy):
    """Distribution of a discrete action.

    **Arguments:** `logits` of the actions, of shape `(*leading, A)`.

    ```python
    rl.Categorical(jnp.zeros(4)).entropy()  # log(4)
    ```
    """

    logits: Float[Array, "*lead A"]
    has_kl: ClassVar[bool] = True

    def log_prob(self, choice: Int[Array, "*lead"]) -> Float[Array, "*lead"]:
        log_probs = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_probs, choice[..., None], axis=-1)[..., 0]

    def entropy(self) -> Float[Array, "*lead"]:
        log_probs = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

    def sample(self, noise: Float[Array, " A"]) -> Int[Array, ""]:
        # Gumbel-max: the argmax of noisy logits is a sample of the policy.
        return jnp.argmax(self.logits + noise)

    def mode(self) -> Int[Array, "*lead"]:
        return jnp.argmax(self.logits, axis=-1)

    def kl_parts(self, other: "Categorical") -> tuple[Float[Array, "*lead"]]:
        log_probs, others = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return (jnp.sum(jnp.exp(log_probs) * (log_probs - others), axis=-1),)


class GaussianNoise(NamedTuple):
    """Noise of a Gaussian policy: standard normal numbers, and a uniform one that selects a component."""

    normal: Float[Array, " A"]
    uniform: Float[Array, ""]


class GaussianPolicy(AbstractPolicy):
    """Distribution of a continuous action: a Gaussian with independent entries, squashed by tanh or clipped.

    Means, standard deviations and choices are in half ranges from the centre of the action space. Log-density
    and entropy are those of the action in its own units: of the clipped one, before it is clipped.

    **Arguments:** `mean` and `log_stddev`, of shape `(*leading, A)`, and their `family`.

    ```python
    family = rl.Box(low=(-2.0,), high=(2.0,)).family(rl.AgentConfig())
    policy = rl.GaussianPolicy(jnp.zeros(1), jnp.zeros(1), family)
    policy.log_prob(family.choice(jnp.array([1.0])))  # log N(1; 0, 2^2)
    ```
    """

    mean: Float[Array, "*lead A"]
    log_stddev: Float[Array, "*lead A"]
    family: "GaussianFamily" = eqx.field(static=True)
    has_kl: ClassVar[bool] = True

    def log_prob(self, choice: Float[Array, "*some A"]) -> Float[Array, "*lead"]:
        distance = (choice - self.mean) * jnp.exp(-self.log_stddev)
        log_density = -0.5 * (distance**2 + LOG_2PI) - self.log_stddev
        return jnp.sum(log_density - self.family.log_slope(choice), axis=-1)

    def entropy(self) -> Float[Array, "*lead"]:
        """Entropy in nats: in closed form, or by Gauss-Hermite quadrature if the Gaussian is squashed."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        nodes, weights = (jnp.asarray(each, self.mean.dtype) for each in (nodes, weights / weights.sum()))
        points = self.mean[..., None, :] + jnp.exp(self.log_stddev)[..., None, :] * nodes[:, None]
        slope = jnp.einsum("...ka,k->...a", self.family.log_slope(points), weights)
        return jnp.sum(self.log_stddev + 0.5 * (1 + LOG_2PI) + slope, axis=-1)

    def sample(self, noise: GaussianNoise) -> Float[Array, " A"]:
        return self.mean + jnp.exp(self.log_stddev) * noise.normal

    def mode(self) -> Float[Array, "*lead A"]:
        """Choice of the mean: the median of a squashed action."""
        return self.mean

    def kl_parts(self, other: "GaussianPolicy") -> tuple[Float[Array, "*lead"], Float[Array, "*lead"]]:
        """Contributions of the means, under the covariance of `self`, and of the standard deviations.

        They are the two constraints of MPO and V-MPO; their sum is the KL divergence if either the means or
        the standard deviations agree. Squashing changes no KL divergence.
        """
        distance = (other.mean - self.mean) * jnp.exp(-self.log_stddev)
        log_ratio = self.log_stddev - other.log_stddev
        of_stddev = 0.5 * (jnp.exp(2 * log_ratio) - 1) - log_ratio
        return 0.5 * jnp.sum(distance**2, axis=-1), jnp.sum(of_stddev, axis=-1)


class GaussianMixture(AbstractPolicy):
    """Equal mixture of Gaussian policies, whose leading axes end with one of S components.

    The log-density is exact. The entropy has no closed form: it is the mean of the negative log-density at
    the same `ENTROPY_POINTS` normal points of each component every time.

    **Arguments:** `components`, an `rl.GaussianPolicy` of shapes `(*leading, S, A)`.

    ```python
    family = rl.Box(low=(-2.0,), high=(2.0,)).family(rl.AgentConfig())
    mixture = rl.GaussianMixture(rl.GaussianPolicy(jnp.array([[-1.0], [1.0]]), jnp.zeros((2, 1)), family))
    mixture.log_prob(jnp.zeros(1))
    ```
    """

    components: GaussianPolicy
    has_kl: ClassVar[bool] = False

    def log_prob(self, choice: Float[Array, "*lead A"]) -> Float[Array, "*lead"]:
        log_densities = self.components.log_prob(choice[..., None, :])
        return jax.nn.logsumexp(log_densities, axis=-1) - math.log(log_densities.shape[-1])

    def entropy(self) -> Float[Array, "*lead"]:
        mean, stddev = self.components.mean, jnp.exp(self.components.log_stddev)
        half = jax.random.normal(jax.random.key(0), (ENTROPY_POINTS // 2, mean.shape[-1]), mean.dtype)
        # With unit second moments, so that a mixture of equal components has the entropy of one.
        half = half / jnp.sqrt(jnp.mean(half**2, axis=0))
        noise = jnp.concatenate([half, -half])
        points = mean[..., None, :] + stddev[..., None, :] * noise
        at_points = jax.tree.map(lambda leaf: leaf[..., None, None, :, :], self)
        return -jnp.mean(at_points.log_prob(points), axis=(-2, -1))

    def sample(self, noise: GaussianNoise) -> Float[Array, " A"]:
        count = self.components.mean.shape[-2]
        # A uniform number that rounding has taken to 1 selects the last component.
        index = jnp.minimum((count * noise.uniform).astype(int), count - 1)
        return jax.tree.map(lambda leaf: leaf[index], self.components).sample(noise)

    def mode(self) -> Float[Array, "*lead A"]:
        """Mean of the components' means."""
        return jnp.mean(self.components.mean, axis=-2)

    def kl_parts(self, other: Any) -> tuple[Float[Array, "*lead"], ...]:
        raise ValueError("the KL divergence between mixtures of Gaussians has no closed form.")


class GaussianHead(eqx.Module):
    """Policy head of a Gaussian: its mean, and the logarithm of its standard deviation.

    **Arguments:** `head`, with outputs for the mean, and as many for the standard deviation if `log_stddev`
    is None; `log_stddev`, learned and the same for all inputs.
    """

    head: Head
    log_stddev: Float[Array, " A"] | None

    def __call__(
        self, z: Float[Array, "... F"], context: Float[Array, "... C"] | None = None
    ) -> tuple[Float[Array, "... A"], Float[Array, "... A"]]:
        """`context` broadcasts against the leading axes of `z`."""
        outputs = self.head(z, context)
        if self.log_stddev is None:
            mean, change = jnp.split(outputs, 2, axis=-1)
            log_stddev = math.log(INITIAL_STDDEV) + change
        else:
            mean, log_stddev = outputs, jnp.broadcast_to(self.log_stddev, outputs.shape)
        return mean, jnp.clip(log_stddev, *LOG_STDDEVS)


@dataclasses.dataclass(frozen=True)
class AbstractPolicyFamily(abc.ABC):
    """Interface of a family of policies: its head, and how its choices become actions."""

    space: Any
    kl_names: ClassVar[tuple[str, ...]]
    """Names of the terms of `kl_parts`, for metrics."""

    @abc.abstractmethod
    def make_head(self, make: Callable[[int, float], Head]) -> Any:
        """Initialise a policy head; `make(outputs, last_gain)` initialises its network."""

    @abc.abstractmethod
    def network(self, head: Any) -> Head:
        """Network of a policy head."""

    @abc.abstractmethod
    def policy(self, outputs: Any, averaging: Averaging) -> AbstractPolicy:
        """Policy of the outputs of a head, whose first axis is one of samples of the belief."""

    @abc.abstractmethod
    def noise(self, key: Array, dtype: Any) -> Any:
        """Noise of one choice."""

    @abc.abstractmethod
    def action(self, choice: Array) -> Array:
        """Action that the environment receives."""


@dataclasses.dataclass(frozen=True)
class CategoricalFamily(AbstractPolicyFamily):
    """Family of categorical policies: the outputs of the head are logits."""

    space: "Discrete"
    kl_names: ClassVar[tuple[str, ...]] = ("policy_kl",)

    def make_head(self, make: Callable[[int, float], Head]) -> Head:
        return make(self.space.count, POLICY_GAIN)

    def network(self, head: Head) -> Head:
        return head

    def policy(self, outputs: Float[Array, "S *lead A"], averaging: Averaging) -> Categorical:
        if averaging == "mixture":
            log_probs = jax.nn.logsumexp(jax.nn.log_softmax(outputs), axis=0)
            return Categorical(log_probs - jnp.log(outputs.shape[0]))
        return Categorical(jnp.mean(outputs, axis=0))

    def noise(self, key: Array, dtype: Any) -> Float[Array, " A"]:
        return jax.random.gumbel(key, (self.space.count,), dtype)

    def action(self, choice: Int[Array, "*lead"]) -> Int[Array, "*lead"]:
        return choice


@dataclasses.dataclass(frozen=True)
class GaussianFamily(AbstractPolicyFamily):
    """Family of Gaussian policies in a `Box`, squashed by tanh or clipped at its bounds."""

    space: "Box"
    squashed: bool = False
    state_dependent: bool = False
    """Whether the standard deviation is an output of the head, not one parameter per entry."""
    kl_names: ClassVar[tuple[str, ...]] = ("policy_mean_kl", "policy_stddev_kl")

    def make_head(self, make: Callable[[int, float], Head]) -> GaussianHead:
        if self.state_dependent:
            return GaussianHead(make(2 * self.space.size, POLICY_GAIN), None)
        head = make(self.space.size, POLICY_GAIN)
        return GaussianHead(head, jnp.full(self.space.size, math.log(INITIAL_STDDEV)))

    def network(self, head: GaussianHead) -> Head:
        return head.head

    def policy(
        self, outputs: tuple[Float[Array, "S *lead A"], Float[Array, "S *lead A"]], averaging: Averaging
    ) -> GaussianPolicy | GaussianMixture:
        """Averages are those of the paper: of the means, and of the variances."""
        mean, log_stddev = outputs
        if averaging == "mixture":
            components = GaussianPolicy(jnp.moveaxis(mean, 0, -2), jnp.moveaxis(log_stddev, 0, -2), self)
            return GaussianMixture(components)
        log_variance = jax.nn.logsumexp(2 * log_stddev, axis=0) - math.log(len(log_stddev))
        return GaussianPolicy(jnp.mean(mean, axis=0), 0.5 * log_variance, self)

    def noise(self, key: Array, dtype: Any) -> GaussianNoise:
        key_normal, key_uniform = jax.random.split(key)
        normal = jax.random.normal(key_normal, (self.space.size,), dtype)
        return GaussianNoise(normal, jax.random.uniform(key_uniform, (), dtype))

    def action(self, choice: Float[Array, "*lead A"]) -> Float[Array, "*lead A"]:
        return self.space.denormalize(jnp.tanh(choice) if self.squashed else choice)

    def choice(self, action: Float[Array, "*lead A"]) -> Float[Array, "*lead A"]:
        """Choice that becomes an action within the bounds; infinite for a squashed action at a bound."""
        normalized = self.space.normalize(action)
        return jnp.arctanh(normalized) if self.squashed else normalized

    def log_slope(self, choice: Float[Array, "*lead A"]) -> Float[Array, "*lead A"]:
        """Logarithm of the derivative of each entry of the action by that of the choice, before clipping."""
        log_scale = jnp.broadcast_to(jnp.log(self.space.scale(choice.dtype)), choice.shape)
        if not self.squashed:
            return log_scale
        # log(1 - tanh(u)^2), which is finite for every u in this form.
        return log_scale + 2 * (math.log(2) - choice - jax.nn.softplus(-2 * choice))
