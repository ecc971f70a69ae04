"""Exact beliefs of bandits with a Dirichlet prior, by sequential Monte Carlo.

The posterior density is proportional to `prod p_i^(alpha - 1 + s_i) (1 - p_i)^(f_i)`, whose moments have no
simple closed form. `DirichletOracle` updates particles after each pull. `importance_mean` and
`convolution_mean` are two other methods, for one history at a time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from recurrent_laplace.oracles.bandits import AbstractBanditBelief, AbstractBanditOracle, updated_counts
from recurrent_laplace.tasks import DirichletBandit, Step, register_support
from recurrent_laplace.tasks.support import EXACT

MOVES = 2
"""Metropolis steps of each particle after each pull."""


class DirichletBelief(AbstractBanditBelief):
    """Posterior over success probabilities, as weighted particles."""

    successes: Float[Array, " A"]
    failures: Float[Array, " A"]
    log_chances: Float[Array, "K A"]
    """Log success probabilities of each particle, since most probabilities are tiny."""
    log_weights: Float[Array, " K"]
    key: Array
    """Key for the update after the next pull."""

    def mean(self) -> Float[Array, " A"]:
        return self._weights() @ jnp.exp(self.log_chances)

    def variance(self) -> Float[Array, " A"]:
        return self._weights() @ (jnp.exp(self.log_chances) - self.mean()) ** 2

    def sample(self, key: Array) -> Float[Array, " A"]:
        return jnp.exp(self.log_chances[jax.random.categorical(key, self.log_weights)])

    def quantile(self, level: Float[Array, ""] | float) -> Float[Array, " A"]:
        order = jnp.argsort(self.log_chances, axis=0)
        below = jnp.sum(jnp.cumsum(self._weights()[order], axis=0) < level, axis=0)
        at = jnp.take_along_axis(order, jnp.minimum(below, len(order) - 1)[None], axis=0)
        return jnp.exp(jnp.take_along_axis(self.log_chances, at, axis=0)[0])

    def best_arm(self) -> Float[Array, " A"]:
        """Probability of each arm to be the best: the weight of the particles where it is."""
        best = jnp.argmax(self.log_chances, axis=-1)
        return self._weights() @ jax.nn.one_hot(best, self.log_chances.shape[-1])

    def entropy(self) -> Float[Array, ""]:
        """Entropy of the index of the best arm; that of the success probabilities has no closed form."""
        return jnp.sum(jax.scipy.special.entr(self.best_arm()))

    def effective_sample_size(self) -> Float[Array, ""]:
        """Effective number of particles."""
        return 1 / jnp.sum(self._weights() ** 2)

    def _weights(self) -> Float[Array, " K"]:
        return jax.nn.softmax(self.log_weights)


class DirichletOracle(AbstractBanditOracle[DirichletBelief]):
    """Sequential importance sampling with resampling and moves (Chopin, 2002).

    Particles from the prior are weighted by each outcome, resampled when the effective sample size falls
    below half, and moved after each pull by Metropolis steps, which leave the posterior invariant.

    Importance sampling from Dirichlet(alpha + s) with weights `prod (1 - p_i)^(f_i)` would have a small
    effective sample size when the best arm fails half the time.

    ```python
    oracle = DirichletOracle.of(rl.DirichletBandit(arms=5), test=True, key=jax.random.key(0))
    ```
    """

    arms: int = eqx.field(static=True)
    alpha: float = eqx.field(static=True)
    key: Array
    particles: int = eqx.field(static=True, default=512)

    @classmethod
    def of(cls, task: DirichletBandit, *, test: bool, key: Array) -> "DirichletOracle":
        """Oracle with the training or test prior of a task."""
        return cls(task.arms, task.test_alpha if test else task.train_alpha, key)

    def init(self, observation: Float[Array, " O"]) -> DirichletBelief:
        dtype, shape = observation.dtype, (self.particles, self.arms)
        key_particles, key = jax.random.split(self.key)
        zeros = jnp.zeros(self.arms, dtype)
        # Normalised gamma variates are Dirichlet-distributed.
        log_chances = jax.nn.log_softmax(jax.random.loggamma(key_particles, self.alpha, shape, dtype))
        return DirichletBelief(zeros, zeros, log_chances, jnp.zeros(self.particles, dtype), key)

    def update(
        self, belief: DirichletBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> DirichletBelief:
        del observation
        paid = outcome.reward > 0
        # A function of the history alone, so that equal histories have equal beliefs.
        key = jax.random.fold_in(belief.key, 2 * action + paid)
        key_resample, key_moves = jax.random.split(key)
        counts = updated_counts(belief, action, outcome)
        # Not 1 - p, which would round a good arm to a perfect one.
        others = jnp.where(jnp.arange(self.arms) == action, -jnp.inf, belief.log_chances)
        log_likelihood = jnp.where(paid, belief.log_chances[:, action], jax.nn.logsumexp(others, axis=-1))
        log_weights = jax.nn.log_softmax(belief.log_weights + log_likelihood)
        resample = jnp.sum(jnp.exp(2 * log_weights)) > 2 / self.particles
        resampled = _systematic(key_resample, jnp.exp(log_weights))
        chosen = jnp.where(resample, resampled, jnp.arange(self.particles))
        log_chances = belief.log_chances[chosen]
        if self.arms > 1:
            for key_move in jax.random.split(key_moves, MOVES):
                log_chances = self._moved(log_chances, *counts, key_move)
        return DirichletBelief(*counts, log_chances, jnp.where(resample, 0, log_weights), key)

    def _moved(
        self, log_chances: Float[Array, "K A"], successes: Array, failures: Array, key: Array
    ) -> Float[Array, "K A"]:
        """Metropolis step of the log ratio of two arms, whose sum is kept.

        In that coordinate the density has the exponents `alpha + s`, without the -1.
        """
        key_pair, key_step, key_accept = jax.random.split(key, 3)
        pair = jax.random.choice(key_pair, self.arms, (2,), replace=False)
        # Masks are cheaper than indices that differ from task to task.
        first, second = (jnp.arange(self.arms) == arm for arm in pair)
        before = jnp.stack(
            [jnp.sum(jnp.where(arm, log_chances, 0), axis=-1) for arm in (first, second)], axis=-1
        )
        rest = jnp.sum(jnp.where(first | second, 0, jnp.exp(log_chances)), axis=-1)
        # Cauchy steps, since arms without pulls are spread over many orders of magnitude.
        logit = before[:, 0] - before[:, 1] + 0.5 * jax.random.cauchy(key_step, rest.shape, rest.dtype)
        split = jnp.stack([jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)], axis=-1)
        after = jnp.logaddexp(before[:, 0], before[:, 1])[:, None] + split

        def log_density(logs: Float[Array, "K 2"]) -> Float[Array, " K"]:
            others = jnp.log(rest[:, None] + jnp.exp(logs[:, ::-1]))
            # Zero failures have no effect, also where the other probabilities round to zero.
            failed = jnp.where(failures[pair] > 0, failures[pair] * others, 0)
            return jnp.sum((self.alpha + successes[pair]) * logs + failed, axis=-1)

        log_uniform = jnp.log(jax.random.uniform(key_accept, rest.shape, rest.dtype))
        accepted = log_uniform < log_density(after) - log_density(before)
        after = jnp.where(accepted[:, None], after, before)
        return jnp.where(first, after[:, :1], jnp.where(second, after[:, 1:], log_chances))


def _systematic(key: Array, weights: Float[Array, " K"]) -> Array:
    """Indices of systematic resampling."""
    count = len(weights)
    levels = (jnp.arange(count) + jax.random.uniform(key, (), weights.dtype)) / count
    return jnp.minimum(jnp.searchsorted(jnp.cumsum(weights), levels), count - 1)


def importance_mean(
    successes: Real[Array, " A"], failures: Real[Array, " A"], alpha: float, *, samples: int, key: Array
) -> tuple[Float[Array, " A"], Float[Array, ""]]:
    """Posterior means by importance sampling from Dirichlet(alpha + s), and the effective sample size."""
    chances = jax.random.dirichlet(key, alpha + jnp.asarray(successes, float), (samples,))
    weights = jax.nn.softmax(jnp.sum(failures * jnp.log1p(-chances), axis=-1))
    return weights @ chances, 1 / jnp.sum(weights**2)


def convolution_mean(
    successes: np.ndarray, failures: np.ndarray, alpha: float, *, cells: int = 1000
) -> np.ndarray:
    """Posterior means by convolution of the factors of the density on a grid of [0, 1], in NumPy.

    A cell's mass is the integral of `p^(alpha - 1 + s)`, which is singular at 0, times `(1 - p)^f` at its
    midpoint. The error falls with the width of the cells.
    """
    edges, arms = np.linspace(0, 1, cells + 1), len(successes)
    middles = (edges[1:] + edges[:-1]) / 2
    masses = []
    for s, f in zip(successes, failures, strict=True):
        mass = np.diff(edges ** (alpha + s)) * (1 - middles) ** f
        masses.append(mass / mass.max())
    # Midpoints of cells k_i sum to one if the k_i sum to cells - arms / 2, between two sums if odd.
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


register_support(
    DirichletBandit,
    oracle=lambda task, *, test, **_: DirichletOracle.of(task, test=test, key=jax.random.key(0)),
    reported={EXACT: "greedy", "Thompson": "thompson"},
)
