"""Numbers of the architecture at some commits: the tables of docs/lab/architecture.md.

    python studies/architecture.py 6ab8fb5 HEAD

Each commit is unpacked into a temporary folder; its sources are read there, its package imported in fresh
processes. Lines of code are those with a token that is neither a comment nor a docstring.
"""

import ast
import collections
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from pathlib import Path

KINDS = re.compile(r"(Task|Bandit|Gridworld|Coin|Regression|Posterior|PosteriorConfig)$")
"""Classes of tasks and posteriors."""
NO_CODE = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
)
IMPORTS = "import sys, recurrent_laplace as rl; rl.ShiftAlarm; print(*sys.modules)"
STEP = """
import collections, functools, sys
from pathlib import Path
import jax
import recurrent_laplace as rl

root, crossings = Path(rl.__file__).parent, collections.Counter()

@functools.cache
def folder(name):
    path = Path(name)
    return path.relative_to(root).parts[0].removesuffix(".py") if path.is_relative_to(root) else None

def profile(frame, event, argument):
    entered, caller = folder(frame.f_code.co_filename), frame.f_back
    if event != "call" or not entered:
        return
    while caller and not folder(caller.f_code.co_filename):
        caller = caller.f_back
    if caller and (left := folder(caller.f_code.co_filename)) != entered:
        crossings[left, entered] += 1

small = rl.AgentConfig(hidden_size=4, features=2, embedding_sizes=(4,), head_sizes=(4,))
posterior = rl.LaplaceConfig() if hasattr(rl, "LaplaceConfig") else rl.PosteriorConfig(kind="laplace")
learning = rl.LearningConfig(updates=1, steps=3, batch=2)
config = rl.Config(task=rl.Gridworld(size=2), agent=small, posterior=posterior, learning=learning)
train = rl.make_train(config)
state = jax.eval_shape(train.init, jax.random.key(0))
sys.setprofile(profile)
jax.make_jaxpr(train.update)(state)
sys.setprofile(None)
print(len({entered for _, entered in crossings}), len(crossings), sum(crossings.values()))
"""


def lines_of_code(text: str) -> int:
    """Lines with code, without those of comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def checks_of_kind(text: str) -> int:
    """Calls of `isinstance`, and cases of `match`, that name a class of tasks or posteriors."""
    count = 0
    for node in ast.walk(ast.parse(text)):
        tested = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            tested = node.args[1]
        elif isinstance(node, ast.MatchClass):
            tested = node.cls
        if tested is not None:
            count += any(KINDS.search(name) for name in re.findall(r"\w+", ast.unparse(tested)))
    return count


def operation_names(text: str) -> list[str]:
    """Public methods of `AbstractPosterior` that take inputs, without deprecated ones."""
    (base,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == "AbstractPosterior"
    )
    methods = [node for node in base.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    return [
        method.name
        for method in methods
        if {"x", "inputs"} & {argument.arg for argument in method.args.args}
        and not (ast.get_docstring(method) or "").startswith("Deprecated")
    ]


def run(program: str, tree: Path) -> str:
    """Output of a program that imports the package of a tree."""
    env = os.environ | {"PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def measure(tree: Path) -> dict[str, object]:
    """All numbers of a tree."""
    src, tests = tree / "src" / "recurrent_laplace", tree / "tests"
    found: dict[str, object] = {}
    groups = collections.defaultdict(list)
    for path in sorted([*src.rglob("*.py"), *tests.rglob("*.py")]):
        parts = path.relative_to(src.parent if path.is_relative_to(src) else tree).parts
        groups["tests" if parts[0] == "tests" else "/".join(parts[1:-1][:1]) or "(top)"].append(path)
    for group, paths in sorted(groups.items()):
        code = sum(lines_of_code(path.read_text()) for path in paths)
        found[f"{group}: files, lines of code"] = f"{len(paths)}, {code}"
    sources = [path.read_text() for path in src.rglob("*.py")]
    found["src and tests: lines of code"] = sum(
        lines_of_code(path.read_text()) for paths in groups.values() for path in paths
    )
    found["isinstance checks on tasks and posteriors"] = sum(map(checks_of_kind, sources))
    names = operation_names((src / "posterior" / "base.py").read_text())
    found["names of a posterior on inputs"] = f"{len(names)}: {', '.join(names)}"
    modules = [name for name in run(IMPORTS, tree).split() if name.startswith("recurrent_laplace.")]
    found["modules that rl.ShiftAlarm imports"] = len(modules)
    found["training step: folders entered, pairs, crossings"] = ", ".join(run(STEP, tree).split())
    builders = re.compile(r"^def (memory_of|agent_of|assert_close)\(", re.MULTILINE)
    found["definitions of memory_of, agent_of, assert_close in tests"] = sum(
        len(builders.findall(path.read_text())) for path in tests.rglob("*.py")
    )
    return found


def main() -> None:
    """Print a row for each number, a column for each commit."""
    tables = {}
    for commit in sys.argv[1:]:
        archive = subprocess.run(["git", "archive", commit, "src", "tests"], capture_output=True, check=True)
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
                tar.extractall(folder, filter="data")
            tables[commit] = measure(Path(folder))
    print("|", " | ".join(["", *tables]), "|")
    for name in dict.fromkeys(name for table in tables.values() for name in table):
        print("|", " | ".join([name, *(str(table.get(name, "-")) for table in tables.values())]), "|")


if __name__ == "__main__":
    main()
