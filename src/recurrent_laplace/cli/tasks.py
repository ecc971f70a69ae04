"""`tasks`: what there is to learn."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

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
    table = Table("task", "what it is", "parameter", "default", "meaning", show_lines=False)
    for name, task in TASKS.items():
        about = (task.__doc__ or "").strip().splitlines()[0]
        meanings = _field_docstrings(task)
        for index, field in enumerate(dataclasses.fields(task)):
            first = (name, about) if index == 0 else ("", "")
            table.add_row(*first, field.name, str(field.default), meanings.get(field.name, ""))
        table.add_section()
    Console().print(table)


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
