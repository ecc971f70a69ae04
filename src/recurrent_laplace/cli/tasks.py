"""`tasks`: what there is to learn."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from pathlib import Path

import tyro

from recurrent_laplace.cli.parsing import session
from recurrent_laplace.tasks import TASKS, make_task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tasks:
    """List the tasks with their parameters, or draw problems of one of them."""

    draw: str | None = None
    """Name of a task to draw."""
    out: Path = Path("task.png")
    """File to draw to: .png, .pdf or .svg."""
    seed: int = 0
    """Which problems to draw."""


def main(argv: list[str]) -> None:
    """List, or draw."""
    options = tyro.cli(Tasks, prog="recurrent-laplace tasks", args=argv)
    if options.draw is None:
        _list()
        return
    with session():
        import jax

        from recurrent_laplace.report.tasks import draw_task, save_figure

        figure = draw_task(make_task(options.draw), key=jax.random.key(options.seed))
        save_figure(figure, options.out)
    print(options.out)


def _list() -> None:
    """Each task, and its parameters as the flags that `train` has for them."""
    for name, task in TASKS.items():
        about, *_ = inspect.getdoc(task).splitlines()  # pyright: ignore[reportOptionalMemberAccess]
        print(f"{name}: {about}")
        meanings = _field_docstrings(task)
        for field in dataclasses.fields(task):
            flag = f"--task.{field.name.replace('_', '-')} {field.default}"
            print(f"  {flag:28} {meanings.get(field.name, '')}")
        print()


def _field_docstrings(kind: type) -> dict[str, str]:
    """The string below each field of a class: Python keeps them in the source alone."""
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
