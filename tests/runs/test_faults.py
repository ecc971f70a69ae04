"""Faults of runs in real processes and files: kills, full disks, damage, concurrent processes."""

import asyncio
import gc
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import filelock
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import polars as pl
import pytest
import tensorstore
from support.disks import limited_file_size, make_larger, small_disk
from support.runs import SIZES, arrays
from support.verbs import Done

from recurrent_laplace import errors
from recurrent_laplace.files import StorageError, read_sealed, write_text
from recurrent_laplace.runs.checkpoints import Checkpoints
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.evaluation import UPDATE, WEIGHTS, evaluation_is_current, stale_evaluation
from recurrent_laplace.runs.tables import write_table

pytestmark = pytest.mark.usefixtures("programs")

PROGRAM = (str(Path(sys.executable).parent / "recurrent-laplace"),)
UPDATES = 120
SNAPSHOTS = {UPDATES // 2, 3 * UPDATES // 4, UPDATES}
TINY = ("train", "--task", "regression", *SIZES)
TRAIN = (*TINY, "--updates", str(UPDATES), "--checkpoint-seconds", "0")
PATIENCE = 240
"""Timeout of a child process in seconds, much longer than any should take."""


@pytest.fixture(scope="session")
def child(shared):
    """Starts a process of the command line, which reads the compilation cache but does not write to it.

    A process that is killed while it writes would leave a truncated program to the others.
    """

    def start(*args, program=PROGRAM, store=False) -> subprocess.Popen:
        env = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": str(shared / "compiled"),
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


def only_run(out: Path) -> Path:
    (run,) = (path for path in out.iterdir() if path.is_dir())
    return run


def status(run: Path) -> str:
    return (run / "status").read_text().splitlines()[0]


def checkpoints(run: Path) -> set[int]:
    return {int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdecimal()}


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
    """Assert that the run is finished and equals, bit for bit, the other, which was never interrupted."""
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
    """Temporary files that were not removed."""
    marks = (".writing", ".removing", "tmp")
    return [str(path.relative_to(run)) for path in run.rglob("*") if any(mark in path.name for mark in marks)]


def listing(folder: Path, ignore: tuple[str, ...] = ()) -> dict[str, str]:
    """Hash of every file."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".lock", *ignore)
    }


@pytest.fixture(scope="session")
def uninterrupted(shared, child) -> Path:
    """An undisturbed run. Read only."""
    out = shared / "uninterrupted"
    with filelock.FileLock(shared / "uninterrupted.lock"):
        if not out.exists():
            finish(child(*TRAIN, "--out", out, store=True)).check(0)
    return only_run(out)


@pytest.fixture(scope="session")
def interruption(shared, child, uninterrupted) -> tuple[Path, Done]:
    """A run stopped with Ctrl-C in its first call, and its output. Read only."""
    out, record = shared / "interrupted", shared / "interruption.json"
    with filelock.FileLock(shared / "interrupted.lock"):
        if not record.exists():
            process = child(*TRAIN, "--out", out)
            # From this line on Ctrl-C is handled, and the first call is not traced yet.
            read_until(process, "compiling")
            process.send_signal(signal.SIGINT)
            record.write_text(json.dumps(finish(process)))
    return only_run(out), Done(*json.loads(record.read_text()))


@pytest.fixture
def partial(interruption, tmp_path) -> Path:
    """A copy of the stopped run."""
    run, _ = interruption
    return Path(shutil.copytree(run, tmp_path / "out" / run.name))


@pytest.fixture
def long_partial(uninterrupted, tmp_path) -> Path:
    """A run as after a kill, with metrics up to the end and states up to the half."""
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
"""Program of the command line, killed before or after it renames the n-th file that matches a pattern."""


@pytest.mark.slow
def test_killed_at_the_worst_and_at_random_moments(child, uninterrupted, tmp_path):
    out = tmp_path / "out"
    resume = (*TRAIN, "--resume", "--out", out)

    def killed_at(pattern: str, count: int, side: str) -> int:
        return finish(child(*resume, program=(sys.executable, "-c", MORTAL, pattern, str(count), side))).code

    # An empty folder.
    assert killed_at("config.toml", 1, "before") == -signal.SIGKILL
    assert not (only_run(out) / "config.toml").exists()

    # The first seconds, before the first state.
    chance = random.Random(0)
    process = child(*resume)
    read_until(process, "compiling")
    time.sleep(chance.uniform(0, 0.5))
    process.kill()
    finish(process)
    assert status(only_run(out)) == "running"

    # Metrics partly written; metrics ahead of the state; a state partly removed.
    for pattern, count, side in (
        ("metrics.parquet", 3, "before"),
        ("[0-9]*", 3, "before"),
        (".*.removing", 2, "after"),
    ):
        assert killed_at(pattern, count, side) == -signal.SIGKILL
        assert status(only_run(out)) == "running"

    # At random. On a busy machine the run may end before it is killed.
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
    line = done.refused(f"stopped at update 1 of {UPDATES}", "--resume", code=130)
    assert (run / "status").read_text() == f"interrupted\n{line.removeprefix('recurrent-laplace: ')}\n"
    assert checkpoints(run) == {1}
    assert int(arrays(run, 1)["update"]) == 1
    assert pl.read_parquet(run / "metrics.parquet")["update"].unique().to_list() == [1]
    assert leftovers(run) == []


def test_interrupted_run_is_finished_as_if_it_never_was(command, partial, uninterrupted):
    command(*TRAIN, "--resume", "--out", partial.parent).check(0)
    assert_finished_as(partial, uninterrupted)


# Concurrent processes.


@pytest.mark.slow
def test_second_process_is_refused_and_the_first_gives_the_same_bits(child, command, uninterrupted, tmp_path):
    process = child(*TRAIN, "--out", tmp_path)
    read_until(process, "compiling")
    for option in ([], ["--resume"]):
        words = ["is partial (running"] if not option else ["another process is working on"]
        command(*TRAIN, *option, "--out", tmp_path).refused(*words, str(only_run(tmp_path)))
    assert process.poll() is None
    finish(process).check(0)
    assert_finished_as(only_run(tmp_path), uninterrupted)


# Values that are not finite.


@pytest.mark.slow
def test_divergence_stops_and_keeps_the_last_good_state(command, tmp_path):
    # The learning rate grows with each update, until the weights overflow float32.
    steps = ("--learning-rate", "1e-9", "--final-learning-rate", "1e7", "--updates", "100")
    done = command(*TINY, *steps, "--out", tmp_path)
    line = done.refused("is not finite at update", code=1)
    found = re.search(r"the (loss|gradient|belief) is not finite at update (\d+)", line)
    assert found is not None
    last = int(found[2]) - 1
    assert last > 2, "it must fail inside a call of several updates"
    run = only_run(tmp_path)
    assert (run / "status").read_text() == f"failed\n{line.removeprefix('recurrent-laplace: ')}\n"
    assert checkpoints(run) == {last}
    for name, array in arrays(run, last).items():
        assert np.all(np.isfinite(np.asarray(array, dtype=float))), name
    metrics = pl.read_parquet(run / "metrics.parquet")
    assert metrics["update"].unique().sort().to_list() == list(range(1, last + 1))
    assert np.all(np.isfinite(metrics.filter(pl.col("metric") == "loss")["value"].to_numpy()))
    # The next attempt fails in the same way, and leaves the stored state as it is.
    before = listing(run, ignore=("log.txt", "provenance.json"))
    assert command(*TINY, *steps, "--resume", "--out", tmp_path).refused(code=1) == line
    assert listing(run, ignore=("log.txt", "provenance.json")) == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_weights_that_are_not_finite_are_no_good_state(command, tmp_path, monkeypatch):
    # Loss and gradient of the first update are finite, but the step overflows float32, which no learning rate
    # within the bounds can cause.
    monkeypatch.setattr(errors, "LARGEST_NUMBER", 1e40)
    done = command(*TINY, "--learning-rate", "1e39", "--out", tmp_path)
    done.refused("is not finite at update 1:", code=1)
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
    """Replace the first state by a changed one with valid checksums."""
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


def assert_refused(command, run: Path, path: Path, *words: str, args=None) -> None:
    """Assert that a command, by default resumed training, fails because of a file and changes none."""
    before = listing(run.parent)
    args = (*TRAIN, "--resume", "--out", run.parent) if args is None else args
    command(*args).refused(str(path), *words)
    assert listing(run.parent) == before


@pytest.mark.parametrize("damage", DAMAGED_STATES)
def test_damaged_or_foreign_state_is_refused(damage, command, partial):
    DAMAGED_STATES[damage](partial)
    assert_refused(command, partial, partial / "checkpoints/1")


@pytest.mark.parametrize("verb", ["evaluate", "posthoc", "finetune"])
def test_damaged_state_is_refused_by_those_who_only_read(verb, command, partial):
    flip_one_bit(largest_file(partial / "checkpoints/1"))
    snapshot = [] if verb == "evaluate" else ["--snapshot", 1 / UPDATES]
    assert_refused(command, partial, partial / "checkpoints/1", "damaged", args=(verb, partial, *snapshot))


def test_state_of_another_run_of_the_same_network_is_refused(command, partial, tmp_path):
    command(*TINY, "--updates", "2", "--seed", "1", "--out", tmp_path / "other").check(0)
    foreign = only_run(tmp_path / "other") / "checkpoints/1"
    shutil.rmtree(partial / "checkpoints/1")
    shutil.copytree(foreign, partial / "checkpoints/1")
    assert_refused(command, partial, partial / "checkpoints/1")


def test_state_under_the_name_of_another_update_is_refused(command, long_partial):
    states = long_partial / "checkpoints"
    (states / str(UPDATES // 2)).rename(states / str(UPDATES // 2 + 10))
    assert_refused(command, long_partial, states / str(UPDATES // 2 + 10))


def test_resume_falls_back_to_the_newest_whole_state(command, uninterrupted, tmp_path):
    run = tmp_path / uninterrupted.name
    shutil.copytree(uninterrupted, run)
    flip_one_bit(largest_file(run / "checkpoints" / str(UPDATES)))
    (run / "checkpoints" / str(3 * UPDATES // 4) / "SHA256SUMS").unlink()
    command("evaluate", run).refused("damaged", "--resume restores it")
    done = command(*TRAIN, "--resume", "--out", tmp_path).check(0)
    for update in (UPDATES, 3 * UPDATES // 4):
        assert f"{run / 'checkpoints' / str(update)} is damaged" in done.err
    assert f"Training continues from update {UPDATES // 2}" in done.err
    assert f"Training continues from update {UPDATES // 2}" in (run / "log.txt").read_text()
    assert_finished_as(run, uninterrupted)


def test_finished_run_without_its_last_state_is_trained_again(command, uninterrupted, tmp_path):
    run = tmp_path / uninterrupted.name
    shutil.copytree(uninterrupted, run)
    shutil.rmtree(run / "checkpoints" / str(UPDATES))
    gone = ("is finished, but its last checkpoint is gone", "--resume restores it")
    said = command("evaluate", run).refused(*gone)
    for verb in (("posthoc", run), ("finetune", run, "--snapshot", "1"), ("posthoc", run, "--snapshot", "1")):
        assert command(*verb, "--posterior", "laplace").refused(*gone) == said
    (again,) = re.findall(r"recurrent-laplace (train .*--resume)", said)
    done = command(*again.split(), "--checkpoint-seconds", "0").check(0)
    assert f"Training continues from update {3 * UPDATES // 4}" in done.err
    assert_finished_as(run, uninterrupted)
    shutil.rmtree(run / "checkpoints")
    done = command(*TRAIN, "--resume", "--out", tmp_path).check(0)
    assert "Training continues from update 0" in done.err
    assert_finished_as(run, uninterrupted)


def test_stale_evaluation_is_neither_reported_nor_kept(command, long_partial):
    """Evaluated while interrupted, then trained to the end: the table has other weights."""
    done = command("evaluate", long_partial, "--tasks", "128").check(0)
    assert f"update {UPDATES // 2} of {UPDATES}" in done.out
    stale = (long_partial / "evaluation.parquet").read_bytes()
    command(*TRAIN, "--resume", "--out", long_partial.parent).check(0)
    left_out = f"its evaluation is of update {UPDATES // 2}, its newest weights are of update {UPDATES}"
    command("report", long_partial.parent).refused(left_out, f"recurrent-laplace evaluate {long_partial}")
    done = command("evaluate", long_partial).check(0)
    assert " of update " not in done.out
    fresh = (long_partial / "evaluation.parquet").read_bytes()
    assert fresh != stale
    assert evaluation_is_current(RunDirectory.open(long_partial))
    # Trained again under the same name, as with another version of a library.
    other_weights = {UPDATE: str(UPDATES), WEIGHTS: "0" * 64}
    write_table(long_partial / "evaluation.parquet", pl.read_parquet(fresh), other_weights)
    assert stale_evaluation(RunDirectory.open(long_partial)) == (
        f"its evaluation is of other weights than those of update {UPDATES}"
    )
    # Without its checkpoints, a finished run is still known to have made all of its updates.
    (long_partial / "evaluation.parquet").write_bytes(stale)
    (long_partial / "checkpoints").rename(long_partial / "elsewhere")
    command("report", long_partial.parent).refused(left_out)
    (long_partial / "elsewhere").rename(long_partial / "checkpoints")
    for other in (stale, fresh[:100] + bytes([fresh[100] ^ 1]) + fresh[101:], fresh[:-1], b""):
        (long_partial / "evaluation.parquet").write_bytes(other)
        assert not evaluation_is_current(RunDirectory.open(long_partial))
    # Sweeps train such a run again, from an earlier checkpoint.
    (long_partial / "evaluation.parquet").write_bytes(fresh)
    (long_partial / "checkpoints" / str(UPDATES) / "label").unlink()
    assert not evaluation_is_current(RunDirectory.open(long_partial))


def without_a_column(path: Path) -> None:
    pl.read_parquet(path).drop("seed").write_parquet(path)


def without_the_last_updates(path: Path) -> None:
    pl.read_parquet(path).filter(pl.col("update") < UPDATES // 2).write_parquet(path)


@pytest.mark.parametrize(
    "damage",
    [truncate, empty, Path.unlink, without_a_column, without_the_last_updates],
    ids=lambda f: f.__name__,
)
def test_damaged_metrics_are_refused(damage, command, long_partial):
    damage(long_partial / "metrics.parquet")
    assert_refused(command, long_partial, long_partial / "metrics.parquet")


@pytest.mark.parametrize("name", ["status", "provenance.json", "config.toml"])
def test_damaged_description_is_refused(name, command, partial):
    os.truncate(partial / name, 5)
    assert_refused(command, partial, partial / name)


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
def test_directory_of_another_configuration_or_schema_is_refused(edit, verb, command, partial):
    pattern, replacement, words = EDITS[edit]
    config = partial / "config.toml"
    edited, count = re.subn(pattern, replacement, read_sealed(config), count=1)
    assert count == 1
    config.write_text(edited)  # Without a checksum, as in version 0.1.
    assert_refused(command, partial, config, *words, args=None if verb == "train" else (verb, partial))


# A full disk.


LIMITED = """
import resource, sys
from recurrent_laplace.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
main()
"""
"""Program of the command line with a limit on the size of files."""


def assert_intact(run: Path) -> None:
    """Assert that all states are intact, and that the metrics reach the last of them."""
    assert leftovers(run) == []
    stored = checkpoints(run)
    assert stored
    for update in stored:
        folder = run / "checkpoints" / str(update)
        sums = "".join(f"{value}  {name}\n" for name, value in listing(folder, ("SHA256SUMS",)).items())
        assert (folder / "SHA256SUMS").read_text() == sums
        assert int(arrays(run, update)["update"]) == update
    updates = pl.read_parquet(run / "metrics.parquet")["update"].unique().sort().to_list()
    assert updates == list(range(1, len(updates) + 1))
    assert len(updates) >= max(stored)


@pytest.mark.slow
def test_full_disk_keeps_what_there_is_and_resumes_when_there_is_space(
    child, command, interruption, uninterrupted, tmp_path
):
    source, _ = interruption
    disk = tmp_path / "disk"
    # Enough for a state or two, but not for all snapshots.
    with small_disk(disk, "256k"):
        run = Path(shutil.copytree(source, disk / source.name))
        done = finish(child(*TRAIN, "--resume", "--out", disk))
        assert done.refused("cannot write", str(run)).endswith(": No space left on device.")
        assert_intact(run)
        make_larger(disk)
        command(*TRAIN, "--resume", "--out", disk).check(0)
        assert_finished_as(run, uninterrupted)


@pytest.mark.slow
def test_limited_file_size_keeps_what_there_is_and_resumes_without_it(child, command, partial, uninterrupted):
    touched = ("metrics.parquet", "log.txt", "provenance.json", "status")
    before = listing(partial, touched)
    # Larger than the first metrics, smaller than a state.
    program = (sys.executable, "-c", LIMITED, "6000")
    done = finish(child(*TRAIN, "--resume", "--out", partial.parent, program=program))
    assert done.refused("cannot write", str(partial)).endswith(": File too large.")
    assert listing(partial, touched) == before
    assert_intact(partial)
    command(*TRAIN, "--resume", "--out", partial.parent).check(0)
    assert_finished_as(partial, uninterrupted)


def test_disk_without_room_for_the_first_files(command, tmp_path):
    disk = tmp_path / "disk"
    said = []
    with small_disk(disk, "4k"):
        for pages in (1, 2, 3):
            subprocess.run(["mount", "-o", f"remount,nr_blocks={pages}", str(disk)], check=True)
            line = command(*TRAIN, "--resume", "--out", disk).refused("cannot write", str(disk))
            said.append(line)
            assert leftovers(disk) == []
    assert len(set(said)) > 1, "it must fail at different files"


@pytest.mark.parametrize("kind", ["table", "text", "state"])
def test_failed_write_leaves_the_old_file(kind, tmp_path):
    """Each kind of file separately: in a run the sizes determine which fails first."""
    numbers = np.random.default_rng(0).normal(size=20_000)
    store = Checkpoints(tmp_path / "checkpoints", "a-run")
    writes = {
        "table": lambda size: write_table(tmp_path / "table", pl.DataFrame({"value": numbers[:size]})),
        "text": lambda size: write_text(tmp_path / "text", str(numbers[:size].tolist())),
        "state": lambda size: store.save(size, {"x": jnp.asarray(numbers[:size])}, keep={10}),
    }
    writes[kind](10)
    before = listing(tmp_path)
    with limited_file_size(10_000), pytest.raises(StorageError, match="cannot write"):
        writes[kind](20_000)
    assert listing(tmp_path) == before
    assert leftovers(tmp_path) == []
    writes[kind](20_000)
    assert listing(tmp_path) != before


async def another_failure() -> None:
    raise ValueError("no room")


def complaints_after(failure: Coroutine, caplog) -> list[str]:
    """Log messages of Python when a failed task is deleted whose error was not retrieved."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(failure)
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()
    assert task.done()
    del task
    gc.collect()
    return [record.message for record in caplog.records if record.name == "asyncio"]


def test_writes_that_fail_beside_the_first_say_nothing(tmp_path, caplog):
    """In a real fault a race decides which errors are retrieved; here one certainly is not."""
    Checkpoints(tmp_path, "a-run")
    handler = ocp.type_handlers.NumpyHandler()
    write = handler._open_and_write(np.zeros(1), {"driver": "none"}, tensorstore.Context())
    assert complaints_after(write, caplog) == []
    (said,) = complaints_after(another_failure(), caplog)
    assert "never retrieved" in said
