"""What the chances of arms are when they sum to one.

Their density is proportional to `prod p_i^(alpha - 1 + s_i) (1 - p_i)^(f_i)`, which has no simple
moments. `DirichletOracle` has draws from it that follow the pulls. `importance_mean` and
`convolution_mean` are two other ways, for one moment at a time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.evaluation.oracles.bandits import AbstractBanditBelief, counted
from recurrent_laplace.evaluation.oracles.base import AbstractOracle
from recurrent_laplace.tasks import DirichletBandit, Step

MOVES = 2
"""Metropolis steps of each draw after each pull."""


class DirichletBelief(AbstractBanditBelief):
    """Weighted draws of the chances."""

    successes: Float[Array, " A"]
    failures: Float[Array, " A"]
    log_chances: Float[Array, "K A"]
    """Of each draw; their logs, since most of them are tiny."""
    log_weights: Float[Array, " K"]
    key: Array
    """For what the next pull does to the draws."""

    def mean(self) -> Float[Array, " A"]:
        return self._weights() @ jnp.exp(self.log_chances)

    def variance(self) -> Float[Array, " A"]:
        return self._weights() @ (jnp.exp(self.log_chances) - self.mean()) ** 2

    def draw(self, key: Array) -> Float[Array, " A"]:
        return jnp.exp(self.log_chances[jax.random.categorical(key, self.log_weights)])

    def quantile(self, level: Float[Array, ""]) -> Float[Array, " A"]:
        order = jnp.argsort(self.log_chances, axis=0)
        below = jnp.sum(jnp.cumsum(self._weights()[order], axis=0) < level, axis=0)
        at = jnp.take_along_axis(order, jnp.minimum(below, len(order) - 1)[None], axis=0)
        return jnp.exp(jnp.take_along_axis(self.log_chances, at, axis=0)[0])

    def best_arm(self) -> Float[Array, " A"]:
        """Of each arm, the probability that it is the best: the weight of the draws where it is."""
        best = jnp.argmax(self.log_chances, axis=-1)
        return self._weights() @ jax.nn.one_hot(best, self.log_chances.shape[-1])

    def entropy(self) -> Float[Array, ""]:
        """Of which arm is the best. That of the chances themselves has no closed form."""
        return jnp.sum(jax.scipy.special.entr(self.best_arm()))

    def effective_sample_size(self) -> Float[Array, ""]:
        """How many draws of equal weight would be as good."""
        return 1 / jnp.sum(self._weights() ** 2)

    def _weights(self) -> Float[Array, " K"]:
        return jax.nn.softmax(self.log_weights)


class DirichletOracle(AbstractOracle[DirichletBelief]):
    """Importance sampling that follows the pulls (Chopin, 2002).

    Draws from the prior are weighed by each outcome, drawn anew when fewer than half of them count, and
    moved after each pull by Metropolis steps, which leave the belief as it is and make copies differ.

    Not draws from Dirichlet(alpha + s), weighed by `prod (1 - p_i)^(f_i)`: few of them count when the
    best arm fails half the time.

    ```python
    oracle = DirichletOracle.of(rl.DirichletBandit(arms=5), test=True, key=jax.random.key(0))
    ```
    """

    arms: int = eqx.field(static=True)
    alpha: float = eqx.field(static=True)
    key: Array
    draws: int = eqx.field(static=True, default=512)

    @classmethod
    def of(cls, task: DirichletBandit, *, test: bool, key: Array) -> "DirichletOracle":
        """With the prior of the task for training, or for test."""
        return cls(task.arms, task.test_alpha if test else task.train_alpha, key)

    def init(self, observation: Float[Array, " O"]) -> DirichletBelief:
        dtype, shape = observation.dtype, (self.draws, self.arms)
        key_draws, key = jax.random.split(self.key)
        none = jnp.zeros(self.arms, dtype)
        # Shares of gamma variates are a Dirichlet draw.
        log_chances = jax.nn.log_softmax(jax.random.loggamma(key_draws, self.alpha, shape, dtype))
        return DirichletBelief(none, none, log_chances, jnp.zeros(self.draws, dtype), key)

    def update(
        self, belief: DirichletBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> DirichletBelief:
        del observation
        paid = outcome.reward > 0
        # From the history alone, so that the same history gives the same belief.
        key = jax.random.fold_in(belief.key, 2 * action + paid)
        key_resample, key_moves = jax.random.split(key)
        counts = counted(belief, action, outcome)
        # Not 1 - p, whose rounding would tell a good arm from a perfect one no more.
        others = jnp.where(jnp.arange(self.arms) == action, -jnp.inf, belief.log_chances)
        news = jnp.where(paid, belief.log_chances[:, action], jax.nn.logsumexp(others, axis=-1))
        log_weights = jax.nn.log_softmax(belief.log_weights + news)
        few = jnp.sum(jnp.exp(2 * log_weights)) > 2 / self.draws
        chosen = jnp.where(few, _systematic(key_resample, jnp.exp(log_weights)), jnp.arange(self.draws))
        log_chances = belief.log_chances[chosen]
        if self.arms > 1:
            for key_move in jax.random.split(key_moves, MOVES):
                log_chances = self._moved(log_chances, *counts, key_move)
        return DirichletBelief(*counts, log_chances, jnp.where(few, 0, log_weights), key)

    def _moved(
        self, log_chances: Float[Array, "K A"], successes: Array, failures: Array, key: Array
    ) -> Float[Array, "K A"]:
        """Shift chance between two arms, by steps in the log of their ratio, accepted as Metropolis does.

        In that coordinate the density has the exponents `alpha + s`, without the -1.
        """
        key_pair, key_step, key_accept = jax.random.split(key, 3)
        pair = jax.random.choice(key_pair, self.arms, (2,), replace=False)
        # Picked and put back by masks: cheaper than by indices where those differ from task to task.
        first, second = (jnp.arange(self.arms) == arm for arm in pair)
        before = jnp.stack(
            [jnp.sum(jnp.where(arm, log_chances, 0), axis=-1) for arm in (first, second)], axis=-1
        )
        rest = jnp.sum(jnp.where(first | second, 0, jnp.exp(log_chances)), axis=-1)
        # Cauchy: arms without pulls are spread over many orders of magnitude.
        logit = before[:, 0] - before[:, 1] + 0.5 * jax.random.cauchy(key_step, rest.shape, rest.dtype)
        split = jnp.stack([jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)], axis=-1)
        after = jnp.logaddexp(before[:, 0], before[:, 1])[:, None] + split

        def log_density(logs: Float[Array, "K 2"]) -> Float[Array, " K"]:
            others = jnp.log(rest[:, None] + jnp.exp(logs[:, ::-1]))
            # No failures count even where the other chances round to nothing.
            failed = jnp.where(failures[pair] > 0, failures[pair] * others, 0)
            return jnp.sum((self.alpha + successes[pair]) * logs + failed, axis=-1)

        log_uniform = jnp.log(jax.random.uniform(key_accept, rest.shape, rest.dtype))
        accepted = log_uniform < log_density(after) - log_density(before)
        after = jnp.where(accepted[:, None], after, before)
        return jnp.where(first, after[:, :1], jnp.where(second, after[:, 1:], log_chances))


def _systematic(key: Array, weights: Float[Array, " K"]) -> Array:
    """As many draws, each as often as its weight says, up to rounding."""
    count = len(weights)
    at = (jnp.arange(count) + jax.random.uniform(key, (), weights.dtype)) / count
    return jnp.minimum(jnp.searchsorted(jnp.cumsum(weights), at), count - 1)


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
