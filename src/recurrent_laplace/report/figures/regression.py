"""Figures of the regression task: predictive cross-entropy and beliefs."""

from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import BAYESIAN, ORIGINS, VARIANTS, without_summed_means
from recurrent_laplace.report.panels import Drawing, Panel, draw_grid


def figure_01(frames: Frames) -> Drawing:
    """Draw predictive cross-entropy against the number of observations, without the sum of means."""
    return _cross_entropy(frames, without_summed_means(VARIANTS))


def figure_07(frames: Frames) -> Drawing:
    """Draw consecutive KL and entropy at test."""
    panels = [
        [Panel(metric=metric, task="regression", origin=origin, variants=BAYESIAN) for origin in ORIGINS]
        for metric in ("kl", "entropy")
    ]
    return draw_grid(frames, panels)


def figure_08(frames: Frames) -> Drawing:
    """Draw predictive cross-entropy, with all lines."""
    return _cross_entropy(frames, VARIANTS)


def _cross_entropy(frames, variants) -> Drawing:
    panels = [
        Panel(metric="cross_entropy", task="regression", origin=origin, variants=variants)
        for origin in ORIGINS
    ]
    return draw_grid(frames, [panels])
