"""A belief that is updated online, one input at a time, as in a controller or a monitor.

Two episodes of a noisy wave. A reset returns to the prior before the input of its step. One input of the
second episode is NaN: `infer_step` reports it, and the previous state is kept.
"""

import jax
import jax.numpy as jnp

import recurrent_laplace as rl


def readings(key: jax.Array, steps: int) -> jax.Array:
    """What a sensor says and how that has changed, `(T, 2)`."""
    signal = jnp.sin(jnp.arange(steps) / 2) + 0.1 * jax.random.normal(key, (steps,))
    return jnp.stack([signal, jnp.diff(signal, prepend=0.0)], axis=-1)


def main() -> None:
    """Feed two episodes of eight inputs to one posterior."""
    k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
    memory = rl.Memory(rl.LSTM(2, 32, key=k1), features=8, key=k2)
    memory = jax.tree.map(lambda leaf: 3 * leaf, memory)  # larger than initial weights
    posterior = rl.LaplacePosterior(memory, forgetting=0.95)

    stream = readings(k3, 16)
    stream = stream.at[12, 0].set(jnp.nan)
    starts = {0, 8}

    state, previous = posterior.init(), posterior.prior()
    print(f"before any input: entropy {previous.entropy():.2f} nats")
    for t, x in enumerate(stream):
        reset = t in starts
        following, inference = posterior.infer_step(state, x, reset)
        if problems := inference.info.problems():
            print(f"t {t:2}  skipped: {problems[0]}")
            continue  # states are immutable: `state` is still that before this input
        belief = inference.belief
        kl = belief.kl(posterior.prior() if reset else previous)
        mark = "  reset" if reset else ""
        print(f"t {t:2}  entropy {belief.entropy():6.2f}  KL from the previous belief {kl:5.2f}{mark}")
        state, previous = following, belief


if __name__ == "__main__":
    main()
