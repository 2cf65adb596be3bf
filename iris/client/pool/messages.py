"""What a pool and its workers send each other: sealed with the pool's key, through Temporal or, if it is large, the object store.

The key is in the files of the pool's jobs and nowhere else: not in a history, an environment or a command line. Neither side
unpickles anything without its seal.
"""

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from iris.client.pool import frames
from iris.model import names
from iris.model.errors import Rejected
from iris.storage.object_store import Store

#: The names of the activities.
RUN_CALLS, RETIRE = "run_calls", "retire"
#: The types of failures of the first one that no other worker can avoid.
REFUSED = "Refused"
#: The largest message that Temporal gets, in bytes.
INLINE = 64 * 1024
_MAC = hashlib.sha256().digest_size
_HERE, _STORED = b"\0", b"\1"
FILE = "pool.json"


class PoolFile(BaseModel):
    """What the files of a pool's jobs say of it."""

    queue: str
    #: Hexadecimal.
    key: str
    #: The minor version of Python that pickles the calls.
    python: tuple[int, int]
    #: A worker without calls ends after so many seconds.
    idle_timeout: float

    @classmethod
    def read(cls, directory: Path) -> "PoolFile":
        return cls.model_validate_json((directory / FILE).read_bytes())


class Summary(BaseModel):
    """The first part of the answer to a batch. The answers to its first calls follow; the other calls have not been run."""

    #: What the batch took, in seconds.
    seconds: float = 0.0
    #: How the process ended that ran the call after the answered ones; empty: it did not.
    crash: str = ""


class Address(NamedTuple):
    """Which message it is. The seal holds for no other one."""

    queue: str
    number: int
    #: `call` or `answer`.
    kind: str

    @property
    def path(self) -> str:
        """The message's path in the store."""
        return f"{names.pool_files(self.queue)}/{self.number}-{self.kind}"


class Mail:
    """Sends and reads the messages of one pool."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = bytes.fromhex(key)

    async def send(self, address: Address, parts: Sequence[bytes]) -> bytes:
        """Returns what has to be passed on to the other side. Stores a large message."""
        body = frames.join(parts)
        sealed = self._mac(address, body) + body
        if len(sealed) <= INLINE:
            return _HERE + sealed
        await self._store.put(address.path, sealed)
        return _STORED

    async def read(self, address: Address, message: bytes) -> list[bytes]:
        """Returns the parts of a message.

        Raises:
            Rejected: it is not from the other side.
            FileNotFoundError: the store does not have it.
        """
        sealed: bytes | None = message[1:]
        if message[:1] == _STORED:
            sealed = await self._store.get(address.path)
            if sealed is None:
                raise FileNotFoundError(f"{self._store.url} has no {address.path}")
        assert sealed is not None
        body = sealed[_MAC:]
        if not hmac.compare_digest(sealed[:_MAC], self._mac(address, body)):
            raise Rejected(f"message {address.number} on {address.queue} is not sealed with the pool's key; it is not unpickled")
        return frames.split(body)

    async def remove(self, address: Address, message: bytes) -> None:
        """Removes a message from the store, if it is there."""
        if message[:1] == _STORED:
            await self._store.delete([address.path])

    def _mac(self, address: Address, body: bytes) -> bytes:
        return hmac.digest(self._key, f"{address.queue} {address.number} {address.kind}\n".encode() + body, "sha256")
