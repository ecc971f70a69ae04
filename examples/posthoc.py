"""Train a plain recurrent agent, then compute its belief.

The agent learns a two-armed bandit. After training, a Laplace posterior is added to its memory, without
changing a weight. The entropy of the belief falls with the number of pulls.
"""

import jax

import recurrent_laplace as rl
from recurrent_laplace.tasks.held_out import LENGTHS

CONFIG = rl.Config(
    task=rl.TwoArmBandit(),
    agent=rl.AgentConfig(hidden_size=16, features=4, embedding_sizes=(16,), head_sizes=(16,)),
    posterior=rl.PointConfig(),
    learning=rl.LearningConfig(
        updates=60, steps=20, batch=64, epochs=4, learning_rate=3e-3, entropy_weight=0.02
    ),
)


def main() -> None:
    """Train, change the posterior, and test both agents on the same 64 problems."""
    state, metrics = jax.jit(rl.make_train(CONFIG))(jax.random.key(0))
    regret = metrics["cumulative_regret"]
    print(f"trained: regret of 20 pulls {regret[0]:.2f} at first, {regret[-5:].mean():.2f} in the end")

    # In units of the features. With 1, samples would be too wide for this small agent to act on.
    laplace = rl.LaplaceConfig(covariance="dense", prior_stddev=0.3)
    plain, bayesian = state.model, rl.with_posterior(state.model, laplace, key=jax.random.key(1))
    same = zip(jax.tree.leaves(plain), jax.tree.leaves(bayesian), strict=True)
    print("weights unchanged:", all((a == b).all() for a, b in same))

    test = rl.EvaluationConfig(tasks=64)
    rnn, belief = (rl.evaluate(agent, CONFIG.task, CONFIG.learning, test) for agent in (plain, bayesian))
    # The Bayesian agent acts on samples of its belief, so its uncertainty adds regret.
    print("pulls   entropy, nats   cumulative regret: RNN, and with samples of the belief")
    for column, t in enumerate(LENGTHS):
        if t in (1, 5, 10, 20, 50, 100):
            print(
                f"{t:5} {belief['entropy'][:, column].mean():15.3f}"
                f" {rnn['cumulative_regret'][:, column].mean():20.2f}"
                f" {belief['cumulative_regret'][:, column].mean():17.2f}"
            )


if __name__ == "__main__":
    main()
