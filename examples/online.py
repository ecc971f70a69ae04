"""A belief kept up to date, one input at a time, as a controller or a monitor would.

Two episodes of a noisy wave. A reset forgets everything before the input it comes with. One reading of the
second episode is broken: `update_info` tells, and the state from before it is kept.
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
    memory = jax.tree.map(lambda leaf: 3 * leaf, memory)  # livelier than a fresh network
    posterior = rl.LaplacePosterior(memory, forgetting=0.95)

    stream = readings(k3, 16)
    stream = stream.at[12, 0].set(jnp.nan)
    starts = {0, 8}

    state, previous = posterior.init(), posterior.prior()
    print(f"before any input: entropy {previous.entropy():.2f} nats")
    for t, x in enumerate(stream):
        reset = t in starts
        following, belief, info = posterior.update_info(state, x, reset)
        if problems := info.problems():
            print(f"t {t:2}  skipped: {problems[0]}")
            continue  # `state` is a value: the one before this input is still there
        kl = belief.kl(posterior.prior() if reset else previous)
        mark = "  reset" if reset else ""
        print(f"t {t:2}  entropy {belief.entropy():6.2f}  KL from the belief before {kl:5.2f}{mark}")
        state, previous = following, belief


if __name__ == "__main__":
    main()
