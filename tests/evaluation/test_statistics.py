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


def test_half_widths_over_seeds_and_tasks_add_in_quadrature():
    found = estimate(VALUES)
    halves = [
        scipy.stats.t.ppf(0.995, len(means) - 1) * scipy.stats.sem(means)
        for means in (VALUES.mean(axis=1), VALUES.mean(axis=0))
    ]
    mean, low, high, units = found.interval(0.99)
    np.testing.assert_allclose([mean, low, high], VALUES.mean() + np.hypot(*halves) * np.array([0, -1, 1]))
    assert units == 4
    # The end of an interval is where the test is at its level.
    for level in (0.005, 1e-12):
        low, high = found.interval(1 - 2 * level)[1:3]
        np.testing.assert_allclose([found.p_above(low), found.p_below(high)], level, rtol=1e-4)
    np.testing.assert_allclose(found.p_above(1.0) + found.p_below(1.0), 1, rtol=1e-8)
    assert found.p_above(VALUES.mean()) == 0.5


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
