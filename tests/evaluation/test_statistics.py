"""Estimates over seeds and tasks, Holm's procedure, interquartile means: against SciPy and by hand."""

import numpy as np
import pytest
import scipy.stats

from recurrent_laplace.evaluation.statistics import estimate, holm, iqm_interval

VALUES = np.array([[1.0, 4.0, 2.0], [3.0, 5.0, 4.0], [2.0, 9.0, 1.0], [0.0, 3.0, 3.0]])


def test_one_task_is_students_test():
    values = VALUES[:, :1]
    found, known = estimate(values), scipy.stats.ttest_1samp(values[:, 0], 0.7)
    low, high = known.confidence_interval(0.95)
    np.testing.assert_allclose(found.interval(0.95)[:3], (values.mean(), low, high), rtol=1e-10)
    assert found.interval(0.95).units == 4
    np.testing.assert_allclose(2 * found.p_above(0.7), known.pvalue, rtol=1e-10)
    np.testing.assert_allclose(found.p_above(0.7) + found.p_below(0.7), 1, rtol=1e-10)


def test_errors_over_seeds_and_tasks_add_in_quadrature():
    found = estimate(VALUES)
    seeds, tasks = scipy.stats.sem(VALUES.mean(axis=1)), scipy.stats.sem(VALUES.mean(axis=0))
    np.testing.assert_allclose(found.stderr, np.hypot(seeds, tasks), rtol=1e-12)
    freedom = found.stderr**4 / (seeds**4 / 3 + tasks**4 / 2)
    np.testing.assert_allclose(found.freedom, freedom, rtol=1e-12)
    interval = scipy.stats.t.interval(0.99, freedom, found.mean, found.stderr)
    np.testing.assert_allclose(found.interval(0.99)[1:3], interval, rtol=1e-10)
    # The end of an interval is where the test is at its level.
    np.testing.assert_allclose(found.p_above(found.interval(0.99).low), 0.005, rtol=1e-8)


def test_equal_values_have_no_error():
    found = estimate(np.full((3, 2), 0.5))
    assert found.interval() == (0.5, 0.5, 0.5, 3)
    assert (found.p_above(0.4), found.p_above(0.5), found.p_below(0.6), found.p_below(0.4)) == (0, 1, 0, 1)
    with pytest.raises(ValueError, match="at least 2 seeds; got 1"):
        estimate(np.ones((1, 5)))


def test_holm_steps_down():
    p = np.array([0.03, 0.001, 0.02, 0.2])
    # 0.05 / 4, / 3 and / 2: 0.02 exceeds the second, so that 0.03 is not asked.
    assert holm(p, 0.05).tolist() == [False, True, False, False]
    assert holm(p, 0.065).tolist() == [True, True, True, False]
    assert holm(np.array([0.04]), 0.05).tolist() == [True]
    assert holm(np.array([]), 0.05).tolist() == []


def test_interquartile_mean_ignores_outliers():
    values = np.array([*np.linspace(0, 1, 40), 50.0, -50.0])
    found = iqm_interval(values)
    assert found.mean == scipy.stats.trim_mean(values, 0.25)
    assert found.low < found.mean < found.high < 1
    assert found == iqm_interval(values)
    assert iqm_interval(np.ones(5)) == (1, 1, 1, 5)
