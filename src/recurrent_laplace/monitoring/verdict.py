"""What the predictions of a belief are worth, in one sentence for each target."""

import dataclasses
from collections.abc import Mapping

import numpy as np

LEVEL = 0.9
"""Nominal level of the intervals."""
LEAST_EXPLAINED = 0.05
"""Fraction of the deviance given the observation alone from which on a belief is informative."""
LEAST_GAIN = 1e-3
"""The same difference relative to the deviance of a constant: less is the precision of the fits."""
ALMOST_ALL = 0.9
"""Fraction of the deviance of a constant above which little is left for a belief to explain."""
NARROW, WIDE = 0.8, 0.97
"""Coverages of the intervals below and above which they are reported as too narrow and too wide."""


@dataclasses.dataclass(frozen=True)
class Explained:
    """Mean deviance of a target on test episodes, under three predictions.

    The deviance is the squared error of Gaussian targets, each entry relative to its variance, otherwise
    twice the negative log-likelihood.
    """

    constant: float
    """Of the best constant."""
    observation: float
    """Of a head that sees the observation and the action, not the belief."""
    full: float
    """Of the fitted head."""
    coverage: float
    """Fraction of Gaussian targets inside their 90% intervals; NaN for others."""

    @property
    def alone(self) -> float:
        """Fraction of the deviance of a constant that the observation and the action explain."""
        return _fraction(self.observation, self.constant)

    @property
    def beyond_constant(self) -> float:
        """Fraction of the deviance of a constant that is explained: R^2 for Gaussian targets."""
        return _fraction(self.full, self.constant)

    @property
    def beyond_observation(self) -> float:
        """Fraction of the deviance given the observation alone that is explained."""
        return _fraction(self.full, self.observation)

    @property
    def informative(self) -> bool:
        """Whether the belief predicts more than the observation and the action do."""
        gain = self.observation - self.full
        return self.beyond_observation >= LEAST_EXPLAINED and gain >= LEAST_GAIN * self.constant

    @property
    def miscalibration(self) -> str | None:
        """`"too narrow"` or `"too wide"` for intervals whose coverage is far from nominal."""
        if not np.isfinite(self.coverage) or NARROW <= self.coverage <= WIDE:
            return None
        return "too narrow" if self.coverage < NARROW else "too wide"

    def describe(self, name: str) -> str:
        """What the belief is worth for a target; if it is nothing, why, and what to try."""
        if not self.informative:
            return self._reason(name)
        text = f"Predicts the next {name} {self.beyond_observation:.0%} better than the observation alone"
        if not np.isfinite(self.coverage):
            return f"{text}."
        if self.miscalibration is None:
            return f"{text}; its {LEVEL:.0%} intervals cover {self.coverage:.0%}."
        return (
            f"{text}, but its {LEVEL:.0%} intervals are {self.miscalibration} "
            f"(they cover {self.coverage:.0%}): fit on more episodes."
        )

    def _reason(self, name: str) -> str:
        start = f"The belief adds nothing to the prediction of the next {name}"
        alone = format_percent(self.alone)
        if self.alone > ALMOST_ALL:
            return (
                f"{start}: the observation and the action alone explain {alone} of it. Try a target that "
                "depends on something hidden, or an environment that hides more."
            )
        return (
            f"{start}: {format_percent(self.beyond_constant)} of it are explained with the belief, {alone} "
            "without. Fit on more episodes; if that does not help, it is noise, or depends on nothing that "
            "the network remembers."
        )


def describe_all(explained: Mapping[str, Explained]) -> tuple[bool, tuple[str, ...]]:
    """Whether the predictions of any target are informative, and a text for each, those of these first."""
    order = sorted(explained, key=lambda name: not explained[name].informative)
    informative = any(each.informative for each in explained.values())
    return informative, tuple(explained[name].describe(name) for name in order)


def judge(explained: Mapping[str, Explained]) -> str:
    """`"informative"`, with a qualification if the intervals of what is predicted are wrong, or not."""
    informative = [each for each in explained.values() if each.informative]
    if not informative:
        return "not informative"
    found = {each.miscalibration for each in informative} - {None}
    if not found:
        return "informative"
    return f"informative, but its intervals are {'too narrow' if 'too narrow' in found else 'too wide'}"


def _fraction(deviance: float, reference: float) -> float:
    return 1 - deviance / reference if reference > 0 else 0.0


def format_percent(fraction: float) -> str:
    """Percentage for a text: not negative, with decimals close to all; "-" for NaN."""
    if np.isnan(fraction):
        return "-"
    fraction = min(max(fraction, 0.0), 1.0)
    return f"{fraction:.2%}" if 0.99 <= fraction < 1 else f"{fraction:.0%}"
