"""Train a plain recurrent agent, then ask it what it believes.

The agent learns a two-armed bandit with a point estimate and no notion of a belief. After that a Laplace
posterior is put on its memory; not one weight changes. The entropy of the belief falls as it sees pulls.
"""

import jax

import recurrent_laplace as rl
from recurrent_laplace.evaluation.lengths import LENGTHS

CONFIG = rl.Config(
    task=rl.TwoArmBandit(),
    agent=rl.AgentConfig(hidden_size=16, features=4, embedding_sizes=(16,), head_sizes=(16,)),
    posterior=rl.PosteriorConfig(kind="point"),
    learning=rl.LearningConfig(
        updates=60, steps=20, batch=64, epochs=4, learning_rate=3e-3, entropy_weight=0.02
    ),
)


def main() -> None:
    """Train, change the posterior, and test both agents on the same 64 problems."""
    state, metrics = jax.jit(rl.make_train(CONFIG))(jax.random.key(0))
    regret = metrics["cumulative_regret"]
    print(f"trained: regret of 20 pulls {regret[0]:.2f} at first, {regret[-5:].mean():.2f} in the end")

    # In the units of the features. At 1, draws are too wide for this small agent to act on.
    laplace = rl.PosteriorConfig(kind="laplace", covariance="dense", prior_stddev=0.3)
    plain, bayesian = state.model, rl.with_posterior(state.model, laplace, key=jax.random.key(1))
    same = zip(jax.tree.leaves(plain), jax.tree.leaves(bayesian), strict=True)
    print("weights unchanged:", all((a == b).all() for a, b in same))

    test = rl.EvaluationConfig(tasks=64)
    rnn, belief = (rl.evaluate(agent, CONFIG.task, CONFIG.learning, test) for agent in (plain, bayesian))
    # The Bayesian agent acts on draws from its belief: what it is not sure of costs it.
    print("pulls   entropy, nats   regret so far: RNN, and on its belief")
    for column, t in enumerate(LENGTHS):
        if t in (1, 5, 10, 20, 50, 100):
            print(
                f"{t:5} {belief['entropy'][:, column].mean():15.3f}"
                f" {rnn['cumulative_regret'][:, column].mean():20.2f}"
                f" {belief['cumulative_regret'][:, column].mean():17.2f}"
            )


if __name__ == "__main__":
    main()
