"""Serialization: saved objects are restored exactly, and damaged files are refused."""

import struct
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from support.models import small_agent, small_config
from support.saved import craft

import recurrent_laplace as rl
from recurrent_laplace.files import StorageError
from recurrent_laplace.models.layers import Head, ResidualHead
from recurrent_laplace.monitoring import serialization

D, F = 3, 4
KEYS = jax.random.split(jax.random.key(0), 8)
MEMORY = rl.Memory(rl.LSTM(D, 5, key=KEYS[0]), F, key=KEYS[1])
INPUTS = jax.random.normal(KEYS[2], (6, D))


def head(outputs):
    return Head.init(F, (4,), outputs, layer_norm=True, key=KEYS[7])


def likelihood(head, **options):
    parts = (rl.BernoulliLikelihood(1), rl.CategoricalLikelihood(2), rl.GaussianLikelihood(jnp.zeros(1)))
    joint = rl.JointLikelihood(("reward", "tile", "noise"), parts)
    return rl.LikelihoodPosterior(MEMORY, rl.Predictor(head, joint), **options)


def posteriors():
    cells = {
        "gru": rl.GRU(D, 5, use_bias=False, key=KEYS[3]),
        "elman": rl.Elman(D, 5, activation="relu", key=KEYS[3]),
        "linear": rl.Linear(D, 5, key=KEYS[3]),
    }
    by_cell = {name: rl.LaplacePosterior(rl.Memory(cell)) for name, cell in cells.items()}
    below = (rl.GRU(D, 3, key=KEYS[4]),)
    return by_cell | {
        "stack": rl.LaplacePosterior(rl.Memory(rl.LSTM(3, 5, key=KEYS[5]), below=below), window=2),
        "options": rl.LaplacePosterior(MEMORY, covariance="diagonal", forgetting=0.9, prior_stddev=0.5),
        "history": rl.LaplacePosterior(MEMORY, accumulate="none", window=None, damping_precision=0.1),
        "variational": rl.VariationalPosterior(MEMORY, covariance="dense", key=KEYS[6]),
        "conjugate": rl.ConjugatePosterior(MEMORY, forgetting=0.9, key=KEYS[6]),
        "likelihood": likelihood(head(4), covariance="diagonal", forgetting=0.9),
        "residual": likelihood(ResidualHead(head(4), head(4)), accumulate="none", window=None),
        "point": rl.PointPosterior(MEMORY),
    }


@pytest.mark.parametrize("name", [*posteriors(), "agent"])
def test_modules_are_restored(name, tmp_path):
    agent = small_agent(rl.Gridworld(), rl.LaplaceConfig(), key=KEYS[0], config=small_config(4, 3))
    module = (posteriors() | {"agent": agent})[name]
    rl.save(tmp_path / "module.safetensors", module)
    assert eqx.tree_equal(rl.load(tmp_path / "module.safetensors"), module)


def test_an_agent_without_a_predictor_is_written_as_before_there_was_one(tmp_path):
    """So that earlier versions read it, and it is read without the field."""
    agent = small_agent(rl.Gridworld(), rl.PointConfig(), key=KEYS[0], config=small_config(4, 3))
    rl.save(tmp_path / "agent", agent)
    text, _ = serialization._read(tmp_path / "agent")
    assert "predictor" not in text
    with_one = small_config(4, 3, predict=("reward",))
    agent = small_agent(rl.Gridworld(), rl.PointConfig(), key=KEYS[0], config=with_one)
    rl.save(tmp_path / "agent", agent)
    assert eqx.tree_equal(rl.load(tmp_path / "agent"), agent)


@pytest.mark.parametrize("window", [1, 3, None])
def test_a_monitor_continues_to_the_same_numbers(window, tmp_path):
    accumulate = "precision" if window == 1 else "none"
    posterior = rl.LaplacePosterior(MEMORY, accumulate=accumulate, window=window)
    monitor = rl.Monitor(posterior, policy=head(2), value=head(1), streams=2, samples=3)
    for x in INPUTS[:4]:
        monitor.step(jnp.stack([x, -x]))
    rl.save(tmp_path / "monitor.safetensors", monitor)
    again = rl.load(tmp_path / "monitor.safetensors")
    for x in INPUTS[4:]:
        x = jnp.stack([x, -x])
        expected, got = monitor.step(x, [False, True]), again.step(x, [False, True])
        assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (expected, got)), strict=True))


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "belief.safetensors"
    rl.save(path, posteriors()["options"])
    return path


@pytest.mark.parametrize("fraction", [0.0, 0.02, 0.5, 0.99])
def test_a_truncated_file_is_refused(saved, fraction):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(ValueError, match="is cut short, or no safetensors file"):
        rl.load(saved)


@pytest.mark.parametrize("where", ["array", "header"])
def test_a_changed_byte_is_detected(saved, where):
    content = bytearray(saved.read_bytes())
    content[-5 if where == "array" else content.index(b"diagonal")] ^= 1
    saved.write_bytes(content)
    with pytest.raises(ValueError, match="was changed after it was written"):
        rl.load(saved)


def test_other_peoples_files_are_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors.numpy.save({"weight": np.zeros(3, np.float32)}))
    with pytest.raises(ValueError, match=r"not one of recurrent-laplace\.$"):
        rl.load(path)
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(ValueError, match="cut short, or no safetensors"):
        rl.load(path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        rl.load(tmp_path / "none")


def test_a_newer_schema_is_refused(saved):
    craft(saved, saved, lambda spec, _: spec.update(schema=serialization.SCHEMA + 1, version="9.9"))
    with pytest.raises(ValueError, match=r"schema 2, written by version 9\.9"):
        rl.load(saved)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda fields: fields.update(covariance={"value": "round"}), "covariance must be one of"),
        (lambda fields: fields.pop("window"), "a LaplacePosterior has"),
        (lambda fields: fields.update(memory={"class": "Memory"}), "no such class or value"),
        (lambda fields: fields["memory"]["fields"].update(readout={"tensor": "nowhere"}), "nowhere"),
        (
            lambda fields: fields["memory"]["fields"]["cell"]["fields"].update(
                weight_hh={"tensor": "memory.cell.bias"}
            ),
            "",
        ),
    ],
)
def test_an_invalid_header_is_refused(saved, change, reason):
    craft(saved, saved, lambda spec, _: change(spec["module"]["fields"]))
    with pytest.raises(ValueError, match=f"does not hold what its header says: .*{reason}"):
        rl.load(saved)


def test_functions_cannot_be_saved(tmp_path):
    cell = rl.Autodiff(lambda h, x: h + jnp.sum(x), jnp.zeros(3), input_size=D)
    with pytest.raises(ValueError, match=r"memory\.cell holds a Python function"):
        rl.save(tmp_path / "x", rl.LaplacePosterior(rl.Memory(cell)))
    with pytest.raises(ValueError, match=r"heads\.value holds a Python function"):
        rl.save(tmp_path / "x", rl.Monitor(posteriors()["options"], value=lambda z, context: z[0]))
    message = (
        r"must be one of our modules, or of a class .* rl\.register_serializable\(NAME\), .*; got Linear\.$"
    )
    with pytest.raises(ValueError, match=message):
        rl.save(tmp_path / "x", eqx.nn.Linear(2, 2, key=KEYS[0]))
    assert not list(tmp_path.iterdir())


def test_an_unwritable_path_is_named(tmp_path):
    with pytest.raises(StorageError, match="cannot write"):
        rl.save(tmp_path / "none" / "x.safetensors", posteriors()["options"])


def test_float64_is_not_rounded_silently(tmp_path):
    memory = rl.Memory(rl.GRU(D, 3, dtype=jnp.float64, key=KEYS[0]))
    rl.save(tmp_path / "x", rl.LaplacePosterior(memory))
    with jax.enable_x64(False), pytest.raises(ValueError, match="is float64 and would be rounded"):
        rl.load(tmp_path / "x")


LOADER = """
import sys, jax, jax.numpy as jnp
step = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
state = [jnp.full(a.shape, 7, a.dtype) for a in step.in_avals[:-2]]
for t in range(3):
    x = jnp.full(3, t / 2, jnp.float32)
    *state, entropy, kl, mahalanobis, mean, stddev = step.call(*state, x, jnp.asarray(t == 0))
print(float(entropy), float(kl), float(mahalanobis), float(mean[0]), float(stddev[1]))
assert "recurrent_laplace" not in sys.modules and "equinox" not in sys.modules
"""


@pytest.mark.slow
def test_an_exported_step_runs_without_this_package(tmp_path):
    posterior = rl.LaplacePosterior(
        rl.Memory(rl.LSTM(D, 5, dtype=jnp.float32, key=KEYS[0])), accumulate="none", window=2
    )
    rl.export(tmp_path / "step.jaxexport", posterior)
    command = [sys.executable, "-c", LOADER, tmp_path / "step.jaxexport"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    monitor = rl.Monitor(posterior)
    for t in range(3):
        reading = monitor.step(jnp.full(D, t / 2))
    expected = [reading.entropy, reading.kl, reading.mahalanobis, reading.mean[0], reading.stddev[1]]
    np.testing.assert_allclose(np.array(done.stdout.split(), float), np.array(expected, float), rtol=1e-4)


def test_a_growing_history_is_not_exported(tmp_path):
    with pytest.raises(ValueError, match="all history grows"):
        rl.export(tmp_path / "x", posteriors()["history"])
