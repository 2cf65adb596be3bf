"""A token of a connection, and the interface of what makes tokens."""

from typing import NamedTuple, Protocol


class Token(NamedTuple):
    """A token for the Temporal service, and the time to replace it, in seconds since 1970."""

    text: str
    renew_at: float


class TokenSource(Protocol):
    """Makes the tokens that identify this process to one Temporal service."""

    @property
    def name(self) -> str:
        """Who the tokens are of; empty if only the service knows."""
        ...

    def token(self) -> Token:
        """Returns a new token. May block for seconds.

        Raises:
            InvalidValue, Unreachable: no token can be made now.
        """
        ...
