"""What predictions are worth, in words."""

import numpy as np
import pytest

from recurrent_laplace.monitoring.verdict import Explained, describe_all, format_percent, judge


def explained(constant=1.0, observation=0.5, full=0.3, coverage=0.88):
    return Explained(constant=constant, observation=observation, full=full, coverage=coverage)


def test_one_sentence():
    found = explained()
    assert found.informative
    assert (found.alone, found.beyond_constant) == pytest.approx((0.5, 0.7))
    assert found.describe("reward") == (
        "Predicts the next reward 40% better than the observation alone; its 90% intervals cover 88%."
    )
    assert explained(coverage=np.nan).describe("reward") == (
        "Predicts the next reward 40% better than the observation alone."
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"coverage": 0.6}, ", but its 90% intervals are too narrow (they cover 60%): fit on more episodes."),
        ({"coverage": 0.99}, ", but its 90% intervals are too wide (they cover 99%): fit on more episodes."),
        # What is left after the observation alone is less than the precision of the fits.
        (
            {"observation": 5e-4, "full": 1e-4},
            "the observation and the action alone explain 99.95% of it. Try",
        ),
        ({"observation": 0.05, "full": 0.049}, "the observation and the action alone explain 95% of it. Try"),
        (
            {"observation": 1.0, "full": 1.1},
            "0% of it are explained with the belief, 0% without. Fit on more",
        ),
        ({"observation": 0.5, "full": 0.49}, "51% of it are explained with the belief, 50% without. Fit on"),
    ],
)
def test_reasons_and_remedies(changes, words):
    assert words in explained(**changes).describe("reward")


def test_what_is_informative_comes_first():
    bad = explained(full=0.5)
    informative, texts = describe_all({"reward": bad, "observation": explained()})
    assert informative
    assert [text.split()[0] for text in texts] == ["Predicts", "The"]
    assert describe_all({"reward": bad})[0] is False
    # Where nothing varies, nothing is explained.
    assert not explained(constant=0.0, observation=0.0, full=0.0).informative


def test_intervals_qualify_what_is_informative():
    bad, narrow, wide = explained(full=0.5, coverage=0.5), explained(coverage=0.75), explained(coverage=0.98)
    assert judge({"reward": explained()}) == "informative"
    assert judge({"reward": explained(coverage=np.nan)}) == "informative"
    assert judge({"reward": narrow}) == "informative, but its intervals are too narrow"
    assert judge({"reward": wide, "observation": narrow}) == "informative, but its intervals are too narrow"
    assert judge({"reward": wide}) == "informative, but its intervals are too wide"
    assert judge({"reward": explained(), "observation": narrow}) != "informative"
    # The intervals of a target that the belief does not predict are no matter.
    assert judge({"reward": bad}) == "not informative"
    assert judge({"reward": bad, "observation": explained()}) == "informative"


def test_percentages():
    texts = [format_percent(value) for value in (-0.2, 0.123, 0.9987, 1.0, float("nan"))]
    assert texts == ["0%", "12%", "99.87%", "100%", "-"]
