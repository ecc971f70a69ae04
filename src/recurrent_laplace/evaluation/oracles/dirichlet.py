"""What the chances of arms are when they sum to one.

The density of the chances is proportional to `prod p_i^(alpha - 1 + s_i) (1 - p_i)^(f_i)`. Since
`1 - p_i` is the sum of the others, a failure of an arm is a success of another, unseen. Given which,
the belief is a Dirichlet distribution; not knowing which, it is a mixture of them. Particles of
`DirichletOracle` guess which, pull by pull. `importance_mean` and `convolution_mean` are two other ways.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.evaluation.oracles.bandits import AbstractBanditBelief, counted
from recurrent_laplace.evaluation.oracles.base import AbstractOracle
from recurrent_laplace.tasks import DirichletBandit, Step


class DirichletBelief(AbstractBanditBelief):
    """A weighted mixture of Dirichlet(alpha + counts), one for each particle."""

    successes: Float[Array, " A"]
    failures: Float[Array, " A"]
    counts: Float[Array, "K A"]
    """Successes of each arm, those seen and those guessed."""
    log_weights: Float[Array, " K"]
    key: Array
    """For the draws behind `best_arm` and `quantile`, and for the guesses of the next pull."""
    alpha: float = eqx.field(static=True)
    draws: int = eqx.field(static=True)

    def mean(self) -> Float[Array, " A"]:
        urns = self.alpha + self.counts
        return self._weights() @ (urns / jnp.sum(urns, axis=-1, keepdims=True))

    def draw(self, key: Array) -> Float[Array, " A"]:
        return self.sample(key, 1)[0]

    def sample(self, key: Array, count: int) -> Float[Array, "N A"]:
        """Draws from the belief; each particle gives its share of them."""
        key_particle, key_chances = jax.random.split(key)
        particles = _systematic(key_particle, self._weights(), count)
        return jax.random.dirichlet(key_chances, self.alpha + self.counts[particles])

    def quantile(self, level: Float[Array, ""]) -> Float[Array, " A"]:
        return jnp.quantile(self.sample(self.key, self.draws), level, axis=0)

    def best_arm(self) -> Float[Array, " A"]:
        """Of each arm, the probability that it is the best: its share of `draws` draws."""
        best = jnp.argmax(self.sample(self.key, self.draws), axis=-1)
        return jnp.mean(jax.nn.one_hot(best, self.counts.shape[-1]), axis=0)

    def entropy(self) -> Float[Array, ""]:
        """Of which arm is the best. That of the chances themselves has no closed form."""
        return jnp.sum(jax.scipy.special.entr(self.best_arm()))

    def effective_sample_size(self) -> Float[Array, ""]:
        """How many particles of equal weight would be as good."""
        return 1 / jnp.sum(self._weights() ** 2)

    def _weights(self) -> Float[Array, " K"]:
        return jax.nn.softmax(self.log_weights)


class DirichletOracle(AbstractOracle[DirichletBelief]):
    """Sequential importance sampling of what the failures stand for.

    A particle is an urn with `alpha + counts` balls. A success of arm i weighs it by the share of its
    balls i, and adds one; a failure by the share of the others, and adds one of those, drawn. Particles
    are drawn anew when fewer than half of them count.

    Not from Dirichlet(alpha + s) at once, weighed by `prod (1 - p_i)^(f_i)`: those weights leave one
    draw of a thousand when the best arm fails half the time.

    ```python
    oracle = DirichletOracle.of(rl.DirichletBandit(arms=5), test=True, key=jax.random.key(0))
    ```
    """

    arms: int = eqx.field(static=True)
    alpha: float = eqx.field(static=True)
    key: Array
    particles: int = eqx.field(static=True, default=512)
    draws: int = eqx.field(static=True, default=256)
    """Draws behind the probabilities of the best arm, and behind quantiles."""

    @classmethod
    def of(cls, task: DirichletBandit, *, test: bool, key: Array) -> "DirichletOracle":
        """With the prior of the task for training, or for test."""
        return cls(task.arms, task.test_alpha if test else task.train_alpha, key)

    def init(self, observation: Float[Array, " O"]) -> DirichletBelief:
        none = jnp.zeros(self.arms, observation.dtype)
        counts = jnp.zeros((self.particles, self.arms), observation.dtype)
        equal = jnp.zeros(self.particles, observation.dtype)
        return DirichletBelief(none, none, counts, equal, self.key, self.alpha, self.draws)

    def update(
        self, belief: DirichletBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> DirichletBelief:
        del observation
        paid = outcome.reward > 0
        # From the history alone, so that the same history gives the same belief.
        key = jax.random.fold_in(belief.key, 2 * action + paid)
        key_guess, key_resample = jax.random.split(key)
        pulled = jnp.arange(self.arms) == action
        balls = jnp.where(pulled == paid, self.alpha + belief.counts, 0)
        share = jnp.sum(balls, axis=-1) / jnp.sum(self.alpha + belief.counts, axis=-1)
        log_weights = jax.nn.log_softmax(belief.log_weights + jnp.log(share))
        counts = belief.counts + _one_of(key_guess, balls)
        weights = jnp.exp(log_weights)
        few = jnp.sum(weights**2) > 2 / self.particles
        chosen = jnp.where(
            few, _systematic(key_resample, weights, self.particles), jnp.arange(self.particles)
        )
        return DirichletBelief(
            *counted(belief, action, outcome),
            counts=counts[chosen],
            log_weights=jnp.where(few, 0, log_weights),
            key=key,
            alpha=belief.alpha,
            draws=belief.draws,
        )


def _one_of(key: Array, balls: Float[Array, "K A"]) -> Float[Array, "K A"]:
    """One ball of each urn, one-hot."""
    ends = jnp.cumsum(balls, axis=-1)
    at = jax.random.uniform(key, (len(balls), 1), balls.dtype) * ends[:, -1:]
    drawn = jnp.argmax(at < ends, axis=-1)
    return jax.nn.one_hot(drawn, balls.shape[-1], dtype=balls.dtype)


def _systematic(key: Array, weights: Float[Array, " K"], count: int) -> Array:
    """`count` particles, each as often as its weight says, up to rounding."""
    at = (jnp.arange(count) + jax.random.uniform(key, (), weights.dtype)) / count
    return jnp.minimum(jnp.searchsorted(jnp.cumsum(weights), at), len(weights) - 1)


def importance_mean(
    successes: Float[Array, " A"], failures: Float[Array, " A"], alpha: float, *, samples: int, key: Array
) -> tuple[Float[Array, " A"], Float[Array, ""]]:
    """Expected chances by draws from Dirichlet(alpha + s) at once, and the effective sample size."""
    chances = jax.random.dirichlet(key, alpha + jnp.asarray(successes, float), (samples,))
    weights = jax.nn.softmax(jnp.sum(failures * jnp.log1p(-chances), axis=-1))
    return weights @ chances, 1 / jnp.sum(weights**2)


def convolution_mean(
    successes: np.ndarray, failures: np.ndarray, alpha: float, *, cells: int = 1000
) -> np.ndarray:
    """Expected chances by convolving the factors of the density on a grid of [0, 1]. In NumPy.

    A cell's mass is the integral of `p^(alpha - 1 + s)`, which is singular at 0, times `(1 - p)^f` in
    its middle. The error falls with the width of the cells.
    """
    edges, arms = np.linspace(0, 1, cells + 1), len(successes)
    middles = (edges[1:] + edges[:-1]) / 2
    masses = []
    for s, f in zip(successes, failures, strict=True):
        mass = np.diff(edges ** (alpha + s)) * (1 - middles) ** f
        masses.append(mass / mass.max())
    # Middles of cells k_i sum to one where the k_i sum to cells - arms / 2, between two sums if odd.
    sums = {cells - arms // 2, cells - (arms + 1) // 2}
    means = np.zeros(arms)
    for arm, mass in enumerate(masses):
        others = np.ones(1)
        for other in masses[:arm] + masses[arm + 1 :]:
            others = np.convolve(others, other)[:cells]
        others = np.append(others, np.zeros(cells - len(others)))
        joint = np.zeros(cells)
        for total in sums:
            k = np.arange(total + 1)
            joint[k] += mass[k] * others[total - k]
        means[arm] = joint @ middles / joint.sum()
    return means
