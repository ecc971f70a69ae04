"""A posterior from outside of the package: a Laplace posterior with a temperature for its covariances.

    q = N(mu, temperature * Sigma),    with mu and Sigma of the Laplace posterior, also for its prior

The Laplace posterior is a field, not a base class: concrete classes are not subclassed in this package.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

import recurrent_laplace as rl
from recurrent_laplace.errors import check_number


class TemperedPosterior(rl.AbstractPosterior):
    """The Laplace posterior `base`, with all its covariances times `temperature`."""

    base: rl.LaplacePosterior
    temperature: float = eqx.field(static=True)

    def __check_init__(self):
        check_number("temperature", self.temperature, above=0)

    @property
    def memory(self) -> rl.Memory:
        return self.base.memory

    def prior(self):
        return self._tempered(self.base.prior())

    def init(self, capacity=None):
        return self.base.init(capacity)

    def compute_step(self, state, x, reset):
        state, found = self.base.compute_step(state, x, reset)
        return state, dataclasses.replace(found, belief=self._tempered(found.belief))

    def compute(self, inputs, resets, reuse):
        found = self.base.compute(inputs, resets, None)  # `reuse` has tempered beliefs, not those of `base`
        return dataclasses.replace(found, belief=self._tempered(found.belief))

    def cost(self, steps, batch=1):
        return self.base.cost(steps, batch)

    @property
    def grows(self) -> bool:  # with `window=None`, `base` stores every input
        return self.base.grows

    def capacity(self, state):
        return self.base.capacity(state)

    def with_room(self, state):
        return self.base.with_room(state)

    def _tempered(self, belief: rl.DiagonalGaussian | rl.DenseGaussian):
        if isinstance(belief, rl.DiagonalGaussian):
            return rl.DiagonalGaussian(belief.mean, belief.precisions / self.temperature)
        return rl.DenseGaussian(belief.mean, belief.precision_cholesky / self.temperature**0.5)


if __name__ == "__main__":
    k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
    memory = rl.Memory(rl.GRU(3, 32, key=k1), features=8, key=k2)
    inputs = jax.random.normal(k3, (40, 3))
    warm = TemperedPosterior(rl.LaplacePosterior(memory), temperature=2.0)
    before, beliefs = warm.base.unroll(inputs), warm.unroll(inputs)
    print(f"final entropy: {before[-1].entropy():.2f}, tempered {beliefs[-1].entropy():.2f}")
    assert jnp.allclose(beliefs.entropy() - before.entropy(), 8 / 2 * jnp.log(2.0), atol=1e-4)  # F / 2 ln 2

    # Required of every posterior: repeated updates and one unroll agree.
    state, belief = warm.init(), warm.prior()
    for x in inputs:
        state, belief = warm.update(state, x)
    difference = jnp.abs(belief.precision() - beliefs[-1].precision()).max()
    print(f"update and unroll differ by {difference:.1e}")
    assert difference < 1e-4
