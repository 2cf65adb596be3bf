"""Defines the contract of a command that runs beside a program, as a process or in a container."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from iris.messages.exec import Frame, FrameKind

#: The maximum number of bytes of a command's output that one read returns.
BLOCK = 64 * 1024

Tell = Callable[[Frame], Awaitable[None]]


class Command(Protocol):
    """A command that runs on the host or in the container of a task."""

    async def start(self) -> None:
        """Starts the command.

        Raises:
            JobFault: the command does not exist, or is not executable.
            HostFault: this host cannot start any command.
        """

    async def run(self, tell: Tell) -> int:
        """Passes the output to `tell` until all processes of the command have ended. Returns the
        exit status of the first process, negative for a signal.

        A cancellation ends the command at once.
        """

    async def feed(self, data: bytes) -> None:
        """Writes input to the command, and waits until the command accepts it. Does nothing if the
        command has closed its input or ended.
        """

    async def end_input(self) -> None:
        """Ends the input of the command."""

    async def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the command's terminal, if it has one."""

    async def signal(self, number: int) -> None:
        """Sends a signal to the command; SIGKILL kills all of its processes. Has no effect after
        the command ended.
        """


async def pump(reader: asyncio.StreamReader, kind: FrameKind, tell: Tell) -> None:
    """Passes everything from the reader to `tell`, until the end."""
    while True:
        try:
            data = await reader.read(BLOCK)
        except OSError:  # the end of a terminal's output
            return
        if not data:
            return
        await tell(Frame(kind, data))
