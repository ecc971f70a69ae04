"""A posterior of one's own: a belief made wider or narrower by a temperature.

    q = N(mu, temperature * Sigma),    mu and Sigma those of another posterior, its prior's as well

One number, fitted on held-out data, is often what a belief lacks to be calibrated. The other posterior is
a field and not a base class: concrete classes are not subclassed here.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

import recurrent_laplace as rl
from recurrent_laplace.errors import check_number


class TemperedPosterior(rl.AbstractPosterior):
    """The Laplace posterior `base`, with all its covariances times `temperature`."""

    base: rl.LaplacePosterior
    temperature: float = eqx.field(static=True)

    def __init__(self, base: rl.LaplacePosterior, *, temperature: float):
        check_number("temperature", temperature, above=0)
        self.base = base
        self.temperature = float(temperature)

    @property
    def memory(self) -> rl.Memory:
        return self.base.memory

    def prior(self):
        return self._tempered(self.base.prior())

    def init(self):
        return self.base.init()

    def carry(self, state):
        return self.base.carry(state)

    def _update(self, state, x: Array, reset: Array):
        state, belief, info = self.base._update(state, x, reset)
        return state, self._tempered(belief), info

    def _unroll(self, inputs: Array, resets: Array | None):
        trace, beliefs, info = self.base._unroll(inputs, resets)
        return trace, self._tempered(beliefs), info

    def _with_room(self, state):
        return self.base._with_room(state)

    def cost(self, steps: int, batch: int = 1) -> rl.Cost:
        return self.base.cost(steps, batch)

    def _tempered(self, belief: rl.DiagonalGaussian | rl.DenseGaussian):
        if isinstance(belief, rl.DiagonalGaussian):
            return rl.DiagonalGaussian(belief.mean, belief.precisions / self.temperature)
        return rl.DenseGaussian(belief.mean, belief.precision_cholesky / self.temperature**0.5)


if __name__ == "__main__":
    k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
    memory = rl.Memory(rl.GRU(3, 32, key=k1), features=8, key=k2)
    inputs = jax.random.normal(k3, (40, 3))
    plain = rl.LaplacePosterior(memory)
    warm = TemperedPosterior(plain, temperature=2.0)
    before, beliefs = plain.unroll(inputs), warm.unroll(inputs)
    print(f"entropy in the end: {before[-1].entropy():.2f}, tempered {beliefs[-1].entropy():.2f}")

    # What must hold of any posterior: one input at a time, or all at once, is the same.
    state, belief = warm.init(), warm.prior()
    for x in inputs:
        state, belief = warm.update(state, x)
    difference = jnp.abs(belief.precision() - beliefs[-1].precision()).max()
    print(f"update and unroll differ by {difference:.1e}")
    assert difference < 1e-4
    rise = beliefs.entropy() - before.entropy()
    assert jnp.allclose(rise, 0.5 * 8 * jnp.log(2.0), atol=1e-4)  # F / 2 ln temperature
