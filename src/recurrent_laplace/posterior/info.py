"""What a person wants to know about a belief that was computed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recurrent_laplace.gaussians import AbstractBelief


class Info(eqx.Module):
    """Was a belief computed from finite numbers, is it finite, and what was added to make it so.

    - `finite_input`: no NaN and no infinity in the input of the step;
    - `finite_belief`: none in the mean, nor in what the covariance is held by;
    - `added_precision`: the largest precision added to any direction, because rounding had cost the
      precision its positive definiteness. Zero, exactly, in health.

    All have the leading axes of the belief.
    """

    finite_input: Bool[Array, "*lead"]
    finite_belief: Bool[Array, "*lead"]
    added_precision: Float[Array, "*lead"]

    @classmethod
    def of(
        cls, inputs: Float[Array, "*lead D"], belief: AbstractBelief, added_precision: Array | float = 0.0
    ) -> "Info":
        """The facts of a belief and the inputs it was computed from."""
        lead = belief.mean.ndim - 1
        finite = [
            jnp.isfinite(leaf).all(axis=tuple(range(lead, leaf.ndim))) for leaf in jax.tree.leaves(belief)
        ]
        added = jnp.broadcast_to(jnp.asarray(added_precision, belief.mean.dtype), belief.batch_shape)
        return cls(jnp.isfinite(inputs).all(axis=-1), jnp.stack(finite).all(axis=0), added)

    def problems(self) -> list[str]:
        """In words: what was wrong, and at which step first. Empty in health."""
        found = []
        for bad, what in (
            (np.logical_not(self.finite_input), "the input has NaN or infinity"),
            (np.logical_not(self.finite_belief), "the belief has NaN or infinity"),
            (np.asarray(self.added_precision) > 0, "precision was added to keep it positive definite"),
        ):
            if bad.any():
                amount = ""
                if what.startswith("precision"):
                    amount = f" (at most {np.nanmax(np.asarray(self.added_precision)):.3g})"
                found.append(f"{what}{amount}, first at {_place(bad)} ({bad.sum()} of {bad.size})")
        return found

    def raise_if_bad(self) -> None:
        """A `FloatingPointError` with the problems in words, if there are any."""
        found = self.problems()
        if found:
            raise FloatingPointError("; ".join(found) + ".")


def _place(bad: np.ndarray | np.bool_) -> str:
    """The earliest step, time being the last axis."""
    if bad.ndim == 0:
        return "this step"
    step = int(np.argmax(bad.any(axis=tuple(range(bad.ndim - 1)))))
    if bad.ndim == 1:
        return f"step {step}"
    return f"step {step}, example {tuple(int(i) for i in np.argwhere(bad[..., step])[0])}"
