"""Runs a command beside a program that is a process, with the program's environment, directory and
cgroups.
"""

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
from datetime import timedelta
from typing import Any

from iris.activities.host.runtimes.base import HostFault, JobFault, Launch
from iris.activities.host.runtimes.commands import Tell, pump
from iris.activities.host.runtimes.shim import shim
from iris.messages.exec import ExecRequest, Frame, FrameKind
from iris.model import names

#: The name of the fault if the host cannot start any process.
FAULT = "exec"


async def _drop(_: Frame) -> None:
    """Discards the output."""


class ProcessCommand:
    """Implements `Command` by a process on the host. The command has a shim of its own, which ends
    all processes of the command when the agent closes its connection to the shim or is killed.

    Args:
        grace: the time that processes have to end after the command's first process has ended.
    """

    def __init__(
        self, request: ExecRequest, launch: Launch, grace: timedelta = timedelta(0)
    ) -> None:
        self._request = request
        self._env = {**launch.env, "TERM": request.term} if request.tty else launch.env
        order = {
            "argv": request.argv,
            "env": self._env,
            "cwd": launch.cwd,
            "cgroups": launch.cgroups,
            "tty": request.tty,
        }
        order |= {
            "umask": launch.umask,
            "uid": launch.uid,
            "groups": launch.groups,
            "grace": grace.total_seconds(),
        }
        self._order = json.dumps(order).encode() + b"\n"
        self._outputs: list[tuple[asyncio.StreamReader, FrameKind]] = []
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
                raise HostFault(f"no process could be started: {error}", FAULT) from None
        # The shim's answers are short lines. The order may be a long line, because it contains an
        # environment; the reader's limit does not concern it.
        self._answers, self._orders = await asyncio.open_connection(sock=mine)
        try:
            self._orders.write(self._order)
            started = await self._answer()
            if "pid" not in started:
                raise JobFault(
                    started.get(
                        "error",
                        "the helper process that runs the command on the host ended unexpectedly",
                    ),
                    started.get("status", 126),
                )
        except BaseException:
            await self._end()
            raise

    async def run(self, tell: Tell) -> int:
        pumps = [asyncio.create_task(pump(reader, kind, tell)) for reader, kind in self._outputs]
        try:
            status = (await self._answer()).get("status", -signal.SIGKILL)
            # No process of the command is left, so the other ends of the pipes are closed.
            await asyncio.gather(*pumps)
            return int(status)
        finally:
            for each in pumps:
                each.cancel()
            await self._end()

    async def feed(self, data: bytes) -> None:
        if self._input is not None:
            self._input.write(data)
            # The command may have closed its input.
            with contextlib.suppress(ConnectionError):
                await self._input.drain()

    async def end_input(self) -> None:
        if self._terminal is not None:
            await self.feed(b"\x04")
        elif self._input is not None:
            self._input.close()

    async def resize(self, rows: int, columns: int) -> None:
        if self._terminal is not None:
            fcntl.ioctl(
                self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0)
            )

    async def signal(self, number: int) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):  # the command ended
            self._orders.write(bytes([number]))

    # -- inside ------------------------------------------------------------------------------------

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
                *(sys.executable, "-I", "-m", "iris.activities.host.runtimes.shim.exec", str(its)),
                # These variables identify processes that are left behind. Others are left out,
                # because with some variables the job could run its code in the shim.
                env={
                    name: self._env[name]
                    for name in (names.ENV_ATTEMPT_KEY, names.ENV_HOST_ID)
                    if name in self._env
                },
                start_new_session=True,
                pass_fds=(its,),
                **ends,
            )
        finally:
            if slave is not None:
                os.close(slave)
        if self._terminal is not None:
            self._outputs = [(await self._reader(os.dup(self._terminal)), FrameKind.OUT)]
            self._input = await self._writer(os.dup(self._terminal))
        else:
            assert self._shim.stdout is not None
            assert self._shim.stderr is not None
            self._outputs = [(self._shim.stdout, FrameKind.OUT), (self._shim.stderr, FrameKind.ERR)]
            self._input = self._shim.stdin

    async def _reader(self, descriptor: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        file = os.fdopen(descriptor, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        self._transports.append(transport)
        return reader

    async def _writer(self, descriptor: int) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        file = os.fdopen(descriptor, "wb", buffering=0)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, file)
        self._transports.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, loop)

    async def _answer(self) -> dict[str, Any]:
        """Returns the shim's next answer; empty if the shim is gone."""
        line = await self._answers.readline()
        return dict(json.loads(line)) if line.endswith(b"\n") else {}

    async def _end(self) -> None:
        """Closes all connections. If the shim still runs, it then ends itself and the command."""
        self._orders.close()
        self._close()
        # asyncio reports the end of the shim only after all output was read, including that of
        # readers that flow control has paused.
        rest = asyncio.gather(
            *(pump(reader, kind, _drop) for reader, kind in self._outputs), self._shim.wait()
        )
        with contextlib.suppress(TimeoutError):  # on a timeout, a process hangs in the kernel
            await asyncio.wait_for(rest, shim.SWEEP)

    def _close(self) -> None:
        for transport in self._transports:
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()  # the command does not read the rest
            else:
                transport.close()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None
