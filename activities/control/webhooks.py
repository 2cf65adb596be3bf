"""Calls addresses that users have named. A user must not reach by them what only the control plane
can reach.
"""

import asyncio
import json
import socket
import ssl
from functools import cached_property
from urllib.parse import urlsplit

import h11
import psutil
from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris.messages.notification import Notification
from iris.model.errors import InvalidValue
from iris.model.job.notifications import parse_webhook, refusal, shown_webhook

#: The longest call, in seconds. The time limit of the activity is longer.
TIMEOUT = 15.0
#: The most bytes of an answer's head that are read.
HEAD_BYTES = 16_384
#: Answers to which the same call can be accepted later: a timeout, a conflict with another call,
#: and too many calls.
_LATER = (408, 409, 425, 429)


class WebhookCalls:
    """Activities that call addresses.

    Args:
        local: whether the cluster is a local one, which may call its own machine.
    """

    def __init__(self, *, local: bool) -> None:
        self._local = local

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()  # reading the authorities takes 50 ms

    @activity.defn(name="call_webhook")
    async def call(self, notification: Notification) -> None:
        """Sends the message. It is sent at least once: the header `Idempotency-Key` is the same in
        each try.

        Raises:
            ApplicationError: the address does not accept it. It is tried again, unless it never can
                be accepted.
        """
        try:
            shown = shown_webhook(parse_webhook(notification.url))
        except InvalidValue as error:  # no client of Iris sends it
            raise ApplicationError(str(error), type="Invalid", non_retryable=True) from None
        try:
            async with asyncio.timeout(TIMEOUT):
                status = await self._post(notification, activity.info().workflow_run_id or "")
        except TimeoutError:
            raise ApplicationError(
                f"{shown} has not answered within {TIMEOUT:.0f} s", type="NoAnswer"
            ) from None
        except ssl.SSLCertVerificationError as error:
            remedy = (
                "the control plane's machine must trust its authority, as SSL_CERT_FILE or the"
                " system's own list says"
            )
            reason = f"its certificate is not accepted: {error.verify_message}; {remedy}"
            raise ApplicationError(f"{shown} cannot be called: {reason}", type="NoAnswer") from None
        except UnicodeError:  # of a label that is empty or too long
            raise ApplicationError(
                f"{shown} has no possible host name", type="Invalid", non_retryable=True
            ) from None
        except OSError as error:  # also the others of TLS, and those of names
            raise ApplicationError(
                f"{shown} cannot be called: {error.strerror or error}", type="NoAnswer"
            ) from None
        if not 200 <= status < 300:
            final = status < 500 and status not in _LATER
            raise ApplicationError(
                f"{shown} has answered HTTP {status}", type="Refused", non_retryable=final
            )

    async def _post(self, notification: Notification, key: str) -> int:
        """Returns the status of the answer. Redirections are not followed: they would lead to
        another machine.
        """
        url = urlsplit(notification.url)
        host, tls = url.hostname or "", url.scheme == "https"
        body = json.dumps(notification.body).encode()
        headers = {
            "Host": url.netloc,
            "User-Agent": "iris",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Idempotency-Key": key,
            "Connection": "close",
        }
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        target = f"{url.path or '/'}{'?' * bool(url.query)}{url.query}"
        request = http.send(
            h11.Request(method="POST", target=target, headers=list(headers.items()))
        )
        request += http.send(h11.Data(data=body)) + http.send(h11.EndOfMessage())
        reader, writer = await self._connect(host, url.port or (443 if tls else 80), tls=tls)
        try:
            writer.write(request)
            await writer.drain()
            while not isinstance(event := http.next_event(), h11.Response):
                if event is h11.NEED_DATA:
                    http.receive_data(await reader.read(HEAD_BYTES))
            return event.status_code
        except (
            h11.RemoteProtocolError
        ):  # its text quotes the answer, which a user may not be allowed to read
            raise OSError("its answer is not HTTP") from None
        finally:
            writer.close()

    async def _connect(
        self, host: str, port: int, *, tls: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to the first address of the host that accepts. TLS checks the name.

        The name is resolved once, so that it cannot stand for another machine in the call.

        Raises:
            ApplicationError: the control plane does not call this machine.
        """
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        own = frozenset(
            each.address.split("%")[0] for some in psutil.net_if_addrs().values() for each in some
        )
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for address in addresses:
            if why := refusal(address, own, local=self._local):
                raise ApplicationError(
                    f"{host} is not called: {why}", type="NotCalled", non_retryable=True
                )
        failed: OSError | None = None
        for address in addresses:
            try:
                return await asyncio.open_connection(
                    address,
                    port,
                    ssl=self._tls if tls else None,
                    server_hostname=host if tls else None,
                )
            except OSError as error:
                failed = failed or error
        raise failed or OSError("its name stands for no address")
