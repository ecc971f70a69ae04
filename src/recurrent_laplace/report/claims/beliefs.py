"""Changes of the entropy and of the consecutive KL of beliefs, per feature."""

from typing import Literal

from recurrent_laplace.report.claims.groups import Group, When
from recurrent_laplace.report.claims.samples import Sample

EARLY = 10
"""Steps after which a window of ten is full; earlier changes of a belief are an artefact of the window."""
UNIT = "nats a feature"
NAMES = {"entropy": "entropy", "kl": "consecutive KL"}
TIMES = {"cut-off": "to T", "end": "to the longest test"}

Comparison = tuple[str, Sample, float, str]
"""Subject, values, bound and unit, as arguments of a comparison."""


def change_of(group: Group, metric: Literal["entropy", "kl"], last: When, first: int = EARLY) -> Comparison:
    """Change of a metric of beliefs, to be compared with 0."""
    subject = f"change of {NAMES[metric]} from t = {first} {TIMES[str(last)]} of {group.name}"
    return subject, group.change(metric, first, last, per_feature=True), 0.0, UNIT
