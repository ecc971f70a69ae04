"""Textbook implementation as a baseline: `jax.jacfwd` inside the scan, `jnp.linalg` for the rest.

It shares only the weights with this package: an `equinox.nn.LSTMCell` and a linear readout, differentiated
with respect to the whole carry, one step at a time. Calls of `jnp.linalg` run one after the other in the
scan, since concurrent calls can hang.

There are two ways to write it. The plain one hands the carry to `jax.jacfwd` as the tuple that the cell
takes. The fast one hands it over as one vector, from which XLA makes a faster program, and takes the
gradient of the Mahalanobis term of the KL only, which is the only term that has one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.benchmarks.variants import Variant
from recurrent_laplace.cells import LSTM, Memory


class Reference(eqx.Module):
    """Equinox's LSTM with a linear readout, differentiated in the plain or the fast way."""

    cell: eqx.nn.LSTMCell
    readout: eqx.nn.Linear
    fast: bool = eqx.field(static=True)

    @classmethod
    def like(cls, memory: Memory, *, fast: bool) -> "Reference":
        """Build the reference with the weights of a memory."""
        source = memory.cell
        assert isinstance(source, LSTM)
        assert memory.readout is not None
        key = jax.random.key(0)
        cell = eqx.nn.LSTMCell(source.input_size, source.hidden_size, key=key)
        readout = eqx.nn.Linear(source.hidden_size, memory.feature_size, key=key)
        cell = eqx.tree_at(
            lambda c: (c.weight_ih, c.weight_hh, c.bias),
            cell,
            (source.weight_ih, source.weight_hh, source.bias),
        )
        readout = eqx.tree_at(
            lambda r: (r.weight, r.bias), readout, (memory.readout.weight, memory.readout.bias)
        )
        return cls(cell, readout, fast)

    def jacobian(self, carry: tuple[Array, Array], x: Float[Array, " D"]) -> Float[Array, "F H"]:
        """`d features / d h`, taken from the derivative with respect to the whole carry."""

        def features(carry):
            return self.readout(self.cell(x, carry)[0])

        if self.fast:
            by_carry = jax.jacfwd(lambda vector: features(jnp.split(vector, 2)))(jnp.concatenate(carry))
            by_h = by_carry[:, : self.cell.hidden_size]
        else:
            by_h, _ = jax.jacfwd(features)(carry)
        return jax.lax.stop_gradient(by_h)

    def objective(
        self, variant: Variant, inputs: Float[Array, "T D"], noise: Float[Array, "T F"]
    ) -> Float[Array, ""]:
        """Mean over time of `|z|^2 + KL(q_t || stop(q_{t-1}))`, `z` one sample of `q_t`."""
        size = self.readout.weight.shape[0]
        eye = jnp.ones(size) if variant.covariance == "diagonal" else jnp.eye(size)
        zeros = jnp.zeros(self.cell.hidden_size)
        steps = inputs.shape[0]
        window = steps if variant.window == "all" else variant.window

        def step(state: tuple, step_input: tuple[Array, Array, Array]) -> tuple[tuple, Array]:
            carry, old_mean, old, past = state
            t, x, e = step_input
            carry = self.cell(x, carry)
            mean = self.readout(carry[0])
            if variant.kind == "point":
                return (carry, mean, old, past), jnp.sum(mean**2)
            if window == 1:
                jacobians = self.jacobian(carry, x)[None]
            else:
                past = jnp.roll(past, 1, axis=0).at[0].set(x)
                jacobians = jax.vmap(self.jacobian, in_axes=(None, 0))(carry, past)
                jacobians = jacobians * (jnp.arange(window) <= t)[:, None, None]
            start = old if variant.accumulate == "precision" else eye
            shift = mean - jax.lax.stop_gradient(old_mean)
            if variant.covariance == "diagonal":
                new = start + jnp.sum(jacobians**2, axis=(0, 2))
                z = mean + e / jnp.sqrt(new)
                mahalanobis = jnp.sum(old * shift**2)
                spread = jnp.sum(old / new - 1 + jnp.log(new) - jnp.log(old))
            else:
                new = start + jnp.einsum("wfh,wgh->fg", jacobians, jacobians)
                factor = jnp.linalg.cholesky(new)
                z = mean + jax.scipy.linalg.solve_triangular(factor, e, lower=True, trans=1)
                ratio = jnp.trace(jax.scipy.linalg.cho_solve((factor, True), old))
                log_ratio = jnp.linalg.slogdet(new)[1] - jnp.linalg.slogdet(old)[1]
                mahalanobis = shift @ old @ shift
                spread = ratio - size + log_ratio
            spread = jax.lax.stop_gradient(spread) if self.fast else spread
            return (carry, mean, new, past), jnp.sum(z**2) + (mahalanobis + spread) / 2

        past = jnp.zeros((window, inputs.shape[1]))
        start = ((zeros, zeros), jnp.zeros(size), eye, past)
        _, terms = jax.lax.scan(step, start, (jnp.arange(steps), inputs, noise))
        return jnp.mean(terms)
