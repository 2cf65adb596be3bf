"""Keeps the machines over SSH of a cluster on Google Cloud, from the first configuration that has
some.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from iris.platforms.base import Platform
from iris.platforms.manual.settings import ManualSettings

if TYPE_CHECKING:
    from iris.worker_agents.control_plane.ssh_hosts import SshHosts


class MachinesBeside:
    """The machines over SSH that a cluster has beside a cloud. Most clusters have none, so the SSH
    client is loaded late.

    Args:
        access: as in `Connections`.
    """

    def __init__(self, access: Callable[[str], bytes] | None) -> None:
        self._access = access
        self._hosts: SshHosts | None = None
        self._directory = ""
        self._needed = asyncio.Event()

    def platform(self, settings: ManualSettings) -> Platform | None:
        """Returns the platform with these settings, which replace the earlier ones; None: no
        configuration had such machines.
        """
        if self._hosts is None:
            if not settings.hosts:
                return None
            from iris.worker_agents.control_plane.ssh_hosts import (
                SshHosts,  # imports asyncssh, which is slow
            )

            self._hosts = SshHosts(settings, Path(self._directory), self._access)
            self._needed.set()
        return self._hosts.platform(settings)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves the machines for as long as the block lasts. Agents and programs run on
        afterwards.
        """
        with tempfile.TemporaryDirectory(prefix="iris-packages-") as self._directory:
            serving = asyncio.create_task(self._serve())
            try:
                yield
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    async def _serve(self) -> None:
        await self._needed.wait()
        assert self._hosts is not None
        async with self._hosts.serving():
            await asyncio.Event().wait()
