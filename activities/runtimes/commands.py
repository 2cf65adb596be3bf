"""What a command is that runs beside a program, wherever that is."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from iris.execs import Frame, Kind

#: The most that is read at once, in bytes.
BLOCK = 64 * 1024

Tell = Callable[[Frame], Awaitable[None]]


class Command(Protocol):
    """A command that is run where a task runs."""

    async def start(self) -> None:
        """Start it.

        Raises:
            CannotStart: there is no such command, or it may not be executed.
            HostUnable: nothing can be started here.
        """

    async def run(self, tell: Tell) -> int:
        """Tell what it prints until it has ended, and all that it has started; its exit status, negative for a signal.

        A cancellation ends it at once.
        """

    async def feed(self, data: bytes) -> None:
        """Give it input, when it takes it. It may have closed its input, or ended."""

    async def end_input(self) -> None:
        """There is no more input."""

    async def resize(self, rows: int, columns: int) -> None:
        """Its terminal has another size now, if it has one."""

    async def signal(self, number: int) -> None:
        """Send it a signal; SIGKILL kills all of it. One that has ended needs none."""


async def pump(reader: asyncio.StreamReader, kind: Kind, tell: Tell) -> None:
    """Tell all there is to read."""
    while True:
        try:
            data = await reader.read(BLOCK)
        except OSError:  # so a terminal ends
            return
        if not data:
            return
        await tell(Frame(kind, data))
