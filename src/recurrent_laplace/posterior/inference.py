"""Result of `infer` and `infer_step`."""

import equinox as eqx

from recurrent_laplace.cells.memory import Trace
from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.posterior.info import Info


class Inference(eqx.Module):
    """Beliefs with their diagnostics and the trace of the memory.

    **Arguments:**

    - `belief`: belief after one input, or after each input of a sequence, with a leading time axis.
    - `info`: an `rl.Info`, the diagnostics.
    - `trace`: projected inputs, carries, hidden states and features of the memory.

    ```python
    memory = rl.Memory(rl.GRU(3, 8, key=jax.random.key(0)))
    inference = rl.LaplacePosterior(memory).infer(jnp.ones((5, 3)))
    inference.info.raise_if_bad()
    inference.belief.entropy(), inference.trace.hidden  # (5,), (5, 8)
    ```
    """

    belief: AbstractBelief
    info: Info
    trace: Trace
