"""Layers once more in NumPy, with nothing of the package but their weights."""

import numpy as np

from recurrent_laplace.models.layers import EPSILON


def leaky(x):
    return np.where(x > 0, x, 0.01 * x)


def norm_by_hand(norm, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(x.var(axis=-1, keepdims=True) + EPSILON)
    return np.asarray(norm.weight) * scaled + np.asarray(norm.bias)


def mlp_by_hand(mlp, x):
    for index, layer in enumerate(mlp.layers):
        x = (leaky(x) if index else x) @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    return x


def embed_by_hand(embedder, x):
    return norm_by_hand(embedder.norm, leaky(mlp_by_hand(embedder.mlp, x)))


def head_by_hand(head, z, context=None):
    if context is not None:
        context = np.broadcast_to(context, (*z.shape[:-1], context.shape[-1]))
        z = np.concatenate([z, context], axis=-1)
    return mlp_by_hand(head.mlp, norm_by_hand(head.norm, z))
