"""Implements `forward_ports`, which connects a client to ports on this host through the store
(`iris port-forward`).

Like `exec_task`, the activity is standalone, and ends with the attempt, with its client, and when
it is cancelled. Tasks and their containers use the host's network, so the agent itself connects to
the addresses on which a program can listen.
"""

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Callable, Mapping
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris.activities.host.sessions.relay import Relay, Streams, this_machine
from iris.activities.host.sessions.sessions import (
    CLIENT_GONE,
    HUNG_UP,
    SILENCE,
    AttemptSource,
    beat,
    find,
    is_abandoned,
    needed_no_more,
    runs_still,
    store_fails,
)
from iris.activities.host.sessions.store_stream import StoreStream
from iris.messages.exec import CANNOT, Frame, FrameKind
from iris.messages.port_forward import (
    MAX_CONNECTIONS,
    ForwardEnd,
    ForwardReady,
    ForwardRequest,
    connection_frame,
    parse,
)
from iris.model import names
from iris.storage.object_store import STORE_ERRORS, Store

logger = logging.getLogger(__name__)

#: The time limit for writing the last data for the client to the store, after the session has
#: ended.
LAST_CHUNKS = timedelta(seconds=10)


class PortForwards:
    """Forwards connections from clients to the tasks of one host.

    Args:
        silence: a client that has sent nothing for this long counts as gone.
    """

    def __init__(self, store: Store, tasks: AttemptSource, silence: timedelta = SILENCE) -> None:
        self._store = store
        self._tasks = tasks
        self._silence = silence

    @activity.defn
    async def forward_ports(self, request: ForwardRequest) -> ForwardEnd:
        """Connects the client to the ports until the session ends. Returns the reason."""
        running = find(self._tasks, request.job, request.index)
        ports = tuple(_number(port, running.launch.env) for port in request.ports)
        logger.info(
            "ports %s are forwarded beside attempt %s", ", ".join(map(str, ports)), running.key
        )
        is_running = runs_still(self._tasks, request.job, request.index, running.key)
        stream = StoreStream(self._store, request.folder, writes="out")
        addresses = dict.fromkeys(
            ["127.0.0.1", "::1", running.launch.env.get(names.ENV_HOST_ADDRESS, "127.0.0.1")]
        )
        return await _Session(stream, ports, [*addresses], is_running, self._silence).run()


class _Session:
    def __init__(
        self,
        stream: StoreStream,
        ports: tuple[int, ...],
        addresses: list[str],
        is_running: Callable[[], bool],
        silence: timedelta,
    ) -> None:
        self._stream = stream
        self._ports = ports
        self._addresses = addresses
        self._is_running = is_running
        self._silence = silence
        self._relay = Relay(stream.send_in_turn, stream.send)

    async def run(self) -> ForwardEnd:
        writing = asyncio.create_task(self._stream.write())
        beating = asyncio.create_task(beat())
        watching = needed_no_more(self._is_running, self._stream, self._silence)
        enders = [
            asyncio.create_task(each) for each in (self._listen(), watching, store_fails(writing))
        ]
        self._stream.send(
            Frame(
                FrameKind.READY,
                ForwardReady(ports=self._ports, machine=this_machine()).model_dump_json().encode(),
            )
        )
        reason = ""
        try:
            await asyncio.wait(enders, return_when=asyncio.FIRST_COMPLETED)
            reason = next(each.result() for each in enders if each.done())
            await self._relay.close()
            self._stream.finish()
            with contextlib.suppress(TimeoutError, *STORE_ERRORS):
                await asyncio.wait_for(writing, LAST_CHUNKS.total_seconds())
            return ForwardEnd(reason=reason, chunks=self._stream.sent)
        finally:
            await self._relay.close()
            for each in (writing, beating, *enders):
                each.cancel()
            await asyncio.gather(writing, beating, *enders, return_exceptions=True)
            if reason == CLIENT_GONE or is_abandoned():
                await self._stream.remove()

    async def _listen(self) -> str:
        """Carries out the client's frames. Returns when the client has disconnected or its frames
        cannot be read.
        """
        try:
            while (frames := await self._stream.receive()) is not None:
                for frame in frames:
                    match frame.kind:
                        case FrameKind.HANG_UP:
                            return HUNG_UP
                        case FrameKind.CONNECT:
                            self._connect(frame)
                        case _:
                            self._relay.take(frame)
                self._stream.acknowledge(self._stream.received)
        except (ValueError, *STORE_ERRORS) as error:
            logger.warning("connections to ports %s: %s", self._ports, error)
            return f"what the client sent could not be read: {error}"
        return HUNG_UP

    def _connect(self, frame: Frame) -> None:
        number, data = parse(frame)
        port = int(data)
        if port not in self._ports:
            raise ValueError(f"this session does not forward port {port}")
        if len(self._relay) >= MAX_CONNECTIONS:
            reason = (
                f"{MAX_CONNECTIONS} connections are open, which is the most that one port forward"
                " carries at a time"
            )
            self._stream.send(connection_frame(FrameKind.RESET, number, reason.encode()))
        else:
            self._relay.add(number, lambda: _open(self._addresses, port))


async def _open(addresses: list[str], port: int) -> Streams:
    """Connects to the first of the addresses on which a program listens. Raises OSError if no
    program listens.
    """
    failed: OSError | None = None
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port)
        except OSError as error:
            failed = failed or error
    assert failed is not None
    if failed.errno == errno.ECONNREFUSED:
        raise OSError(f"no program listens on port {port}")
    raise OSError(
        f"port {port} cannot be reached: {os.strerror(failed.errno) if failed.errno else failed}"
    )


def _number(port: str, env: Mapping[str, str]) -> int:
    """Returns the number of a port that a client names by its number or its name. Raises
    `ApplicationError` if the job has no port of this name.
    """
    if port.isdecimal():
        return int(port)
    number = env.get(names.env_port(port))
    if number is None:
        remedy = "name it by its number, or reserve one with `iris submit --port NAME`"
        raise ApplicationError(
            f"the job has no port named {port!r}; {remedy}", type=CANNOT, non_retryable=True
        )
    return int(number)
