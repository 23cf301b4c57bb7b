"""The exceptions that snapsure raises.

Each message names the argument, the rule, the value and its place, and the remedy:

    SnapsureError
    ├── InvalidInput (also a ValueError)        an argument breaks its rule
    │   ├── Infeasible                          no threshold can promise the risk
    │   ├── NotFitted                           an estimator is used before it is fitted
    │   └── WrongArchitecture                   a snapshot does not fit the model
    ├── ScoringFailed (also a RuntimeError)     pieces of a scoring failed, however often tried
    └── StorageError (also an OSError)          something on disk is not as it should be
        ├── CorruptFile                         bytes are missing or changed
        ├── StoreLocked                         another process is writing there
        └── UnsafeFile                          reading it could run code, or fill the memory

Catch `SnapsureError` for all of them, or the built-in type where you do not know this library.
"""


class SnapsureError(Exception):
    """The base of all exceptions of snapsure."""


class InvalidInput(SnapsureError, ValueError):
    """An argument breaks its rule; the message names both."""


class Infeasible(InvalidInput):
    """No threshold can promise the risk.

    `possible` is the smallest risk that the same examples can promise, which `risk="smallest"`
    does; None if there is none.
    """

    def __init__(self, message: str, possible: float | None = None) -> None:
        super().__init__(message)
        self.possible = possible


class NotFitted(InvalidInput):
    """An estimator is used before it is fitted."""


class WrongArchitecture(InvalidInput):
    """A snapshot does not fit the model; the message names what differs."""


class ScoringFailed(SnapsureError, RuntimeError):
    """Pieces of a scoring failed every time they were tried; the message names them."""


class StorageError(SnapsureError, OSError):
    """Something on disk is not as it should be, or could not be written."""

    def __str__(self) -> str:
        """Return the message alone; the system's error number is `errno`."""
        return self.strerror or super().__str__()


class CorruptFile(StorageError):
    """Bytes are missing or changed since they were written."""


class StoreLocked(StorageError):
    """Another process is writing to the same place."""


class UnsafeFile(StorageError):
    """Reading the file could run code that came with it, or fill the memory."""
