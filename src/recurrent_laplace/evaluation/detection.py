"""How well a score tells changed episodes from clean ones, as the field judges it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata


class Separation(NamedTuple):
    """Of two samples of a score, the changed and the clean; higher scores should be changed ones.

    `auroc`: chance that a changed episode scores higher than a clean one, ties counted half. `aupr`: mean
    precision over the changed ones; `base_rate` is what a random score would get. `fpr95`: share of clean
    episodes above the score that 95% of the changed ones reach.
    """

    auroc: float
    aupr: float
    base_rate: float
    fpr95: float


def separation(changed: Float[np.ndarray, " N"], clean: Float[np.ndarray, " M"]) -> Separation:
    """AUROC, AUPR and FPR at 95% of a score.

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
    # With ties, the precision at a score is that of all episodes with at least this score.
    above_changed = np.searchsorted(np.sort(-changed), -changed, side="right")
    above_clean = np.searchsorted(np.sort(-clean), -changed, side="right")
    aupr = np.mean(above_changed / (above_changed + above_clean))
    reached = np.sort(changed)[int(np.floor(0.05 * len(changed)))]
    base_rate = len(changed) / (len(changed) + len(clean))
    return Separation(float(auroc), float(aupr), base_rate, float(np.mean(clean >= reached)))


def _auroc(changed: Float[np.ndarray, "*lead N"], clean: Float[np.ndarray, "*lead M"]) -> np.ndarray:
    n, m = changed.shape[-1], clean.shape[-1]
    ranks = rankdata(np.concatenate([changed, clean], axis=-1), axis=-1)
    return (ranks[..., :n].sum(axis=-1) / n - (n + 1) / 2) / m


def separation_interval(
    changed: Float[np.ndarray, " N"],
    clean: Float[np.ndarray, " M"],
    *,
    draws: int = 1000,
    confidence: float = 0.99,
    seed: int = 0,
) -> tuple[float, float]:
    """Bootstrap interval of the AUROC: whole episodes are drawn again, changed and clean apart."""
    random = np.random.default_rng(seed)
    values = _auroc(*(random.choice(sample, (draws, len(sample))) for sample in (changed, clean)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


class Detections(NamedTuple):
    """What a sequential alarm did: of changed episodes, and of clean ones.

    `delay` is the median number of steps from when the change could be known to the alarm, over the
    episodes where it could be known and was found; `missed` the share of these where it was not found;
    `early` the share that was alarmed before the change; `false_alarms` the share of clean episodes.
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
    """From where an alarm was raised; steps count from 0.

    `change` is the first changed step, `knowable` the step of each episode at which the change could first
    be known, infinite where it never could. An alarm before `change` is a false one: the episode is left out.
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
