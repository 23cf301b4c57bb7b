"""From κ of every snapshot to one confidence, and rivals of that: NumPy alone, and no network."""

from snapsure.estimators._aes import AES
from snapsure.estimators._les import LES
from snapsure.estimators._pes import PES
from snapsure.estimators._pnorm import MaxLogitPNorm
from snapsure.estimators._sptd import SPTD
from snapsure.estimators._temperature import Temperature

__all__ = ["AES", "LES", "MaxLogitPNorm", "PES", "SPTD", "Temperature"]
