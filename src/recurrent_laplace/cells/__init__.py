"""Recurrent cells with their state Jacobians in closed form, and the memory that is built on one."""

from recurrent_laplace.cells.autodiff import Autodiff as Autodiff
from recurrent_laplace.cells.base import AbstractCell as AbstractCell
from recurrent_laplace.cells.base import AbstractGatedCell as AbstractGatedCell
from recurrent_laplace.cells.elman import Elman as Elman
from recurrent_laplace.cells.gru import GRU as GRU
from recurrent_laplace.cells.linear import Linear as Linear
from recurrent_laplace.cells.lstm import LSTM as LSTM
from recurrent_laplace.cells.memory import Affine as Affine
from recurrent_laplace.cells.memory import Memory as Memory
