"""What runs: rows of data, one pass of a network, its embedding, its dropout."""

from snapsure.networks._forward import Forward as Forward
from snapsure.networks._forward import Sampling as Sampling
from snapsure.networks._forward import Snapshot as Snapshot
