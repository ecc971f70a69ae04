"""Diagnostics of computed beliefs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recurrent_laplace.gaussians import AbstractBelief


class Info(eqx.Module):
    """Numerical diagnostics of beliefs, with their leading axes.

    **Arguments:**

    - `finite_input`: whether the input of the step has no NaN and no infinity.
    - `finite_belief`: whether the mean and the parameters of the covariance have none.
    - `added_precision`: largest precision added to make the precision positive definite in floating point;
      normally exactly zero.

    ```python
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(3, 8, key=jax.random.key(0))))
    info = posterior.infer(jnp.ones((5, 3)).at[2].set(jnp.nan)).info
    info.problems()  # ["the input has NaN or infinity, first at step 2 (1 of 5)", ...]
    ```
    """

    finite_input: Bool[Array, "*lead"]
    finite_belief: Bool[Array, "*lead"]
    added_precision: Float[Array, "*lead"]

    @classmethod
    def of(
        cls, inputs: Float[Array, "*lead D"], belief: AbstractBelief, added_precision: Array | float = 0.0
    ) -> "Info":
        """Diagnose a `belief` and the `inputs` it was computed from; `added_precision` is 0 if none was."""
        lead = belief.mean.ndim - 1
        finite = [
            jnp.isfinite(leaf).all(axis=tuple(range(lead, leaf.ndim))) for leaf in jax.tree.leaves(belief)
        ]
        added = jnp.broadcast_to(jnp.asarray(added_precision, belief.mean.dtype), belief.batch_shape)
        return cls(jnp.isfinite(inputs).all(axis=-1), jnp.stack(finite).all(axis=0), added)

    def problems(self) -> list[str]:
        """Describe each problem with the first step at which it occurred; empty if there is none."""
        found = []
        for bad, problem in (
            (np.logical_not(self.finite_input), "the input has NaN or infinity"),
            (np.logical_not(self.finite_belief), "the belief has NaN or infinity"),
            (np.asarray(self.added_precision) > 0, "precision was added to keep it positive definite"),
        ):
            if bad.any():
                amount = ""
                if problem.startswith("precision"):
                    amount = f" (at most {np.nanmax(np.asarray(self.added_precision)):.3g})"
                found.append(f"{problem}{amount}, first at {_place(bad)} ({bad.sum()} of {bad.size})")
        return found

    def raise_if_bad(self) -> None:
        """Raise a `FloatingPointError` that describes the problems, if there are any."""
        if found := self.problems():
            raise FloatingPointError("; ".join(found) + ".")


def _place(bad: np.ndarray | np.bool_) -> str:
    """Describe the earliest step, with time as the last axis."""
    if bad.ndim == 0:
        return "this step"
    step = int(np.argmax(bad.any(axis=tuple(range(bad.ndim - 1)))))
    if bad.ndim == 1:
        return f"step {step}"
    return f"step {step}, example {tuple(int(i) for i in np.argwhere(bad[..., step])[0])}"
