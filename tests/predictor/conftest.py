"""A network that is ready to deploy."""

from tests.support.deployed import deployed

__all__ = ["deployed"]
