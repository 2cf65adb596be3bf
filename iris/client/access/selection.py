"""Selects the tokens of a connection, and renews them for as long as the connection is in use.

Connections import this module, and nothing else of identities if they send no tokens.
"""

import asyncio
import contextlib
import logging
import os
import time
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from iris.client import access
from iris.client.access.token_interface import Token, TokenSource
from iris.client.connect.paths import has_identity
from iris.model import names
from iris.model.errors import InvalidValue, IrisError, Rejected
from iris.model.ip_address import is_loopback

if TYPE_CHECKING:
    from temporalio.client import Client

logger = logging.getLogger(__name__)

#: How often a connection checks whether its token has to be renewed. The clock of the event loop
#: stands still while a machine sleeps, so one timer until the end of a token would come too late.
CHECK_INTERVAL = timedelta(seconds=20)


#: The token source that connections opened inside a `tokens_of` block use; None outside of such a
#: block.
_of_context: ContextVar[TokenSource | None] = ContextVar("_of_context", default=None)


@contextlib.contextmanager
def tokens_of(source: TokenSource | None) -> Iterator[None]:
    """Makes connections that are opened in the block send the tokens of this source. None changes
    nothing.
    """
    if source is None:
        yield
        return
    previous = _of_context.set(source)
    try:
        yield
    finally:
        _of_context.reset(previous)


def host_tokens(host_id: str, slice_key: str | None, delegation: str) -> TokenSource | None:
    """Returns the source of a host's tokens; None if the control plane has not named the key of its
    slice.

    Raises:
        ValueError: the key or the delegation is malformed.
    """
    if slice_key is None or not delegation:
        return None
    return access.token_sources.HostTokens(host_id, slice_key, delegation)


def slice_delegation(address: str, slice_id: str, public_key: str) -> str:
    """Returns the text with which this control plane names the key of a slice's hosts for the
    servers at the address. Empty if it has no identity for them: then they need none.

    Args:
        public_key: the slice's public key, in hexadecimal digits.

    Raises:
        InvalidValue: the identity cannot be used.
    """
    if not has_identity():
        return ""
    return access.token_sources.delegation(address, slice_id, bytes.fromhex(public_key))


def token_source(address: str) -> TokenSource | None:
    """Returns the source of the tokens for the service at this address; None if it gets none: this
    process has no identity, or one for other services.

    Raises:
        InvalidValue: the identity cannot be used, or `IRIS_USER` names somebody else.
    """
    if (source := _of_context.get()) is not None:
        return source
    of_job = os.environ.get(names.ENV_JOB_IDENTITY)
    if of_job and address == os.environ.get(names.ENV_ADDRESS, "").partition("/")[0]:
        return access.token_sources.JobTokens(of_job)
    command = os.environ.get(names.ENV_TOKEN_COMMAND)
    if not command and not has_identity():
        return None
    if command:
        return access.token_sources.of_command(command, address)
    found = access.token_sources.of_identity(address)
    user = os.environ.get(names.ENV_USER)
    if found is not None and user and user != found.name:
        raise InvalidValue(
            names.ENV_USER,
            user,
            f"is not the name of your identity, {found.name}",
            "unset it, or name another identity with IRIS_IDENTITY=FILE",
        )
    return found


async def sign_in(address: str, settings: dict[str, Any]) -> tuple[TokenSource, Token] | None:
    """Adds the first token for the service at this address to the arguments of `Client.connect`.
    Returns the source and the token, for `keep_signed_in`; None if the service gets none.

    Raises:
        Rejected: the connection would send the token over a network without TLS.
        InvalidValue, Unreachable: no token can be made.
    """
    source = token_source(address)
    if source is None:
        return None
    if is_loopback(address):
        settings.setdefault("tls", False)
    elif settings.get("tls", True) is False:
        raise Rejected(
            f"the token of {source.name or 'this user'} is not sent to {address} without TLS,"
            " because others in the network could use it; unset TEMPORAL_TLS=false"
        )
    token = await asyncio.to_thread(source.token)
    settings["api_key"] = token.text
    return source, token


def keep_signed_in(client: "Client", source: TokenSource, token: Token) -> None:
    """Renews the client's token for as long as the client and the event loop exist."""
    _Renewal(asyncio.get_running_loop(), client, source, token).wait()


class _Renewal:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: "Client",
        source: TokenSource,
        token: Token,
    ) -> None:
        self._loop = loop
        self._client = weakref.ref(client)
        self._source = source
        self._renew_at = token.renew_at

    def wait(self) -> None:
        # Timers, because a task would have to be cancelled before the loop is closed.
        self._loop.call_later(CHECK_INTERVAL.total_seconds(), self._check)

    def _check(self) -> None:
        if self._client() is None:
            return
        if time.time() < self._renew_at:
            self.wait()
            return
        with contextlib.suppress(RuntimeError):  # the program ends, and starts no threads any more
            self._loop.run_in_executor(None, self._source.token).add_done_callback(self._take)

    def _take(self, made: "asyncio.Future[Token]") -> None:
        if made.cancelled():
            return
        error, client = made.exception(), self._client()
        if isinstance(error, IrisError | OSError):
            logger.warning("the token cannot be renewed: %s; trying again", error)
        elif error is not None:
            logger.error("the token cannot be renewed; trying again", exc_info=error)
        elif client is not None:
            token = made.result()
            client.api_key, self._renew_at = token.text, token.renew_at
        del client  # the timer must not keep it alive
        self.wait()
