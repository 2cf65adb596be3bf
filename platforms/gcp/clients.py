"""Connects Google's clients and calls them in threads. Each call has its own deadline, and the
clients retry nothing.

Compute's client can only block. The TPU client is used in the same way, so that there is one way to
make a call. Temporal makes the retries: it heartbeats and keeps its state; a retry inside a client
does neither.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.auth.credentials import AnonymousCredentials, Credentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from iris.metrics.declared import GOOGLE_CALLS
from iris.platforms.base import RateLimited
from iris.platforms.gcp.errors import CALL_ERRORS, ApiError, CallFailed, api_error_of
from iris.platforms.gcp.lean_compute import InstancesClient, ZoneOperationsClient
from iris.platforms.gcp.rate_limiter import RateLimiter, Urgency
from iris.platforms.gcp.settings import GcpSettings

T = TypeVar("T")

#: The deadline of one call, in seconds. `Platform.create_slice` waits for the rate limiter (at most
#: `MAX_WAIT_S`), makes the create call and reads the result. These three times together must be
#: less than the 60 s that the workflows allow for a platform call (`PLATFORM_CALL`).
DEADLINE = 15.0
#: The maximum number of calls to Google's APIs that run at the same time, each in a thread of its
#: own.
THREADS = 32
#: The beginnings of the URLs of endpoints that use neither encryption nor credentials.
_PLAIN = ("http://", "grpc://")


@dataclass(frozen=True)
class Clients:
    """The clients of the TPU API and of the Compute API."""

    tpu: tpu_v2.TpuClient
    instances: InstancesClient
    #: The client for operations of Compute. Compute's own futures always call Google's public
    #: address, so they cannot be used with another endpoint.
    operations: ZoneOperationsClient


def connect(settings: GcpSettings, credentials: Credentials | None = None) -> Clients:
    """Creates clients for the endpoints of the settings.

    Args:
        credentials: None: the environment's credentials; a plain endpoint gets none.

    Raises:
        GoogleAuthError: the environment provides no credentials.
    """
    compute = _options(settings.compute_endpoint, credentials)
    return Clients(
        tpu=_tpu(settings.tpu_endpoint, credentials),
        instances=InstancesClient(**compute),
        operations=ZoneOperationsClient(**compute),
    )


class Calls:
    """Makes calls to Google in a thread pool, within the limits of a `RateLimiter`."""

    def __init__(
        self, settings: GcpSettings, connect: Callable[[GcpSettings], Clients] = connect
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._clients: Clients | None = None
        self._connecting = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, "google")
        self._limiter = RateLimiter(settings.requests_per_minute, slots=THREADS)

    async def make(self, urgency: Urgency, call: Callable[[Clients], T]) -> T:
        """Makes one call and returns its answer.

        If the caller of a create is cancelled, this method first waits for the end of the call.
        Otherwise the create could take effect after the delete that follows it.

        Raises:
            CallFailed: Google refused the call or did not answer.
            RateLimited: the call was not made, because too many other calls wait.
        """
        try:
            await self._limiter.acquire(urgency)
        except RateLimited:
            GOOGLE_CALLS.add(urgency.name.lower(), "not_sent")
            raise
        done = self._threads.submit(self._run, call)
        # A cancelled caller does not free the thread; only the end of the call does.
        done.add_done_callback(lambda _: self._limiter.release())
        doing = asyncio.wrap_future(done)
        try:
            answer = await (asyncio.shield(doing) if urgency is Urgency.CREATE else doing)
        except asyncio.CancelledError:
            await asyncio.wait([doing])
            raise
        except CALL_ERRORS as error:
            api_error = api_error_of(error)
            GOOGLE_CALLS.add(urgency.name.lower(), _answer(api_error))
            if api_error.is_rate_limit:
                self._limiter.report_rate_limit(api_error.retry_after)
            elif api_error.is_unavailable:
                self._limiter.report_unavailable(api_error.retry_after)
            elif not api_error.is_no_answer:
                self._limiter.report_answer()
            raise CallFailed(api_error) from error
        self._limiter.report_answer()
        GOOGLE_CALLS.add(urgency.name.lower(), "ok")
        return answer

    def _run(self, call: Callable[[Clients], T]) -> T:
        with self._connecting:
            if self._clients is None:
                self._clients = self._connect(self._settings)
        return call(self._clients)


def _answer(error: ApiError) -> str:
    """Returns the kind of an answer, for the metrics."""
    if error.is_absence:
        return "not_found"
    if error.is_rate_limit:
        return "rate_limited"
    return "no_answer" if error.is_no_answer else "refused"


async def get_or_none(calls: Calls, call: Callable[[Clients], T]) -> T | None:
    """Makes a GET call and returns the resource, or None if there is no resource of that name.

    Raises:
        CallFailed: Google gave another error, or no answer.
    """
    try:
        return await calls.make(Urgency.READ, call)
    except CallFailed as error:
        if error.api_error.is_absence:
            return None
        raise


async def pages(
    calls: Calls, ask: Callable[[Clients, str], Any], most: int | None = None
) -> AsyncIterator[Any]:
    """Yields the pages of a list, one call each.

    The clients' own pagers make calls outside the rate limiter, and drop the fields of a page other
    than its items.

    Args:
        ask: requests the page with this token.
        most: the maximum number of pages; None: all.

    Raises:
        CallFailed: Google refused a call or did not answer.
    """
    token, read = "", 0
    while most is None or read < most:

        def call(to: Clients, token: str = token) -> Any:
            return ask(to, token)

        page = await calls.make(Urgency.READ, call)
        yield page
        token, read = page.next_page_token, read + 1
        if not token:
            return


def _options(endpoint: str, credentials: Credentials | None) -> dict[str, Any]:
    plain = endpoint.startswith(_PLAIN)
    options: dict[str, Any] = {"client_options": {"api_endpoint": endpoint}} if endpoint else {}
    # google.auth has no types.
    anonymous = AnonymousCredentials() if plain else None  # type: ignore[no-untyped-call]
    return {**options, "credentials": credentials or anonymous}


def _tpu(endpoint: str, credentials: Credentials | None) -> tpu_v2.TpuClient:
    if not endpoint.startswith(_PLAIN):
        # Never REST: the REST client cannot parse the service's operations, so it fails after the
        # create took effect.
        return tpu_v2.TpuClient(transport="grpc", **_options(endpoint, credentials))
    address = endpoint.partition("://")[2]
    channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
    return tpu_v2.TpuClient(transport=TpuGrpcTransport(host=address, channel=channel))
