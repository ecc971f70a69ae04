"""Synthetic episodes with drifting readings and optional shifts, and recorded ones."""

import dataclasses

import jax
import numpy as np
import polars as pl

import recurrent_laplace as rl
from recurrent_laplace.monitoring.episode import Episode

T = 60
SIGNALS = ("td_error", "value_stddev", "value")


def episode(random, *, shift_at=None, by=2.0, source="a", length=T):
    """Episode whose signals drift with t, as beliefs do, and rise from `shift_at` on."""
    t = np.arange(1, length + 1)
    up = by * (t > shift_at) if shift_at is not None else 0.0
    noise = random.normal(size=(4, length))
    # Correlated over time, as readings are.
    noise[:, 1:] = 0.6 * noise[:, :-1] + 0.8 * noise[:, 1:]
    steps = pl.DataFrame(
        {
            "t": t,
            "reward": random.normal(size=length),
            "ended": np.zeros(length, bool),
            "action": np.zeros(length),
            "entropy": 10 - 0.1 * t + 0.2 * noise[0],
            "kl": np.exp(0.02 * t + 0.3 * (noise[1] + up)),
            "value": 0.1 * noise[2],
            "value_stddev": np.exp(-0.01 * t + 0.3 * (noise[3] + up)),
        }
    )
    return Episode(steps, np.zeros((length, 1)), source=source)


def clean_episodes(count):
    """Episodes without shifts."""
    random = np.random.default_rng(0)
    return [episode(random) for _ in range(count)]


def record(monitor, inputs):
    """Episodes of a monitor with several streams, without rewards; `inputs` is `(streams, steps, D)`."""
    steps = inputs.shape[1]
    readings = [monitor.step(inputs[:, t]) for t in range(steps)]
    return [
        Episode.of(own, [0] * steps, [0.0] * steps, jax.tree.map(lambda leaf, i=i: leaf[i], readings))
        for i, own in enumerate(map(list, np.asarray(inputs)))
    ]


def run_alarm(alarm, one):
    """Outputs of an alarm along an episode."""
    rewards = [0.0, *one.steps["reward"]]
    return [alarm.step(reading_at(one, t), reward=rewards[t]) for t in range(T)]


def reading_at(one, t, **changes):
    """Reading of an episode at step t."""
    row = one.steps.row(t, named=True)
    zero = np.zeros(1)
    return dataclasses.replace(
        rl.Reading(
            entropy=row["entropy"],
            kl=row["kl"],
            mahalanobis=np.float64(0),
            mean=zero,
            stddev=zero,
            step=t + 1,
            value=row["value"],
            value_stddev=row["value_stddev"],
            source=one.source,
        ),
        **changes,
    )


def monitored_episodes(monitor, inputs, *, actions, rewards):
    """Episodes of a monitor with one stream per episode; `inputs` have the axes time, episode, feature."""
    readings = [monitor.step(x) for x in inputs]
    return [
        Episode.of(
            list(inputs[:, i]),
            actions,
            rewards[i],
            [jax.tree.map(lambda leaf, i=i: leaf[i], reading) for reading in readings],
        )
        for i in range(inputs.shape[1])
    ]
