"""The Laplace posterior of an untrained LSTM over a sequence, in one figure.

The LSTM has random weights. Its inputs are a sine wave, then zeros, then noise. The features of the network
are the mean of the belief; the Laplace posterior adds the covariance.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import recurrent_laplace as rl

PHASES = ("sine", "silence", "noise")
LENGTH = 60


def inputs(key: jax.Array) -> jax.Array:
    """One signal of three phases, and its step from the value before: shape (T, 2)."""
    sine = jnp.sin(jnp.arange(LENGTH) / 3)
    noise = 1.5 * jax.random.normal(key, (LENGTH,))
    signal = jnp.concatenate([sine, jnp.zeros(LENGTH), noise])
    return jnp.stack([signal, jnp.diff(signal, prepend=0.0)], axis=-1)


def main(out: Path) -> None:
    """Compute the beliefs of three posteriors on one network and draw them."""
    k1, k2, k3 = jax.random.split(jax.random.key(1), 3)
    print("An LSTM with 64 units and a readout to 16 features; nothing is trained.")
    memory = rl.Memory(rl.LSTM(2, 64, key=k1), features=16, key=k2)
    memory = jax.tree.map(lambda leaf: 3 * leaf, memory)  # larger than initial weights
    posteriors = {
        "sum of precisions": rl.LaplacePosterior(memory, accumulate="precision"),
        "sum, forgetting 0.97": rl.LaplacePosterior(memory, accumulate="precision", forgetting=0.97),
        "stationary, window 10": rl.LaplacePosterior(memory, accumulate="none", window=10),
    }
    colours = ("tab:green", "tab:olive", "tab:red")
    signal = inputs(k3)
    time = jnp.arange(1, len(signal) + 1)

    figure, axes = plt.subplots(4, 1, figsize=(8, 9), sharex=True, layout="constrained")
    axes[0].plot(time, signal[:, 0], color="black", linewidth=1)
    axes[0].set_ylabel("input")
    for (name, posterior), colour in zip(posteriors.items(), colours, strict=True):
        print(f"{name}: {posterior.cost(len(signal))}")
        inference = posterior.infer(signal)
        inference.info.raise_if_bad()
        beliefs = inference.belief
        mean, stddev = beliefs.mean[:, 0], jnp.sqrt(beliefs.variance()[:, 0])
        axes[1].plot(time, mean, color="black", linewidth=1)
        axes[1].fill_between(
            time, mean - 2 * stddev, mean + 2 * stddev, color=colour, alpha=0.25, linewidth=0
        )
        axes[2].plot(time, beliefs.entropy(), color=colour, label=name)
        axes[3].plot(time, posterior.consecutive_kl(beliefs), color=colour)
    axes[1].set_ylabel("first feature,\nmean and 2 stddev")
    axes[2].set_ylabel("entropy, nats")
    axes[2].legend(frameon=False)
    axes[3].set_ylabel("KL from the belief\nbefore, nats")
    axes[3].set_yscale("log")
    axes[3].set_ylim(bottom=1e-4)
    axes[3].set_xlabel("inputs seen")
    for axis in axes:
        for i in (1, 2):
            axis.axvline(i * LENGTH + 0.5, color="0.7", linewidth=0.8, zorder=0)
        axis.spines[["top", "right"]].set_visible(False)
    for i, phase in enumerate(PHASES):
        axes[0].text((i + 0.5) * LENGTH, 1.02, phase, ha="center", transform=axes[0].get_xaxis_transform())
    figure.suptitle("What an untrained LSTM believes")

    out.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "svg"):
        figure.savefig(out / f"belief.{suffix}", dpi=130)
    print(out / "belief.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("build"), help="folder for the picture")
    main(parser.parse_args().out)
