"""Keeps the hosts of a cluster over SSH for as long as the control plane runs, with its current
configuration.
"""

import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from iris.client.access.message_key import message_key, text_of
from iris.client.connect.encryption import payload_keys
from iris.client.connect.secret_keys import secret_keys
from iris.platforms.base import Platform
from iris.platforms.manual.connections import Connections
from iris.platforms.manual.keeper import HostKeeper
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.runtime import pack
from iris.platforms.manual.settings import ManualSettings


def _secret_keys() -> str:
    """Returns the content of the file of keys for users' secrets, which a rotation replaces; empty:
    there is none.
    """
    keys = secret_keys()
    return "" if keys is None else keys.text


class SshHosts:
    """The SSH connections of one control plane to its hosts. Keeps the hosts' agents running.

    Args:
        directory: for the packages that hosts get.
        access: as in `Connections`.
    """

    def __init__(
        self,
        settings: ManualSettings,
        directory: Path,
        access: Callable[[str], bytes] | None = None,
    ) -> None:
        self._connections = Connections(settings, keep=True, access=access)
        keys = payload_keys()
        text = "" if keys is None else keys.text
        key = message_key()
        self._keeper = HostKeeper(
            settings,
            self._connections,
            functools.partial(pack, directory),
            text,
            secret_keys=_secret_keys,
            message_key="" if key is None else text_of(key),
        )

    def platform(self, settings: ManualSettings) -> Platform:
        """Returns the platform with these settings, which replace the earlier ones."""
        keeper = self._keeper
        keeper.reconfigure(settings)
        return ManualPlatform(
            settings,
            self._connections,
            attend=keeper.attend,
            fault_of=keeper.fault_of,
            avoid=keeper.avoid,
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves the hosts for as long as the block lasts. Agents and programs run on
        afterwards.
        """
        try:
            async with self._keeper.serving():
                yield
        finally:
            await self._connections.close()
