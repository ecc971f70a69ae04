"""Memory in, belief out."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from recurrent_laplace.cells import Memory
from recurrent_laplace.cells.base import Carry
from recurrent_laplace.cells.memory import Trace, select
from recurrent_laplace.errors import check_shape
from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.posterior.cost import Cost
from recurrent_laplace.posterior.info import Info

State = Any


class AbstractPosterior(eqx.Module):
    """A belief over the features of a memory, after every input.

    `update` is the online way, one input at a time; `unroll` is the fast way, a whole sequence at
    once; they agree. `update_info` and `unroll_info` return an `Info` as well.
    """

    memory: eqx.AbstractVar[Memory]

    @abc.abstractmethod
    def prior(self) -> AbstractBelief:
        """q_0, the belief before any input."""

    @abc.abstractmethod
    def init(self) -> State:
        """The state before any input."""

    @abc.abstractmethod
    def carry(self, state: State) -> Carry:
        """The carry of the memory in a state."""

    @abc.abstractmethod
    def _update(self, state: State, x: Array, reset: Bool[Array, ""]) -> tuple[State, AbstractBelief, Info]:
        """`update_info`, traced."""

    @abc.abstractmethod
    def _unroll(
        self, inputs: Float[Array, "T D"], resets: Array | None
    ) -> tuple[Trace, AbstractBelief, Info]:
        """`unroll_trace`, traced."""

    def _unroll_again(
        self, inputs: Float[Array, "T D"], known: AbstractBelief
    ) -> tuple[Trace, AbstractBelief, Info]:
        """`unroll_again`, traced. Worth writing where a belief has costly parts."""
        return self._unroll(inputs, None)

    def _with_room(self, state: State) -> State:
        """The state, with room for one more input where it grows."""
        return state

    @abc.abstractmethod
    def cost(self, steps: int, batch: int = 1) -> Cost:
        """What `unroll` of `batch` sequences of `steps` inputs will cost."""

    def update(
        self, state: State, x: Array, reset: Bool[Array, ""] | bool = False
    ) -> tuple[State, AbstractBelief]:
        """Consume one input of shape `(D,)`; `reset` forgets everything before it first."""
        state, belief, _ = self.update_info(state, x, reset)
        return state, belief

    def update_info(
        self, state: State, x: Array, reset: Bool[Array, ""] | bool = False
    ) -> tuple[State, AbstractBelief, Info]:
        """`update`, and an `Info` about the belief."""
        check_shape("x", x, (self.memory.input_size or "D",))
        return _compiled_update(self, self._with_room(state), x, reset)

    def unroll(self, inputs: Array, resets: Array | None = None) -> AbstractBelief:
        """Consume inputs of shape `(T, D)`: the belief after each, with a leading axis of time.

        `resets`, booleans of shape `(T,)`, act before the input of their step.
        """
        return self.unroll_info(inputs, resets)[0]

    def unroll_info(self, inputs: Array, resets: Array | None = None) -> tuple[AbstractBelief, Info]:
        """`unroll`, and an `Info` with a leading axis of time."""
        _, beliefs, info = self.unroll_trace(inputs, resets)
        return beliefs, info

    def unroll_trace(self, inputs: Array, resets: Array | None = None) -> tuple[Trace, AbstractBelief, Info]:
        """`unroll_info`, and the memory's own `Trace`: for heads that see more than the belief."""
        check_shape("inputs", inputs, ("T", self.memory.input_size or "D"))
        if inputs.shape[0] == 0:
            raise ValueError("inputs must hold at least one step; got none.")
        if resets is not None:
            check_shape("resets", resets, (inputs.shape[0],))
        return _compiled_unroll(self, inputs, resets)

    def unroll_again(
        self, inputs: Float[Array, "T D"], known: AbstractBelief
    ) -> tuple[Trace, AbstractBelief, Info]:
        """`unroll_trace` where the beliefs after these inputs, with these very weights, are `known`.

        Values and gradients are those of `unroll_trace`; what is costly about a belief is taken from there
        and not computed a second time. Right after acting, a loss has its beliefs for the price of a point.
        """
        check_shape("inputs", inputs, ("T", self.memory.input_size or "D"))
        check_shape("known.mean", known.mean, (inputs.shape[0], self.memory.feature_size))
        return _compiled_unroll_again(self, inputs, jax.lax.stop_gradient(known))

    def consecutive_kl(self, beliefs: AbstractBelief, resets: Array | None = None) -> Float[Array, " T"]:
        """`KL(q_t || stop(q_{t-1}))` for t = 1 .. T; the first, and after a reset, from the prior."""
        check_shape("beliefs.mean", beliefs.mean, ("T", self.memory.feature_size))
        first = jax.tree.map(lambda leaf: leaf[None], self.prior())
        previous = jax.tree.map(lambda a, b: jnp.concatenate([a, b[:-1]]), first, beliefs)
        if resets is not None:
            check_shape("resets", resets, (len(beliefs),))
            previous = jax.vmap(select)(
                resets, jax.tree.map(lambda a: jnp.repeat(a, len(beliefs), 0), first), previous
            )
        return beliefs.kl(jax.lax.stop_gradient(previous))


# Compiled here, once for a shape, so that calls outside of a user's own `jit` are quick as well.


@jax.jit
def _compiled_update(
    posterior: AbstractPosterior, state: State, x: Array, reset: Array | bool
) -> tuple[State, AbstractBelief, Info]:
    return posterior._update(state, x, jnp.asarray(reset))


@jax.jit
def _compiled_unroll(
    posterior: AbstractPosterior, inputs: Array, resets: Array | None
) -> tuple[Trace, AbstractBelief, Info]:
    return posterior._unroll(inputs, resets)


@jax.jit
def _compiled_unroll_again(
    posterior: AbstractPosterior, inputs: Array, known: AbstractBelief
) -> tuple[Trace, AbstractBelief, Info]:
    return posterior._unroll_again(inputs, known)


class AbstractReadPosterior(AbstractPosterior):
    """A posterior that is read off the carry of its step alone, whose state is that carry."""

    @abc.abstractmethod
    def read(self, h: Float[Array, "*lead H"]) -> AbstractBelief:
        """The belief at hidden states `h`."""

    def init(self) -> Carry:
        return self.memory.init()

    def carry(self, state: Carry) -> Carry:
        return state

    def _update(self, state: Carry, x: Array, reset: Bool[Array, ""]) -> tuple[Carry, AbstractBelief, Info]:
        state, _ = self.memory.step(select(reset, self.init(), state), x)
        belief = self.read(self.memory.hidden(state))
        return state, belief, Info.of(x, belief)

    def _unroll(
        self, inputs: Float[Array, "T D"], resets: Array | None
    ) -> tuple[Trace, AbstractBelief, Info]:
        trace = self.memory.unroll(inputs, resets)
        beliefs = self.read(jax.vmap(self.memory.cell.hidden)(trace.carries))
        return trace, beliefs, Info.of(inputs, beliefs)
