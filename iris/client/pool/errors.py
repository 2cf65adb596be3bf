"""Errors of pools. Programs catch them, so this module imports no part of the pool."""

from concurrent.futures import BrokenExecutor

from iris.model.errors import IrisError, first_line


class PoolBroken(IrisError, BrokenExecutor):
    """The pool has no workers and gets none: their job has failed or was cancelled. The message
    says why.
    """

    @classmethod
    def of(cls, error: Exception) -> IrisError:
        """Returns an error of Iris as it is; any other one as the cause of one that a program
        expects.
        """
        if isinstance(error, IrisError):
            return error
        broken = cls(
            f"the workers of the pool are lost: {type(error).__name__}: {first_line(error)}"
        )
        broken.__cause__ = error
        return broken


class PoolClosed(IrisError, RuntimeError):
    """The pool takes no calls any more: it was shut down, or its client was closed, or this process
    was forked from its own. A `RuntimeError`, as that of every executor.
    """


class CallLost(IrisError):
    """The call ended its process each time that it was run, its request was cancelled in Temporal,
    or the store failed.
    """
