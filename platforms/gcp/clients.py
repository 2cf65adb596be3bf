"""Google's clients, and how they are called: in threads, each call with a deadline of its own, and none repeated by the client.

Compute's client has no other way than to block; with TPUs it is the same for the sake of one way to do it. Whoever needs a call
repeated says it again: Temporal does, and it heartbeats and remembers, which a retry inside a client does not.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.auth.credentials import AnonymousCredentials, Credentials
from google.cloud import compute_v1, tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from iris.platforms.gcp.errors import CALL_ERRORS, CallFailed, trouble_of
from iris.platforms.gcp.limits import Pace, Urgency
from iris.platforms.gcp.settings import GcpSettings

T = TypeVar("T")

#: Of one call, in seconds. A create waits for its turn, calls, and looks at what it has made: all of it within the minute that
#: the workflows give a platform.
DEADLINE = 15.0
#: Calls under way at the same time.
THREADS = 32
#: In an endpoint: plain, and without credentials.
_PLAIN = ("http://", "grpc://")


@dataclass(frozen=True)
class Clients:
    """Both APIs."""

    tpu: tpu_v2.TpuClient
    instances: compute_v1.InstancesClient
    #: Compute's own futures would ask Google's public address, whatever the endpoint.
    operations: compute_v1.ZoneOperationsClient


def connect(settings: GcpSettings, credentials: Credentials | None = None) -> Clients:
    """Clients for the endpoints of the settings.

    Args:
        credentials: None: those that the environment provides, unless the endpoint is a plain one.

    Raises:
        GoogleAuthError: the environment provides none.
    """
    compute = _options(settings.compute_endpoint, credentials)
    return Clients(
        tpu=_tpu(settings.tpu_endpoint, credentials),
        instances=compute_v1.InstancesClient(**compute),
        operations=compute_v1.ZoneOperationsClient(**compute),
    )


class Calls:
    """Google, one call at a time for each who asks."""

    def __init__(self, settings: GcpSettings, connect: Callable[[GcpSettings], Clients] = connect) -> None:
        self._settings = settings
        self._connect = connect
        self._clients: Clients | None = None
        self._connecting = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, "google")
        self._pace = Pace(settings.requests_per_minute, places=THREADS)

    async def make(self, urgency: Urgency, call: Callable[[Clients], T]) -> T:
        """The answer to one call. A create that is under way when nobody wants its answer any more ends first: what it makes must
        not come after what deletes it.

        Raises:
            CallFailed: it was refused, or not answered.
            RateLimited: it was not made: too many others wait.
        """
        await self._pace.turn(urgency)
        done = self._threads.submit(self._run, call)
        # Its thread is free then, which is not when nobody waits for it any more.
        done.add_done_callback(lambda _: self._pace.over())
        doing = asyncio.wrap_future(done)
        try:
            answer = await (asyncio.shield(doing) if urgency is Urgency.CREATE else doing)
        except asyncio.CancelledError:
            await asyncio.wait([doing])
            raise
        except CALL_ERRORS as error:
            trouble = trouble_of(error)
            if trouble.is_rate_limit:
                self._pace.complained(trouble.retry_after)
            elif trouble.is_away:
                self._pace.absent(trouble.retry_after)
            elif not trouble.is_no_answer:
                self._pace.answered()
            raise CallFailed(trouble) from error
        self._pace.answered()
        return answer

    def _run(self, call: Callable[[Clients], T]) -> T:
        with self._connecting:
            if self._clients is None:
                self._clients = self._connect(self._settings)
        return call(self._clients)


async def there(calls: Calls, call: Callable[[Clients], T]) -> T | None:
    """What a GET finds; None: there is nothing of that name.

    Raises:
        CallFailed: any other answer, or none.
    """
    try:
        return await calls.make(Urgency.LOOK, call)
    except CallFailed as error:
        if error.trouble.is_absence:
            return None
        raise


async def pages(calls: Calls, ask: Callable[[Clients, str], Any], most: int | None = None) -> AsyncIterator[Any]:
    """The pages of a list, one call each: the clients' own pagers call as they please, and pass over what a page says of itself.

    Args:
        ask: for the page with this token.
        most: so many at the most; None: all.

    Raises:
        CallFailed: one was refused, or not answered.
    """
    token, asked = "", 0
    while most is None or asked < most:

        def call(to: Clients, token: str = token) -> Any:
            return ask(to, token)

        page = await calls.make(Urgency.LOOK, call)
        yield page
        token, asked = page.next_page_token, asked + 1
        if not token:
            return


def _options(endpoint: str, credentials: Credentials | None) -> dict[str, Any]:
    plain = endpoint.startswith(_PLAIN)
    options: dict[str, Any] = {"client_options": {"api_endpoint": endpoint}} if endpoint else {}
    anonymous = AnonymousCredentials() if plain else None  # type: ignore[no-untyped-call]  # the package does not say its types
    return {**options, "credentials": credentials or anonymous}


def _tpu(endpoint: str, credentials: Credentials | None) -> tpu_v2.TpuClient:
    if not endpoint.startswith(_PLAIN):
        # Never over REST: that client cannot read the service's own operations, and fails after it has created.
        return tpu_v2.TpuClient(transport="grpc", **_options(endpoint, credentials))
    address = endpoint.partition("://")[2]
    channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
    return tpu_v2.TpuClient(transport=TpuGrpcTransport(host=address, channel=channel))
