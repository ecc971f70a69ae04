"""Scores of shift detection: AUROC, AUPR, FPR at 95%, and delays of sequential alarms."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata


class Separation(NamedTuple):
    """Separation of changed from clean episodes by a score that should be higher for the changed.

    `auroc` is the probability that a changed episode scores higher than a clean one, ties counted half;
    `aupr` is the mean precision over the changed ones, `base_rate` that of a random score; `fpr95` is the
    fraction of clean episodes above the threshold that 95% of the changed ones reach.
    """

    auroc: float
    aupr: float
    base_rate: float
    fpr95: float


def separation(changed: Float[np.ndarray, " N"], clean: Float[np.ndarray, " M"]) -> Separation:
    """AUROC, AUPR and FPR at 95% TPR of a score.

    ```python
    separation(np.array([2.0, 3.0]), np.array([1.0, 2.5])).auroc  # 0.75
    ```
    """
    changed, clean = np.asarray(changed, float), np.asarray(clean, float)
    if not len(changed) or not len(clean):
        raise ValueError(f"both samples must have scores; got {len(changed)} changed, {len(clean)} clean.")
    if not (np.isfinite(changed).all() and np.isfinite(clean).all()):
        raise ValueError("scores must be finite.")
    auroc = _auroc(changed, clean)
    # With ties, the precision at a threshold counts all episodes that reach it.
    true_positives = np.searchsorted(np.sort(-changed), -changed, side="right")
    false_positives = np.searchsorted(np.sort(-clean), -changed, side="right")
    aupr = np.mean(true_positives / (true_positives + false_positives))
    threshold = np.sort(changed)[int(np.floor(0.05 * len(changed)))]
    base_rate = len(changed) / (len(changed) + len(clean))
    return Separation(float(auroc), float(aupr), base_rate, float(np.mean(clean >= threshold)))


def _auroc(changed: Float[np.ndarray, "*lead N"], clean: Float[np.ndarray, "*lead M"]) -> np.ndarray:
    n, m = changed.shape[-1], clean.shape[-1]
    ranks = rankdata(np.concatenate([changed, clean], axis=-1), axis=-1)
    return (ranks[..., :n].sum(axis=-1) / n - (n + 1) / 2) / m


def separation_interval(
    changed: Float[np.ndarray, " N"],
    clean: Float[np.ndarray, " M"],
    *,
    resamples: int = 1000,
    confidence: float = 0.99,
    seed: int = 0,
) -> tuple[float, float]:
    """Bootstrap interval of the AUROC, with changed and clean episodes resampled separately."""
    random = np.random.default_rng(seed)
    values = _auroc(*(random.choice(sample, (resamples, len(sample))) for sample in (changed, clean)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


class Detections(NamedTuple):
    """Performance of a sequential alarm on changed and clean episodes.

    `delay` is the median number of steps from when the change is detectable to the alarm, over the episodes
    with both; `missed` is the fraction of detectable changes without an alarm, `early` that of changed
    episodes with an alarm before the change, and `false_alarms` that of clean episodes with an alarm.
    """

    delay: float
    missed: float
    early: float
    false_alarms: float


def detections(
    raised: Bool[np.ndarray, "N T"],
    clean: Bool[np.ndarray, "M T"],
    *,
    change: int,
    knowable: Float[np.ndarray, " N"],
) -> Detections:
    """Delays and rates of alarms `raised` in changed episodes and in `clean` ones; steps count from 0.

    `change` is the first changed step, `knowable` the first step of each episode at which the change is
    detectable, or infinity. Episodes with an alarm before `change` count as `early` and not otherwise.
    """
    first = np.where(raised.any(axis=1), raised.argmax(axis=1).astype(float), np.inf)
    early = first < change
    counted = ~early & np.isfinite(knowable)
    delays = first[counted] - knowable[counted]
    found = np.isfinite(delays)
    return Detections(
        delay=float(np.median(delays[found])) if found.any() else np.inf,
        missed=float(1 - found.mean()) if len(found) else np.nan,
        early=float(early.mean()),
        false_alarms=float(clean.any(axis=1).mean()),
    )
