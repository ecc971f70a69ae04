"""Deployment of a posterior: one step as an exported program, run by a process that has only JAX.

python examples/deploy.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

import recurrent_laplace as rl

ELSEWHERE = """
import sys

import jax
import jax.numpy as jnp

step = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
size = step.in_avals[-2].shape
state = [jnp.zeros(a.shape, a.dtype) for a in step.in_avals[:-2]]
for t in range(5):
    x = jnp.full(size, 0.5 * t)
    *state, entropy, kl, mahalanobis, mean, stddev = step.call(*state, x, jnp.asarray(t == 0))
    print(f"step {t + 1}: entropy {entropy:.4f}, KL {kl:.4f}")
assert "recurrent_laplace" not in sys.modules
"""


def main() -> None:
    """Export, run elsewhere, and compare."""
    key_cell, key_readout = jax.random.split(jax.random.key(0))
    memory = rl.Memory(rl.LSTM(3, 32, key=key_cell), features=8, key=key_readout)
    posterior = rl.LaplacePosterior(memory, covariance="dense", accumulate="precision", window=1)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "step.jaxexport"
        rl.export(program, posterior)
        print(f"exported {program.stat().st_size / 1e3:.0f} kB; in a process without this package:")
        there = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, program], capture_output=True, text=True, check=True
        ).stdout
        print(there, end="")

        # The same with the library, from a file that includes the running state.
        monitor = rl.Monitor(posterior)
        for t in range(3):
            monitor.step(jnp.full(3, 0.5 * t))
        rl.save(Path(folder) / "monitor.safetensors", monitor)
        again = rl.load(Path(folder) / "monitor.safetensors")
        for t in range(3, 5):
            reading = again.step(jnp.full(3, 0.5 * t))
    here = f"step {reading.step}: entropy {reading.entropy:.4f}, KL {reading.kl:.4f}"
    print("with the library, saved and continued:", here, sep="\n")
    assert there.splitlines()[-1] == here


if __name__ == "__main__":
    main()
