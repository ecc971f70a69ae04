"""Forecasts of targets in their own units."""

import dataclasses

import numpy as np

MOST_SHOWN = 4
"""Entries of a target that are printed."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Predicted targets under a belief, the result of `rl.Monitor.predict`: means and standard deviations.

    `str(forecast)` is a text such as `next reward 0.3 ± 0.2`.

    **Arguments:** `mean` and `stddev`, both by name of the target, of shape `(K,)` or `(streams, K)`.

    ```python
    print(rl.Forecast(mean={"reward": np.array([0.31])}, stddev={"reward": np.array([0.2])}))
    ```
    """

    mean: dict[str, np.ndarray]
    stddev: dict[str, np.ndarray]

    def __str__(self) -> str:
        texts = []
        for name, mean in self.mean.items():
            pairs = list(zip(np.ravel(mean), np.ravel(self.stddev[name]), strict=True))
            shown = ", ".join(f"{value:.2g} ± {stddev:.1g}" for value, stddev in pairs[:MOST_SHOWN])
            texts.append(f"next {name} {shown}{', ...' if len(pairs) > MOST_SHOWN else ''}")
        return "; ".join(texts)
