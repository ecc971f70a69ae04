"""Posteriors in use: online monitor, shift alarm, diagnosis, serialization, export."""

from recurrent_laplace.monitoring.alarm import ShiftAlarm as ShiftAlarm
from recurrent_laplace.monitoring.diagnose import Diagnosis as Diagnosis
from recurrent_laplace.monitoring.diagnose import diagnose as diagnose
from recurrent_laplace.monitoring.diagnose import diagnose_episodes as diagnose_episodes
from recurrent_laplace.monitoring.encoding import register_serializable as register_serializable
from recurrent_laplace.monitoring.export import export as export
from recurrent_laplace.monitoring.forecast import Forecast as Forecast
from recurrent_laplace.monitoring.monitor import Monitor as Monitor
from recurrent_laplace.monitoring.prediction import PredictorFit as PredictorFit
from recurrent_laplace.monitoring.prediction import fit_predictor as fit_predictor
from recurrent_laplace.monitoring.readings import Reading as Reading
from recurrent_laplace.monitoring.recording import Recording as Recording
from recurrent_laplace.monitoring.serialization import load as load
from recurrent_laplace.monitoring.serialization import save as save
