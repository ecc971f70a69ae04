"""A posterior for a recurrent Flax agent, from its Linen parameters.

The agent gets noisy hints of the side of a prize, left or right, and moves to one side at every step. It is
trained with Flax and optax. From its parameters, the GRU becomes a `Memory` whose readout is the policy, and
the posterior gives the uncertainty of the logit.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

import recurrent_laplace as rl

STEPS, HIDDEN = 20, 16


class Agent(nn.Module):
    """Hints `(T, 1)` in, the logit of going right `(T, 1)` out."""

    @nn.compact
    def __call__(self, hints):
        embedded = nn.tanh(nn.Dense(HIDDEN, name="encoder")(hints))
        hidden = nn.RNN(nn.GRUCell(HIDDEN), name="memory")(embedded)
        self.sow("intermediates", "embedded", embedded)
        return nn.Dense(1, name="policy")(hidden)


def episode(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Hints `(T, 1)` and the side of the prize: 1 is right."""
    key_side, key_noise = jax.random.split(key)
    side = jax.random.bernoulli(key_side).astype(float)
    return (2 * side - 1) + 2 * jax.random.normal(key_noise, (STEPS, 1)), side


def loss(params: dict, key: jax.Array) -> jax.Array:
    """Cross-entropy of the side at every step, over 64 episodes."""

    def one(key: jax.Array) -> jax.Array:
        hints, side = episode(key)
        return optax.sigmoid_binary_cross_entropy(Agent().apply(params, hints)[:, 0], side).mean()

    return jax.vmap(one)(jax.random.split(key, 64)).mean()


@jax.jit
def train(params: dict, key: jax.Array) -> tuple[dict, jax.Array]:
    """300 updates: parameters and losses."""
    optimizer = optax.adam(1e-2)

    def update(state: tuple, key: jax.Array) -> tuple:
        params, moments = state
        value, gradient = jax.value_and_grad(loss)(params, key)
        change, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(params, change), moments), value

    (params, _), losses = jax.lax.scan(update, (params, optimizer.init(params)), jax.random.split(key, 300))
    return params, losses


def main() -> None:
    """Train in Flax, convert, and read the belief along one episode."""
    k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
    hints, side = episode(k3)
    params, losses = train({"params": Agent().init(k1, hints)["params"]}, k2)
    print(f"trained in Flax: cross-entropy {losses[0]:.2f} at first, {losses[-50:].mean():.2f} in the end")

    memory = rl.interop.flax.from_linen(params, "GRUCell", readout=params["params"]["policy"])
    logits, seen = Agent().apply(params, hints, mutable="intermediates")
    beliefs = rl.LaplacePosterior(memory).unroll(seen["intermediates"]["embedded"][0])
    print(f"largest difference from Flax's own logits: {jnp.abs(beliefs.mean - logits).max():.0e}")
    print(f"the prize is {'right' if side else 'left'}\nhints   goes right   stddev of the logit")
    for t in (1, 2, 5, 10, 20):
        chance, stddev = jax.nn.sigmoid(beliefs.mean[t - 1, 0]), jnp.sqrt(beliefs.variance()[t - 1, 0])
        print(f"{t:5} {chance:11.1%} {stddev:20.3f}")


if __name__ == "__main__":
    main()
