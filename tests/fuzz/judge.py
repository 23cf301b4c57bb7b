"""How an outcome is judged: the reference's number, or a sentence of ours; never anything else."""

import math
from fractions import Fraction

from snapsure.errors import SnapsureError


class Wrong(AssertionError):
    """Another number, or a refusal of what is in order."""


def outcome(call, *, must):
    """What came out; None for a refusal, which must not be where all is in order."""
    try:
        return call()
    except SnapsureError as refusal:
        if must:
            raise Wrong(f"refused: {refusal}") from refusal
        if "got" not in str(refusal):
            raise Wrong(f"no sentence: {refusal}") from refusal
        return None


def taken(call, *, fine, plain):
    """What came out of a call that takes what is fine; it may refuse it where it is not plain."""
    found = outcome(call, must=plain and fine)
    if found is not None and not fine:
        raise Wrong(f"took what is not in order, and got {found}")
    return found


def near(ours, exact, *, size=1.0, rel=1e-9):
    """Refuse a number that is off by more than rounding, beside what was added up."""
    if exact is None:
        raise Wrong(f"got {ours} where nothing can be known")
    bound = rel * max(abs(float(exact)), abs(float(size))) + 1e-322  # the last bits that there are
    if not (math.isfinite(ours) and abs(Fraction(ours) - Fraction(exact)) <= Fraction(bound)):
        raise Wrong(f"got {ours}, the reference is {float(exact)}")


def shape_of(exact):
    """The axes of nested lists; None where there are none, or rows of different lengths."""
    if not isinstance(exact, list):
        return None if exact is None else ()
    inner = {shape_of(each) for each in exact}
    return (len(exact), *inner.pop()) if len(inner) == 1 and None not in inner else None


def column(exact, n):
    """Whether it is n numbers."""
    return shape_of(exact) == (n,)
