"""What snapsure raises.

Every refusal says the argument, what is required, what came and where, and the way out::

    SnapsureError
    └── InvalidInput (also a ValueError)    an argument breaks its rule

Catch `SnapsureError` for everything, or the built-in twin where this library is not known.
"""


class SnapsureError(Exception):
    """The root of all that snapsure raises on purpose."""


class InvalidInput(SnapsureError, ValueError):
    """An argument breaks its rule; the message names both."""
