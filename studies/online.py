"""Two numbers that `recurrent-laplace bench posterior` does not print: one online step, and a large batch.

`update` for one stream (D 512, H 128, F 64), and the memory and time of the gradient of (unroll, one
sample, KL) for dense beliefs, sum of precisions, B 256, T 100.
"""

import statistics
import time

import jax
import jax.numpy as jnp

import recurrent_laplace as rl
from recurrent_laplace.benchmarks.measure import compile_program
from recurrent_laplace.benchmarks.posterior import build_posterior, mean_objective
from recurrent_laplace.benchmarks.variants import VARIANTS

k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
memory = rl.Memory(rl.LSTM(512, 128, key=k1), features=64, key=k2)
x = jax.random.normal(k3, (512,))

for name, options in {
    "dense, sum": {},
    "diagonal, sum": {"covariance": "diagonal"},
    "dense, window 10": {"accumulate": "none", "window": 10},
}.items():
    posterior = rl.LaplacePosterior(memory, **options)
    update = jax.jit(lambda posterior, state, x: posterior.update(state, x))
    state, _ = update(posterior, posterior.init(), x)
    taken = []
    for _ in range(500):
        start = time.perf_counter()
        state, belief = jax.block_until_ready(update(posterior, state, x))
        taken.append(1e3 * (time.perf_counter() - start))
    print(f"update, one stream, {name}: median {statistics.median(taken):.2f} ms, least {min(taken):.2f} ms")

inputs, noise = jnp.zeros((256, 100, 512)), jnp.zeros((256, 100, 64))
posterior = build_posterior(memory, VARIANTS["dense-sum"])
program, peak_mb = compile_program(jax.grad(mean_objective), posterior, inputs, noise)
start = time.perf_counter()
jax.block_until_ready(program(posterior, inputs, noise))
print(f"gradient, dense, sum, B 256, T 100: peak {peak_mb:.0f} MB, {time.perf_counter() - start:.1f} s")
