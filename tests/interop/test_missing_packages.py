"""Optional packages that are missing or broken, and files that cannot be opened, as a user sees them."""

import os
import subprocess
import sys

import pytest

OPTIONAL = ("gymnasium", "gymnax", "torch", "flax", "stable_baselines3", "sb3_contrib")

BLOCKED = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
"""The start of a program in which no optional package is installed."""

GYMNASIUM = """
class Env: pass
class error:
    class Error(Exception): pass
def make(name): raise error.Error(f"no environment {name}")
"""
"""A Gymnasium that has no environments."""

MAIN = "from recurrent_laplace.cli import main; main(sys.argv[1:])"


def run(program, *args, packages=None, **options):
    folders = [*([] if packages is None else [str(packages)]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, args)], capture_output=True, text=True, env=env, **options
    )


def refused(done, sentence):
    """Exit code 2 and one line."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip() == f"recurrent-laplace: {sentence}"
    assert done.stdout == ""


def monitor(*args, packages=None, **options):
    start = BLOCKED if packages is None else "import sys\n"
    command = ("monitor", "--env", "CartPole-v1", *args)
    return run(start + MAIN, *command, packages=packages, **options)


@pytest.fixture
def packages(tmp_path):
    """A folder with a Gymnasium of ours, before all others."""
    folder = tmp_path / "packages"
    (folder / "gymnasium").mkdir(parents=True)
    (folder / "gymnasium" / "__init__.py").write_text(GYMNASIUM)
    return folder


def test_monitor_without_the_extra(tmp_path):
    done = monitor("--sb3", tmp_path / "x.zip")
    refused(done, 'gymnasium is not installed: pip install "recurrent-laplace[sb3]".')


def test_monitor_with_a_broken_gymnasium(packages, tmp_path):
    broken = packages / "gymnasium" / "__init__.py"
    broken.write_text("import no_such_package.module\n")
    done = monitor("--sb3", tmp_path / "x.zip", packages=packages)
    missing = "which is not: pip install no_such_package."
    refused(done, f"gymnasium is installed but needs no_such_package, {missing}")
    broken.write_text("raise AttributeError('numpy has no attribute bool8')\n")
    done = monitor("--sb3", tmp_path / "x.zip", packages=packages)
    reason = 'numpy has no attribute bool8): pip install "recurrent-laplace[sb3]" --upgrade.'
    refused(done, f"gymnasium is installed but cannot be imported ({reason}")


def test_monitor_and_files_that_cannot_be_opened(packages, tmp_path):
    missing = tmp_path / "none.zip"
    refused(monitor("--sb3", missing, packages=packages), f"{missing}: No such file or directory.")
    refused(monitor("--sb3", tmp_path, packages=packages), f"{tmp_path} must be a file; got a directory.")
    below = packages / "gymnasium" / "__init__.py" / "model.zip"
    refused(monitor("--sb3", below, packages=packages), f"{below}: Not a directory.")


def test_monitor_and_a_file_without_permission(packages, tmp_path):
    path = tmp_path / "model.zip"
    path.write_bytes(b"")
    path.chmod(0)
    # The superuser may read everything, and is someone else here.
    drop = "import os\nif os.geteuid() == 0:\n    os.seteuid(65534)\n"
    program = "import sys\nimport recurrent_laplace.cli.monitor, recurrent_laplace.interop.play\n"
    done = run(program + drop + MAIN, "monitor", "--env", "CartPole-v1", "--sb3", path, packages=packages)
    refused(done, f"{path}: Permission denied.")


CALLS = {
    "rl.interop.torch.from_torch(None)": ("torch", "torch"),
    "rl.interop.torch.to_torch(None)": ("torch", "torch"),
    "rl.interop.flax.from_nnx(None)": ("flax", "flax"),
    "rl.interop.gymnasium.Uncertainty": ("gymnasium", "gymnasium"),
    "from recurrent_laplace.interop.gymnasium import Uncertainty": ("gymnasium", "gymnasium"),
    "rl.interop.gymnax.GymnaxTask": ("gymnax", "gymnax"),
    "from recurrent_laplace.interop.gymnax import GymnaxTask": ("gymnax", "gymnax"),
    "rl.interop.play.make_env": ("gymnasium", "sb3"),
    "rl.interop.sb3.UncertaintyCallback": ("stable_baselines3", "sb3"),
    "rl.interop.sb3.from_model(None)": ("stable_baselines3", "sb3"),
}


def test_every_edge_without_its_package():
    program = BLOCKED + "import recurrent_laplace as rl\nrl.interop.sb3.load\n"
    for call in CALLS:
        program += f"try:\n    {call}\nexcept ImportError as error:\n    print(error)\n"
    done = run(program)
    expected = [
        f'{package} is not installed: pip install "recurrent-laplace[{extra}]".'
        for package, extra in CALLS.values()
    ]
    assert done.stdout.splitlines() == expected, done.stderr


def test_a_broken_package_names_what_it_needs(tmp_path):
    (tmp_path / "gymnax").mkdir()
    (tmp_path / "gymnax" / "__init__.py").write_text("import no_such_six\n")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libgomp.so: cannot open')\n")
    (tmp_path / "flax").mkdir()
    (tmp_path / "flax" / "__init__.py").write_text("")
    program = "import recurrent_laplace as rl\n"
    for call in ("rl.interop.gymnax", "rl.interop.torch.from_torch(None)", "rl.interop.flax.from_nnx(None)"):
        program += f"try:\n    {call}\nexcept ImportError as error:\n    print(error)\n"
    done = run(program, packages=tmp_path)
    upgrade = 'pip install "recurrent-laplace[{}]" --upgrade.'
    assert done.stdout.splitlines() == [
        "gymnax is installed but needs no_such_six, which is not: pip install no_such_six.",
        f"torch is installed but cannot be imported (libgomp.so: cannot open): {upgrade.format('torch')}",
        f"flax is installed but has no module flax.nnx: {upgrade.format('flax')}",
    ], done.stderr
