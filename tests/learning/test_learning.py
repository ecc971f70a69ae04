"""Learning: against the same sums in NumPy and SciPy; and training that is a function of its key."""

import dataclasses
import functools
import re
from typing import ClassVar

import equinox as eqx
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
import scipy.stats
from support.models import randomized, small_agent
from support.networks import embed_by_hand, head_by_hand
from support.registry import TOLERANCE, assert_close

import recurrent_laplace as rl
from recurrent_laplace.learning import rollout as rollout_module
from recurrent_laplace.learning import train as train_module
from recurrent_laplace.learning.objectives import ppo as ppo_module
from recurrent_laplace.learning.objectives.base import Schedule
from recurrent_laplace.learning.objectives.ppo import Batch, clipped_objective, control_loss, gather
from recurrent_laplace.learning.objectives.regression import Pairs, regression_loss, sample_pairs
from recurrent_laplace.learning.optimizer import learning_rate, make_optimizer
from recurrent_laplace.learning.returns import advantages
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.learning.train import CHUNK, WATCHED
from recurrent_laplace.models.regressor import LEAST_STDDEV
from recurrent_laplace.posterior.variational import LOG_EIGENVALUE_RANGE
from recurrent_laplace.tasks.experience import Experience

# Compiled in a third of the time, since the code is run once or twice only.
compiled = functools.partial(jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": False})

KEY = jax.random.key(0)
SMALL = rl.AgentConfig(hidden_size=6, features=3, embedding_sizes=(5,), head_sizes=(5,))
# What is compiled for whole trainings: few operations, since compiling them takes all the time.
BARE = dataclasses.replace(SMALL, cell="elman", layer_norm=False)
POSTERIORS = {
    "point": rl.PointConfig(),
    "variational-dense": rl.VariationalConfig(covariance="dense", prior_stddev=1.5),
    "laplace-diagonal": rl.LaplaceConfig(prior_stddev=1.5),
    "laplace-dense": rl.LaplaceConfig(covariance="dense", prior_stddev=0.7),
    "laplace-dense-sums": rl.LaplaceConfig(covariance="dense", accumulate="mean_and_precision"),
}
GRID = rl.Gridworld(size=2, episode_length=3)


@functools.cache
def agent_of(posterior, policy_input="belief_and_observation", config=SMALL):
    options = {"config": config, "policy_input": policy_input, "key": KEY}
    return randomized(jax.eval_shape(lambda: small_agent(GRID, POSTERIORS[posterior], **options)))


def assert_same_bits(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(plain(left), plain(right))


def is_key(leaf):
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(leaf):
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


# Advantages, the clipped objective, and the policy's entropy

STEPS = 9
compiled_advantages = compiled(advantages)


def advantages_by_hand(rewards, discounts, values, decay):
    """Generalized advantage estimation as its double sum over one trajectory."""
    rewards, discounts, values = (np.asarray(x, np.float64) for x in (rewards, discounts, values))
    errors = rewards + discounts * values[1:] - values[:-1]
    steps = range(len(rewards))
    return np.array([sum(np.prod(decay * discounts[t:s]) * errors[s] for s in steps[t:]) for t in steps])


@hypothesis.given(
    seed=st.integers(0, 2**32 - 1),
    discount=st.floats(0, 1),
    decay=st.floats(0, 1),
    ends=st.lists(st.booleans(), min_size=STEPS, max_size=STEPS),
)
def test_advantages_are_the_sum_of_discounted_errors(seed, discount, decay, ends):
    random = np.random.default_rng(seed)
    rewards, values = random.normal(size=STEPS), random.normal(size=STEPS + 1)
    discounts = discount * (1.0 - np.array(ends))
    ours = compiled_advantages(rewards, discounts, values, decay)
    assert_close(ours, advantages_by_hand(rewards, discounts, values, decay))
    # Nothing from after the end of an episode counts for what was before.
    for t in np.flatnonzero(ends):
        later = np.where(np.arange(STEPS) > t, 1e3, 0.0)
        changed = compiled_advantages(rewards + later, discounts, values + np.append(0.0, later), decay)
        np.testing.assert_array_equal(changed[: t + 1], ours[: t + 1])


def test_advantages_are_returns_or_one_step_errors_at_the_ends_of_lambda():
    random = np.random.default_rng(1)
    rewards, values, discount = random.normal(size=STEPS), random.normal(size=STEPS + 1), 0.8
    discounts = np.full(STEPS, discount)
    errors = rewards + discount * values[1:] - values[:-1]
    assert_close(compiled_advantages(rewards, discounts, values, 0.0), errors)
    returns = [
        sum(discount**k * r for k, r in enumerate(rewards[t:])) + discount ** (STEPS - t) * values[-1]
        for t in range(STEPS)
    ]
    assert_close(compiled_advantages(rewards, discounts, values, 1.0), returns - values[:-1])


def test_clipped_objective_is_the_lesser_product_in_value_and_gradient():
    random = np.random.default_rng(2)
    ratio, advantage = np.exp(random.normal(size=64)), random.normal(size=64)
    assert np.sum(np.abs(ratio - 1) > 0.3) > 10

    def loss(ratio):
        return -jnp.mean(clipped_objective(ratio, jnp.asarray(advantage), 0.3))

    value, gradient = compiled(jax.value_and_grad(loss))(ratio)
    lesser = np.minimum(ratio * advantage, np.clip(ratio, 0.7, 1.3) * advantage)
    assert_close(value, -lesser.mean())
    # Only where the unclipped product is the lesser does the ratio matter.
    assert_close(gradient, np.where(lesser == ratio * advantage, -advantage / len(ratio), 0.0))


def test_entropy_and_log_prob_of_a_policy_are_exact():
    random = np.random.default_rng(3)
    logits, action = 3 * random.normal(size=(7, 2, 5)), random.integers(0, 5, (7, 2))
    behaviour = rl.Behaviour(jnp.asarray(logits), jnp.zeros((7, 2)))
    got = compiled(lambda: (behaviour.entropy(), behaviour.log_prob(jnp.asarray(action))))()
    probabilities = scipy.special.softmax(logits, axis=-1)
    assert_close(got[1], np.log(np.take_along_axis(probabilities, action[..., None], axis=-1))[..., 0])
    assert_close(got[0], scipy.stats.entropy(probabilities, axis=-1))
    assert_close(behaviour.entropy()[0], np.array(got[0])[0])
    uniform = rl.Behaviour(jnp.full(5, 3.0), jnp.zeros(()))
    assert_close(uniform.entropy(), np.log(5))


# A network, its beliefs and its losses once more, with nothing of the package but its weights


def weights_of(module):
    return jax.tree.map(np.asarray, module)


@compiled
def lstm_by_hand(cell, h, c, x):
    """The new carry, and the Jacobian of the step's `h` by the `h` before it."""

    def step(h, c):
        i, f, g, o = jnp.split(cell.weight_ih @ x + cell.weight_hh @ h + cell.bias, 4)
        c = c / (1 + jnp.exp(-f)) + jnp.tanh(g) / (1 + jnp.exp(-i))
        return jnp.tanh(c) / (1 + jnp.exp(-o)), c

    return *step(h, c), jax.jacfwd(lambda h: step(h, c)[0])(h)


def beliefs_by_hand(config, posterior, inputs):
    """Of one sequence: hidden states, means, covariances, roots that make draws of noise; q_0 first."""
    memory = posterior.memory
    readout, size = memory.readout, len(memory.readout.bias)
    h = c = np.zeros(memory.cell.hidden_size)
    eye = np.eye(size)
    hidden, means = [h], [readout.bias if config.kind == "point" else np.zeros(size)]
    roots = [np.zeros((size, size)) if config.kind == "point" else config.prior_stddev * eye]
    precision = None if config.kind == "point" else eye / config.prior_stddev**2
    for x in inputs:
        h, c, _ = lstm_by_hand(memory.cell, h, c, x)
        hidden.append(np.asarray(h))
        mean = readout.weight @ h + readout.bias
        means.append(mean + (means[-1] if config.method == "mean_and_precision" else 0))
        if config.kind == "laplace":
            # The newest input once more, at the carry that it led to.
            jacobian = readout.weight @ np.asarray(lstm_by_hand(memory.cell, h, c, x)[2])
            outer = jacobian @ jacobian.T
            precision = precision + (outer if config.covariance == "dense" else eye * outer)
            roots.append(np.linalg.inv(np.linalg.cholesky(precision)).T)
        elif config.kind == "variational":
            numbers = posterior.log_eigenvalue_head.weight @ h + posterior.log_eigenvalue_head.bias
            eigenvalues = np.exp(np.clip(numbers, *LOG_EIGENVALUE_RANGE))
            lower = np.zeros((size, size))
            numbers = posterior.rotation_head.weight @ h + posterior.rotation_head.bias
            lower[np.tril_indices(size, -1)] = numbers
            skew = lower - lower.T
            roots.append((eye - skew) @ np.linalg.inv(eye + skew) @ np.diag(np.sqrt(eigenvalues)))
        else:
            roots.append(roots[0])
    roots = np.stack(roots)
    return np.stack(hidden), np.stack(means), roots @ np.swapaxes(roots, -1, -2), roots


def batch_of_beliefs_by_hand(config, posterior, inputs):
    return map(np.stack, zip(*(beliefs_by_hand(config, posterior, x) for x in inputs), strict=True))


def mean_kl_by_hand(means, covariances):
    """The mean of `KL(q_t || q_{t-1})`, q_0 the first of each sequence."""
    total = []
    for mean, covariance in zip(means, covariances, strict=True):
        for t in range(1, len(mean)):
            d, precision = mean[t] - mean[t - 1], np.linalg.inv(covariance[t - 1])
            ratio = np.linalg.slogdet(covariance[t - 1])[1] - np.linalg.slogdet(covariance[t])[1]
            total.append((np.trace(precision @ covariance[t]) - len(d) + d @ precision @ d + ratio) / 2)
    return np.mean(total)


def mean_entropy_by_hand(covariances):
    return np.mean(np.linalg.slogdet(2 * np.pi * np.e * covariances[:, 1:])[1] / 2)


B, T, S = 3, 4, 2


def experience_by_chance(seed=0):
    """Not what an agent does: all numbers are free, so that no two parts of a loss look alike."""
    random = np.random.default_rng(seed)
    numbers = {
        "observation": random.normal(size=(B, T, GRID.observation_size)),
        "previous_action": random.integers(-1, GRID.actions, (B, T)),
        "previous_reward": random.normal(size=(B, T)),
        "action": random.integers(0, GRID.actions, (B, T)),
        "log_prob": -np.log(GRID.actions) + 0.5 * random.normal(size=(B, T)),
        "value": random.normal(size=(B, T + 1)),
        "reward": random.integers(0, 2, (B, T)).astype(float),
        "regret": random.normal(size=(B, T)),
        "episode_end": random.integers(0, 2, (B, T)).astype(bool),
    }
    return Experience(**{name: jnp.asarray(values) for name, values in numbers.items()})


def control_by_hand(config, learning, agent, batch, *, entropy_weight, key):
    agent, then = weights_of(agent), batch.experience
    seen = embed_by_hand(agent.observation_embedder, then.observation)
    one_hot = np.eye(agent.actions + 1)[then.previous_action][..., :-1]  # -1 picks the row that is cut off
    rewards = embed_by_hand(agent.reward_embedder, then.previous_reward[..., None])
    inputs = np.concatenate([seen, embed_by_hand(agent.action_embedder, one_hot), rewards], axis=-1)
    hidden, means, covariances, roots = batch_of_beliefs_by_hand(config, agent.posterior, inputs)
    shape = (1 if config.kind == "point" else learning.training_samples, *means[:, 1:].shape)
    noise = np.asarray(jax.random.normal(key, shape))
    z = means[:, 1:] + np.einsum("btij,sbtj->sbti", roots[:, 1:], noise)
    embedded = seen
    seen = {
        "belief": None,
        "belief_and_observation": seen,
        "belief_and_hidden": hidden[:, 1:],
    }[agent.policy_input]
    log_policy = scipy.special.log_softmax(head_by_hand(agent.policy_head, z, seen).mean(axis=0), axis=-1)
    value = head_by_hand(agent.value_head, z, seen)[..., 0].mean(axis=0)

    pieces = {"kl": np.nan, "entropy": np.nan}
    ratios = np.exp(np.take_along_axis(log_policy, then.action[..., None], -1)[..., 0] - then.log_prob)
    low, high = 1 - learning.clip, 1 + learning.clip
    pieces["policy_loss"] = -np.mean(
        [
            min(r * a, np.clip(r, low, high) * a)
            for r, a in zip(ratios.flat, batch.advantage.flat, strict=True)
        ]
    )
    pieces["clip_fraction"] = np.mean((ratios < low) | (ratios > high))
    pieces["value_loss"] = np.mean((value - batch.advantage - then.value[:, :-1]) ** 2) / 2
    pieces["policy_entropy"] = -np.mean(np.sum(np.exp(log_policy) * log_policy, axis=-1))
    loss = (
        learning.policy_weight * pieces["policy_loss"]
        + learning.value_weight * pieces["value_loss"]
        - entropy_weight * pieces["policy_entropy"]
    )
    if config.kind != "point":
        pieces["kl"] = mean_kl_by_hand(means, covariances)
        pieces["entropy"] = mean_entropy_by_hand(covariances)
        loss += learning.beta * pieces["kl"]
    if agent.reward_head is not None:
        logits = head_by_hand(agent.reward_head, z, seen).mean(axis=0)
        chance = 1 / (1 + np.exp(-np.take_along_axis(logits, then.action[..., None], -1)[..., 0]))
        pieces["reward_loss"] = -np.mean(np.log(np.where(then.reward == 1, chance, 1 - chance)))
        loss += learning.reward_weight * pieces["reward_loss"]
    if agent.predictor is not None:
        outputs = head_by_hand(agent.predictor.head, z, embedded).mean(axis=0)
        outputs = outputs.reshape(*outputs.shape[:-1], agent.actions, -1)
        outputs = np.take_along_axis(outputs, then.action[..., None, None], -2)[..., 0, :]
        logit, other = outputs[..., 0], outputs[:, :-1, 1:]
        pieces["reward_loss"] = -np.mean(
            np.log(scipy.special.expit(np.where(then.reward == 1, logit, -logit)))
        )
        groups = (B, T - 1, 2, GRID.size)  # the row, then the column
        log_chance = scipy.special.log_softmax(other.reshape(groups), axis=-1)
        log_chance = log_chance * then.observation[:, 1:].reshape(groups)
        pieces["observation_loss"] = -np.mean(log_chance.sum(axis=(-1, -2)))
        loss += learning.reward_weight * pieces["reward_loss"]
        loss += learning.observation_weight * pieces["observation_loss"]
    return loss, pieces


@pytest.mark.parametrize(
    ("posterior", "policy_input", "options"),
    [
        ("point", "belief_and_observation", {}),
        ("variational-dense", "belief", {"predict": ("observation", "reward")}),
        ("laplace-diagonal", "belief_and_hidden", {"reward_model": True}),
        ("laplace-dense", "belief_and_observation", {}),
        ("laplace-dense-sums", "belief", {}),
    ],
)
def test_control_loss_is_the_sum_done_by_hand(posterior, policy_input, options):
    agent = agent_of(posterior, policy_input, dataclasses.replace(SMALL, **options))
    learning = rl.LearningConfig(
        training_samples=S,
        beta=0.3,
        clip=0.4,
        policy_weight=0.7,
        value_weight=1.3,
        reward_weight=0.6,
        observation_weight=0.4,
    )
    batch = Batch(experience_by_chance(), jax.random.normal(jax.random.key(9), (B, T)))
    batch = jax.tree.map(np.asarray, batch)
    options = {"entropy_weight": 0.2, "key": jax.random.key(4)}
    run = compiled(lambda agent, batch: control_loss(agent, batch, learning, **options))
    loss, (metrics, finite) = run(agent, jax.tree.map(jnp.asarray, batch))
    expected, pieces = control_by_hand(POSTERIORS[posterior], learning, agent, batch, **options)
    assert 0 < pieces["clip_fraction"] < 1
    assert_pieces(metrics, pieces)
    assert_close(loss, expected)
    assert finite


def assert_pieces(metrics, pieces):
    assert metrics.keys() == pieces.keys()
    for name, piece in pieces.items():
        # The mean of booleans is a float32 in JAX, whatever the default.
        limit = TOLERANCE["float32" if name == "clip_fraction" else "float64"]
        np.testing.assert_allclose(metrics[name], piece, rtol=limit, atol=limit, err_msg=name)


def regression_by_hand(config, learning, model, pairs, *, key):
    model = weights_of(model)
    seen = embed_by_hand(model.input_embedder, pairs.x)
    inputs = np.concatenate([seen, embed_by_hand(model.output_embedder, pairs.y)], axis=-1)[:, :-1]
    _, means, covariances, roots = batch_of_beliefs_by_hand(config, model.posterior, inputs)
    # Belief number t, from 0, has seen t pairs, and predicts the next.
    assert means.shape[1] == pairs.x.shape[1]
    shape = (1 if config.kind == "point" else learning.training_samples, *means.shape)
    z = means + np.einsum("btij,sbtj->sbti", roots, np.asarray(jax.random.normal(key, shape)))
    mean = head_by_hand(model.prediction_head, z, seen).mean(axis=0)
    stddev = np.log1p(np.exp(model.raw_stddev)) + LEAST_STDDEV
    pieces = {
        "cross_entropy": -np.mean(scipy.stats.norm(mean, stddev).logpdf(pairs.y)),
        "squared_error": np.mean((mean - pairs.y) ** 2),
        "predictive_stddev": stddev[0],
        "kl": np.nan,
        "entropy": np.nan,
    }
    if config.kind == "point":
        return pieces["cross_entropy"], pieces
    pieces["kl"], pieces["entropy"] = mean_kl_by_hand(means, covariances), mean_entropy_by_hand(covariances)
    return pieces["cross_entropy"] + learning.beta * pieces["kl"], pieces


@pytest.mark.parametrize("posterior", ["point", "variational-dense", "laplace-diagonal"])
def test_regression_loss_is_the_sum_done_by_hand(posterior):
    config = POSTERIORS[posterior]
    model = randomized(jax.eval_shape(lambda: rl.Regressor.init(SMALL, config, key=KEY)))
    learning = rl.LearningConfig(training_samples=S, beta=0.3)
    random = np.random.default_rng(5)
    pairs = Pairs(random.normal(size=(B, T, 1)), random.normal(size=(B, T, 1)))
    key = jax.random.key(4)
    run = compiled(lambda model, pairs: regression_loss(model, pairs, learning, key=key))
    loss, (metrics, finite) = run(model, jax.tree.map(jnp.asarray, pairs))
    expected, pieces = regression_by_hand(config, learning, model, pairs, key=key)
    assert_pieces(metrics, pieces)
    assert_close(loss, expected)
    assert finite


@pytest.mark.parametrize("posterior", ["laplace-diagonal", "laplace-dense-sums"])
def test_gradient_of_a_laplace_penalty_comes_through_the_features_alone(posterior):
    """`1/2 d^T Lambda_{t-1} d` with all but `phi_t` constant has the gradient of the whole KL."""
    agent = agent_of(posterior)
    learning = rl.LearningConfig(beta=1.0, policy_weight=0.0, value_weight=0.0)
    batch = jax.tree.map(jnp.asarray, Batch(experience_by_chance(), jnp.zeros((B, T))))
    then = batch.experience

    def inputs_of(agent):
        return agent.embed(then.observation, then.previous_action, then.previous_reward)[0]

    def ours(agent):
        return control_loss(agent, batch, learning, entropy_weight=0.0, key=KEY)[0]

    def through_features(agent, beliefs, previous, offset):
        features = jax.vmap(agent.posterior.memory.unroll)(inputs_of(agent)).features
        moved = eqx.tree_at(lambda belief: belief.mean, beliefs, features + offset)
        return jnp.mean(moved.mahalanobis(previous))

    @compiled
    def both(agent):
        beliefs = jax.vmap(agent.posterior.unroll)(inputs_of(agent))
        first = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (B, 1, *leaf.shape)), agent.posterior.prior()
        )
        previous = jax.tree.map(lambda a, b: jnp.concatenate([a, b[:, :-1]], axis=1), first, beliefs)
        sums = agent.posterior.accumulate == "mean_and_precision"
        offset = previous.mean if sums else jnp.zeros(())
        return jax.grad(ours)(agent), jax.grad(through_features)(agent, beliefs, previous, offset)

    got, expected = both(agent)
    assert optax.tree.norm(got.posterior.memory.cell) > 1e-3
    assert_close(got, expected)


@pytest.mark.parametrize(
    "posterior",
    [
        "laplace-dense-sums",
        pytest.param("laplace-diagonal", marks=pytest.mark.slow),
        pytest.param("variational-dense", marks=pytest.mark.slow),
    ],
)
def test_one_step_after_acting_takes_the_beliefs_that_acted(posterior):
    agent = agent_of(posterior)
    learning = rl.LearningConfig(batch=3, steps=4, acting_samples=2)
    batch = compiled(lambda agent: gather(agent, GRID, learning, key=KEY))(agent)
    anew = eqx.tree_at(lambda b: b.beliefs, batch, None)
    assert batch.beliefs is not None

    @compiled
    def differentiate(agent, batch):
        (loss, (metrics, _)), gradient = jax.value_and_grad(control_loss, has_aux=True)(
            agent, batch, learning, entropy_weight=0.1, key=KEY
        )
        return loss, metrics, gradient

    assert_close(differentiate(agent, batch), differentiate(agent, anew))


@pytest.mark.parametrize("changes", [{"epochs": 2}, {"minibatches": 3}])
def test_beliefs_that_acted_are_not_kept_for_weights_that_have_moved(changes):
    learning = rl.LearningConfig(batch=3, steps=4, acting_samples=2, **changes)
    batch = jax.eval_shape(lambda agent: gather(agent, GRID, learning, key=KEY), agent_of("laplace-diagonal"))
    assert batch.beliefs is None


# Acting

LONG, DRAWS = 7, 5
NOISE = np.random.default_rng(8).normal(size=(DRAWS, SMALL.features))


def fixed_draw(belief, samples, *, key):
    """Draws that depend on the belief alone, so that they can be made again from the record."""
    del key
    return belief.perturb(jnp.asarray(NOISE[:samples]).reshape(samples, *[1] * (belief.mean.ndim - 1), -1))


@functools.cache
def acted(posterior, policy, greedy, tasks=40):
    agent = agent_of(posterior)
    problems = compiled(jax.vmap(GRID.sample))(jax.random.split(KEY, tasks))
    options = {"steps": LONG, "samples": DRAWS, "policy": policy, "greedy": greedy, "with_readings": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout_module, "sample_belief", fixed_draw)
        act = compiled(jax.vmap(lambda problem, key: rollout(agent, GRID, problem, **options, key=key)))
        return problems, *act(problems, jax.random.split(jax.random.key(1), tasks))


@functools.cache
def replayed(posterior, policy, greedy):
    """From the record alone: beliefs after every input, one more than steps, and the behaviour."""
    agent = agent_of(posterior)
    problems, record, _ = acted(posterior, policy, greedy)
    _, outcome = played_again(problems, record.action)

    @compiled
    @jax.vmap
    def run(record, last):
        actions = jnp.append(record.previous_action, record.action[-1])
        rewards = jnp.append(record.previous_reward, record.reward[-1])
        inputs, embedded = agent.embed(jnp.concatenate([record.observation, last[None]]), actions, rewards)
        inference = agent.posterior.infer(inputs)
        beliefs, hidden = inference.belief, inference.trace.hidden
        behaviour = agent.behave(
            fixed_draw(beliefs, DRAWS, key=None), agent.head_context(embedded, hidden), policy=policy
        )
        thoughts = None
        if isinstance(beliefs, rl.AbstractGaussian):
            thoughts = beliefs.entropy(), agent.posterior.consecutive_kl(beliefs)
        # The advantages take the value at the mean of the belief.
        at_mean = agent.behave(beliefs.mean[None], agent.head_context(embedded, hidden))
        return rl.Behaviour(behaviour.logits, at_mean.value), behaviour.entropy(), thoughts

    return run(record, outcome.observation[:, -1])


@functools.cache
def _replay_world():
    def run(problem, actions):
        state, first = GRID.reset(problem, KEY)
        _, steps = jax.lax.scan(lambda state, a: GRID.step(problem, state, a, KEY), state, actions)
        return first, steps

    return compiled(jax.vmap(run))


def played_again(problems, actions):
    """The world's own answers to recorded actions; a gridworld has no chance in it."""
    return _replay_world()(problems, actions)


ACTING = pytest.mark.parametrize(
    ("posterior", "policy", "greedy"),
    [
        ("point", "average", False),
        ("laplace-diagonal", "mixture", False),
        ("laplace-diagonal", "average", True),
    ],
)


@ACTING
def test_record_is_what_the_world_answered(posterior, policy, greedy):
    problems, record, _ = acted(posterior, policy, greedy)
    first, steps = played_again(problems, record.action)
    np.testing.assert_array_equal(record.observation[:, 0], first)
    np.testing.assert_array_equal(record.observation[:, 1:], steps.observation[:, :-1])
    np.testing.assert_array_equal(record.reward, steps.reward)
    np.testing.assert_array_equal(record.regret, steps.regret)
    np.testing.assert_array_equal(record.episode_end, steps.terminated | steps.truncated)
    # Both kinds of ends occur, or the tests below would not see a reset of the memory.
    assert np.any(steps.terminated[:, :-1])
    assert np.any(steps.truncated[:, :-1])


@ACTING
def test_first_input_has_no_action_and_no_reward_and_later_ones_those_before(posterior, policy, greedy):
    _, record, _ = acted(posterior, policy, greedy)
    assert np.all(record.previous_action[:, 0] == -1)
    assert np.all(record.previous_reward[:, 0] == 0)
    # Also across the ends of episodes.
    np.testing.assert_array_equal(record.previous_action[:, 1:], record.action[:, :-1])
    np.testing.assert_array_equal(record.previous_reward[:, 1:], record.reward[:, :-1])
    assert {leaf.shape[1] for name, leaf in vars(record).items() if name not in ("value", "belief")} == {LONG}
    assert record.value.shape[1] == LONG + 1


@ACTING
def test_a_replay_of_the_record_is_what_the_agent_thought(posterior, policy, greedy):
    """No reset of the memory at the ends of episodes; the log-probability is that of the policy acted on."""
    _, record, readings = acted(posterior, policy, greedy)
    behaviour, policy_entropy, thoughts = replayed(posterior, policy, greedy)
    assert_close(record.value, behaviour.value)
    logits = scipy.special.log_softmax(behaviour.logits[:, :-1], axis=-1)
    assert_close(
        record.log_prob, np.take_along_axis(logits, np.asarray(record.action)[..., None], -1)[..., 0]
    )
    assert_close(readings.policy_entropy, policy_entropy[:, :-1])
    if posterior == "point":
        assert readings.entropy is None
        assert readings.kl is None
    else:
        assert_close((readings.entropy, readings.kl), jax.tree.map(lambda leaf: leaf[:, :-1], thoughts))


def test_greedy_takes_the_most_probable_action():
    _, record, _ = acted("laplace-diagonal", "average", True)
    behaviour, _, _ = replayed("laplace-diagonal", "average", True)
    np.testing.assert_array_equal(record.action, np.argmax(behaviour.logits[:, :-1], axis=-1))


def test_actions_are_drawn_from_the_policy():
    """The mean of `1 / pi(a)` is the number of actions, for any policy; to five standard errors."""
    _, record, _ = acted("point", "average", False)
    inverse = np.exp(-np.asarray(record.log_prob)).mean(axis=-1)
    assert inverse.std() > 0.1, "a uniform policy would show nothing"
    assert abs(inverse.mean() - GRID.actions) < 5 * inverse.std() / np.sqrt(len(inverse))


# The optimiser


def clipped_gradients(config, *gradients):
    """What reaches AdamW: its running mean holds a tenth of it after one step."""
    optimizer = make_optimizer(config)
    state = optimizer.init(gradients[0])
    _, state = optimizer.update(gradients[0], state, gradients[0])
    return np.asarray(optax.tree_utils.tree_get(state, "mu")) / 0.1


def test_elements_are_clipped_before_the_norm():
    config = rl.LearningConfig(gradient_element=5.0, gradient_norm=1.0)
    assert_close(clipped_gradients(config, jnp.array([10.0, 3.0])), np.array([5.0, 3.0]) / np.sqrt(34))
    assert_close(clipped_gradients(config, jnp.array([-10.0, 0.0])), np.array([-1.0, 0.0]))
    assert_close(clipped_gradients(config, jnp.array([0.3, 0.4])), np.array([0.3, 0.4]))
    wide = dataclasses.replace(config, gradient_norm=100.0)
    assert_close(clipped_gradients(wide, jnp.array([10.0, -30.0])), np.array([5.0, -5.0]))


def test_learning_rate_falls_linearly_from_first_to_last():
    config = rl.LearningConfig(updates=5, learning_rate=0.4)
    assert learning_rate(config, Schedule(jnp.array(4), 5)) == 0.4
    falling = dataclasses.replace(config, final_learning_rate=0.1)
    rates = [learning_rate(falling, Schedule(jnp.array(update), 5)) for update in range(7)]
    assert_close(rates, [0.4, 0.34, 0.28, 0.22, 0.16, 0.1, 0.1])


@pytest.mark.slow
def test_steps_have_the_size_of_the_learning_rate():
    """AdamW's first step moves every weight by the rate, whatever its gradient, if that is not tiny."""
    for updates, rate in ((1, 3e-3), (4, 3e-3)):
        learning = dataclasses.replace(
            CONTROL.learning,
            updates=updates,
            epochs=1,
            minibatches=1,
            learning_rate=3e-3,
            final_learning_rate=0.0,
            weight_decay=0.0,
        )
        train = rl.make_train(dataclasses.replace(CONTROL, learning=learning))
        before = model_of(CONTROL).value_head.mlp.layers[-1].bias
        state, _ = train.advance(train.start_from(model_of(CONTROL), KEY), 1)
        moved = state.model.value_head.mlp.layers[-1].bias - before
        assert_close(jnp.abs(moved), jnp.full_like(moved, rate), tolerance=1e-5)


def shrinking(config):
    """What one step of AdamW does to a weight of 3."""
    optimizer, gradient, parameters = make_optimizer(config), jnp.array([0.1]), jnp.array([3.0])
    change, _ = optimizer.update(gradient, optimizer.init(parameters), parameters)
    return change


def test_weight_decay_is_decoupled():
    """It shrinks weights by `rate * decay`, however large the gradient."""
    base = rl.LearningConfig(weight_decay=0.0)
    more = dataclasses.replace(base, weight_decay=0.01)
    assert_close(shrinking(more) - shrinking(base), np.full(1, -0.01 * 3.0), tolerance=1e-6)


def test_entropy_weight_falls_linearly_from_first_to_last():
    def weight(update, updates, last):
        return Schedule(jnp.array(update), updates).interpolate(0.3, last, reached_by_last=True)

    assert weight(4, 5, None) == 0.3
    assert_close([weight(update, 5, 0.1) for update in (0, 2, 4)], [0.3, 0.2, 0.1])
    assert_close(weight(0, 1, 0.1), 0.3)


# Training


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counting(rl.Gridworld):
    """A gridworld that counts how often Python runs through it: once for every trace."""

    traces: ClassVar[list[int]] = [0]

    def sample(self, key, *, test=False):
        self.traces[0] += 1
        return super().sample(key, test=test)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Poisoned(rl.Regression):
    """Now and then a problem has an output that no training survives."""

    def sample(self, key, *, test=False):
        key_kind, key = jax.random.split(key)
        kind = jax.random.choice(key_kind, 4, p=jnp.array([0.985, 0.005, 0.005, 0.005]))
        return super().sample(key, test=test), kind

    def pairs(self, problem, key, steps):
        series, kind = problem
        x, y = super().pairs(series, key, steps)
        last = jnp.where(kind == NAN_LAST, jnp.nan, jnp.where(kind == HUGE_LAST, 1e100, y[-1]))
        return x, y.at[-1].set(last).at[0].set(jnp.where(kind == NAN_FIRST, jnp.nan, y[0]))


HEALTHY, NAN_LAST, NAN_FIRST, HUGE_LAST = range(4)

CONTROL = rl.Config(
    task=Counting(size=2, episode_length=3),
    agent=BARE,
    learning=rl.LearningConfig(batch=4, steps=5, updates=CHUNK + 5, learning_rate=1e-2),
)
REGRESSION = rl.Config(
    task=Poisoned(terms=1),
    agent=BARE,
    posterior=rl.LaplaceConfig(),
    learning=rl.LearningConfig(batch=4, steps=3, updates=CHUNK + 5),
)
SEEDS = jnp.stack([jax.random.key(seed) for seed in range(40)])


@functools.cache
def train_of(config):
    return rl.make_train(config)


@functools.cache
def model_of(config, seed=0):
    return randomized(jax.eval_shape(train_of(config).make_model, KEY), seed)


@functools.cache
def starts():
    """All seeds of the regression, before their first update."""
    return train_of(REGRESSION).init(SEEDS)


@functools.cache
def poisons():
    """What each update of each seed will meet: shape (seeds, updates, batch)."""
    learning = REGRESSION.learning

    def kinds(key, update):
        key, _ = jax.random.split(jax.random.fold_in(key, update))
        pairs = sample_pairs(REGRESSION.task, batch=learning.batch, steps=learning.steps, key=key)
        first, last = pairs.y[:, 0, 0], pairs.y[:, -1, 0]
        found = jnp.where(jnp.isnan(last), NAN_LAST, jnp.where(last > 1e99, HUGE_LAST, HEALTHY))
        return jnp.where(jnp.isnan(first), NAN_FIRST, found)

    every = jax.vmap(jax.vmap(kinds, (None, 0)), (0, None))
    return np.asarray(compiled(every)(starts().key, jnp.arange(learning.updates)))


def healthy_seed():
    return int(np.flatnonzero(~poisons().any(axis=(-1, -2)))[0])


def seed_and_update(kind):
    """A seed whose first trouble is of that kind, not at once, and with nothing else beside it."""
    for seed, its in enumerate(poisons()[:, :CHUNK]):
        ill = np.flatnonzero(its.any(axis=-1))
        if len(ill) and ill[0] >= 2 and set(its[ill[0]]) <= {HEALTHY, kind}:
            return seed, int(ill[0])
    raise AssertionError("no seed has it: look at more of them")


def seeds_of(state, seeds):
    """One seed, or several, of a state that has all: a copy, since states are given away."""
    return jax.tree.map(lambda leaf: leaf[seeds] if is_key(leaf) else jnp.asarray(plain(leaf)[seeds]), state)


def in_chunks(config, state):
    """From first to last: the state, the metrics, and each chunk's count."""
    train, until, rows, counts = train_of(config), config.learning.updates, [], []
    while sum(counts) < until:
        state, progress = train.advance(state, until)
        assert np.all(progress.finite)
        counts.append(int(progress.count))
        rows.append(jax.tree.map(lambda row: np.asarray(row)[: counts[-1]], progress.metrics))
    return state, jax.tree.map(lambda *parts: np.concatenate(parts), *rows), counts


@functools.cache
def control(seed):
    return in_chunks(CONTROL, train_of(CONTROL).start_from(model_of(CONTROL, seed), SEEDS[seed]))


def assert_close_states(a, b, tolerance):
    assert_same_bits((a.key, a.update), (b.key, b.update))
    assert_close((a.model, a.optimizer), (b.model, b.optimizer), tolerance=tolerance)


def assert_close_metrics(a, b, tolerance):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=tolerance, atol=tolerance, err_msg=name)


def test_seeds_begin_as_they_would_on_their_own():
    alone = train_of(REGRESSION).init(SEEDS[3])
    assert_same_bits(seeds_of(starts(), 3), alone)
    assert alone.update == 0


@pytest.mark.slow
def test_one_call_and_many_are_the_same_training():
    seed = healthy_seed()
    state, metrics, counts = in_chunks(REGRESSION, seeds_of(starts(), seed))
    assert counts == [CHUNK, 5]
    assert state.update == CHUNK + 5
    at_once, all_metrics = jax.jit(train_of(REGRESSION))(SEEDS[seed])
    assert {leaf.shape for leaf in all_metrics.values()} == {(CHUNK + 5,)}
    assert_close_states(at_once, state, 1e-12)
    assert_close_metrics(all_metrics, metrics, 1e-12)


def test_training_changes_every_weight():
    state, _, _ = control(0)
    first = model_of(CONTROL, 0)
    changed = jax.tree.map(lambda a, b: np.any(np.asarray(a) != np.asarray(b)), state.model, first)
    assert all(jax.tree.leaves(changed)), changed


def test_only_what_has_no_value_is_nan():
    """A point belief has no entropy and no KL."""
    _, metrics, _ = control(0)
    assert {name for name, row in metrics.items() if np.any(np.isnan(row))} == {"kl", "entropy"}
    assert np.all(np.isnan(metrics["kl"]) & np.isnan(metrics["entropy"]))


def test_the_same_key_gives_the_same_bits_without_another_trace():
    state, metrics, counts = control(0)
    assert counts == [CHUNK, 5]
    traces = CONTROL.task.traces[0]
    again, its_metrics, _ = control.__wrapped__(0)
    assert_same_bits(again, state)
    assert_same_bits(its_metrics, metrics)
    _, others, _ = control(1)
    assert CONTROL.task.traces[0] == traces > 0
    assert np.max(np.abs(others["loss"] - metrics["loss"])) > 1e-3


def test_advance_stops_where_it_is_told():
    train = train_of(CONTROL)
    _, metrics, _ = control(0)
    state = train.start_from(model_of(CONTROL, 0), SEEDS[0])
    traces = CONTROL.task.traces[0]
    for until, count, total in ((3, 3, 3), (3, 0, 3), (2, 0, 3), (4, 1, 4), (1000, CHUNK, CHUNK + 4)):
        state, progress = train.advance(state, until)
        assert (int(progress.count), int(state.update)) == (count, total)
        assert np.all(progress.finite)
        np.testing.assert_array_equal(
            progress.metrics["loss"][:count], metrics["loss"][total - count : total]
        )
    assert CONTROL.task.traces[0] == traces, "where to stop is data, not program"


@pytest.mark.slow
def test_seeds_in_one_program_are_the_seeds_on_their_own():
    models = [model_of(CONTROL, seed) for seed in (0, 1)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    state, metrics, counts = in_chunks(CONTROL, train_of(CONTROL).start_from(stacked, SEEDS[:2]))
    assert counts == [CHUNK, 5]
    for seed in (0, 1):
        alone, its_metrics, _ = control(seed)
        # Batched products round in another order, and AdamW magnifies that where gradients are small.
        assert_close_states(seeds_of(state, seed), alone, 1e-9)
        assert_close_metrics({name: row[:, seed] for name, row in metrics.items()}, its_metrics, 1e-9)


def test_an_update_is_one_gradient_step_on_what_was_gathered():
    train, learning = train_of(CONTROL), CONTROL.learning
    start = train.start_from(model_of(CONTROL, 3), SEEDS[3])

    @compiled
    def by_hand(model, key):
        batch = gather(model, CONTROL.task, learning, key=key)
        loss = lambda model: control_loss(
            model, batch, learning, entropy_weight=learning.entropy_weight, key=KEY
        )
        (value, _), gradient = jax.value_and_grad(loss, has_aux=True)(model)
        optimizer = optax.chain(
            optax.clip(5.0), optax.clip_by_global_norm(1.0), optax.adamw(1e-2, weight_decay=1e-6)
        )
        changes, _ = optimizer.update(gradient, optimizer.init(model), model)
        return batch, value, optax.tree.norm(gradient), optax.apply_updates(model, changes)

    key_data, _ = jax.random.split(jax.random.fold_in(SEEDS[3], 0))
    batch, loss, norm, model = by_hand(start.model, key_data)
    state, progress = train.advance(start, 1)
    experience = batch.experience
    discounts = learning.discount * (1 - np.asarray(experience.episode_end))
    expected = [
        advantages_by_hand(*trajectory, learning.trace_decay)
        for trajectory in zip(experience.reward, discounts, experience.value, strict=True)
    ]
    assert_close(batch.advantage, np.array(expected))
    assert_close(state.model, model)
    metrics = {name: row[0] for name, row in progress.metrics.items()}
    assert_close((metrics["loss"], metrics["gradient_norm"]), (loss, norm))
    assert_close(metrics["return"], np.sum(batch.experience.reward) / learning.batch)
    assert_close(metrics["cumulative_regret"], np.sum(batch.experience.regret) / learning.batch)
    assert_close(metrics["clip_fraction"], 0.0)  # the policy has not moved yet
    assert optax.tree_utils.tree_get(state.optimizer, "count", filtering=is_adams) == 1
    assert_same_bits((state.key, state.update), (SEEDS[3], jnp.ones((), jnp.int32)))


@pytest.mark.parametrize("kind", [rl.LaplaceConfig, rl.VariationalConfig])
def test_a_gradient_in_parts_is_that_of_the_whole(kind, monkeypatch):
    dense = kind(covariance="dense")
    learning = dataclasses.replace(CONTROL.learning, batch=6, training_samples=2, acting_samples=2)
    config = dataclasses.replace(CONTROL, posterior=dense, learning=learning)
    parts = set()

    def watched(model, batch, *rest, **given):
        parts.add(len(batch.advantage))
        return control_loss(model, batch, *rest, **given)

    monkeypatch.setattr(ppo_module, "control_loss", watched)

    def first_update(states_together):
        monkeypatch.setattr(train_module, "STATES_PER_CHUNK", states_together)
        train = rl.make_train(config)
        return train.advance(train.init(KEY), 1)

    whole = first_update(2**20)
    in_parts = first_update(2 * learning.steps * config.agent.hidden_size)
    assert parts == {6, 2}
    assert_close(in_parts[0].model, whole[0].model)
    assert_close(in_parts[1].metrics, whole[1].metrics)


def is_adams(path, value):
    """The count of gradient steps that AdamW keeps, not that of a schedule."""
    del value
    return "ScaleByAdam" in str(path[-1])


def test_every_epoch_has_every_task_in_one_minibatch(monkeypatch):
    """With a loss that only tells what it was given: its share of the powers of two.

    There is one way to make `2^8 - 1` of eight of them.
    """
    tasks = 8
    learning = rl.LearningConfig(
        batch=tasks, steps=2, updates=9, epochs=3, minibatches=4, entropy_weight=0.5, final_entropy_weight=0.1
    )
    train = rl.make_train(dataclasses.replace(CONTROL, learning=learning))
    nothing = jnp.zeros((tasks, 2))
    experience = jax.tree.map(lambda leaf: nothing, experience_by_chance())
    powers = jnp.broadcast_to(2.0 ** jnp.arange(tasks)[:, None], (tasks, 2))

    def loss(model, batch, config, *, entropy_weight, key, noise):
        assert noise is None
        seen = jnp.sum(batch.advantage[:, 0])
        metrics = {
            "seen": seen,
            "squared": seen**2,
            "tasks": jnp.array(float(len(batch.advantage))),
            "entropy_weight": jnp.asarray(entropy_weight),
            "noise": jax.random.normal(key),
        }
        return jnp.sum(model.posterior.memory.cell.weight_hh), (metrics, jnp.array(True))

    monkeypatch.setattr(ppo_module, "gather", lambda *args, **kwargs: Batch(experience, powers))
    monkeypatch.setattr(ppo_module, "control_loss", loss)
    state, progress = train.advance(train.start_from(model_of(CONTROL), KEY), 9)
    rows = {name: np.asarray(row)[:9] for name, row in progress.metrics.items()}
    np.testing.assert_array_equal(rows["tasks"], np.full(9, 2.0))
    assert_close(rows["seen"], np.full(9, (2.0**tasks - 1) / 4))
    assert len(set(rows["squared"])) == 9, "tasks are put together anew in every update"
    assert len(set(rows["noise"])) == 9
    assert_close(rows["entropy_weight"], np.linspace(0.5, 0.1, 9))
    steps = optax.tree_utils.tree_get(state.optimizer, "count", filtering=is_adams)
    assert steps == 9 * 3 * 4
    assert state.update == 9


def test_a_model_to_start_from_is_not_given_away():
    train = train_of(CONTROL)
    model, key = model_of(CONTROL), jax.random.key(5)
    kept = jax.tree.map(np.array, model)
    state = train.start_from(model, key)
    assert state.update == 0
    assert_same_bits(state.model, model)
    assert optax.tree.norm(optax.tree_utils.tree_get(state.optimizer, "mu")) == 0
    train.advance(state, 1)
    assert_same_bits(model, kept)
    jax.random.split(key)
    several = train.start_from(jax.tree.map(lambda leaf: np.stack([leaf] * 2), model), jax.random.split(key))
    assert several.update.shape == (2,)


def test_no_updates_are_a_training_too():
    config = dataclasses.replace(CONTROL, learning=dataclasses.replace(CONTROL.learning, updates=0))
    state, metrics = jax.eval_shape(rl.make_train(config), KEY)
    assert {leaf.shape for leaf in metrics.values()} == {(0,)}
    assert state.update.shape == ()


def test_what_cannot_be_trained_is_refused():
    bad = dataclasses.replace(CONTROL, learning=rl.LearningConfig(batch=10, minibatches=4))
    message = "minibatches must divide the batch of 10 tasks; got 4."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        rl.make_train(bad)
    for part in ({"task": rl.Gridworld(size=1)}, {"agent": rl.AgentConfig(features=0)}, {
        "posterior": rl.LaplaceConfig(forgetting=2.0)
    }):  # fmt: skip
        with pytest.raises(ValueError, match="must be"):
            rl.make_train(dataclasses.replace(CONTROL, **part))
    with pytest.raises(ValueError, match=re.escape("key must have shape (); got (2,).")):
        train_of(CONTROL)(jax.random.split(KEY))


# A number that is none

# The last output is no input of any belief. The square of 1e100 is a number, the square of that is none:
# then the loss is finite and the gradient's norm is not.
FINITE = {
    NAN_LAST: (False, False, True, False),
    NAN_FIRST: (False, False, False, False),
    HUGE_LAST: (True, False, True, True),
}


@pytest.mark.parametrize("kind", FINITE, ids=["nan-output", "nan-input", "overflow"])
def test_training_stops_before_an_update_that_is_not_finite(kind):
    train = train_of(REGRESSION)
    seed, bad = seed_and_update(kind)
    state, progress = train.advance(seeds_of(starts(), seed), CHUNK)
    assert WATCHED == ("loss", "gradient", "belief", "weights")
    assert tuple(np.asarray(progress.finite)) == FINITE[kind]
    assert int(progress.count) == int(state.update) == bad
    for row in progress.metrics.values():
        assert np.all(np.isfinite(row[:bad]))
    good, before = train.advance(seeds_of(starts(), seed), bad)
    assert np.all(before.finite)
    assert_same_bits(state, good)
    assert all(np.all(np.isfinite(plain(leaf))) for leaf in jax.tree.leaves(state))
    # It stays where it is, and says so again.
    again, progress = train.advance(state, CHUNK)
    assert int(progress.count) == 0
    assert tuple(np.asarray(progress.finite)) == FINITE[kind]
    assert_same_bits(again, good)


@pytest.mark.slow
def test_one_seed_that_is_not_finite_stops_all_and_is_named():
    train = train_of(REGRESSION)
    seed, bad = seed_and_update(NAN_FIRST)
    both = [healthy_seed(), seed]
    state, progress = train.advance(seeds_of(starts(), np.array(both)), CHUNK)
    assert int(progress.count) == bad
    np.testing.assert_array_equal(state.update, [bad, bad])
    np.testing.assert_array_equal(progress.finite, [(True, True, True, True), FINITE[NAN_FIRST]])
    for index, seed in enumerate(both):
        alone, _ = train.advance(seeds_of(starts(), seed), bad)
        assert_close_states(seeds_of(state, index), alone, 1e-9)


def test_weights_that_are_not_finite_stop_at_once():
    start = seeds_of(starts(), healthy_seed())
    bad = eqx.tree_at(
        lambda state: state.model.posterior.memory.readout.bias, start, replace_fn=lambda b: b / 0
    )
    state, progress = train_of(REGRESSION).advance(bad, CHUNK)
    assert int(progress.count) == int(state.update) == 0
    assert not np.any(progress.finite)
