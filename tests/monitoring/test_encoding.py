"""Users' classes in files, and crafted files with a valid checksum and invalid contents."""

import dataclasses
import functools
import importlib
import os
import re
import subprocess
import sys
from typing import Any, Literal, NamedTuple
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.episodes import record
from support.models import small_agent, small_config
from support.saved import craft, write_saved

import recurrent_laplace as rl
from recurrent_laplace.monitoring import encoding, serialization

KEYS = jax.random.split(jax.random.key(0), 5)
MEMORY = rl.Memory(rl.LSTM(3, 5, key=KEYS[0]), 4, key=KEYS[1])


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Saved posteriors, agent, monitors and alarm."""
    folder = tmp_path_factory.mktemp("originals")
    rl.save(folder / "posterior", rl.LaplacePosterior(MEMORY, covariance="diagonal"))
    rl.save(folder / "variational", rl.VariationalPosterior(MEMORY, covariance="dense", key=KEYS[2]))
    rl.save(folder / "conjugate", rl.ConjugatePosterior(MEMORY, key=KEYS[2]))
    config = small_config(4, 3)
    rl.save(folder / "agent", small_agent(rl.Gridworld(), rl.LaplaceConfig(), key=KEYS[3], config=config))
    monitor = rl.Monitor(rl.LaplacePosterior(MEMORY, covariance="diagonal"), streams=60)
    inputs = jax.random.normal(KEYS[4], (60, 3, 3))
    episodes = record(monitor, inputs)
    rl.save(folder / "monitor", monitor)
    rl.save(folder / "alarm", rl.ShiftAlarm.fit(episodes, false_alarm_rate=0.05))
    history = rl.Monitor(rl.LaplacePosterior(MEMORY, accumulate="none", window=None))
    history.step(inputs[0, 0])
    rl.save(folder / "history", history)
    return folder


def field(spec, dotted):
    """Fields of a nested module."""
    fields = spec["fields"]
    for name in dotted.split(".") if dotted else ():
        fields = fields[name]["fields"]
    return fields


def put(part, dotted, **values):
    """Change that replaces fields by plain values."""
    encoded = {name: {"value": value} for name, value in values.items()}
    return lambda spec, tensors: field(spec[part], dotted).update(encoded)


def reshape(name, shape):
    """Change that replaces an array by zeros of another shape."""
    return lambda spec, tensors: tensors.update({name: np.zeros(shape, tensors[name].dtype)})


def update(*path, **values):
    """Change that updates a dictionary of the header."""
    return lambda spec, tensors: functools.reduce(dict.__getitem__, path, spec).update(values)


CRAFTED = {
    "module is a number": ("posterior", update(module={"value": 3})),
    "schema is text": ("posterior", update(schema="1")),
    "schema is missing": ("posterior", lambda spec, _: spec.pop("schema")),
    "nothing": ("posterior", lambda spec, _: spec.pop("module")),
    "prior_stddev": ("posterior", put("module", "", prior_stddev=0.0)),
    "prior_stddev is tiny": ("posterior", put("module", "", prior_stddev=1e-200)),
    "window": ("posterior", put("module", "", window=-1)),
    "window is huge": ("posterior", put("module", "", window=10**30)),
    "forgetting": ("posterior", put("module", "", forgetting="x")),
    "hidden_size": ("posterior", put("module", "memory.cell", hidden_size=7)),
    "cell is text": ("posterior", put("module", "memory", cell="LSTM")),
    "weights of another shape": ("posterior", reshape("memory.cell.weight_hh", (20, 6))),
    "readout of another shape": ("posterior", reshape("memory.readout.weight", (4, 6))),
    "an array of no dimension": ("posterior", reshape("memory.cell.bias", ())),
    "variational covariance": ("variational", put("module", "", covariance="round")),
    "variational head": ("variational", reshape("rotation_head.weight", (5, 5))),
    "conjugate head": ("conjugate", reshape("precision_head.weight", (5, 4))),
    "conjugate forgetting": ("conjugate", put("module", "", forgetting=2.0)),
    "actions": ("agent", put("module", "", actions=3)),
    "actions is huge": ("agent", put("module", "", actions=2**40)),
    "policy_input": ("agent", put("module", "", policy_input="all")),
    "policy head": ("agent", reshape("policy_head.mlp.layers.0.weight", (4, 9))),
    "no layers": (
        "agent",
        update("module", "fields", "policy_head", "fields", "mlp", "fields", layers={"list": []}),
    ),
    "streams": ("monitor", update("monitor", streams=0)),
    "streams is huge": ("monitor", update("monitor", streams=2**30)),
    "streams is text": ("monitor", update("monitor", streams="60")),
    "samples": ("monitor", update("monitor", samples=2**31 - 1)),
    "an option more": ("monitor", update("monitor", nothing=1)),
    "no state": ("monitor", update(mind={"value": None})),
    "state of other streams": ("monitor", update("monitor", streams=59)),
    "history of another size": ("history", reshape("mind.state.window.projected", (64, 7))),
    "statistic": ("alarm", update("alarm", "fit", statistic="sum")),
    "threshold": ("alarm", update("alarm", "fit", threshold=float("nan"))),
    "scales": ("alarm", update("alarm", "fit", scales=[0.0])),
    "tails": ("alarm", update("alarm", "fit", tails=3)),
    "signals": ("alarm", update("alarm", "fit", signals=["luck"])),
    "no fit": ("alarm", lambda spec, _: spec["alarm"].pop("fit")),
    "state": ("alarm", update("alarm", state=[[0.0], None, None, None])),
    "alarm is a list": ("alarm", update(alarm=[])),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_contents_are_refused_in_one_sentence(name, originals, tmp_path):
    source, change = CRAFTED[name]
    path = tmp_path / "crafted"
    craft(originals / source, path, change)
    with pytest.raises(ValueError, match=f"^{path} does not hold what its header says: ") as caught:
        rl.load(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.endswith(".")
    assert len(message) < 700


def test_unchanged_contents_are_loaded(originals, tmp_path):
    for source in originals.iterdir():
        craft(source, tmp_path / "same", lambda spec, tensors: None)
        assert type(rl.load(tmp_path / "same")) is type(rl.load(source))


@pytest.mark.parametrize("levels", [100, 100_000])
def test_a_deep_header_is_refused(levels, tmp_path):
    nested = '{"list": [' * levels + '{"value": 1}' + "]}" * levels
    write_saved(tmp_path / "deep", f'{{"schema": 1, "module": {nested}}}', {})
    with pytest.raises(ValueError, match="does not hold what its header says"):
        rl.load(tmp_path / "deep")


def test_a_long_header_is_refused_before_it_is_parsed(tmp_path):
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write((serialization.HEADER_LIMIT + 1).to_bytes(8, "little"))
        file.truncate(serialization.HEADER_LIMIT + 10)
    with pytest.raises(ValueError, match=r"has a header of \d+ bytes; headers of at most"):
        rl.load(path)


def test_only_regular_files_are_loaded(tmp_path):
    with pytest.raises(IsADirectoryError, match=f"^{tmp_path} is a directory, not a file that rl.save wrote"):
        rl.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a regular file"):
        rl.load(tmp_path / "pipe")


def test_a_crafted_monitor_takes_no_memory(originals, tmp_path):
    """A process limited to 3 GB refuses a file with a billion streams."""
    craft(originals / "monitor", tmp_path / "crafted", CRAFTED["streams is huge"][1])
    program = (
        "import jax, resource, recurrent_laplace as rl\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (3 * 2**30,) * 2)\n"
        f"rl.load({str(tmp_path / 'crafted')!r})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ValueError: " in done.stderr.splitlines()[-1]
    assert "running state does not fit" in done.stderr


def test_nan_statistics_of_version_01_are_restarted(originals, tmp_path):
    """Version 0.1 kept a NaN in the running state of an alarm, which then never fired."""

    def damage(spec, tensors):
        count = len(spec["alarm"]["fit"]["signals"])
        spec["alarm"]["state"] = [[float("nan")] * count, [0.0] * count, [2] * count, float("nan")]

    craft(originals / "alarm", tmp_path / "old", damage)
    alarm = rl.load(tmp_path / "old")
    assert not np.isnan(alarm._log_statistics).any()
    assert jnp.isneginf(alarm._log_statistics).all()


# Users' classes

MY_PARTS = """
from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import recurrent_laplace as rl


@rl.register_serializable("my_project.Leaky")
class Leaky(rl.AbstractCell):
    weight: Float[Array, "H D"]
    leak: float = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)

    def __check_init__(self):
        if not 0 < self.leak < 1:
            raise ValueError(f"leak must be between 0 and 1; got {self.leak}")

    def init(self):
        return jnp.zeros(self.hidden_size)

    def project(self, inputs):
        return inputs @ self.weight.T

    def advance(self, carry, projected):
        return jnp.tanh(self.leak * carry + projected)

    def hidden(self, carry):
        return carry

    def state_jacobian(self, carry, projected):
        return jax.jacfwd(self.advance)(carry, projected)


def check_head(head):
    if head.weight.shape[0] != 1:
        raise ValueError(f"a LinearHead has one output; got {head.weight.shape[0]}")


@rl.register_serializable("my_project.LinearHead", check=check_head)
class LinearHead(eqx.Module):
    weight: Array

    def __call__(self, z, context=None):
        return self.weight @ z


def make_monitor():
    weight = jnp.linspace(-1, 2, 12).reshape(4, 3)
    posterior = rl.LaplacePosterior(rl.Memory(Leaky(weight, 0.5, 3, 4)), covariance="diagonal")
    monitor = rl.Monitor(posterior, value=LinearHead(jnp.ones((1, 4))))
    monitor.step(jnp.ones(3))
    return monitor
"""

LOAD = """
import sys, jax, jax.numpy as jnp, recurrent_laplace as rl
jax.config.update("jax_enable_x64", True)
reading = rl.load(sys.argv[1]).step(jnp.ones(3))
print(float(reading.entropy), float(reading.value), float(reading.value_stddev))
"""


@pytest.fixture
def registry():
    """Registered classes, restored after the test."""
    with mock.patch.dict(encoding.REGISTERED):
        yield encoding.REGISTERED


@pytest.fixture
def my_parts(registry, tmp_path, monkeypatch):
    """A user's module with a cell and a head, imported from `tmp_path`."""
    (tmp_path / "my_parts.py").write_text(MY_PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("my_parts")
    del sys.modules["my_parts"]


def load_in_child(program, path, folder):
    command = [sys.executable, "-c", program, str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_users_classes_are_loaded_only_where_they_are_registered(my_parts, tmp_path):
    path = tmp_path / "monitor.safetensors"
    monitor = my_parts.make_monitor()
    rl.save(path, monitor)
    reading = monitor.step(jnp.ones(3))
    done = load_in_child("import my_parts\n" + LOAD, path, tmp_path)
    expected = [reading.entropy, reading.value, reading.value_stddev]
    np.testing.assert_allclose(np.array(done.stdout.split(), float), np.array(expected, float), rtol=1e-12)
    # The module could be imported there, but a file never imports it.
    done = load_in_child(LOAD, path, tmp_path)
    assert done.stderr.splitlines()[-1].endswith(
        f"Error: {path} needs the class 'my_project.Leaky', which is not registered in this process: before "
        "rl.load, import the module that calls rl.register_serializable('my_project.Leaky') on it."
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("posterior", "memory.cell", leak=2.0), "leak must be between 0 and 1; got 2.0."),
        (put("posterior", "memory.cell", leak="x"), "a my_project.Leaky cannot have leak='x'."),
        (reshape("heads.value.weight", (2, 4)), "a LinearHead has one output; got 2."),
    ],
)
def test_users_classes_are_validated(my_parts, change, reason, tmp_path):
    rl.save(tmp_path / "monitor", my_parts.make_monitor())
    craft(tmp_path / "monitor", tmp_path / "crafted", change)
    with pytest.raises(ValueError, match=f"does not hold what its header says: {re.escape(reason)}$"):
        rl.load(tmp_path / "crafted")


@dataclasses.dataclass(frozen=True)
class Options:
    mode: Literal["fast", "exact"]
    sizes: tuple[int, str]
    more: Any = None


def test_dataclass_with_every_type_of_field(registry, tmp_path):
    rl.register_serializable("tests.Options")(Options)
    options = Options("fast", (3, "x"), [None, True, 1.5, (2,), Options("exact", (1, ""))])
    rl.save(tmp_path / "options", options)
    assert rl.load(tmp_path / "options") == options
    for wrong in (Options("slow", (3, "x")), Options("fast", (3, 3)), Options("fast", (3,))):
        rl.save(tmp_path / "wrong", wrong)
        with pytest.raises(ValueError, match=r"a tests\.Options cannot have (mode|sizes)="):
            rl.load(tmp_path / "wrong")


class Pair(NamedTuple):
    first: int
    second: int


def test_unsupported_fields_are_not_saved(registry, tmp_path):
    rl.register_serializable("tests.Options")(Options)
    for value in (Pair(1, 2), {"a": 1}):
        with pytest.raises(ValueError, match=r"^more must be one of our modules, or of a class"):
            rl.save(tmp_path / "options", Options("fast", (3, "x"), value))


def test_names_in_files_belong_to_one_class(registry):
    class Other(eqx.Module):
        weight: jax.Array

    class Plain:
        pass

    class Inherits(Options):
        pass

    register = rl.register_serializable
    with pytest.raises(ValueError, match=r"^name 'LSTM' is taken by LSTM: choose another\.$"):
        register("LSTM")(Other)
    with pytest.raises(
        ValueError, match=r"^class LSTM is registered as 'LSTM' already; got 'tests\.LSTM'\.$"
    ):
        register("tests.LSTM")(rl.LSTM)
    for cls in (Plain, Inherits, 3):
        with pytest.raises(ValueError, match=r"^class must be an eqx\.Module or a dataclass to be saved"):
            register("tests.Plain")(cls)
    for name in ("", 3, Other):
        with pytest.raises(ValueError, match=r"^name must be a string such as 'my_project\.MyCell'; got"):
            register(name)
    assert register("tests.Other")(Other) is Other
    assert register("tests.Other")(Other) is Other
    with pytest.raises(ValueError, match=r"^name 'tests\.Other' is taken by .*Other: choose another\.$"):
        register("tests.Other")(Options)


def test_redefined_class_keeps_its_name(registry):
    def define():
        @rl.register_serializable("tests.Again")
        class Again(eqx.Module):
            weight: jax.Array

        return Again

    assert define() is not (again := define())
    assert encoding.REGISTERED["tests.Again"].cls is again


def test_fields_with_a_default_may_be_absent(tmp_path):
    """A regressor of version 0.1 has no lower bound of its predictive standard deviation."""
    model = rl.Regressor.init(
        rl.AgentConfig(hidden_size=3, features=2), rl.PointConfig(), key=jax.random.key(0)
    )
    rl.save(tmp_path / "new", model)
    craft(tmp_path / "new", tmp_path / "old", lambda spec, _: spec["module"]["fields"].pop("least_stddev"))
    assert eqx.tree_equal(rl.load(tmp_path / "old"), model)
    craft(tmp_path / "new", tmp_path / "bad", lambda spec, _: spec["module"]["fields"].pop("raw_stddev"))
    with pytest.raises(ValueError, match="a Regressor has"):
        rl.load(tmp_path / "bad")
