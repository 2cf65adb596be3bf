"""What a job runs, with its arguments, as a value that programs pass around and submit more than
once.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, overload

from typing_extensions import TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", default=Any)


@dataclass(frozen=True)
class Entrypoint(Generic[T]):
    """A call of a function, or a program with its arguments. `from_callable` and `from_command`
    make one.

    Attributes:
        work: the function, or the program and its arguments.
        args: the arguments of the function.
        kwargs: its keyword arguments.
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
            function: which the job calls.
            args: its arguments, which type checkers compare with its parameters.
            kwargs: its keyword arguments, likewise.
        """
        return Entrypoint(function, args, kwargs)

    @staticmethod
    def from_command(*words: str) -> "Entrypoint[None]":
        """Returns a program with its arguments: `from_command("python", "train.py")`.

        Args:
            words: the program, and each argument.
        """
        return Entrypoint(words)
