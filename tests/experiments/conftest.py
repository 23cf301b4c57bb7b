"""Small data sets in their true layouts."""

from tests.support.datasets import cache, cifar

__all__ = ["cache", "cifar"]
