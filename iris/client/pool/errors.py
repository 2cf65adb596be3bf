"""How a pool's calls fail without the function having raised anything."""

from concurrent.futures import BrokenExecutor

from iris.model.errors import IrisError


class PoolBroken(IrisError, BrokenExecutor):
    """The pool has no workers and gets none: their job has failed or was cancelled. The message says why."""


class CallLost(IrisError):
    """The call ended its process each time that it was run, or its request was cancelled in Temporal."""
