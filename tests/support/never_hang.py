"""The worst case for batched factorisations on a small thread pool, run for `test_safety.py`.

With jaxlib 0.10 on two cores, two independent batched LAPACK calls in one program could hang for ever,
seen with shapes (50, 64, 64, 64) on the second call. Two dense Laplace posteriors and a dense
variational one side by side have many independent factorisations.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import recurrent_laplace as rl

BATCH, STEPS, INPUTS, HIDDEN, FEATURES, RUNS = 64, 50, 4, 16, 64, 4


def build(key: jax.Array) -> list[rl.AbstractPosterior]:
    keys = jax.random.split(key, 7)

    def memory(i: int) -> rl.Memory:
        return rl.Memory(rl.GRU(INPUTS, HIDDEN, key=keys[i]), features=FEATURES, key=keys[i + 1])

    return [
        rl.LaplacePosterior(memory(0)),
        rl.LaplacePosterior(memory(2), accumulate="mean_and_precision"),
        rl.VariationalPosterior(memory(4), key=keys[6]),
    ]


def objective(posteriors: list[rl.AbstractPosterior], inputs: jax.Array, key: jax.Array) -> jax.Array:
    def of_task(inputs: jax.Array, key: jax.Array) -> jax.Array:
        total = jnp.zeros(())
        all_beliefs = [posterior.unroll(inputs) for posterior in posteriors]
        for posterior, beliefs in zip(posteriors, all_beliefs, strict=True):
            total += jnp.mean(beliefs.sample(key) ** 2) + jnp.mean(posterior.consecutive_kl(beliefs))
            total += jnp.mean(beliefs.entropy())
        # Once is enough: it compiles slowly.
        return total + jnp.mean(all_beliefs[0].covariance() ** 2)

    return jnp.mean(jax.vmap(of_task)(inputs, jax.random.split(key, BATCH)))


def main() -> None:
    posteriors = build(jax.random.key(0))
    inputs = jax.random.normal(jax.random.key(1), (BATCH, STEPS, INPUTS))
    started = time.monotonic()
    compiled = jax.jit(jax.value_and_grad(objective)).lower(posteriors, inputs, jax.random.key(2)).compile()
    text = compiled.as_text().lower()
    assert "dot" in text, "the text of the program is not what it was thought to be"
    assert "lapack" not in text, "the program calls LAPACK"
    print(f"compiled in {time.monotonic() - started:.1f} s", flush=True)
    started = time.monotonic()
    for i in range(RUNS):
        value, gradient = compiled(posteriors, inputs, jax.random.key(i))
        assert np.isfinite(value)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    print(f"finished {RUNS} runs in {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
