"""Families of beliefs over features: densities, divergences, sampling."""

from recurrent_laplace.gaussians.base import AbstractBelief as AbstractBelief
from recurrent_laplace.gaussians.base import AbstractGaussian as AbstractGaussian
from recurrent_laplace.gaussians.dense import DenseGaussian as DenseGaussian
from recurrent_laplace.gaussians.diagonal import DiagonalGaussian as DiagonalGaussian
from recurrent_laplace.gaussians.point import PointBelief as PointBelief
from recurrent_laplace.gaussians.spectral import SpectralGaussian as SpectralGaussian
from recurrent_laplace.gaussians.spectral import cayley_basis as cayley_basis
from recurrent_laplace.gaussians.spectral import cayley_map as cayley_map
from recurrent_laplace.gaussians.spectral import skew_symmetric as skew_symmetric
