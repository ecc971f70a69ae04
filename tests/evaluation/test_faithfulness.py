"""Measures of faithfulness where the answer is known: the exact belief, pure noise, a clock."""

import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
import scipy.stats
from rich.console import Console
from support.models import small_agent, small_config
from support.runs import SIZES

import recurrent_laplace as rl
from recurrent_laplace.evaluation.faithfulness.measures import (
    coverage,
    divergence,
    drift,
    drift_in_errors,
    error_over_spread,
    late_over_early,
    r_squared,
    rank_agreement,
)
from recurrent_laplace.evaluation.faithfulness.rule import in_words, judge
from recurrent_laplace.evaluation.faithfulness.study import (
    LAPLACE,
    LIKELIHOOD,
    FaithfulnessConfig,
    GroundTruth,
    exact_truth,
    faithfulness,
    infer_beliefs,
    moment_measures,
    posteriors_of,
)
from recurrent_laplace.evaluation.play import play_episodes
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.oracles import make_oracle, make_references
from recurrent_laplace.report.faithfulness import tables
from recurrent_laplace.scoring import decoding
from recurrent_laplace.scoring.decoding import (
    Decoder,
    Moments,
    Split,
    fit_beliefs,
    fit_network,
    fit_ridge,
    projected_variance,
    split_tasks,
)
from recurrent_laplace.tasks import require_support

TASKS, STEPS, CASES = 400, 12, 5

RNG = np.random.default_rng(0)


def a_filter():
    """One of five cases is true; each step has a noisy hint. Evidence, and the exact probabilities."""
    rng = np.random.default_rng(1)
    truth = rng.integers(CASES, size=TASKS)
    hints = np.eye(CASES)[truth][:, None] + rng.normal(size=(TASKS, STEPS, CASES))
    evidence = np.cumsum(hints, axis=1)
    return truth, evidence, scipy.special.softmax(evidence, axis=-1)


TRUTH, EVIDENCE, EXACT = a_filter()
BELIEF = split_tasks(EXACT)
AVERAGE = BELIEF.fit.mean(axis=0)
NOISE = split_tasks(RNG.normal(size=(TASKS, STEPS, CASES)))


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    """What is learned here is simple."""
    for name, value in {"ROUNDS": 5, "ROWS": 128, "LEARNING_RATE": 5e-2}.items():
        monkeypatch.setattr(decoding, name, value)


def entropy(probabilities):
    return scipy.special.entr(probabilities).sum(axis=-1)


# Decoding


def test_tasks_are_split_whole_and_used_once():
    parts = split_tasks(np.arange(21))
    assert [len(part) for part in parts] == [10, 6, 5]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(21))


def test_the_exact_belief_is_decoded_whatever_its_coordinates():
    turned = split_tasks(EXACT @ RNG.normal(size=(CASES, 8)) * 100 + 7)
    decoded = fit_ridge(turned, BELIEF)(turned.test)
    assert r_squared(BELIEF.test, decoded, AVERAGE.mean(axis=0)) == pytest.approx(1, abs=1e-6)
    assert r_squared(BELIEF.test, decoded, AVERAGE) == pytest.approx(1, abs=1e-6)


def test_noise_decodes_to_the_mean():
    decoded = fit_ridge(NOISE, BELIEF)(NOISE.test)
    assert abs(r_squared(BELIEF.test, decoded, AVERAGE.mean(axis=0))) < 0.02


def test_what_only_time_tells_is_not_beyond_t():
    time = np.broadcast_to(np.arange(STEPS)[:, None], (TASKS, STEPS, 1))
    belief = split_tasks(time / STEPS + RNG.normal(size=time.shape) * 0.1)
    clock = split_tasks(time.astype(float))
    decoded = fit_ridge(clock, belief)(clock.test)
    average = belief.fit.mean(axis=0)
    assert r_squared(belief.test, decoded, average.mean(axis=0)) > 0.8
    assert abs(r_squared(belief.test, decoded, average)) < 0.02


def test_the_penalty_is_chosen_by_the_validation_tasks():
    """Few tasks and many features: without a penalty, held-out R² is far below zero."""
    sizes = (25, 100, 100)
    few = Split(*(RNG.normal(size=(size, 1, 20)) for size in sizes))
    target = Split(*(part[:size, :1] for part, size in zip(BELIEF, sizes, strict=True)))
    chosen = fit_ridge(few, target)
    loose = np.linalg.lstsq(np.pad(few.fit[:, 0], ((0, 0), (0, 1)), constant_values=1), target.fit[:, 0])[0]
    baseline = target.fit.mean(axis=(0, 1))
    free = np.pad(few.test[:, 0], ((0, 0), (0, 1)), constant_values=1) @ loose
    assert r_squared(target.test[:, 0], free, baseline) < -0.5
    assert r_squared(target.test, chosen(few.test), baseline) > -0.1


@pytest.mark.parametrize("hidden_sizes", [(), (16,)], ids=["linear", "mlp"])
def test_networks_find_the_exact_belief_and_nothing_in_noise(hidden_sizes):
    evidence = split_tasks(EVIDENCE)
    uninformed = divergence(BELIEF.test, AVERAGE, "exclusive").mean()
    found = fit_network(evidence, BELIEF, "exclusive", hidden_sizes=hidden_sizes)(evidence.test)
    assert divergence(BELIEF.test, found, "exclusive").mean() < 0.02 * uninformed
    assert r_squared(BELIEF.test, found, AVERAGE) > 0.99
    nothing = fit_network(NOISE, BELIEF, "exclusive", hidden_sizes=hidden_sizes)(NOISE.test)
    assert divergence(BELIEF.test, nothing, "exclusive").mean() == pytest.approx(uninformed, rel=0.05)
    assert abs(r_squared(BELIEF.test, nothing, AVERAGE)) < 0.05


def test_networks_decode_chances_and_numbers():
    evidence = split_tasks(EVIDENCE)
    chances = Split(*(scipy.special.expit(part[..., :2]) for part in evidence))
    found = fit_network(evidence, chances, "chances", hidden_sizes=())(evidence.test)
    left, uninformed = (
        divergence(chances.test, guess, "chances") for guess in (found, chances.fit.mean(axis=0))
    )
    assert left.mean() < 0.02 * uninformed.mean()
    numbers = Split(*(3 + 100 * part[..., :2] for part in evidence))
    found = fit_network(evidence, numbers, "numbers", hidden_sizes=())(evidence.test)
    assert r_squared(numbers.test, found, numbers.fit.mean(axis=(0, 1))) > 0.999


def test_divergences_are_those_of_scipy():
    p, q = EXACT[0, 0], EXACT[1, 3]
    np.testing.assert_allclose(divergence(p, q, "exclusive"), scipy.stats.entropy(p, q), rtol=1e-4)
    each = [scipy.stats.entropy([a, 1 - a], [b, 1 - b]) for a, b in zip(p, q, strict=True)]
    np.testing.assert_allclose(divergence(p, q, "chances"), sum(each), rtol=1e-4)
    for kind in ("exclusive", "chances"):
        assert divergence(p, p, kind) == 0
        assert np.isfinite(divergence(np.eye(3)[0], np.eye(3)[1], kind))


# Rank agreement


def test_the_exact_uncertainty_agrees_with_itself_and_a_clock_with_nothing():
    exact = entropy(EXACT)
    assert rank_agreement(exact, exact) == pytest.approx(1)
    assert rank_agreement(-3 * exact, exact) == pytest.approx(-1)
    clock = np.broadcast_to(-np.arange(STEPS, dtype=float), exact.shape)
    assert rank_agreement(clock, exact) == 0
    noisy = clock + 0.1 * RNG.normal(size=exact.shape)
    # Without removing t, the clock looks like a belief.
    assert scipy.stats.spearmanr(noisy.ravel(), exact.ravel())[0] > 0.5
    assert abs(rank_agreement(noisy, exact)) < 5 / np.sqrt(exact.size)


def test_rank_agreement_is_that_of_scipy():
    exact, approximate = RNG.integers(4, size=(2, 60))
    expected = scipy.stats.somersd(exact, approximate).statistic
    assert rank_agreement(approximate[:, None], exact[:, None]) == pytest.approx(expected)


def test_steps_at_which_all_is_known_say_nothing():
    exact = entropy(EXACT)
    exact[:, 3:] = 0
    assert rank_agreement(entropy(EXACT), exact) == pytest.approx(1)
    assert np.isnan(rank_agreement(exact, np.zeros_like(exact)))


def test_the_order_of_tasks_that_the_exact_belief_does_not_tell_apart_is_not_judged():
    """Nine of ten tasks are certain: a rank correlation would charge a belief that is never quite so."""
    exact = np.where(np.arange(100) < 90, 0.0, 1.0)[:, None]
    nearly = exact + 1e-6 * RNG.normal(size=exact.shape)
    assert scipy.stats.spearmanr(nearly[:, 0], exact[:, 0])[0] < 0.6
    assert rank_agreement(nearly, exact) == pytest.approx(1)


# Coverage


def a_gaussian_belief():
    """A number with a standard normal prior, seen with unit noise: error and deviation of the belief."""
    number = RNG.normal(size=(4000, 1))
    seen = number + RNG.normal(size=(4000, STEPS))
    count = np.arange(1, STEPS + 1)
    mean = np.cumsum(seen, axis=1) / (count + 1)
    return number - mean, np.broadcast_to(1 / np.sqrt(count + 1), mean.shape)


def test_an_exact_belief_covers_at_the_nominal_rate():
    error, stddev = a_gaussian_belief()
    levels = (0.5, 0.9)
    # Steps of a task are not independent: five standard errors of the tasks alone.
    np.testing.assert_allclose(coverage(error, stddev, levels), levels, atol=5 * np.sqrt(0.25 / 4000))
    assert error_over_spread(error, stddev) == pytest.approx(1, abs=0.04)


def test_an_overconfident_belief_covers_less():
    error, stddev = a_gaussian_belief()
    half = [2 * scipy.stats.norm.cdf(scipy.stats.norm.ppf(0.5 + level / 2) / 2) - 1 for level in (0.5, 0.9)]
    assert coverage(error, stddev / 2, (0.5, 0.9)) == pytest.approx(half, abs=0.04)
    assert error_over_spread(error, stddev / 2) == pytest.approx(2, abs=0.08)
    assert coverage(error, np.zeros_like(stddev), (0.9,)) == [0]


def test_claims_are_seen_through_the_decoder():
    """Two numbers in other coordinates: the decoder finds the way back, and the claim goes with it."""
    numbers = RNG.normal(size=(4000, 1, 2))
    mean = (numbers + RNG.normal(size=numbers.shape)) / 2
    mix = np.array([[2.0, 1.0], [-1.0, 0.5]])
    features = split_tasks(mean @ mix)
    decoder = fit_ridge(features, split_tasks(numbers))
    np.testing.assert_allclose(decoder.weight, np.linalg.inv(mix), atol=0.1)
    cholesky = np.linalg.cholesky(np.linalg.inv(mix.T @ mix / 2))
    beliefs = rl.DenseGaussian(jnp.asarray(features.test[:, 0]), jnp.broadcast_to(cholesky, (1000, 2, 2)))
    stddev = np.sqrt(projected_variance(beliefs, jnp.asarray(decoder.weight)))
    np.testing.assert_allclose(stddev, np.sqrt(0.5), atol=0.05)
    error = split_tasks(numbers).test[:, 0] - decoder(features.test)[:, 0]
    np.testing.assert_allclose(coverage(error, stddev, (0.5, 0.9)), (0.5, 0.9), atol=0.05)
    independent = rl.DiagonalGaussian(jnp.zeros(2), jnp.array([4.0, 1.0]))
    np.testing.assert_allclose(projected_variance(independent, jnp.array([[2.0], [3.0]])), [10.0])


def decoded_moments(beliefs, parameter):
    """Kind of the decoder that is chosen for beliefs, and the moments of what the test tasks decode to."""
    samples = np.moveaxis(np.asarray(beliefs.sample(jax.random.key(0), (8,))), 0, 2)
    targets = split_tasks(np.repeat(parameter[:, None], samples.shape[1], axis=1))
    decoder = fit_beliefs(split_tasks(np.asarray(beliefs.mean, float)), split_tasks(samples), targets)
    held_out = beliefs[len(parameter) - len(targets.test) :]
    moments = decoder.moments(held_out, key=jax.random.key(1))
    return type(decoder), Moments(*(np.asarray(moment, float) for moment in moments)), targets.test


def test_a_curved_claim_is_read_by_a_network_without_changing_its_spread():
    """The square of a number with a known posterior: no linear map reads it, and its spread is exact."""
    number = RNG.normal(size=(600, 1))
    seen = number[:, None] + RNG.normal(size=(600, 6, 1))
    count = np.arange(1, 7)[:, None]
    mean = np.cumsum(seen, axis=1) / (count + 1)
    beliefs = rl.DiagonalGaussian(
        *(jnp.asarray(part) for part in (mean, np.broadcast_to(count + 1.0, mean.shape)))
    )
    kind, moments, target = decoded_moments(beliefs, number**2)
    assert kind is Decoder
    targets = split_tasks(np.repeat((number**2)[:, None], 6, axis=1))
    linear = fit_ridge(split_tasks(mean), targets)
    unread = linear.moments(beliefs[450:], key=jax.random.key(0))
    # What the rule was before: the misfit of the map is charged to the width.
    assert error_over_spread(target - np.asarray(unread.mean), np.sqrt(unread.variance)) > 3
    assert error_over_spread(target - moments.mean, np.sqrt(moments.variance)) == pytest.approx(1, abs=0.25)
    point = rl.DiagonalGaussian(beliefs.mean, jnp.full(mean.shape, 1e12))
    kind, moments, _ = decoded_moments(point, number**2)
    assert kind is Decoder
    assert moments.variance.max() < 1e-6


# Consistency


def test_the_exact_belief_is_a_martingale():
    assert abs(drift(BELIEF, split_tasks(EVIDENCE))) < 0.02
    assert drift_in_errors(EXACT) == pytest.approx(1, abs=0.8)


def test_what_returns_or_grows_is_no_martingale():
    # Independent numbers go back to their mean: half of the variance of each increment is known before.
    assert drift(NOISE, NOISE) == pytest.approx(0.5, abs=0.05)
    growing = np.cumsum(RNG.normal(size=EXACT.shape) + 0.5, axis=1)
    assert drift_in_errors(growing) == pytest.approx(0.5 * np.sqrt(TASKS * (STEPS - 1)), rel=0.1)
    still = Split(*(np.ones((10, 4, 2)) for _ in range(3)))
    assert drift(still, still) == drift_in_errors(still.test) == 0


def test_late_over_early_compares_quarters():
    assert late_over_early(np.array([[4.0, 4, 9, 9, 9, 9, 1, 1]])) == pytest.approx(0.25)


# The rule


def rows(**changed):
    """A method with two agents whose belief meets every criterion, but for what is changed."""
    good = {
        "linear_r2": 0.9,
        "linear_r2_beyond_t": 0.9,
        "mlp_r2": 0.95,
        "mlp_r2_beyond_t": 0.95,
        "linear_kl": 0.1,
        "mlp_kl": 0.05,
        "uninformed_kl": 1.0,
        "drift": 0.01,
        "drift_in_errors": 1.1,
        "exact_from_agent": 0.95,
        "agent_from_exact": 0.95,
        "rank_agreement": 0.8,
        "coverage_50": 0.42,
        "coverage_90": 0.9,
        "error_over_spread": 1.0,
        "kl_late_over_early": 0.1,
    }
    found = []
    for agent in ("a", "b"):
        shift = 0.001 * (agent == "b")
        exact = dict.fromkeys(good) | {"coverage_50": 0.4 + shift, "coverage_90": 0.92}
        control = {name: value / 3 for name, value in good.items()}
        trained = {name: value + shift for name, value in (good | changed).items()}
        for network, numbers in {"exact": exact, "trained": trained, "untrained": control}.items():
            posterior = "exact belief" if network == "exact" else "precision, dense"
            found.append(
                {"method": "RNN", "agent": agent, "network": network, "posterior": posterior, **numbers}
            )
    return pl.DataFrame(found)


def test_a_belief_that_meets_all_criteria_is_faithful():
    (verdict,) = judge(rows())
    assert verdict.word == "faithful"
    words = in_words([verdict])
    assert (
        "rank agreement of variances at least 0.5; coverage at 50% less the exact belief's -0.1 to" in words
    )
    found = "2 seeds; knowledge, uncertainty, consistency sound"
    assert words.endswith(f"\nFaithful: RNN + precision, dense ({found}).\nNot faithful: none.")


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"rank_agreement": 0.1}, "uncertainty"),
        ({"coverage_90": 0.5}, "uncertainty"),
        ({"coverage_50": 0.8}, "uncertainty"),
        ({"kl_late_over_early": 3.0}, "consistency"),
        ({"drift": 0.5}, "consistency"),
        ({"mlp_r2": 0.1}, "knowledge"),
        ({"agent_from_exact": 0.1}, "knowledge"),
    ],
)
def test_one_criterion_is_enough_to_fail(changed, part):
    (verdict,) = judge(rows(**changed))
    assert verdict.word == "not faithful"
    assert [check.criterion.measure for check in verdict.checks if check.state == "fails"] == list(changed)
    words = in_words([verdict])
    assert f"\nFaithful: none.\nNot faithful: RNN + precision, dense (2 seeds; {part} failed; " in words


def test_seeds_that_disagree_decide_nothing_and_one_seed_is_taken_as_it_is():
    frame = rows(rank_agreement=0.5)
    (verdict,) = judge(frame)
    assert verdict.word == "not decided"
    assert "2 seeds; uncertainty open; knowledge, consistency sound" in in_words([verdict])
    (verdict,) = judge(frame.filter(pl.col("agent") == "a"))
    assert verdict.word == "faithful"
    assert "one seed, no interval" in in_words([verdict])


def test_tables_fit_into_eighty_columns_and_posteriors_alike_share_a_row():
    frame = rows()
    longest = max(LAPLACE, key=len)
    same = frame.filter(pl.col("network") != "exact").with_columns(posterior=pl.lit(longest))
    frame = pl.concat([frame, same, rows().with_columns(method=pl.lit("Laplace-VRNN, none, dense"))])
    console = Console(width=80, record=True, file=io.StringIO())
    for table in tables(frame):
        assert console.measure(table).minimum <= 80
        console.print(table)
    text = console.export_text()
    assert "precision, dense +1" in text
    assert "0.95±0.03" in text
    assert "…" not in text


# The exact belief, and controls


def walked():
    """Exact beliefs of a walker that searches goals on a grid."""
    task, steps = rl.Gridworld(size=4), 24
    oracle = make_oracle(task, test=False, steps=steps)

    def episode(key):
        keys = jax.random.split(key, 3)
        problem = task.sample(keys[0])
        agent = make_references(task, test=False, steps=steps)["greedy"](problem)
        world, observation = task.reset(problem, keys[1])

        def step(carry, key):
            world, belief, observation = carry
            action = agent.act(belief, observation, key)
            world, outcome = task.step(problem, world, action, key)
            updated = oracle.update(belief, observation, action, outcome)
            return (world, updated, outcome.observation), (belief.entropy(), oracle.read(belief), observation)

        start = (world, oracle.init(observation), observation)
        _, walk = jax.lax.scan(step, start, jax.random.split(keys[2], steps))
        return walk, parameters(task, problem)

    parameters = require_support(task, "parameters", verb="a test")
    (entropies, read, observed), parameter = jax.jit(jax.vmap(episode))(
        jax.random.split(jax.random.key(0), 400)
    )
    belief, kind, mean, variance, pays = oracle.targets(np.asarray(read), np.asarray(observed))
    parameter, entropies = (np.asarray(array, float) for array in (parameter, entropies))
    return GroundTruth(belief, kind, entropies, parameter, mean, variance, pays)


@pytest.fixture(scope="module")
def walk():
    return walked()


def moments_of(truth, variance=None):
    """Gaussian with the exact mean and variance of the parameters."""
    variance = np.maximum(truth.variance if variance is None else variance, 1e-9)
    return rl.DiagonalGaussian(jnp.asarray(truth.mean), jnp.asarray(1 / variance))


def one_hot(truth):
    """Gaussian with the exact mean and covariance of the goal as a one-hot vector."""
    p = truth.belief
    covariance = p[..., None] * np.eye(p.shape[-1]) - p[..., :, None] * p[..., None, :]
    precision = np.linalg.inv(covariance + 1e-6 * np.eye(p.shape[-1]))
    return rl.DenseGaussian(jnp.asarray(p), jnp.asarray(np.linalg.cholesky(precision)))


def among_noise(truth):
    """The exact moments in other coordinates, and coordinates that have nothing to do with the task."""
    exact = moments_of(truth)
    shape = (*truth.mean.shape[:-1], 3)
    return rl.DiagonalGaussian(
        jnp.concatenate([5 - 100 * exact.mean, jnp.zeros(shape)], axis=-1),
        jnp.concatenate([exact.precision() / 1e4, jnp.ones(shape)], axis=-1),
    )


def uncertainty_checks(truth, beliefs):
    """States of the criteria of the uncertainty."""
    _, moments, _ = decoded_moments(beliefs, truth.parameter)
    exact = Moments(split_tasks(truth.mean).test, split_tasks(truth.variance).test)
    measures = moment_measures(moments, truth)
    frame = rows(**{name: value for name, value in measures.items() if name != "error_over_spread"})
    exact = moment_measures(exact, truth)
    columns = [
        pl.when(pl.col("network") == "exact").then(pl.lit(exact[name])).otherwise(pl.col(name)).alias(name)
        for name in ("coverage_50", "coverage_90")
    ]
    (verdict,) = judge(frame.with_columns(columns).filter(pl.col("agent") == "a"))
    return {
        check.criterion.short: check.state
        for check in verdict.checks
        if check.criterion.part == "uncertainty"
    }


@pytest.mark.parametrize("encode", [moments_of, one_hot, among_noise])
def test_the_exact_belief_passes_in_every_encoding(walk, encode):
    assert set(uncertainty_checks(walk, encode(walk)).values()) == {"holds"}


def test_a_point_a_clock_and_the_widths_of_other_tasks_fail(walk):
    point = moments_of(walk, np.zeros_like(walk.variance))
    assert set(uncertainty_checks(walk, point).values()) == {"fails"}
    clock = moments_of(walk, np.broadcast_to(walk.variance.mean(axis=0), walk.variance.shape))
    assert uncertainty_checks(walk, clock)["rank"] == "fails"
    others = moments_of(walk, np.roll(walk.variance, 1, axis=0))
    assert uncertainty_checks(walk, others)["rank"] == "fails"


@pytest.mark.slow
def test_an_untrained_network_is_not_faithful():
    task = rl.Gridworld(size=4)
    agents = [
        small_agent(task, rl.ConjugateConfig(), key=jax.random.key(seed), config=small_config(8))
        for seed in (0, 1)
    ]
    config = FaithfulnessConfig(tasks=128, steps=24)
    measured = faithfulness(*agents, task, LearningConfig(), config)
    frame = pl.DataFrame([{"method": "conjugate", "agent": "a", **row} for row in measured])
    (verdict,) = judge(frame)
    assert verdict.word == "not faithful"
    failed = {check.criterion.part for check in verdict.checks if check.state == "fails"}
    assert {"knowledge", "uncertainty"} <= failed


# Agents


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", [rl.Gridworld(size=3), rl.TwoArmBandit()], ids=["gridworld", "two-arm bandit"]
)
def test_the_exact_belief_never_excludes_the_truth(task):
    config = small_config(4, cell="elman", layer_norm=False)
    agent = small_agent(task, rl.PointConfig(), key=jax.random.key(0), config=config)
    key = jax.random.key(3)
    played = play_episodes(agent, task, LearningConfig(), episodes=64, steps=20, key=key)
    truth = exact_truth(task, played, key)
    reward = np.asarray(played.experience.reward)
    chance = np.take_along_axis(truth.belief, truth.pays, axis=-1)
    chance = np.take_along_axis(chance, np.asarray(played.experience.action)[..., None], axis=-1)[..., 0]
    # What is believed to pay does so, as often as it should.
    stderr = np.sqrt(np.sum(chance * (1 - chance)))
    assert abs(np.sum(reward - chance)) < 5 * stderr
    error = truth.parameter[:, None] - truth.mean
    np.testing.assert_allclose(error[truth.variance < 1e-9], 0, atol=1e-6)
    assert error_over_spread(error, np.sqrt(truth.variance)) == pytest.approx(1, abs=0.25)
    if truth.kind == "exclusive":
        assert reward.sum() > 10
        goal = (truth.parameter @ [task.size, 1]).astype(int)
        assert np.all(truth.belief[np.arange(64), :, goal] > 0)


def test_a_predictive_head_adds_the_curvature_of_the_likelihood():
    """The beliefs along an episode are those of its queries."""
    task = rl.Gridworld(size=3)
    agents = [
        small_agent(
            task,
            rl.PointConfig(),
            key=jax.random.key(0),
            config=small_config(4, cell="elman", predict=predict),
        )
        for predict in ((), ("reward",))
    ]
    names = [list(posteriors_of(agent)) for agent in agents]
    assert names[0] == list(LAPLACE)
    assert names[1] == [*LAPLACE, *LIKELIHOOD]
    agent = posteriors_of(agents[1])["likelihood, dense"]
    key = jax.random.key(1)
    played = play_episodes(agents[1], task, LearningConfig(), episodes=2, steps=5, key=key)
    episode = jax.tree.map(lambda leaf: leaf[0], played.experience)
    inference, _ = infer_beliefs(agent, episode)
    asked = agent.queries(episode.observation, episode.previous_action)
    expected = agent.posterior.unroll(played.inputs[0], queries=asked)
    np.testing.assert_allclose(inference.belief.precision(), expected.precision(), rtol=1e-5)
    assert inference.belief.entropy()[-1] < inference.belief.entropy()[0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"tasks": 8}, r"^tasks must be at least 16; got 8\.$"), ({"steps": 2}, r"^steps must be at least 4")],
)
def test_too_little_to_measure_on_is_refused(changed, words):
    with pytest.raises(ValueError, match=words):
        FaithfulnessConfig(**changed).check()


# The command


GRID = ("train", "--task", "gridworld", "--task.size", "3", *SIZES, "--updates", "0")


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_the_command_measures_judges_and_writes(command, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    point = command(*GRID, "--seeds", "2", "--out", tmp_path / "runs").path
    own = command(
        *GRID, "--posterior", "variational", "--covariance", "diagonal", "--out", tmp_path / "runs"
    ).path
    out = tmp_path / "out"
    done = command("faithfulness", point, own, "--tasks", "32", "--steps", "8", "--out", out)
    assert done.path == out
    assert {path.name for path in out.iterdir()} == {
        f"faithfulness.{end}" for end in ("parquet", "png", "svg", "txt")
    }
    frame = pl.read_parquet(out / "faithfulness.parquet")
    assert set(frame["method"]) == {"RNN", "VRNN, diagonal"}
    # Two seeds with every Laplace posterior, one with its own; trained and untrained, and the exact belief.
    assert len(frame) == 2 * (1 + 2 * len(LAPLACE)) + 1 + 2
    *lines, last = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert last == f"written: {out}"
    assert re.search(r"^Faithful: ", done.out, re.MULTILINE)
    assert (out / "faithfulness.txt").read_text().strip() in done.out


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_runs_that_cannot_be_compared_are_refused(command, tmp_path):
    grid = command(*GRID, "--out", tmp_path / "runs").path
    other = command(*GRID, "--task.size", "4", "--out", tmp_path / "runs").path
    regression = command(
        "train", "--task", "regression", *SIZES, "--updates", "0", "--out", tmp_path / "runs"
    ).path
    assert "RUN must name every agent once" in command("faithfulness", grid, grid).err
    assert "is of another task than" in command("faithfulness", grid, other).err
    assert "is a run of regression: only control tasks" in command("faithfulness", regression).err
    assert "tasks must be at least 16; got 4." in command("faithfulness", grid, "--tasks", "4").err
