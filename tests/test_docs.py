"""The examples that people will paste run."""

import dataclasses
import html
import importlib.util
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl
from recurrent_laplace.deploy.recording import Episode
from recurrent_laplace.tasks import TASKS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
SNIPPET = re.compile(r'--8<-- "(.*)"')


def code_blocks(text: str) -> list[str]:
    return [textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def test_readme_example(capsys):
    (block,) = code_blocks(README.read_text())
    assert len(block.strip().splitlines()) <= 12
    exec(block, {})
    assert "(5, 64)" in capsys.readouterr().out


DOCUMENTED = [name for name in rl.__all__ if code_blocks(textwrap.dedent(getattr(rl, name).__doc__))]


def test_what_people_construct_has_an_example():
    bare = {name for name in rl.__all__ if name not in DOCUMENTED and not name.startswith("Abstract")}
    assert bare == {
        *("Affine", "Cost", "Info", "Linearized", "Mixture", "PointBelief", "cayley_basis"),
        # What functions return, or parts of a `Config`.
        *("Behaviour", "Prediction", "Step", "Train", "TrainState"),
        *("Calibration", "Diagnosis", "Reading", "load"),
        *("AgentConfig", "EvaluationConfig", "LearningConfig", "PosteriorConfig"),
    }


def in_use(memory: rl.Memory) -> dict:
    """What examples about a posterior in use speak of."""
    posterior = rl.LaplacePosterior(memory, covariance="diagonal")
    inputs = jax.random.normal(jax.random.key(1), (60, 3, 3))
    monitor = rl.Monitor(posterior, streams=60)
    readings = [monitor.step(inputs[:, t]) for t in range(3)]
    episodes = [
        Episode.of(
            list(inputs[i]),
            [0] * 3,
            [0.0] * 3,
            [jax.tree.map(lambda leaf, i=i: leaf[i], r) for r in readings],
        )
        for i in range(60)
    ]
    return {
        "posterior": posterior,
        "monitor": rl.Monitor(posterior),
        "episodes": episodes,
        "inputs": inputs,
        "x": inputs[0, 0],
        "reward": 0.0,
        "log_likelihood": lambda beliefs: beliefs.log_prob(jnp.zeros(4)),
    }


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstring_example(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    keys = jax.random.split(jax.random.key(0), 3)
    memory = rl.Memory(rl.LSTM(3, 8, key=keys[0]), features=4, key=keys[1])
    names = {
        "jax": jax,
        "jnp": jnp,
        "np": np,
        "rl": rl,
        "key": keys[2],
        "memory": memory,
        "inputs": jnp.ones((5, 3)),
        "belief": rl.DiagonalGaussian(jnp.zeros(4), jnp.ones(4)),
        "policy": lambda z: z[:2],
        "critic": lambda z: jnp.sum(z),
        "action": 0,
        "dataclasses": dataclasses,
        "observation": jnp.ones(10),
        "previous_action": jnp.array(-1),
        "previous_reward": jnp.zeros(()),
        "x": jnp.ones((5, 1)),
        "y": jnp.ones((5, 1)),
        "x_next": jnp.ones((5, 1)),
    }
    if name in ("with_posterior", "evaluate"):
        small = rl.AgentConfig(hidden_size=4, features=2, embedding_sizes=(4,), head_sizes=(4,))
        names["config"] = rl.Config(task=rl.TwoArmBandit(), agent=small)
        names["state"] = rl.make_train(names["config"]).init(keys[0])
        names["agent"] = names["state"].model
    if name in ("Monitor", "ShiftAlarm", "calibrate", "diagnose", "export", "save"):
        names |= in_use(memory)
    with mock.patch.dict(TASKS):
        for block in code_blocks(textwrap.dedent(getattr(rl, name).__doc__)):
            exec(block, names)


OWN_BLOCKS = [
    (page.stem, block)
    for page in PAGES
    for block in code_blocks(page.read_text())
    # A block that is a file of examples/ is run by test_examples.py.
    if not SNIPPET.search(block)
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), OWN_BLOCKS, ids=[page for page, _ in OWN_BLOCKS])
def test_page_example(page, block, monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    with mock.patch.dict(TASKS):
        exec(block, {})
    # An example registers its task once for each import: the next to import it starts anew.
    for name in {"add_a_task", "add_a_posterior"} & (set(sys.modules) - before):
        del sys.modules[name]
    assert capsys.readouterr().out


@pytest.mark.parametrize("part", ["cell", "posterior", "task"])
def test_how_to_page_shows_its_example(part):
    page = (ROOT / "docs" / f"add-a-{part}.md").read_text()
    assert SNIPPET.findall(page) == [f"examples/add_a_{part}.py"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material")):
        pytest.skip("mkdocs is not installed: `make docs` does so")
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it drops the warnings before --strict counts them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_site_has_every_page(site):
    assert {page.stem for page in PAGES} <= {path.stem for path in site.glob("*.html")}


@pytest.mark.parametrize("part", ["cell", "posterior", "task"])
def test_site_holds_the_whole_example(site, part):
    text = html.unescape(re.sub(r"<[^>]*>", "", (site / f"add-a-{part}.html").read_text()))
    assert (ROOT / "examples" / f"add_a_{part}.py").read_text().strip() in text


def test_site_fetches_nothing_from_elsewhere(site):
    elsewhere = r"""["']?(?:https?:)?//[^"')\s]*"""
    fetched = re.compile(rf"(?:<link\b[^>]*\bhref|\bsrc|\bsrcset)={elsewhere}|url\({elsewhere}")
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(files) > len(PAGES)
    assert {file.name: found for file in files if (found := fetched.findall(file.read_text()))} == {}
