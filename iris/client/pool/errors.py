"""Errors of pools. Programs catch them, so this module imports no part of the pool."""

from concurrent.futures import BrokenExecutor

from iris.model.errors import IrisError, first_line


class PoolBroken(IrisError, BrokenExecutor):
    """The pool has no workers and gets no new ones, because their job has failed or was cancelled.
    The message has the reason.
    """

    @classmethod
    def of(cls, error: Exception) -> IrisError:
        """Returns an error of Iris as it is. Returns a `PoolBroken` with any other error as its
        cause.
        """
        if isinstance(error, IrisError):
            return error
        broken = cls(
            f"the workers of the pool are lost: {type(error).__name__}: {first_line(error)}"
        )
        broken.__cause__ = error
        return broken


class PoolClosed(IrisError, RuntimeError):
    """The pool accepts no more calls: it was shut down, its client was closed, or this process was
    forked from the pool's process. It is a `RuntimeError`, as for every executor.
    """


class CallLost(IrisError):
    """A call of a pool is lost: its process ended each time that the call ran, the Temporal
    activity that runs the call failed or was cancelled, or the object store failed.
    """
