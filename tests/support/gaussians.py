"""Beliefs of every family, with moments and divergences in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import registry
from support.registry import BELIEFS, DENSITIES

import recurrent_laplace as rl

F, LEAD = 6, (3,)

each_belief = pytest.mark.parametrize("name", BELIEFS)
each_density = pytest.mark.parametrize("name", DENSITIES)
each_pair = pytest.mark.parametrize(("name", "other_name"), [(p, q) for p in DENSITIES for q in DENSITIES])


@functools.cache
def beliefs(lead=LEAD, dtype=jnp.float64, seed=0):
    return registry.beliefs(lead, F, dtype, jax.random.key(seed))


def swap(a):
    return np.swapaxes(a, -1, -2)


def moments(belief):
    """Mean and full covariance in NumPy's float64, computed from the leaves."""
    leaves = {name: np.asarray(value, np.float64) for name, value in vars(belief).items()}
    size = leaves["mean"].shape[-1]
    if isinstance(belief, rl.PointBelief):
        covariance = np.zeros((*leaves["mean"].shape, size))
    elif isinstance(belief, rl.DiagonalGaussian):
        covariance = np.eye(size) / leaves["precisions"][..., None]
    elif isinstance(belief, rl.DenseGaussian):
        covariance = np.linalg.inv(leaves["precision_cholesky"] @ swap(leaves["precision_cholesky"]))
    else:
        basis = leaves["basis"]
        covariance = basis * np.exp(leaves["log_eigenvalues"])[..., None, :] @ swap(basis)
    return leaves["mean"], covariance


def kl_by_hand(p, q):
    """`1/2 [tr(Lq Sp) - F + d^T Lq d + ln det Sq - ln det Sp]`, for beliefs without leading axes."""
    (mean_p, cov_p), (mean_q, cov_q) = moments(p), moments(q)
    precision_q = np.linalg.inv(cov_q)
    d = mean_p - mean_q
    spread = np.trace(precision_q @ cov_p) - len(d) + d @ precision_q @ d
    return 0.5 * (spread + np.linalg.slogdet(cov_q)[1] - np.linalg.slogdet(cov_p)[1])
