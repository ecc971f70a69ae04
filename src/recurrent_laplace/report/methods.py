"""Names, colours and line styles of methods, as in the paper."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

from recurrent_laplace.models import LaplaceConfig, PointConfig, VariationalConfig

COLOURS = {
    "rnn": "#000000",
    "vrnn": "#808080",
    "stationary": "#cc2936",
    "precision": "#1b9e4b",
    "mean_and_precision": "#1f5fbf",
}
"""Black, grey, red, green and blue, as in the paper."""
OTHER_COLOUR = "#b8860b"
"""Colour of methods that are not in the paper."""

METHODS = (
    PointConfig(),
    VariationalConfig(),
    LaplaceConfig(accumulate="none"),
    LaplaceConfig(accumulate="precision"),
    LaplaceConfig(accumulate="mean_and_precision"),
)
"""The paper's methods, in its order."""

NAMES = {config.method: config.legend for config in METHODS}

STYLES: dict[str | None, Literal["-", "--"]] = {None: "-", "diagonal": "--", "dense": "-"}

ORIGINS = {"scratch": "from scratch", "finetuned": "fine-tuned", "posthoc": "post hoc"}
"""Origins of the paper's runs, which figures and claims use."""
ALL_ORIGINS = ORIGINS | {"calibrated": "post hoc, calibrated"}


@dataclasses.dataclass(frozen=True)
class Variant:
    """A method with its covariance, if it has one; drawn as one line."""

    method: str
    covariance: str | None

    @property
    def label(self) -> str:
        """Label in legends and tables."""
        # A registered method that is not in the paper has no display name.
        name = NAMES.get(self.method, self.method)
        return " ".join([name, *([self.covariance] if self.covariance else [])])

    @property
    def colour(self) -> str:
        """Colour of the method."""
        return COLOURS.get(self.method, OTHER_COLOUR)

    @property
    def style(self) -> Literal["-", "--"]:
        """Line style of the covariance."""
        return STYLES[self.covariance]


RNN = Variant(PointConfig().method, None)
BAYESIAN = tuple(
    Variant(config.method, covariance)
    for config in METHODS
    if config.family is not None
    for covariance in ("diagonal", "dense")
)
VARIANTS = (RNN, *BAYESIAN)


def without_summed_means(variants: Iterable[Variant]) -> tuple[Variant, ...]:
    """Variants without the sum of means and precisions, which the paper omits from its first figures."""
    return tuple(variant for variant in variants if variant.method != "mean_and_precision")


def join_labels(variants: Iterable[Variant]) -> str:
    """Labels of the variants; a method with both covariances is named once."""
    covariances: dict[str, list[str | None]] = {}
    for variant in variants:
        covariances.setdefault(variant.method, []).append(variant.covariance)
    return ", ".join(
        NAMES[method] if len(names) == 2 else Variant(method, names[0]).label
        for method, names in covariances.items()
    )


def describe_run(row: dict[str, Any]) -> str:
    """Description of a row of the runs."""
    words = [Variant(row["method"], row["covariance"]).label]
    if row["method"] in ("stationary", "precision", "mean_and_precision"):
        words.append("all history" if row["window"] == "all" else f"window {row['window']}")
    fraction = row["snapshot"]
    snapshot = "" if fraction in (None, 1.0) else f" on the snapshot at {fraction:.3g}"
    return ", ".join([*words, ALL_ORIGINS[row["origin"]] + snapshot])
