"""The child process of `peers.py` that trains this package: an RNN, or a Laplace-VRNN."""

import jax
import jax.numpy as jnp
from peers_curve import STEPS, Curve, Request, run

from recurrent_laplace.learning import make_train
from recurrent_laplace.learning.lookup import with_lookup
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.runs.config import config_from
from recurrent_laplace.runs.presets import load_preset
from recurrent_laplace.runs.toml import merge

POSTERIORS = {"rnn": {"kind": "point"}, "laplace-diagonal": {"kind": "laplace", "covariance": "diagonal"}}
UPDATES_PER_CALL = 5


def train(request: Request, curve: Curve) -> None:
    """Train with the laptop preset and the values of `settings` for `[learning]`."""
    posterior = POSTERIORS[request.system]
    config = config_from(
        merge(
            {"task": {"name": "gridworld"}},
            load_preset("laptop", "gridworld", posterior["kind"]),
            {"posterior": posterior},
            {"learning": request.settings},
        )
    )
    task, learning = config.task, config.learning

    @jax.jit
    def mean_return(agent, key):
        def play(key):
            key_problem, key_play = jax.random.split(key)
            experience, _ = rollout(
                with_lookup(agent, task, learning.lookup),
                task,
                task.sample(key_problem, test=True),
                steps=STEPS,
                samples=learning.acting_samples,
                policy=learning.acting_policy,
                key=key_play,
            )
            return jnp.sum(experience.reward)

        return jnp.mean(jax.vmap(play)(jax.random.split(key, request.tasks)))

    trained = make_train(config)
    state, done = trained.init(jax.random.key(request.seed)), 0
    evaluate = lambda seed: mean_return(state.model, jax.random.key(seed))  # noqa: E731
    while done < learning.updates and not curve.is_over:
        curve.measure(done * learning.batch * learning.steps, evaluate)
        done = min(done + UPDATES_PER_CALL, learning.updates)
        state, _ = jax.block_until_ready(trained.advance(state, done))
    curve.measure(done * learning.batch * learning.steps, evaluate, last=True)


if __name__ == "__main__":
    run(train, ["recurrent-laplace", "jax"])
