"""Estimators: from κ of every snapshot to one confidence per example. NumPy alone, no network."""

from snapsure.estimators._aes import AES as AES
from snapsure.estimators._base import Estimator as Estimator
from snapsure.estimators._les import LES as LES
from snapsure.estimators._pes import PES as PES
from snapsure.estimators._pnorm import MaxLogitPNorm as MaxLogitPNorm
from snapsure.estimators._single import BestSnapshot as BestSnapshot
from snapsure.estimators._single import Final as Final
from snapsure.estimators._sptd import SPTD as SPTD
from snapsure.estimators._temperature import Temperature as Temperature
from snapsure.estimators.registry import Method as Method
from snapsure.estimators.registry import register as register
