"""Systems, settings and trainings of the study `peers.py`."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from peers_curve import STEPS, Request

from recurrent_laplace.report.style import BLUE, OTHERS, VERMILION

ROOT = Path(__file__).parent.parent
VALIDATION_SEED = 100
GRACE_SECONDS = 3600.0
"""Time for evaluation, which does not count as training; a process that needs more is taken to hang."""

SHARED = {"num_envs": 64, "num_steps": STEPS, "update_epochs": 4, "clip_coef": 0.2}
MEMORAX = {
    "gamma": 0.9,
    "gae_lambda": 0.9,
    "num_minibatches": 1,
    "normalize_advantage": True,
    "clip_vloss": True,
    "ent_coef": 0.02,
    "vf_coef": 0.5,
    "learning_rate": 3e-3,
    "gradient_norm": 1.0,
}
README = {
    "num_envs": 8,
    "num_steps": 128,
    "update_epochs": 4,
    "clip_coef": 0.2,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "num_minibatches": 4,
    "normalize_advantage": True,
    "clip_vloss": True,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "learning_rate": 3e-4,
    "gradient_norm": 1.0,
}
"""The example in memorax's README: its configuration has no defaults."""
SB3 = {"num_envs": 64, "n_steps": STEPS, "n_epochs": 4, "gamma": 0.9, "gae_lambda": 0.9, "ent_coef": 0.02}


class System(NamedTuple):
    """A system: its script, the packages of its environment (none: this one), and the settings to try."""

    label: str
    colour: str
    script: str
    packages: tuple[str, ...]
    trials: tuple[dict[str, Any], ...]


OURS = ({}, {"updates": 600}, {"updates": 1200}, {"updates": 600, "learning_rate": 1e-3})
SYSTEMS = {
    "rnn": System("ours, RNN", BLUE, "peers_ours.py", (), OURS),
    "laplace-diagonal": System("ours, Laplace, diagonal", VERMILION, "peers_ours.py", (), OURS),
    "memorax": System(
        "memorax PPO, LSTM",
        OTHERS[0],
        "peers_memorax.py",
        ("memorax==1.0.1", "equinox", "jaxtyping"),
        (
            README,
            SHARED | MEMORAX,
            SHARED | MEMORAX | {"num_minibatches": 4, "learning_rate": 1e-3},
            SHARED | MEMORAX | {"gamma": 0.95, "gae_lambda": 0.95, "learning_rate": 1e-3},
        ),
    ),
    "sb3": System(
        "sb3-contrib RecurrentPPO",
        OTHERS[1],
        "peers_sb3.py",
        ("sb3-contrib", "torch==2.13.0", "jax", "equinox", "jaxtyping"),
        (
            {"num_envs": 8},
            SB3 | {"batch_size": 6400, "learning_rate": 3e-3},
            SB3 | {"batch_size": 1600, "learning_rate": 1e-3},
            SB3 | {"batch_size": 1600, "learning_rate": 1e-3, "gamma": 0.95, "gae_lambda": 0.95},
        ),
    ),
}
"""The first settings of each are its defaults; the second have the values of our laptop preset."""


@dataclasses.dataclass(frozen=True)
class Study:
    """The options of the command."""

    environments: Path
    out: Path
    seconds: float
    trial_seconds: float
    every: float
    tasks: int
    seeds: int
    systems: tuple[str, ...]

    def request(self, name: str, trial: int, seed: int) -> Request:
        """A training of a system: a trial on the validation seed, or one of the comparison."""
        seconds = self.trial_seconds if seed == VALIDATION_SEED else self.seconds
        return Request(
            system=name,
            settings=SYSTEMS[name].trials[trial],
            seed=seed,
            seconds=seconds,
            every=self.every,
            tasks=self.tasks,
        )

    def result(self, name: str, trial: int, seed: int) -> dict[str, Any]:
        """Result of a training, executed unless its file is there and is what is asked for."""
        stem = self.out / f"{name}-{trial}-{seed}"
        request = dataclasses.asdict(self.request(name, trial, seed))
        target = stem.with_suffix(".json")
        if target.exists():
            found = json.loads(target.read_text())
            if found["request"] == request:
                return found
        print(f"{name}, settings {trial}, seed {seed}: {request['seconds']:.0f} s of training", flush=True)
        source = stem.with_suffix(".request")
        source.write_text(json.dumps(request))
        system = SYSTEMS[name]
        python = environment_python(self.environments / name) if system.packages else Path(sys.executable)
        environ = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
        environ["PYTHONPATH"] = str(ROOT / "src")
        script = ROOT / "studies" / system.script
        subprocess.run(
            [python, script, source, target, repr(time.time())],
            env=environ,
            timeout=request["seconds"] + GRACE_SECONDS,
            check=True,
        )
        return json.loads(target.read_text())

    def chosen(self, name: str) -> int:
        """The settings with the highest return in their trial."""
        returns = [final_return(self.result(name, trial, VALIDATION_SEED)) for trial in trials_of(name)]
        return int(np.argmax(returns))

    def execute(self) -> None:
        """Run what is missing, systems in turn."""
        self.out.mkdir(parents=True, exist_ok=True)
        for name in self.systems:
            create_environment(self.environments / name, SYSTEMS[name].packages)
        for trial in range(max(len(SYSTEMS[name].trials) for name in self.systems)):
            for name in self.systems:
                if trial in trials_of(name):
                    self.result(name, trial, VALIDATION_SEED)
        for seed in range(self.seeds):
            for name in self.systems:
                self.result(name, self.chosen(name), seed)

    def results(self, name: str) -> list[dict[str, Any]]:
        """Results of the comparison, by seed."""
        return [self.result(name, self.chosen(name), seed) for seed in range(self.seeds)]


def trials_of(name: str) -> range:
    """Indices of the settings of a system."""
    return range(len(SYSTEMS[name].trials))


def environment_python(folder: Path) -> Path:
    """Interpreter of a virtual environment."""
    return folder / "bin" / "python"


def create_environment(folder: Path, packages: tuple[str, ...]) -> None:
    """Create a virtual environment with these packages, unless that was done."""
    mark = folder / "packages.json"
    if not packages or (mark.exists() and json.loads(mark.read_text()) == list(packages)):
        return
    print(f"creating {folder}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    subprocess.run([environment_python(folder), "-m", "pip", "install", "--quiet", *packages], check=True)
    mark.write_text(json.dumps(packages))


def final_return(result: dict[str, Any]) -> float:
    """Return at the end of the time, or of the training if that was earlier."""
    return result["points"][-1][2]
