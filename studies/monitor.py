"""Time of a step of a `Monitor`: one stream (dense, H 128, F 64), and a thousand (diagonal).

python studies/monitor.py
"""

import statistics
import time

import jax
import numpy as np

import recurrent_laplace as rl

INPUT, HIDDEN, FEATURES = 32, 128, 64


def milliseconds(monitor: rl.Monitor, x: np.ndarray, steps: int = 200) -> tuple[float, float]:
    """Median and 95th percentile of a step, from input to readings in NumPy."""
    for _ in range(5):
        monitor.step(x)
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        monitor.step(x)
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times), statistics.quantiles(times, n=20)[-1]


def main() -> None:
    """Print a row for each case."""
    k1, k2, k3, k4 = jax.random.split(jax.random.key(0), 4)
    memory = rl.Memory(rl.LSTM(INPUT, HIDDEN, key=k1), FEATURES, key=k2)
    heads = {
        "policy": rl.Affine.init(FEATURES, 4, key=k3),
        "value": rl.Affine.init(FEATURES, 1, key=k4),
    }
    heads = {name: (lambda z, context, head=head: head(z)) for name, head in heads.items()}
    random = np.random.default_rng(0)
    print("| posterior | streams | heads | median, ms | 95%, ms |\n|---|---|---|---|---|")
    for covariance, streams, with_heads in (
        ("dense", None, False),
        ("dense", None, True),
        ("diagonal", None, False),
        ("diagonal", 1000, False),
        ("diagonal", 1000, True),
    ):
        posterior = rl.LaplacePosterior(memory, covariance=covariance)
        monitor = rl.Monitor(posterior, streams=streams, **(heads if with_heads else {}))
        x = random.normal(size=(INPUT,) if streams is None else (streams, INPUT)).astype(np.float32)
        median, tail = milliseconds(monitor, x, 200 if streams is None else 50)
        row = (covariance, str(streams or 1), "yes" if with_heads else "no", f"{median:.2f}", f"{tail:.2f}")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
