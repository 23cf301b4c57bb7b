"""From κ of every snapshot to one confidence: NumPy alone, and no network."""

from snapsure.estimators._aes import AES
from snapsure.estimators._les import LES
from snapsure.estimators._pes import PES

__all__ = ["AES", "LES", "PES"]
