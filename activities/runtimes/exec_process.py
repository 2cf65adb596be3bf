"""A command beside a program that is a process: with its environment, in its directory and cgroups."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import sys
import termios
from typing import Any

from iris.activities.runtimes import shim
from iris.activities.runtimes.base import CannotStart, HostUnable, Launch
from iris.activities.runtimes.commands import Tell, pump
from iris.execs import ExecRequest, Frame, Kind

#: What the host fails by when it cannot start a process at all.
FAULT = "exec"


async def _drop(_: Frame) -> None:
    """Nobody wants it any more."""


class ProcessCommand:
    """The command, below a shim of its own which ends all of it, also when this agent is killed."""

    def __init__(self, request: ExecRequest, launch: Launch) -> None:
        self._request = request
        self._env = {**launch.env, "TERM": request.term} if request.tty else launch.env
        order = {"argv": request.argv, "env": self._env, "cwd": launch.cwd, "cgroups": launch.cgroups, "tty": request.tty}
        self._order = json.dumps(order).encode() + b"\n"
        self._outputs: list[tuple[asyncio.StreamReader, Kind]] = []
        self._input: asyncio.StreamWriter | None = None
        self._terminal: int | None = None
        self._transports: list[asyncio.BaseTransport] = []

    async def start(self) -> None:
        mine, its = socket.socketpair()
        mine.setblocking(False)
        with its:
            try:
                await self._start_shim(its.fileno())
            except OSError as error:
                mine.close()
                self._close()
                raise HostUnable(f"no process could be started: {error}", FAULT) from None
        # Everything the shim says fits into one line each, but an environment may be large: hence no limit by lines here.
        self._answers, self._orders = await asyncio.open_connection(sock=mine)
        try:
            self._orders.write(self._order)
            started = await self._answer()
            if "pid" not in started:
                raise CannotStart(started.get("error", "its shim has ended"), started.get("status", 126))
        except BaseException:
            await self._end()
            raise

    async def run(self, tell: Tell) -> int:
        pumps = [asyncio.create_task(pump(reader, kind, tell)) for reader, kind in self._outputs]
        try:
            status = (await self._answer()).get("status", -signal.SIGKILL)
            await asyncio.gather(*pumps)  # nothing of the command is left that could hold their other ends
            return int(status)
        finally:
            for each in pumps:
                each.cancel()
            await self._end()

    async def feed(self, data: bytes) -> None:
        if self._input is not None:
            self._input.write(data)
            with contextlib.suppress(ConnectionError):  # it has closed its input: a pipe's reader may
                await self._input.drain()

    async def end_input(self) -> None:
        if self._terminal is not None:
            await self.feed(b"\x04")
        elif self._input is not None:
            self._input.close()

    async def resize(self, rows: int, columns: int) -> None:
        if self._terminal is not None:
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def signal(self, number: int) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):  # it has ended
            self._orders.write(bytes([number]))

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _start_shim(self, its: int) -> None:
        request = self._request
        ends: dict[str, Any]
        slave = None
        if request.tty:
            self._terminal, slave = pty.openpty()
            await self.resize(request.rows, request.columns)
            ends = {"stdin": slave, "stdout": slave, "stderr": slave}
        else:
            pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
            ends = {"stdin": pipe if request.stdin else nothing, "stdout": pipe, "stderr": pipe}
        try:
            self._shim = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-m", "iris.activities.runtimes.exec_shim", str(its)),
                # What a process carries in its environment, its leftovers are recognised by.
                env=self._env,
                start_new_session=True,
                pass_fds=(its,),
                **ends,
            )
        finally:
            if slave is not None:
                os.close(slave)
        if self._terminal is not None:
            self._outputs = [(await self._reader(os.dup(self._terminal)), Kind.OUT)]
            self._input = await self._writer(os.dup(self._terminal))
        else:
            assert self._shim.stdout is not None
            assert self._shim.stderr is not None
            self._outputs = [(self._shim.stdout, Kind.OUT), (self._shim.stderr, Kind.ERR)]
            self._input = self._shim.stdin

    async def _reader(self, descriptor: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        file = os.fdopen(descriptor, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
        self._transports.append(transport)
        return reader

    async def _writer(self, descriptor: int) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        file = os.fdopen(descriptor, "wb", buffering=0)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, file)
        self._transports.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, loop)

    async def _answer(self) -> dict[str, Any]:
        """The next thing the shim says; nothing, when it is gone."""
        line = await self._answers.readline()
        return dict(json.loads(line)) if line.endswith(b"\n") else {}

    async def _end(self) -> None:
        """Close everything; a shim that still waits for the agent ends by that, and its command with it."""
        self._orders.close()
        self._close()
        # Its end is seen only when all has been read, also by those who were held up.
        rest = asyncio.gather(*(pump(reader, kind, _drop) for reader, kind in self._outputs), self._shim.wait())
        with contextlib.suppress(TimeoutError):  # then something hangs in the kernel
            await asyncio.wait_for(rest, shim.SWEEP)

    def _close(self) -> None:
        for transport in self._transports:
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()  # what has not been read by now never will be
            else:
                transport.close()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None
