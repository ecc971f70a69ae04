"""Calibration of posterior scales, decoders, and scores of shift detection."""

from recurrent_laplace.scoring.calibration import Calibration as Calibration
from recurrent_laplace.scoring.calibration import calibrate as calibrate
