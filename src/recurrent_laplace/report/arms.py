"""Arms of the reproduction: runs as the published code was released, or as the paper is written."""

from typing import Literal

from recurrent_laplace.runs.config import Run
from recurrent_laplace.tasks import AbstractControlTask, Regression

Arm = Literal["released", "written"]
RELEASED_TERMS = 3
"""Cosines of the regression task in the published code; the paper has four."""


def arm_of(run: Run) -> Arm | None:
    """Arm of a run; None for a point agent of a control task, which belongs to both.

    As released, the heads of control agents see the mean of the belief, and regression has three cosines and
    a floor of the predictive standard deviation.
    """
    task, learning = run.config.task, run.config.learning
    if not isinstance(task, AbstractControlTask):
        is_released = isinstance(task, Regression) and task.terms == RELEASED_TERMS
        return "released" if is_released and learning.predictive_floor > 0 else "written"
    if run.config.posterior.family is None:
        return None
    # Without training, the number of samples in the loss has no effect.
    samples = learning.training_samples if learning.updates else learning.acting_samples
    return "written" if samples else "released"
