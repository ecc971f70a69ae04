"""What can happen to a run, done to real processes and real files: kills, full disks, damage, company."""

import asyncio
import contextlib
import gc
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import NamedTuple

import filelock
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import polars as pl
import pytest
import tensorstore
from jax.experimental.compilation_cache import compilation_cache

from recurrent_laplace import cli
from recurrent_laplace.experiments.checkpoints import Checkpoints
from recurrent_laplace.experiments.tables import write_table
from recurrent_laplace.files import StorageError, write_text

# A program that another worker is just storing is compiled once more: no harm, and no error.
pytestmark = pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache")

PROGRAM = (str(Path(sys.executable).parent / "recurrent-laplace"),)
UPDATES = 120
SNAPSHOTS = {UPDATES // 2, 3 * UPDATES // 4, UPDATES}
# Most of the time goes into compiling: a plain cell and no norms save some of it.
SIZES = ("--preset", "smoke", "--steps", "5", "--batch", "4", "--cell", "elman", "--no-layer-norm")
TINY = ("train", "--task", "regression", *SIZES)
TRAIN = (*TINY, "--updates", str(UPDATES), "--checkpoint-seconds", "0")
PATIENCE = 240
"""Seconds after which a child process is given up: much longer than any should take."""


class Done(NamedTuple):
    code: int
    out: str
    err: str

    def check(self, code: int) -> "Done":
        assert self.code == code, f"exit code {self.code}\n{self.out}\n{self.err}"
        assert "Traceback" not in self.err, self.err
        return self


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A folder that all workers of this session have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def programs(shared) -> Path:
    """Where compiled programs are kept, so that one serves all processes."""
    return shared / "compiled"


@pytest.fixture(scope="session")
def child(programs):
    """Starts a process of the command line; it reads compiled programs, but stores none.

    A process that is killed while it stores one would leave half a program to the others.
    """

    def start(*args, program=PROGRAM, store=False) -> subprocess.Popen:
        env = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": str(programs),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5" if store else "10000",
            "PYTHONUNBUFFERED": "1",
        }
        return subprocess.Popen(
            [*program, *map(str, args)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def here(programs, capsys):
    """Runs the command line in this process, as children do: in float32, with the programs they have."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, (str(programs), 0.5), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()

    def run(*args) -> Done:
        code = 0
        with jax.enable_x64(False):
            try:
                cli.main(list(map(str, args)))
            except SystemExit as end:
                code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    yield run
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def finish(process: subprocess.Popen) -> Done:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return Done(process.returncode, out, err)


def read_until(process: subprocess.Popen, word: str) -> None:
    """Wait until the process prints a line with this word."""
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return
    pytest.fail(f"ended without {word!r}: {finish(process)}")


def sentence(done: Done, *words: str, code: int = 2) -> str:
    """The one sentence on stderr; it must have these words."""
    done.check(code)
    lines = done.err.strip().splitlines()
    # With a full disk tensorstore may log a line of its own, from C++, depending on where it stood.
    (line,) = [
        line for line in lines if "No space left" not in line or line.startswith("recurrent-laplace: ")
    ]
    assert line.startswith("recurrent-laplace: ")
    for word in words:
        assert word in line
    return line


def only_run(out: Path) -> Path:
    (run,) = (path for path in out.iterdir() if path.is_dir())
    return run


def status(run: Path) -> str:
    return (run / "status").read_text().splitlines()[0]


def checkpoints(run: Path) -> set[int]:
    return {int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdecimal()}


def arrays(run: Path, update: int) -> dict[str, np.ndarray]:
    """What a checkpoint has, read without any code of ours."""
    return ocp.PyTreeCheckpointer().restore((run / "checkpoints" / str(update) / "arrays").absolute())


def assert_same_state(run: Path, other: Path, update: int) -> None:
    one, two = arrays(run, update), arrays(other, update)
    assert one.keys() == two.keys()
    for part in ("model", "optimizer", "key", "update"):
        assert any(name.split(".")[0] == part for name in one)
    for name, array in one.items():
        array, expected = np.asarray(array), np.asarray(two[name])
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes(), name


def assert_finished_as(run: Path, other: Path) -> None:
    """The run is finished, and bit for bit the other, which was never interrupted."""
    assert run.name == other.name
    assert status(run) == "finished"
    assert checkpoints(run) == SNAPSHOTS
    for update in SNAPSHOTS:
        assert_same_state(run, other, update)
    metrics = pl.read_parquet(run / "metrics.parquet")
    assert metrics.equals(pl.read_parquet(other / "metrics.parquet"))
    counts = metrics.group_by("update").len().sort("update")
    assert counts["update"].to_list() == list(range(1, UPDATES + 1))
    assert counts["len"].n_unique() == 1
    assert leftovers(run) == []


def leftovers(run: Path) -> list[str]:
    """What was only ever meant to be there for a moment."""
    marks = (".writing", ".removing", "tmp")
    return [str(path.relative_to(run)) for path in run.rglob("*") if any(mark in path.name for mark in marks)]


def listing(folder: Path, ignore: tuple[str, ...] = ()) -> dict[str, str]:
    """Every file with its hash."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".lock", *ignore)
    }


@pytest.fixture(scope="session")
def uninterrupted(shared, child) -> Path:
    """A run that nothing has happened to. Read only."""
    out = shared / "uninterrupted"
    with filelock.FileLock(shared / "uninterrupted.lock"):
        if not out.exists():
            finish(child(*TRAIN, "--out", out, store=True)).check(0)
    return only_run(out)


@pytest.fixture(scope="session")
def interruption(shared, child, uninterrupted) -> tuple[Path, Done]:
    """A run stopped with Ctrl-C in its first call, and what was said. Read only: copy it."""
    out, record = shared / "interrupted", shared / "interruption.json"
    with filelock.FileLock(shared / "interrupted.lock"):
        if not record.exists():
            process = child(*TRAIN, "--out", out)
            # From this line on Ctrl-C is heard, and the first call has yet to be traced.
            read_until(process, "compiling")
            process.send_signal(signal.SIGINT)
            record.write_text(json.dumps(finish(process)))
    return only_run(out), Done(*json.loads(record.read_text()))


@pytest.fixture
def partial(interruption, tmp_path) -> Path:
    """A copy of the stopped run, to do things to."""
    run, _ = interruption
    return Path(shutil.copytree(run, tmp_path / "out" / run.name))


@pytest.fixture
def long_partial(uninterrupted, tmp_path) -> Path:
    """A run as after a kill, its metrics ahead of its states: those to the end, these to the half."""
    run = Path(shutil.copytree(uninterrupted, tmp_path / "out" / uninterrupted.name))
    for update in SNAPSHOTS - {UPDATES // 2}:
        shutil.rmtree(run / "checkpoints" / str(update))
    (run / "status").write_text("running\n")
    return run


# Kill -9.

MORTAL = """
import fnmatch, os, signal, sys
from pathlib import Path
from recurrent_laplace.cli import main

pattern, count, side = sys.argv[1], int(sys.argv[2]), sys.argv[3]
del sys.argv[1:4]
replace, seen = os.replace, 0

def mortal(source, target):
    global seen
    seen += fnmatch.fnmatchcase(Path(target).name, pattern)
    if seen == count and side == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
    if seen == count:
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = mortal
main()
"""
"""The command line, killed beside the renaming that makes the n-th file of some name appear."""


@pytest.mark.slow
def test_killed_at_the_worst_and_at_random_moments(child, uninterrupted, tmp_path):
    out = tmp_path / "out"
    resume = (*TRAIN, "--resume", "--out", out)

    def killed_at(pattern: str, count: int, side: str) -> int:
        return finish(child(*resume, program=(sys.executable, "-c", MORTAL, pattern, str(count), side))).code

    # There is a folder, and nothing in it.
    assert killed_at("config.toml", 1, "before") == -signal.SIGKILL
    assert not (only_run(out) / "config.toml").exists()

    # The first seconds, before there is any state.
    chance = random.Random(0)
    process = child(*resume)
    read_until(process, "compiling")
    time.sleep(chance.uniform(0, 0.5))
    process.kill()
    finish(process)
    assert status(only_run(out)) == "running"

    # Half of the metrics written; metrics ahead of the state; a state half removed.
    for pattern, count, side in (
        ("metrics.parquet", 3, "before"),
        ("[0-9]*", 3, "before"),
        (".*.removing", 2, "after"),
    ):
        assert killed_at(pattern, count, side) == -signal.SIGKILL
        assert status(only_run(out)) == "running"

    # At random. On a busy machine it may come to its end before it is killed.
    process = child(*resume)
    wait_for_checkpoint(only_run(out), max(checkpoints(only_run(out))) + chance.randrange(30), process)
    time.sleep(chance.uniform(0, 0.1))
    process.kill()
    assert finish(process).code in (-signal.SIGKILL, 0)

    finish(child(*resume)).check(0)
    assert_finished_as(only_run(out), uninterrupted)


def wait_for_checkpoint(run: Path, update: int, process: subprocess.Popen) -> None:
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        if max(checkpoints(run), default=0) >= update:
            return
        time.sleep(0.005)


# Ctrl-C.


@pytest.mark.slow
def test_interrupt_stores_and_says_how_to_go_on(interruption):
    run, done = interruption
    line = sentence(done, f"stopped at update 1 of {UPDATES}", "--resume", code=130)
    assert (run / "status").read_text() == f"interrupted\n{line.removeprefix('recurrent-laplace: ')}\n"
    assert checkpoints(run) == {1}
    assert int(arrays(run, 1)["update"]) == 1
    assert pl.read_parquet(run / "metrics.parquet")["update"].unique().to_list() == [1]
    assert leftovers(run) == []


def test_interrupted_run_is_finished_as_if_it_never_was(here, partial, uninterrupted):
    here(*TRAIN, "--resume", "--out", partial.parent).check(0)
    assert_finished_as(partial, uninterrupted)


# Company.


@pytest.mark.slow
def test_second_process_is_refused_and_the_first_gives_the_same_bits(child, here, uninterrupted, tmp_path):
    process = child(*TRAIN, "--out", tmp_path)
    read_until(process, "compiling")
    for option in ([], ["--resume"]):
        words = ["is partial (running"] if not option else ["another process is working on"]
        sentence(here(*TRAIN, *option, "--out", tmp_path), *words, str(only_run(tmp_path)))
    assert process.poll() is None
    finish(process).check(0)
    assert_finished_as(only_run(tmp_path), uninterrupted)


# What is not finite.


@pytest.mark.slow
def test_divergence_stops_and_keeps_the_last_good_state(here, tmp_path):
    # The step size grows by 1e5 with each update: it takes some of them to leave what float32 can hold.
    steps = ("--learning-rate", "1e-9", "--final-learning-rate", "1e7", "--updates", "100")
    done = here(*TINY, *steps, "--out", tmp_path)
    line = sentence(done, "is not finite at update", code=1)
    found = re.search(r"the (loss|gradient|belief) is not finite at update (\d+)", line)
    assert found is not None
    last = int(found[2]) - 1
    assert last > 2, "the point is to fail inside a call of several updates"
    run = only_run(tmp_path)
    assert (run / "status").read_text() == f"failed\n{line.removeprefix('recurrent-laplace: ')}\n"
    assert checkpoints(run) == {last}
    for name, array in arrays(run, last).items():
        assert np.all(np.isfinite(np.asarray(array, dtype=float))), name
    metrics = pl.read_parquet(run / "metrics.parquet")
    assert metrics["update"].unique().sort().to_list() == list(range(1, last + 1))
    assert np.all(np.isfinite(metrics.filter(pl.col("metric") == "loss")["value"].to_numpy()))
    # It fails in the same way when it is tried again, and nothing is made worse.
    before = listing(run, ignore=("log.txt", "provenance.json"))
    assert sentence(here(*TINY, *steps, "--resume", "--out", tmp_path), code=1) == line
    assert listing(run, ignore=("log.txt", "provenance.json")) == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_weights_that_are_not_finite_are_no_good_state(here, tmp_path):
    # Loss and gradient of the first update are fine: it is the step that is too long for float32.
    done = here(*TINY, "--learning-rate", "1e39", "--out", tmp_path)
    sentence(done, "is not finite at update", code=1)
    run = only_run(tmp_path)
    for update in checkpoints(run):
        for name, array in arrays(run, update).items():
            assert np.all(np.isfinite(np.asarray(array, dtype=float))), (update, name)


# Damage.


def largest_file(folder: Path) -> Path:
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def put_state(run: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Put a changed state, complete and with right sums, in place of the first."""
    folder = run / "checkpoints/1"
    content = arrays(run, 1)
    shutil.rmtree(folder)
    change(content)
    ocp.PyTreeCheckpointer().save((folder / "arrays").absolute(), content)
    sums = "".join(f"{value}  {name}\n" for name, value in listing(folder).items())
    (folder / "SHA256SUMS").write_text(sums)


def narrower(content: dict[str, np.ndarray]) -> None:
    name = next(name for name in content if "weight_hh" in name)
    content[name] = content[name][:, :-1]


def other_names(content: dict[str, np.ndarray]) -> None:
    name = next(name for name in content if "weight_hh" in name)
    content[f"{name}_reset"] = content.pop(name)


def other_precision(content: dict[str, np.ndarray]) -> None:
    name = next(name for name in content if name.startswith("model."))
    content[name] = np.asarray(content[name], dtype=np.float64)


DAMAGED_STATES = {
    "truncated": lambda run: truncate(largest_file(run / "checkpoints/1")),
    "bit flipped": lambda run: flip_one_bit(largest_file(run / "checkpoints/1")),
    "bit flipped in a description": lambda run: flip_one_bit(run / "checkpoints/1/arrays/_METADATA"),
    "file gone": lambda run: largest_file(run / "checkpoints/1").unlink(),
    "sums gone": lambda run: (run / "checkpoints/1/SHA256SUMS").unlink(),
    "sums empty": lambda run: empty(run / "checkpoints/1/SHA256SUMS"),
    "arrays gone": lambda run: shutil.rmtree(run / "checkpoints/1/arrays"),
    "narrower network": lambda run: put_state(run, narrower),
    "another cell": lambda run: put_state(run, other_names),
    "another precision": lambda run: put_state(run, other_precision),
}
TOUCHED = ("log.txt", "provenance.json", "status")
"""What tells of the attempt."""


@pytest.mark.parametrize("damage", DAMAGED_STATES)
def test_damaged_or_foreign_state_is_refused(damage, here, partial):
    DAMAGED_STATES[damage](partial)
    before = listing(partial, TOUCHED)
    sentence(here(*TRAIN, "--resume", "--out", partial.parent), str(partial / "checkpoints/1"))
    assert listing(partial, TOUCHED) == before


@pytest.mark.parametrize("verb", ["evaluate", "posthoc", "finetune"])
def test_damaged_state_is_refused_by_those_who_only_read(verb, here, partial):
    flip_one_bit(largest_file(partial / "checkpoints/1"))
    before = listing(partial.parent)
    snapshot = [] if verb == "evaluate" else ["--snapshot", 1 / UPDATES]
    sentence(here(verb, partial, *snapshot), str(partial / "checkpoints/1"), "damaged")
    assert listing(partial.parent) == before


def test_refused_run_is_not_said_to_be_running(here, partial):
    flip_one_bit(largest_file(partial / "checkpoints/1"))
    before = (partial / "status").read_text()
    sentence(here(*TRAIN, "--resume", "--out", partial.parent), "damaged")
    assert (partial / "status").read_text() == before


def test_state_of_another_run_of_the_same_network_is_refused(here, partial, tmp_path):
    here(*TINY, "--updates", "2", "--seed", "1", "--out", tmp_path / "other").check(0)
    foreign = only_run(tmp_path / "other") / "checkpoints/1"
    shutil.rmtree(partial / "checkpoints/1")
    shutil.copytree(foreign, partial / "checkpoints/1")
    before = listing(partial, TOUCHED)
    sentence(here(*TRAIN, "--resume", "--out", partial.parent), str(partial / "checkpoints/1"))
    assert listing(partial, TOUCHED) == before


def test_state_under_the_name_of_another_update_is_refused(here, long_partial):
    states = long_partial / "checkpoints"
    (states / str(UPDATES // 2)).rename(states / str(UPDATES // 2 + 10))
    before = listing(long_partial, TOUCHED)
    sentence(here(*TRAIN, "--resume", "--out", long_partial.parent), str(states / str(UPDATES // 2 + 10)))
    assert listing(long_partial, TOUCHED) == before


def without_a_column(path: Path) -> None:
    pl.read_parquet(path).drop("seed").write_parquet(path)


def without_the_last_updates(path: Path) -> None:
    pl.read_parquet(path).filter(pl.col("update") < UPDATES // 2).write_parquet(path)


@pytest.mark.parametrize(
    "damage",
    [truncate, empty, Path.unlink, without_a_column, without_the_last_updates],
    ids=lambda f: f.__name__,
)
def test_damaged_metrics_are_refused(damage, here, long_partial):
    metrics = long_partial / "metrics.parquet"
    damage(metrics)
    before = listing(long_partial, TOUCHED)
    sentence(here(*TRAIN, "--resume", "--out", long_partial.parent), str(metrics))
    assert listing(long_partial, TOUCHED) == before


@pytest.mark.parametrize("name", ["status", "provenance.json", "config.toml"])
def test_damaged_description_is_refused(name, here, partial):
    os.truncate(partial / name, 5)
    before = listing(partial)
    sentence(here(*TRAIN, "--resume", "--out", partial.parent), str(partial / name))
    assert listing(partial) == before


EDITS = {
    "another configuration": (r"learning_rate = .*", "learning_rate = 0.5", ["is the configuration of run"]),
    "another seed": (r"seed = 0", "seed = 1", ["is the configuration of run"]),
    "newer": (r"schema = \d+", "schema = 99", ["schema 99", "newer recurrent-laplace"]),
    "older": (r"schema = \d+", "schema = 0", ["schema"]),
    "no schema": (r"schema = \d+", "", ["schema"]),
    "unknown key": (r"learning_rate = ", "learning_speed = ", ["learning_speed", "'learning_rate'"]),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("verb", ["train", "evaluate", "posthoc"])
def test_directory_of_another_configuration_or_schema_is_refused(edit, verb, here, partial):
    pattern, replacement, words = EDITS[edit]
    config = partial / "config.toml"
    edited, count = re.subn(pattern, replacement, config.read_text(), count=1)
    assert count == 1
    config.write_text(edited)
    before = listing(partial.parent)
    args = (*TRAIN, "--resume", "--out", partial.parent) if verb == "train" else (verb, partial)
    sentence(here(*args), str(config), *words)
    assert listing(partial.parent) == before


# A full disk.


LIMITED = """
import resource, sys
from recurrent_laplace.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
main()
"""
"""The command line, with a limit to the size of files: a disk that is full for large ones alone."""


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_larger(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)


def assert_intact(run: Path) -> None:
    """All states are whole, and the metrics lead up to the last of them at least."""
    assert leftovers(run) == []
    there = checkpoints(run)
    assert there
    for update in there:
        folder = run / "checkpoints" / str(update)
        sums = "".join(f"{value}  {name}\n" for name, value in listing(folder, ("SHA256SUMS",)).items())
        assert (folder / "SHA256SUMS").read_text() == sums
        assert int(arrays(run, update)["update"]) == update
    updates = pl.read_parquet(run / "metrics.parquet")["update"].unique().sort().to_list()
    assert updates == list(range(1, len(updates) + 1))
    assert len(updates) >= max(there)


@pytest.mark.slow
def test_full_disk_keeps_what_there_is_and_resumes_when_there_is_space(
    child, here, interruption, uninterrupted, tmp_path
):
    source, _ = interruption
    disk = tmp_path / "disk"
    # Room for a state or two, and not for all snapshots.
    with small_disk(disk, "256k"):
        run = Path(shutil.copytree(source, disk / source.name))
        done = finish(child(*TRAIN, "--resume", "--out", disk))
        sentence(done, "cannot write", str(run))
        assert_intact(run)
        make_larger(disk)
        here(*TRAIN, "--resume", "--out", disk).check(0)
        assert_finished_as(run, uninterrupted)


@pytest.mark.slow
def test_limited_file_size_keeps_what_there_is_and_resumes_without_it(child, here, partial, uninterrupted):
    before = listing(partial, ("metrics.parquet", *TOUCHED))
    # More than the first metrics, less than a state.
    program = (sys.executable, "-c", LIMITED, "6000")
    done = finish(child(*TRAIN, "--resume", "--out", partial.parent, program=program))
    sentence(done, "cannot write", str(partial))
    assert listing(partial, ("metrics.parquet", *TOUCHED)) == before
    assert_intact(partial)
    here(*TRAIN, "--resume", "--out", partial.parent).check(0)
    assert_finished_as(partial, uninterrupted)


def test_disk_without_room_for_the_first_files(here, tmp_path):
    disk = tmp_path / "disk"
    said = []
    with small_disk(disk, "4k"):
        for pages in (1, 2, 3):
            subprocess.run(["mount", "-o", f"remount,nr_blocks={pages}", str(disk)], check=True)
            line = sentence(here(*TRAIN, "--resume", "--out", disk), "cannot write", str(disk))
            said.append(line)
            assert leftovers(disk) == []
    assert len(set(said)) > 1, "the point is to fail at different files"


@contextlib.contextmanager
def file_size_limited_here(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["table", "text", "state"])
def test_failed_write_leaves_the_old_file(kind, tmp_path):
    """Each kind of file by itself: in a run it depends on sizes which of them fails first."""
    numbers = np.random.default_rng(0).normal(size=20_000)
    store = Checkpoints(tmp_path / "checkpoints", "a-run")
    writes = {
        "table": lambda size: write_table(tmp_path / "table", pl.DataFrame({"value": numbers[:size]})),
        "text": lambda size: write_text(tmp_path / "text", str(numbers[:size].tolist())),
        "state": lambda size: store.save(size, {"x": jnp.asarray(numbers[:size])}, keep={10}),
    }
    writes[kind](10)
    before = listing(tmp_path)
    with file_size_limited_here(10_000), pytest.raises(StorageError, match="cannot write"):
        writes[kind](20_000)
    assert listing(tmp_path) == before
    assert leftovers(tmp_path) == []
    writes[kind](20_000)
    assert listing(tmp_path) != before


async def another_failure() -> None:
    raise ValueError("no room")


def complaints_after(failure: Coroutine, caplog) -> list[str]:
    """What Python says when a task that failed is deleted, and nobody has looked at its error."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(failure)
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()
    assert task.done()
    del task
    gc.collect()
    return [record.message for record in caplog.records if record.name == "asyncio"]


def test_writes_that_fail_beside_the_first_say_nothing(tmp_path, caplog):
    """In a real fault it is a race which of them are looked at: here one is not, for certain."""
    Checkpoints(tmp_path, "a-run")
    handler = ocp.type_handlers.NumpyHandler()
    write = handler._open_and_write(np.zeros(1), {"driver": "none"}, tensorstore.Context())
    assert complaints_after(write, caplog) == []
    (said,) = complaints_after(another_failure(), caplog)
    assert "never retrieved" in said
