"""Runs a command in the container of a program, through the engine, as `docker exec` does."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil

from iris.activities.host.runtimes.base import HostFault, JobFault, Launch
from iris.activities.host.runtimes.commands import BLOCK, Tell, pump
from iris.activities.host.runtimes.container.programs import fault_beside
from iris.messages.exec import ExecRequest, Frame, FrameKind

#: The name of the fault if the container engine fails.
FAULT = "docker"
#: The time in which the engine must report the exit code after the command has closed its output,
#: in seconds.
EXIT_CODE_TIMEOUT_S = 5.0
_STREAMS = {1: FrameKind.OUT, 2: FrameKind.ERR}


class ContainerCommand:
    """Implements `Command` in a container. The environment, directory and limits are the
    container's own.

    The engine does not end the processes of a command, and reports only the first of them. So this
    class finds the others among the host's processes and ends them.

    Args:
        grace: the time that processes have to end after the command's first process has ended.
    """

    def __init__(
        self, request: ExecRequest, launch: Launch, grace: timedelta = timedelta(0)
    ) -> None:
        self._request = request
        self._grace = grace.total_seconds()
        self._container = launch.container
        self._socket = launch.docker_socket.removeprefix("unix://")
        self._id = ""

    async def start(self) -> None:
        request = self._request
        status, made = await self._call(
            "POST",
            f"/containers/{self._container}/exec",
            {
                "AttachStdin": request.stdin,
                "AttachStdout": True,
                "AttachStderr": True,
                "Tty": request.tty,
                "Cmd": list(request.argv),
                "Env": [f"TERM={request.term}"] if request.tty else [],
            },
        )
        if status == 404 or status == 409:
            raise JobFault(f"the task's container does not run: {made.get('message', status)}", 126)
        if status != 201:
            raise HostFault(
                f"the container engine did not run the command: {made.get('message', status)}",
                FAULT,
            )
        self._id = made["Id"]
        if fault := await self._fault():
            raise JobFault(*fault)
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(self._socket)
            how = {"Detach": False, "Tty": request.tty}
            self._writer.write(
                _request(
                    "POST",
                    f"/exec/{self._id}/start",
                    how,
                    "Connection: Upgrade\r\nUpgrade: tcp\r\n",
                )
            )
            status = _status(await self._reader.readuntil(b"\r\n\r\n"))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise HostFault(f"the container engine closed the connection: {error}", FAULT) from None
        if status not in (101, 200):
            output = (await self._reader.read(BLOCK)).decode(errors="replace")
            self._writer.close()
            raise JobFault(f"the command could not be started in the container: {output}", 126)
        await self.resize(request.rows, request.columns)

    async def run(self, tell: Tell) -> int:
        try:
            if self._request.tty:
                await pump(self._reader, FrameKind.OUT, tell)
            else:
                await self._demultiplex(tell)
            code = await self._exit_code()
            await self._end_rest()
            return code
        except asyncio.CancelledError:
            await asyncio.shield(self.signal(signal.SIGKILL))
            raise
        finally:
            self._writer.close()

    async def feed(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def end_input(self) -> None:
        if self._request.tty:
            await self.feed(b"\x04")
        else:
            with contextlib.suppress(OSError):
                self._writer.write_eof()

    async def resize(self, rows: int, columns: int) -> None:
        # The engine refuses this before the start and after the end. The size does not matter then.
        if self._request.tty:
            await self._call(
                "POST", f"/exec/{self._id}/resize?{urlencode({'h': rows, 'w': columns})}"
            )

    async def signal(self, number: int) -> None:
        """Sends the signal directly to the command's processes, if this agent may do that. The
        engine cannot send a signal to a command.
        """
        with contextlib.suppress(HostFault):
            if not (pid := (await self._inspect()).get("Pid")):
                return
            everything = await asyncio.to_thread(self._processes, pid)
            if number == signal.SIGKILL:
                _send(number, everything)
            elif pid in everything and os.getpgid(pid) == pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, number)
            else:
                _send(number, everything)

    # -- inside ------------------------------------------------------------------------------------

    async def _demultiplex(self, tell: Tell) -> None:
        """Reads the output of a command without a terminal. Before each block, there is a head with
        the number of the stream and the length of the block.
        """
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await self._reader.readexactly(8)
                left, kind = int.from_bytes(head[4:], "big"), _STREAMS.get(head[0], FrameKind.OUT)
                while left:
                    data = await self._reader.readexactly(min(left, BLOCK))
                    left -= len(data)
                    await tell(Frame(kind, data))

    async def _exit_code(self) -> int:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_CODE_TIMEOUT_S):
                while True:
                    state = await self._inspect()
                    if not state.get("Running") and state.get("ExitCode") is not None:
                        return int(state["ExitCode"])
                    await asyncio.sleep(0.05)
        # The command has closed its output and still runs, as daemons do.
        await self.signal(signal.SIGKILL)
        return -signal.SIGKILL

    async def _end_rest(self) -> None:
        """Waits for the processes that the first process left, and kills them after the grace."""
        with contextlib.suppress(HostFault):
            if not (pid := (await self._inspect()).get("Pid")):
                return
            until = time.monotonic() + self._grace
            while left := await asyncio.to_thread(self._processes, pid):
                if time.monotonic() >= until:
                    break
                await asyncio.sleep(0.05)
            _send(signal.SIGKILL, left)

    def _processes(self, first: int) -> set[int]:
        """Returns the living processes of the command: its first process, all processes below it,
        and all processes of its session.
        """
        found = set[int]()
        with contextlib.suppress(psutil.Error):
            found = {first, *(each.pid for each in psutil.Process(first).children(recursive=True))}
        for pid in psutil.pids():
            with contextlib.suppress(OSError):
                if os.getsid(pid) == first:
                    found.add(pid)
        return {pid for pid in found if self._runs_here(pid)}

    def _runs_here(self, pid: int) -> bool:
        """Returns True if the process is alive and in this container. The pid of a process that has
        ended may belong to another process.
        """
        with contextlib.suppress(OSError, psutil.Error):
            here = self._container in Path(f"/proc/{pid}/cgroup").read_text()
            return here and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        return False

    async def _fault(self) -> tuple[str, int] | None:
        """Returns why the command cannot start, and the exit code; None if it may start. The engine
        would report the reason as output of the command.
        """
        with contextlib.suppress(HostFault):  # the engine may still be able to start the command
            return await asyncio.to_thread(fault_beside, self._container, self._request.argv)
        return None

    async def _inspect(self) -> dict[str, Any]:
        status, state = await self._call("GET", f"/exec/{self._id}/json")
        return state if status == 200 else {}

    async def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Sends one request to the engine and returns the status and the body. Raises `HostFault`
        if the engine does not answer.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
            try:
                writer.write(_request(method, path, body))
                head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
                return _status(head), (
                    dict(json.loads(answer)) if answer.lstrip().startswith(b"{") else {}
                )
            finally:
                writer.close()
        except (OSError, ValueError, IndexError) as error:
            raise HostFault(f"the container engine does not answer: {error}", FAULT) from None


def _send(number: int, pids: Collection[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _request(method: str, path: str, body: dict[str, Any] | None, headers: str = "") -> bytes:
    """Formats a request. With HTTP/1.0, the answer ends with the connection. With HTTP/1.1, which
    is used if there are further headers, the connection stays open.
    """
    text = json.dumps(body).encode() if body is not None else b""
    version = "1.1" if headers else "1.0"
    head = f"{method} {path} HTTP/{version}\r\nHost: docker\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(text)}\r\n{headers}\r\n".encode() + text


def _status(head: bytes) -> int:
    return int(head.split(None, 2)[1])
