"""TD errors against a plain loop."""

import numpy as np
import pytest

from recurrent_laplace.monitoring.signals import td_errors


def test_td_errors_are_those_of_a_loop():
    random, count, steps = np.random.default_rng(0), 5, 9
    value = random.normal(size=(count, steps))
    reward, ended = random.normal(size=(count, steps - 1)), random.random((count, steps - 1)) < 0.3
    found = td_errors(value, reward, ended, 0.8)
    for e in range(count):
        assert found[e, 0] == 0
        for t in range(1, steps):
            beyond = 0.0 if ended[e, t - 1] else 0.8 * value[e, t]
            assert found[e, t] == pytest.approx(reward[e, t - 1] + beyond - value[e, t - 1])
        np.testing.assert_array_equal(found[e], td_errors(value[e], reward[e], ended[e], 0.8))
