"""The variants that benchmarks compare, by name."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Variant:
    """Options of a Laplace posterior; a `covariance` of None is the plain RNN."""

    covariance: str | None
    accumulate: str = "precision"
    window: int | None = 1


VARIANTS = {
    "rnn": Variant(None),
    "diagonal-sum": Variant("diagonal"),
    "dense-sum": Variant("dense"),
    "dense-window10": Variant("dense", "none", 10),
    "dense-all": Variant("dense", "none", None),
}
