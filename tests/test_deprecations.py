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


def test_state_of_a_monitor_had_another_name():
    monitor = rl.Monitor(POSTERIOR)
    with pytest.warns(DeprecationWarning, match=r"Monitor.mind is deprecated: use Monitor.state"):
        assert jax.tree.all(jax.tree.map(np.array_equal, monitor.mind, monitor.state))


def test_trainings_accept_the_old_name_of_sharded():
    config = rl.Config(task=rl.TwoArmBandit())
    for make in (rl.make_train, rl.Train):
        with pytest.warns(DeprecationWarning, match=r"\(shared=...\) is deprecated: use sharded="):
            assert isinstance(make(config, shared="seeds"), rl.Train)


def test_oracles_had_another_place_and_other_names():
    from recurrent_laplace import oracles

    with pytest.warns(DeprecationWarning, match=r"use recurrent_laplace\.oracles\.make_oracle\.$"):
        from recurrent_laplace.evaluation.oracles import make_oracle
    assert make_oracle is oracles.make_oracle
    with pytest.warns(DeprecationWarning, match=r"oracles.follow is deprecated: use oracles.replay"):
        assert oracles.follow is oracles.replay
