"""Calls webhooks that users have named. A user must not use them to reach addresses that only the
control plane can reach.
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

#: The time limit of one call, in seconds. The time limit of the activity is longer.
TIMEOUT = 15.0
#: The maximum number of bytes of a webhook's answer that are read: the status line and the headers.
HEAD_BYTES = 16_384
#: The HTTP statuses after which the same call may be accepted later: a timeout, a conflict with
#: another call, and too many calls.
_LATER = (408, 409, 425, 429)


class WebhookCalls:
    """The activity that calls a webhook.

    Args:
        local: whether the cluster is a local one, which may call its own machine.
    """

    def __init__(self, *, local: bool) -> None:
        self._local = local

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()  # reading the authorities takes 50 ms

    @activity.defn
    async def call_webhook(self, notification: Notification) -> None:
        """Sends the message at least once. The header `Idempotency-Key` is the same in each try.

        Raises:
            ApplicationError: the webhook does not accept the message. The service tries again,
            unless
                the error is final.
        """
        try:
            shown = shown_webhook(parse_webhook(notification.url))
        except InvalidValue as error:  # clients of Iris check the URL before they send it
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
        except UnicodeError:  # a label of the host name is empty or too long
            raise ApplicationError(
                f"{shown} has an invalid host name", type="Invalid", non_retryable=True
            ) from None
        except OSError as error:  # includes other errors of TLS, and errors of name resolution
            raise ApplicationError(
                f"{shown} cannot be called: {error.strerror or error}", type="NoAnswer"
            ) from None
        if not 200 <= status < 300:
            final = status < 500 and status not in _LATER
            raise ApplicationError(
                f"{shown} has answered HTTP {status}", type="Refused", non_retryable=final
            )

    async def _post(self, notification: Notification, key: str) -> int:
        """Returns the status of the answer. Redirections are not followed, because they may lead to
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
        except h11.RemoteProtocolError:
            # The error's text quotes the answer, which the user may not be allowed to read.
            raise OSError("its answer is not HTTP") from None
        finally:
            writer.close()

    async def _connect(
        self, host: str, port: int, *, tls: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to the first address of the host that accepts the connection. TLS checks the
        name.

        The name is resolved only once, so that the checked address is the one that is called.
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
        raise failed or OSError("its host name has no address")
