"""Names that have changed: the old ones work, and warn."""

import jax
import numpy as np
import pytest

import recurrent_laplace as rl

POSTERIOR = rl.LaplacePosterior(rl.Memory(rl.GRU(2, 3, key=jax.random.key(0))))
HEADS = {"value": lambda z, context: z[0] + context}


def test_step_of_a_monitor_accepts_the_old_name_of_context():
    with pytest.warns(DeprecationWarning, match=r"Monitor.step\(seen=...\) is deprecated: use context="):
        old = rl.Monitor(POSTERIOR, **HEADS).step(np.ones(2), seen=2.0)
    assert old.value == rl.Monitor(POSTERIOR, **HEADS).step(np.ones(2), context=2.0).value


def test_diagnose_accepts_the_old_name_of_context():
    inputs, context = jax.random.normal(jax.random.key(1), (2, 3, 2)), np.ones((2, 3))
    with pytest.warns(DeprecationWarning, match=r"diagnose\(seen=...\) is deprecated: use context="):
        old = rl.diagnose(POSTERIOR, inputs, **HEADS, seen=context)
    assert old == rl.diagnose(POSTERIOR, inputs, **HEADS, context=context)
