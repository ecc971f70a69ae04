"""Networks of a RecurrentPPO policy, from its weights and the JSON part of its file."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recurrent_laplace.cells import Affine, Memory
from recurrent_laplace.cells.memory import select
from recurrent_laplace.errors import check_shape
from recurrent_laplace.interop.torch import from_state_dict

ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": jnp.tanh,
    "torch.nn.modules.activation.ReLU": jax.nn.relu,
}
FLATTEN = "stable_baselines3.common.torch_layers.FlattenExtractor"
BOX, DISCRETE = "gymnasium.spaces.box.Box", "gymnasium.spaces.discrete.Discrete"

HARMLESS = {
    *("net_arch", "ortho_init", "log_std_init", "full_std", "use_expln", "features_extractor_kwargs"),
    *("share_features_extractor", "normalize_images", "optimizer_class", "optimizer_kwargs"),
    *("lstm_hidden_size", "n_lstm_layers", "shared_lstm", "enable_critic_lstm"),
}
"""Arguments of a policy that its weights show, or that have no effect after training."""

LONGEST_PRINT = 100_000
"""Maximum length of a printed array; NumPy abridges those of more than a thousand numbers."""


@dataclasses.dataclass(frozen=True)
class Description:
    """Description of a policy in the JSON part of its file."""

    activation: str
    discrete_observations: bool
    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    bounds: tuple[np.ndarray, np.ndarray] | None
    """Least and greatest action; None if actions are discrete."""


def describe(data: Mapping[str, Any]) -> Description:
    """Read the description of a policy; options under which the weights mean another function are refused.

    The file stores objects that are not JSON as a pickle, with their attributes beside it as text. Only the
    text is read.
    """
    home = _object(data, "policy_class").get("__module__")
    if home != "sb3_contrib.common.recurrent.policies":
        raise ValueError(
            "policy_class must be one of sb3_contrib's own recurrent policies; it is from "
            f"{str(home)[:200]!r}, and what that computes cannot be told from its weights."
        )
    arguments = _object(data, "policy_kwargs")
    arguments = {name: value for name, value in arguments.items() if not name.startswith(":")}
    if data.get("use_sde") or arguments.pop("use_sde", False):
        raise ValueError("use_sde must be False: state-dependent exploration is not supported.")
    if arguments.pop("squash_output", False):
        raise ValueError("squash_output must be False: squashed actions are not supported.")
    extractor = _class(arguments.pop("features_extractor_class", FLATTEN))
    if extractor != FLATTEN:
        raise ValueError(f"features_extractor_class must be the default FlattenExtractor; got {extractor}.")
    activation = _class(arguments.pop("activation_fn", "torch.nn.modules.activation.Tanh"))
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation_fn must be torch's Tanh or ReLU; got {activation}.")
    options = arguments.pop("lstm_kwargs", None) or {}
    if not isinstance(options, dict) or options.keys() - {"bias", "dropout"}:
        raise ValueError(f"lstm_kwargs may have bias and dropout only; got {str(options)[:80]}.")
    unknown = sorted(arguments.keys() - HARMLESS)
    if unknown:
        raise ValueError(f"policy_kwargs has {unknown[0][:200]!r}, which is not known here.")
    observation, action = (_object(data, name) for name in ("observation_space", "action_space"))
    sees, does = (_class(space.get(":type:")) for space in (observation, action))
    if sees not in (BOX, DISCRETE):
        raise ValueError(f"observation_space must be a Box or Discrete; got {sees}.")
    if does not in (BOX, DISCRETE):
        raise ValueError(f"action_space must be a Box or Discrete; got {does}.")
    observation_shape, action_shape = (_shape(space) for space in (observation, action))
    if observation.get("dtype") == "uint8" and len(observation_shape) == 3:
        raise ValueError(f"observation_space must be plain numbers; got images of shape {observation_shape}.")
    return Description(
        activation=activation,
        discrete_observations=sees == DISCRETE,
        observation_shape=observation_shape,
        action_shape=action_shape,
        bounds=(_bound(action, "low", action_shape), _bound(action, "high", action_shape))
        if does == BOX
        else None,
    )


def _object(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"data must have an object {name!r}; it has {type(found).__name__}.")
    return found


def _class(text: Any) -> str:
    """`gymnasium.spaces.box.Box`, from the text `<class 'gymnasium.spaces.box.Box'>`."""
    return str(text)[:200].removeprefix("<class '").removesuffix("'>")


def _shape(space: dict[str, Any]) -> tuple[int, ...]:
    shape = space.get("_shape") or []
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise ValueError(f"the shape of a space must be a list of sizes; got {str(shape)[:80]}.")
    return tuple(shape)


def _bound(space: dict[str, Any], end: str, shape: tuple[int, ...]) -> np.ndarray:
    """Bound of a Box, from the text that NumPy prints of it."""
    text = str(space.get(end))
    try:
        # More numbers than numpy prints need not be taken apart.
        words = re.sub(r"[\[\],]", " ", text).split() if len(text) < LONGEST_PRINT else []
        return np.array([float(word) for word in words], np.float32).reshape(shape)
    except ValueError:
        raise ValueError(
            f"action_space must tell its {end!r} in numbers of shape {shape}; got {text[:80]!r}."
        ) from None


class Head(eqx.Module):
    """Multilayer perceptron of the policy or the value, on the output of an LSTM."""

    layers: tuple[Affine, ...]
    activation: str = eqx.field(static=True)

    def __call__(self, z: Float[Array, " H"]) -> Float[Array, " K"]:
        for layer in self.layers[:-1]:
            z = ACTIVATIONS[self.activation](layer(z))
        return self.layers[-1](z)


class Policy(eqx.Module):
    """Policy head: logits of discrete actions, or mean and log-stddev of continuous ones."""

    head: Head
    log_stddev: Float[Array, " A"] | None

    def __call__(self, z: Float[Array, " H"], context: Any = None) -> Any:
        del context
        out = self.head(z)
        return out if self.log_stddev is None else (out, self.log_stddev)


class Value(eqx.Module):
    """Value head: the expected return."""

    head: Head

    def __call__(self, z: Float[Array, " H"], context: Any = None) -> Float[Array, ""]:
        del context
        return self.head(z)[0]


class Networks(eqx.Module):
    """Actor and critic of a RecurrentPPO agent, with the heads of the policy and the value.

    `critic` is a separate LSTM, a linear layer on the observation, or None if the actor's LSTM is shared.
    """

    actor: Memory
    critic: Memory | Affine | None
    policy: Policy
    value: Value

    def init(self) -> Any:
        """Carries before any input."""
        return self.actor.init(), self.critic.init() if isinstance(self.critic, Memory) else ()

    def step(
        self, carries: Any, x: Float[Array, " D"], start: Bool[Array, ""]
    ) -> tuple[Any, Any, Float[Array, ""]]:
        """New carries, the policy's output, and the value; `start` resets the carries first."""
        actor, critic = select(start, self.init(), carries)
        actor, h = self.actor.step(actor, x)
        if isinstance(self.critic, Memory):
            critic, latent = self.critic.step(critic, x)
        else:
            latent = h if self.critic is None else self.critic(x)
        return (actor, critic), self.policy(h), self.value(latent)


def convert(weights: Mapping[str, Any], description: Description) -> Networks:
    """Convert a state dict of `RecurrentActorCriticPolicy`; refuse one with further weights."""
    extractors = sorted(name for name in weights if "features_extractor." in name)
    if extractors:
        raise ValueError(f"the features extractor must have no weights of its own; it has {extractors[0]!r}.")
    left = dict(weights)
    actor = _lstm(left, "lstm_actor")
    critic = None
    if any(name.startswith("lstm_critic.") for name in left):
        critic = _lstm(left, "lstm_critic")
    elif "critic.weight" in left:
        critic = _affine(left, "critic")
    size, features = actor.feature_size, actor.input_size
    activation = description.activation
    policy = Head(_layers(left, "mlp_extractor.policy_net", "action_net", size), activation)
    value = Head(_layers(left, "mlp_extractor.value_net", "value_net", size), activation)
    log_stddev = left.pop("log_std", None)
    if left:
        raise ValueError(f"the policy has weights {sorted(left)[0]!r}, which no part known here has.")
    check_shape("value_net.weight", value.layers[-1].weight, (1, "inputs"))
    actions = len(policy.layers[-1].weight)
    if (description.bounds is None) != (log_stddev is None):
        raise ValueError(
            "action_space and weights contradict each other: log_std is for a Box, and only that."
        )
    if log_stddev is not None:
        check_shape("log_std", log_stddev, (int(np.prod(description.action_shape)),))
        check_shape("log_std", log_stddev, (actions,))
        log_stddev = jnp.array(log_stddev)
    if not description.discrete_observations and features != np.prod(description.observation_shape):
        raise ValueError(
            f"observation_space has shape {description.observation_shape}, "
            f"but the LSTM takes {features} inputs."
        )
    if critic is not None:
        out, inputs = (
            critic.weight.shape if isinstance(critic, Affine) else (critic.feature_size, critic.input_size)
        )
        if (out, inputs) != (size, features):
            raise ValueError(f"actor and critic must be alike; got {(features, size)} and {(inputs, out)}.")
    return Networks(actor, critic, Policy(policy, log_stddev), Value(value))


def _lstm(left: dict[str, Any], prefix: str) -> Memory:
    """Take an LSTM out of the weights."""
    own = {name: left.pop(name) for name in sorted(left) if name.startswith(f"{prefix}.")}
    return from_state_dict(own, kind="lstm", prefix=prefix)


def _affine(left: dict[str, Any], prefix: str) -> Affine:
    """Take a linear layer out of the weights."""
    if not {f"{prefix}.weight", f"{prefix}.bias"} <= left.keys():
        raise ValueError(f"the policy must have a weight and a bias of {prefix!r}; it has not.")
    weight, bias = jnp.array(left.pop(f"{prefix}.weight")), jnp.array(left.pop(f"{prefix}.bias"))
    check_shape(f"{prefix}.weight", weight, ("outputs", "inputs"))
    check_shape(f"{prefix}.bias", bias, (len(weight),))
    return Affine(weight, bias)


def _layers(left: dict[str, Any], hidden: str, last: str, inputs: int) -> tuple[Affine, ...]:
    """Take a stack of linear layers out of the weights. Every other module of `hidden` is an activation."""
    layers = []
    while f"{hidden}.{2 * len(layers)}.weight" in left:
        layers.append(_affine(left, f"{hidden}.{2 * len(layers)}"))
    layers.append(_affine(left, last))
    for layer in layers:
        check_shape(f"{last} and the layers before it", layer.weight, ("outputs", inputs))
        inputs = len(layer.weight)
    return tuple(layers)
