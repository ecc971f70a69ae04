"""Registration of the package's classes for serialization, with checks of their options and shapes."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from recurrent_laplace import cells, gaussians, models, posterior
from recurrent_laplace.errors import check_choice, check_number, check_shape, check_size
from recurrent_laplace.models import layers
from recurrent_laplace.monitoring.encoding import register_serializable
from recurrent_laplace.monitoring.monitor import StreamState
from recurrent_laplace.monitoring.readings import Heads
from recurrent_laplace.posterior import accumulation, conjugate, laplace, likelihood


def _check_vector(name: str, vector: Any, size: int) -> None:
    if vector is not None:
        check_shape(name, vector, (size,))


def _check_cell(cell: Any, *, gates: int) -> None:
    check_size("input_size", cell.input_size)
    check_size("hidden_size", cell.hidden_size)
    rows = gates * cell.hidden_size
    check_shape("weight_ih", cell.weight_ih, (rows, cell.input_size))
    check_shape("weight_hh", cell.weight_hh, (rows, cell.hidden_size))
    _check_vector("bias", cell.bias, rows)


def _check_gru(cell: cells.GRU) -> None:
    _check_cell(cell, gates=3)
    _check_vector("bias_n", cell.bias_n, cell.hidden_size)


def _check_elman(cell: cells.Elman) -> None:
    _check_cell(cell, gates=1)
    check_choice("activation", cell.activation, ("tanh", "relu"))


def _check_affine(layer: cells.Affine) -> None:
    check_shape("weight", layer.weight, ("outputs", "inputs"))
    _check_vector("bias", layer.bias, layer.weight.shape[0])


def _check_layer_norm(norm: layers.LayerNorm) -> None:
    check_shape("weight", norm.weight, ("N",))
    _check_vector("bias", norm.bias, norm.weight.shape[0])


def _check_mlp(mlp: layers.MLP) -> None:
    if not mlp.layers:
        raise ValueError("an MLP must have at least one layer")
    for lower, upper in itertools.pairwise(mlp.layers):
        check_shape("layers", upper.weight, ("outputs", lower.weight.shape[0]))


def _check_embedder(embedder: layers.Embedder) -> None:
    if embedder.norm is not None:
        _check_vector("norm", embedder.norm.weight, embedder.mlp.layers[-1].weight.shape[0])


def _check_head(head: layers.Head) -> None:
    if head.norm is not None:
        _check_vector("norm", head.norm.weight, head.mlp.layers[0].weight.shape[1])
    if head.mlp.layers[0].bias is None:
        raise ValueError("a Head must have a bias in its first layer")


def _check_agent(agent: models.Agent) -> None:
    check_size("actions", agent.actions)
    if agent.action_embedder.input_size != agent.actions:
        raise ValueError(f"an Agent of {agent.actions} actions must embed as many")


def _check_memory(memory: cells.Memory) -> None:
    cells.Memory(memory.cell, readout=memory.readout, below=memory.below)


def _check_laplace(made: posterior.LaplacePosterior) -> None:
    posterior.LaplacePosterior(**vars(made))


def _check_variational(made: posterior.VariationalPosterior) -> None:
    check_choice("covariance", made.covariance, ("dense", "diagonal"))
    check_number("prior_stddev", made.prior_stddev, above=0)
    hidden, size = made.memory.cell.hidden_size, made.memory.feature_size
    check_shape("log_eigenvalue_head", made.log_eigenvalue_head.weight, (size, hidden))
    if (made.rotation_head is not None) != (made.covariance == "dense"):
        raise ValueError("a dense VariationalPosterior must have a rotation_head, a diagonal one none")
    if made.rotation_head is not None:
        check_shape("rotation_head", made.rotation_head.weight, (size * (size - 1) // 2, hidden))


def _check_conjugate(made: posterior.ConjugatePosterior) -> None:
    posterior.ConjugatePosterior(**vars(made))


def _check_likelihood(made: posterior.LikelihoodPosterior) -> None:
    posterior.LikelihoodPosterior(**vars(made))


def _check_predictor(made: posterior.Predictor) -> None:
    posterior.Predictor(**vars(made))


for _name, _class, _check in (
    ("LSTM", cells.LSTM, functools.partial(_check_cell, gates=4)),
    ("GRU", cells.GRU, _check_gru),
    ("Elman", cells.Elman, _check_elman),
    ("Linear", cells.Linear, functools.partial(_check_cell, gates=1)),
    ("Affine", cells.Affine, _check_affine),
    ("Memory", cells.Memory, _check_memory),
    ("PointPosterior", posterior.PointPosterior, None),
    ("VariationalPosterior", posterior.VariationalPosterior, _check_variational),
    ("LaplacePosterior", posterior.LaplacePosterior, _check_laplace),
    ("ConjugatePosterior", posterior.ConjugatePosterior, _check_conjugate),
    ("LikelihoodPosterior", posterior.LikelihoodPosterior, _check_likelihood),
    ("Predictor", posterior.Predictor, _check_predictor),
    ("GaussianLikelihood", posterior.GaussianLikelihood, None),
    ("BernoulliLikelihood", posterior.BernoulliLikelihood, None),
    ("CategoricalLikelihood", posterior.CategoricalLikelihood, None),
    ("JointLikelihood", posterior.JointLikelihood, None),
    ("LayerNorm", layers.LayerNorm, _check_layer_norm),
    ("MLP", layers.MLP, _check_mlp),
    ("Embedder", layers.Embedder, _check_embedder),
    ("Head", layers.Head, _check_head),
    ("EmbeddedHead", layers.EmbeddedHead, None),
    ("ResidualHead", layers.ResidualHead, None),
    ("Agent", models.Agent, _check_agent),
    ("Regressor", models.Regressor, None),
    # The running state of a monitor.
    ("Mind", StreamState, None),
    ("Heads", Heads, None),
    ("LaplaceState", laplace.LaplaceState, None),
    ("ConjugateState", conjugate.ConjugateState, None),
    ("LikelihoodState", likelihood.LikelihoodState, None),
    ("RunningSum", accumulation.RunningSum, None),
    ("Window", accumulation.Window, None),
    ("DiagonalGaussian", gaussians.DiagonalGaussian, None),
    ("DenseGaussian", gaussians.DenseGaussian, None),
    ("SpectralGaussian", gaussians.SpectralGaussian, None),
):
    # These names are in files: they stay when a class is renamed.
    register_serializable(_name, check=_check)(_class)


def check_traceable(module: Any) -> None:
    """Raise if the shapes of a loaded module do not fit, by tracing one step without computing it."""
    match module:
        case models.Agent():
            embedder, dtype = module.observation_embedder, module.posterior.memory.dtype
            jax.eval_shape(_act, module, _input(embedder.input_size, dtype))
        case models.Regressor():
            weights = (e.mlp.layers[0].weight for e in (module.input_embedder, module.output_embedder))
            jax.eval_shape(_predict, module, *(_input(weight.shape[1], weight.dtype) for weight in weights))
        case posterior.AbstractPosterior():
            memory = module.memory
            jax.eval_shape(_update, module, _input(memory.input_size, memory.dtype))
        case cells.Memory():
            x = _input(module.input_size, module.dtype)
            jax.eval_shape(lambda memory, x: memory.step(memory.init(), x), module, x)


def _input(size: Any, dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size,), dtype)


def _update(module: posterior.AbstractPosterior, x: jax.Array) -> gaussians.AbstractBelief:
    query = None if module.query_size is None else jnp.zeros(module.query_size, x.dtype)
    return module.update(module.init(), x, query=query)[1]


def _act(agent: models.Agent, observation: jax.Array) -> Any:
    x, embedded = agent.embed(observation, jnp.zeros((), int), jnp.zeros((), observation.dtype))
    belief = _update(agent.posterior, x)
    hidden = agent.posterior.memory.hidden(agent.posterior.memory.init())
    behaviour = agent.behave(belief.mean[None], agent.head_context(embedded, hidden))
    check_shape("policy_head", behaviour.logits, (agent.actions,))
    return behaviour


def _predict(model: models.Regressor, x: jax.Array, y: jax.Array) -> Any:
    belief = _update(model.posterior, model.embed(x, y))
    return model.predict(belief.mean[None], x)
