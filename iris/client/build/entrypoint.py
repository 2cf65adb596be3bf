"""The function or the program of a job with its arguments, as one value."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, overload

from typing_extensions import TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", default=Any)


@dataclass(frozen=True)
class Entrypoint(Generic[T]):
    """The work that a job runs: a function with its arguments, or a program with its arguments.

    One `Entrypoint` can be submitted several times.

    Create it with `from_callable` or `from_command`.

    Attributes:
        work: the function, or the program and its arguments.
        args: the arguments of the function.
        kwargs: the keyword arguments of the function.
    """

    work: Callable[..., T] | str | Sequence[str]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @overload
    @staticmethod
    def from_callable(
        function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Entrypoint[R]": ...

    @overload
    @staticmethod
    def from_callable(
        function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Entrypoint[R]": ...

    @staticmethod
    def from_callable(
        function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Entrypoint[Any]":
        """Returns the call of a function.

        Args:
            function: the function that the job calls.
            args: the arguments. Type checkers compare them with the function's parameters.
            kwargs: the keyword arguments. Type checkers compare them, too.
        """
        return Entrypoint(function, args, kwargs)

    @staticmethod
    def from_command(*words: str) -> "Entrypoint[None]":
        """Returns a program with its arguments: `from_command("python", "train.py")`.

        Args:
            words: the program and each of its arguments.
        """
        return Entrypoint(words)
