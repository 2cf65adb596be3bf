"""The network between a process and the Temporal service: a proxy that passes, delays, keeps and
cuts.

A proxy of TCP needs no rights and no kernel modules, so a run is the same everywhere. Bytes that a
link keeps arrive when it opens again, as after lost packets; a cut link ends its connections and
accepts no others.
"""

import asyncio
import threading
from collections.abc import Sequence
from enum import StrEnum


class Mode(StrEnum):
    """What a link does."""

    OPEN = "open"
    #: Nothing arrives in either direction, and no connection ends.
    SILENT = "silent"
    #: What the process sends arrives; the answers do not.
    DEAF = "deaf"
    #: The answers arrive; what the process sends does not.
    MUTE = "mute"
    #: Connections end, and new ones are ended at once.
    CUT = "cut"


#: The modes in which bytes pass to the service, and from it.
UP, DOWN = {Mode.OPEN, Mode.DEAF}, {Mode.OPEN, Mode.MUTE}


class Link:
    """A port of this machine that leads to the service, by the first of its servers that accepts.

    Args:
        upstreams: the ports of the service's servers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, upstreams: Sequence[int]) -> None:
        self._loop, self._upstreams = loop, tuple(upstreams)
        self._mode, self._delay = Mode.OPEN, 0.0
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), loop).result()

    def turn(self, mode: Mode = Mode.OPEN, delay: float = 0.0) -> None:
        """From now on.

        Args:
            delay: of everything that passes, in seconds.
        """
        self._loop.call_soon_threadsafe(self._turn, mode, delay)

    def _turn(self, mode: Mode, delay: float) -> None:
        self._mode, self._delay = mode, delay
        if mode is Mode.CUT:
            for writer in self._writers:
                writer.transport.abort()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = server
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode is Mode.CUT or (service := await self._connect()) is None:
            writer.transport.abort()
            return
        ends = (writer, service[1])
        self._writers.update(ends)
        pumps = (self._pump(reader, ends[1], UP), self._pump(service[0], ends[0], DOWN))
        try:
            await asyncio.wait(
                [asyncio.ensure_future(pump) for pump in pumps],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:  # by `close`; asyncio would log it as an error
            return
        finally:
            self._writers.difference_update(ends)
            for end in ends:
                end.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for port in self._upstreams:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
        return None

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: set[Mode]
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                await asyncio.sleep(self._delay)
                while self._mode not in passes:
                    await self._changed.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            return


class Network:
    """All links of a run, in a thread of their own."""

    def __init__(self, upstreams: Sequence[int]) -> None:
        self._upstreams = upstreams
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def link(self) -> Link:
        return Link(self._loop, self._upstreams)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
