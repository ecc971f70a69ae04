"""The installed package, used from outside of its repository."""

import importlib.resources

import jax

import recurrent_laplace as rl

assert "site-packages" in rl.__file__, rl.__file__
assert importlib.resources.files("recurrent_laplace").joinpath("py.typed").is_file()
k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
memory = rl.Memory(rl.LSTM(3, 16, key=k1), features=8, key=k2)
beliefs = rl.LaplacePosterior(memory).unroll(jax.random.normal(k3, (20, 3)))
assert beliefs.entropy().shape == (20,)
print("smoke: ok, version", rl.__version__)
