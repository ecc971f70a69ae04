"""Environments of gymnax as tasks of the command line: `gymnax:EnvName`.

`rl.interop.gymnax.GymnaxTask` holds an environment, which a configuration file cannot. Here each
environment has a class of tasks instead, whose fields are the numbers that describe a run.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import jax
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import Doc

from recurrent_laplace.errors import LARGEST_NUMBER, LARGEST_SIZE, check_choice, check_number, check_size
from recurrent_laplace.interop._optional import optional
from recurrent_laplace.interop.gymnax import GymnaxProblem, GymnaxTask
from recurrent_laplace.models.actions import AbstractActionSpace
from recurrent_laplace.tasks import AbstractControlTask, Step
from recurrent_laplace.tasks.references import class_at, one_line

with optional("gymnax", extra="gymnax"):
    import gymnax
    from gymnax.environments.environment import Environment

RESERVED = ("name", "reference", "hide", "start")
"""Parameters of an environment with these names keep their defaults."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AbstractEnvironmentTask(AbstractControlTask):
    """Task of repeated episodes in an environment of gymnax, which a subclass names."""

    environment: ClassVar[Environment]
    """The environment."""

    hide: tuple[int, ...] = ()
    """Components of the observation that the agent does not see, counted from 0."""
    start: Literal["same", "fresh"] = "same"
    """Start of the episodes of a problem: the same reset for all, or a fresh one for each."""

    def check(self) -> None:
        for name, (kind, _) in parameters_of(self.environment).items():
            _check_parameter(name, getattr(self, name), kind)
        self._whole.check()
        size = self._whole.observation_size
        for index in self.hide:
            check_size("a component in hide", index, least=0)
            if index >= size:
                raise ValueError(f"hide must name components from 0 to {size - 1}; got {index}.")
        if len(set(self.hide)) == size:
            raise ValueError(f"hide must leave at least one of the {size} components; got {self.hide}.")

    @property
    def action_space(self) -> AbstractActionSpace:
        return self._whole.action_space

    @property
    def observation_size(self) -> int:
        return len(self._seen)

    def sample(self, key: Array, *, test: bool = False) -> GymnaxProblem:
        return self._whole.sample(key, test=test)

    def reset(self, problem: GymnaxProblem, key: Array) -> tuple[Any, Float[Array, " O"]]:
        state, observation = self._whole.reset(problem, key)
        return state, observation[self._seen]

    def step(self, problem: GymnaxProblem, state: Any, action: Array, key: Array) -> tuple[Any, Step]:
        state, step = self._whole.step(problem, state, action, key)
        return state, dataclasses.replace(step, observation=step.observation[self._seen])

    @property
    def _whole(self) -> GymnaxTask:
        """Task in which nothing is hidden."""
        return GymnaxTask(self.environment, functools.partial(_sample_parameters, self), self.start)

    @property
    def _seen(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self._whole.observation_size), self.hide)


def task_class(name: str, folder: Path) -> type[AbstractEnvironmentTask]:
    """Class of tasks in a registered environment, or in one of `package.module:Class`.

    Its fields are the numbers among the parameters of the environment, each a value or a range.
    """
    environment = _own_environment(name, folder) if ":" in name else _registered_environment(name)
    fields = [
        (text, Annotated[_form(kind), Doc(_about(kind))], dataclasses.field(default=default))
        for text, (kind, default) in parameters_of(environment).items()
    ]
    members = {
        "name": name.rpartition(":")[2],
        "environment": environment,
        # The source of the task is that of its environment.
        "__module__": type(environment).__module__,
        "__doc__": f"Repeated episodes in {environment.name} of gymnax.",
    }
    made = dataclasses.make_dataclass(
        type(environment).__name__,
        fields,
        bases=(AbstractEnvironmentTask,),
        namespace=members,
        frozen=True,
        kw_only=True,
    )
    made.__module__ = type(environment).__module__
    return made


def parameters_of(environment: Environment) -> dict[str, tuple[type, Any]]:
    """Numbers among the parameters of an environment: their types and defaults, by name."""
    default = environment.default_params
    values = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    kinds = (bool, int, float)
    return {
        name: (type(value), value)
        for name, value in values.items()
        if type(value) in kinds and name not in RESERVED
    }


def _registered_environment(name: str) -> Environment:
    check_choice("gymnax environment", name, tuple(gymnax.registered_envs))
    return gymnax.make(name)[0]


def _own_environment(name: str, folder: Path) -> Environment:
    kind = class_at(name, folder)
    if not (isinstance(kind, type) and issubclass(kind, Environment)):
        raise ValueError(
            f"gymnax:{name} is not an environment of gymnax: its class must derive from "
            "gymnax.environments.environment.Environment."
        )
    try:
        return kind()
    except Exception as problem:  # The code of a user can raise anything.
        raise ValueError(f"gymnax:{name} cannot be made without arguments: {one_line(problem)}.") from problem


def _sample_parameters(task: AbstractEnvironmentTask, key: Array) -> Any:
    """Parameters of the environment: those with a range are sampled from it, uniformly."""
    values = {}
    for index, (name, (kind, _)) in enumerate(parameters_of(task.environment).items()):
        value = getattr(task, name)
        if isinstance(value, tuple):
            low, high = value
            own = jax.random.fold_in(key, index)
            value = (
                jax.random.randint(own, (), low, high + 1)
                if kind is int
                else jax.random.uniform(own, minval=low, maxval=high)
            )
        values[name] = value
    return dataclasses.replace(task.environment.default_params, **values)


def _check_parameter(name: str, value: Any, kind: type) -> None:
    """Refuse values that are neither of the type of a parameter nor a range of it."""
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false; got {value!r}.")
        return
    ends = value if isinstance(value, tuple) else (value, value)
    for end in ends:
        if kind is int:
            check_size(name, end, least=-LARGEST_SIZE)
        else:
            check_number(name, end, least=-LARGEST_NUMBER)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise ValueError(f"{name} must be a number, or a range from low to high; got {value!r}.")


def _about(kind: type) -> str:
    """Help text of the field of a parameter."""
    values = "" if kind is bool else "; two values are a range, from which each problem samples"
    return f"Parameter of the environment{values}."


def _form(kind: type) -> Any:
    """Type of the field of a parameter."""
    return bool if kind is bool else kind | tuple[kind, kind]
