"""A command beside a program that is a container: run in it by its engine, as `docker exec` does."""

import asyncio
import contextlib
import json
import os
import signal
from typing import Any
from urllib.parse import urlencode

import psutil

from iris.activities.runtimes.base import CannotStart, HostUnable, Launch
from iris.activities.runtimes.commands import BLOCK, Tell, pump
from iris.execs import ExecRequest, Frame, Kind

#: What the host fails by when the engine does not do as it is told.
FAULT = "docker"
#: The engine's codes for a command that it did not find, or may not execute.
NOT_STARTED = (126, 127)
#: For the engine to tell how a command has ended whose output has.
PATIENCE = 5.0
_STREAMS = {1: Kind.OUT, 2: Kind.ERR}


class ContainerCommand:
    """The command. The environment, directory and limits are the container's own."""

    def __init__(self, request: ExecRequest, launch: Launch) -> None:
        self._request = request
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
            raise CannotStart(f"the container does not run: {made.get('message', status)}", 126)
        if status != 201:
            raise HostUnable(f"the container engine did not run it: {made.get('message', status)}", FAULT)
        self._id = made["Id"]
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(self._socket)
            how = {"Detach": False, "Tty": request.tty}
            self._writer.write(_request("POST", f"/exec/{self._id}/start", how, "Connection: Upgrade\r\nUpgrade: tcp\r\n"))
            status = _status(await self._reader.readuntil(b"\r\n\r\n"))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise HostUnable(f"the container engine has hung up: {error}", FAULT) from None
        if status not in (101, 200):
            said = (await self._reader.read(BLOCK)).decode(errors="replace")
            self._writer.close()
            raise CannotStart(f"it could not be started in the container: {said}", 126)
        await self.resize(request.rows, request.columns)

    async def run(self, tell: Tell) -> int:
        try:
            if self._request.tty:
                await pump(self._reader, Kind.OUT, tell)
            else:
                await self._demultiplex(tell)
            return await self._exit_code()
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
        if self._request.tty:  # the engine refuses while the command is just starting, or has ended: then no size matters
            await self._call("POST", f"/exec/{self._id}/resize?{urlencode({'h': rows, 'w': columns})}")

    async def signal(self, number: int) -> None:
        """The engine cannot do this. The processes of a container are processes of its host, if one may."""
        with contextlib.suppress(HostUnable, psutil.Error):
            pid = (await self._inspect()).get("Pid")
            if not pid:
                return
            process = psutil.Process(pid)
            all_of_it = [process.pid, *(each.pid for each in process.children(recursive=True))]
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if number != signal.SIGKILL and os.getpgid(pid) == pid:
                    os.killpg(pid, number)
            for each in all_of_it if number == signal.SIGKILL else ():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(each, number)

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _demultiplex(self, tell: Tell) -> None:
        """Without a terminal every block is preceded by its stream's number and its length."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await self._reader.readexactly(8)
                left, kind = int.from_bytes(head[4:], "big"), _STREAMS.get(head[0], Kind.OUT)
                while left:
                    data = await self._reader.readexactly(min(left, BLOCK))
                    left -= len(data)
                    await tell(Frame(kind, data))

    async def _exit_code(self) -> int:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    state = await self._inspect()
                    if not state.get("Running") and state.get("ExitCode") is not None:
                        return int(state["ExitCode"])
                    await asyncio.sleep(0.05)
        # Its output is closed, yet it runs on: a command that has made itself a daemon.
        await self.signal(signal.SIGKILL)
        return -signal.SIGKILL

    async def _inspect(self) -> dict[str, Any]:
        status, state = await self._call("GET", f"/exec/{self._id}/json")
        return state if status == 200 else {}

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """One question to the engine.

        Raises:
            HostUnable: it does not answer.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
            try:
                writer.write(_request(method, path, body))
                head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
                return _status(head), dict(json.loads(answer)) if answer.lstrip().startswith(b"{") else {}
            finally:
                writer.close()
        except (OSError, ValueError, IndexError) as error:
            raise HostUnable(f"the container engine does not answer: {error}", FAULT) from None


def _request(method: str, path: str, body: dict[str, Any] | None, headers: str = "") -> bytes:
    """HTTP/1.0, so that an answer ends where the connection does; a connection that is to be kept is asked for in 1.1."""
    text = json.dumps(body).encode() if body is not None else b""
    version = "1.1" if headers else "1.0"
    head = f"{method} {path} HTTP/{version}\r\nHost: docker\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(text)}\r\n{headers}\r\n".encode() + text


def _status(head: bytes) -> int:
    return int(head.split(None, 2)[1])
