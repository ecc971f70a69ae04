"""What benchmarks compare, by name; free of JAX, so that help is quick."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Variant:
    """The options of a posterior in which variants differ; names and values are `PosteriorConfig`'s."""

    kind: Literal["point", "variational", "laplace"]
    covariance: Literal["diagonal", "dense"] = "diagonal"
    accumulate: Literal["none", "precision"] = "precision"
    window: int | Literal["all"] = 1


VARIANTS = {
    "rnn": Variant("point"),
    "diagonal-sum": Variant("laplace", "diagonal"),
    "dense-sum": Variant("laplace", "dense"),
    "dense-window10": Variant("laplace", "dense", "none", 10),
    "dense-all": Variant("laplace", "dense", "none", "all"),
}
"""Posteriors that the textbook way is written for."""

METHODS = {
    "rnn": Variant("point"),
    "laplace-diagonal": Variant("laplace", "diagonal"),
    "laplace-dense": Variant("laplace", "dense"),
    "vrnn-diagonal": Variant("variational", "diagonal"),
    "vrnn-dense": Variant("variational", "dense"),
}
"""Agents that are trained."""

ALL_HISTORY = {"laplace-dense-all": Variant("laplace", "dense", "none", "all")}

TESTED = METHODS | ALL_HISTORY
"""Agents that are evaluated."""

WINDOWED = "laplace-dense-window"
"""The one posterior whose window grows."""

GROWN = METHODS | {WINDOWED: Variant("laplace", "dense", "none", 10)} | ALL_HISTORY
"""Posteriors whose cost is followed."""

OPERATIONS = ("cholesky", "triangular-inverse", "triangular-solve", "accretive-inverse")
"""What is done to batches of small matrices."""
