"""Layer 8: a posterior in use, one step at a time, and kept in files."""

from recurrent_laplace.deploy.alarm import ShiftAlarm as ShiftAlarm
from recurrent_laplace.deploy.diagnose import Diagnosis as Diagnosis
from recurrent_laplace.deploy.diagnose import diagnose as diagnose
from recurrent_laplace.deploy.export import export as export
from recurrent_laplace.deploy.files import load as load
from recurrent_laplace.deploy.files import save as save
from recurrent_laplace.deploy.monitor import Monitor as Monitor
from recurrent_laplace.deploy.readings import Reading as Reading
