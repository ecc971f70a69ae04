"""`tasks`: list of tasks, and plots of their problems."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from pathlib import Path
from typing import Annotated

import tyro

from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.parsing import session
from recurrent_laplace.errors import check_seed
from recurrent_laplace.tasks import TASKS, load_task, make_task
from recurrent_laplace.tasks.references import plugins


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tasks:
    """List the tasks with their parameters, or plot problems of one of them."""

    draw: Annotated[str | None, unset("TASK")] = None
    """Task to plot problems of, named as in `train`; without it, the tasks are listed."""
    out: Path = Path("task.png")
    """Image file to write: .png, .pdf or .svg."""
    seed: int = 0
    """Seed of the problems."""


def main(argv: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Tasks, prog="recurrent-laplace tasks", args=argv)
    if options.draw is None:
        _list()
        return
    with session():
        check_seed(options.seed)
        import jax

        from recurrent_laplace.report.style import save_figure
        from recurrent_laplace.report.tasks import draw_task

        figure = draw_task(make_task(load_task(options.draw)), key=jax.random.key(options.seed))
        save_figure(figure, options.out)
    print(options.out)


def _list() -> None:
    """Print each task, with its parameters as flags of `train`."""
    for name, task in TASKS.items():
        summary, *_ = inspect.getdoc(task).splitlines()  # pyright: ignore[reportOptionalMemberAccess]
        print(f"{name}: {summary}")
        docstrings = field_docstrings(task)
        for field in dataclasses.fields(task):
            flag = f"--task.{field.name.replace('_', '-')} {field.default}"
            print(f"  {flag:28} {docstrings.get(field.name, '')}")
        print()
    for name, point in plugins().items():
        print(f"{name}: installed plugin, {point.value}")


def field_docstrings(kind: type) -> dict[str, str]:
    """The string below each field of a class, which Python keeps only in the source."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: str(text.value.value)
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
