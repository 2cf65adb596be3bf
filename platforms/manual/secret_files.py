"""Reads the contents of files for SSH that a configuration names by references to a secret manager.

The control plane of a cluster with a cloud runs on a machine of that cloud, which has no files of
its users.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

#: A value that is older than this is read again, so that a new version of a key is used.
VALID = timedelta(minutes=1)


class SecretFiles:
    """Reads the values of references to secrets. Each value is read once for all machines.

    Args:
        access: returns the value of `projects/P/secrets/S/versions/V`. It blocks, and raises as
            `content` does.
    """

    def __init__(self, access: Callable[[str], bytes]) -> None:
        self._access = access
        self._locks: dict[str, asyncio.Lock] = {}
        self._values: dict[str, tuple[float, bytes]] = {}

    async def content(self, resource: str) -> bytes:
        """Returns the value.

        Raises:
            BadConfig: it does not exist, or this process may not read it.
            Unavailable: the secret manager does not answer.
        """
        async with self._locks.setdefault(resource, asyncio.Lock()):
            read_at, value = self._values.get(resource, (0.0, b""))
            if value and time.monotonic() - read_at < VALID.total_seconds():
                return value
            value = await asyncio.to_thread(self._access, resource)
            self._values[resource] = (time.monotonic(), value)
            return value
