"""How each method is named and drawn: the paper's colours, and a line style for each covariance."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

COLOURS = {
    "rnn": "#000000",
    "vrnn": "#808080",
    "stationary": "#cc2936",
    "precision": "#1b9e4b",
    "mean_and_precision": "#1f5fbf",
}
"""Black, grey, red, green and blue, as in the paper."""

NAMES = {
    "rnn": "RNN",
    "vrnn": "VRNN",
    "stationary": "stationary Laplace",
    "precision": "sum of precisions",
    "mean_and_precision": "sum of means and precisions",
}

STYLES: dict[str | None, Literal["-", "--"]] = {None: "-", "diagonal": "--", "dense": "-"}

ORIGINS = {"scratch": "from scratch", "finetuned": "fine-tuned", "posthoc": "post hoc"}
"""Of the paper's runs: figures and claims are about these."""
ALL_ORIGINS = ORIGINS | {"calibrated": "post hoc, calibrated"}


@dataclasses.dataclass(frozen=True)
class Variant:
    """A method with its covariance, where it has one: what a line stands for."""

    method: str
    covariance: str | None

    @property
    def label(self) -> str:
        """In words."""
        return " ".join([NAMES[self.method], *([self.covariance] if self.covariance else [])])

    @property
    def colour(self) -> str:
        """The method's colour."""
        return COLOURS[self.method]

    @property
    def style(self) -> Literal["-", "--"]:
        """The covariance's line style."""
        return STYLES[self.covariance]


RNN = Variant("rnn", None)
BAYESIAN = tuple(
    Variant(method, covariance)
    for method in ("vrnn", "stationary", "precision", "mean_and_precision")
    for covariance in ("diagonal", "dense")
)
VARIANTS = (RNN, *BAYESIAN)


def without_blue(variants: Iterable[Variant]) -> tuple[Variant, ...]:
    """All but the sum of means and precisions, which the paper leaves out of its first figures."""
    return tuple(variant for variant in variants if variant.method != "mean_and_precision")


def join_labels(variants: Iterable[Variant]) -> str:
    """Variants in words; a method of which both covariances are there is named once."""
    covariances: dict[str, list[str | None]] = {}
    for variant in variants:
        covariances.setdefault(variant.method, []).append(variant.covariance)
    return ", ".join(
        NAMES[method] if len(some) == 2 else Variant(method, some[0]).label
        for method, some in covariances.items()
    )


def describe_run(row: dict[str, Any]) -> str:
    """A row of the runs in words."""
    words = [Variant(row["method"], row["covariance"]).label]
    if row["method"] in ("stationary", "precision", "mean_and_precision"):
        words.append("all history" if row["window"] == "all" else f"window {row['window']}")
    share = row["snapshot"]
    at = "" if share in (None, 1.0) else f" on the snapshot at {share:.3g}"
    return ", ".join([*words, ALL_ORIGINS[row["origin"]] + at])
