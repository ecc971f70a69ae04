"""Variants that benchmarks compare; does not import JAX, so that `--help` is fast."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Variant:
    """Options of a posterior that variants differ in, named as in the `[posterior]` table."""

    kind: Literal["point", "variational", "laplace", "conjugate"]
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
"""Posteriors of `bench posterior`, which the reference implements."""

METHODS = {
    "rnn": Variant("point"),
    "laplace-diagonal": Variant("laplace", "diagonal"),
    "laplace-dense": Variant("laplace", "dense"),
    "vrnn-diagonal": Variant("variational", "diagonal"),
    "vrnn-dense": Variant("variational", "dense"),
    "conjugate": Variant("conjugate"),
}
"""Trained agents."""

LEARNERS = {
    "rnn-vmpo": {"learning": {"objective": "vmpo"}},
    "rnn-lqg": {"task": {"name": "lqg"}},
}
"""Tables of RNNs of the same sizes with another learner, and in a task with continuous actions."""

ALL_HISTORY = {"laplace-dense-all": Variant("laplace", "dense", "none", "all")}

EVALUATED = METHODS | ALL_HISTORY
"""Evaluated agents."""

WINDOWED = "laplace-dense-window"
"""The posterior whose window is varied."""

SCALED = METHODS | {WINDOWED: Variant("laplace", "dense", "none", 10)} | ALL_HISTORY
"""Posteriors of `bench growth`."""

OPERATIONS = ("cholesky", "triangular-inverse", "triangular-solve", "accretive-inverse")
"""Operations on batches of small matrices."""
