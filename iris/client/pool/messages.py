"""The messages between a pool and its workers. They are encrypted with the pool's key, and travel
through Temporal. The store has large messages.

The key is in the files of the pool's jobs and nowhere else: not in a history, an environment
variable or a command line. Neither side unpickles a message that was not encrypted with the key.
The workers need no payload keys of the cluster.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import BaseModel
from temporalio.client import Client
from temporalio.converter import DataConverter

from iris.client.access.proofs import Proofs
from iris.client.connect.connection import reconfigured
from iris.client.pool import frames
from iris.model import store_paths
from iris.model.errors import NotFound, Rejected
from iris.storage.object_store import Store

#: The names of the activities that run a batch and retire a worker.
RUN_CALLS, RETIRE = "run_calls", "retire"
#: The type of a failure of `run_calls` that would happen on every worker, so the batch is not sent
#: to another one.
REFUSED = "Refused"
#: The largest message that Temporal carries, in bytes. Larger messages go through the object store.
INLINE = 64 * 1024
#: The size of the random number before each encrypted message, in bytes. Source: NIST SP 800-38D,
#: section 8.2.
_NONCE = 12
_HERE, _STORED = b"\0", b"\1"
FILE = "pool.json"


class PoolFile(BaseModel):
    """The facts about a pool that each of its jobs gets as a file."""

    queue: str
    #: The key that encrypts the messages of the pool, in hexadecimal.
    key: str
    #: The major and minor version of the Python that pickles the calls.
    python: tuple[int, int]
    #: A worker ends after this many seconds without calls.
    idle_timeout: float

    @classmethod
    def read(cls, directory: Path) -> "PoolFile":
        return cls.model_validate_json((directory / FILE).read_bytes())


class Summary(BaseModel):
    """The first part of the answer to a batch. The answers to the first calls of the batch follow.
    Calls without an answer have not been run, or were interrupted.
    """

    #: The duration of the batch, in seconds.
    seconds: float = 0.0
    #: How the process ended during the first call that has no answer; empty if the process did not
    #: end.
    crash: str = ""


class Address(NamedTuple):
    """Identifies a message. A message that was encrypted for one address cannot be decrypted at
    another address.
    """

    queue: str
    number: int
    #: The kind of the message: `call` or `answer`.
    kind: str

    @property
    def path(self) -> str:
        """The message's path in the store."""
        return f"{store_paths.pool_files(self.queue)}/{self.number}-{self.kind}"

    @property
    def label(self) -> bytes:
        """The data that the encryption authenticates with the message."""
        return f"{self.queue} {self.number} {self.kind}".encode()


class MessageLost(NotFound):
    """The store no longer contains a message."""


class Mail:
    """Sends and reads the messages of one pool."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._cipher = AESGCM(bytes.fromhex(key))

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self._store.url

    async def send(self, address: Address, parts: Sequence[bytes]) -> bytes:
        """Encrypts a message of less than 2 GiB, and returns the bytes for the other side. A large
        message goes to the store, and the bytes then only say so.
        """
        body = frames.join(parts)
        nonce = os.urandom(_NONCE)
        sealed = nonce + self._cipher.encrypt(nonce, body, address.label)
        if len(sealed) <= INLINE:
            return _HERE + sealed
        await self._store.put(address.path, sealed)
        return _STORED

    async def read(self, address: Address, message: bytes) -> list[bytes]:
        """Returns the parts of a message.

        Raises:
            Rejected: the message was not encrypted with the pool's key.
            MessageLost: the store does not have the message.
        """
        sealed: bytes | None = message[1:]
        if message[:1] == _STORED:
            sealed = await self._store.get(address.path)
            if sealed is None:
                folder = store_paths.pool_files(address.queue)
                raise MessageLost(
                    f"the store {self._store.url} no longer has {address.path}; keep what is below"
                    f" {folder} for as long as the pool lives, for example in the lifecycle rules"
                    " of the bucket, and submit the call again"
                )
        assert sealed is not None
        try:
            return frames.split(
                self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], address.label)
            )
        except (InvalidTag, ValueError):  # the latter: it is shorter than a seal
            raise Rejected(
                f"message {address.number} on {address.queue} is not sealed with the pool's key; it"
                " is not unpickled"
            ) from None

    async def remove(self, address: Address, message: bytes) -> None:
        """Removes a message from the store, if it is there."""
        if message[:1] == _STORED:
            await self._store.delete([address.path])

    async def remove_all(self, queue: str) -> None:
        """Removes all messages of a pool from the store."""
        await self._store.delete(await self._store.objects(store_paths.pool_files(queue)))


def plain(client: Client) -> Client:
    """Returns the client without the cluster's payload keys and its message key. The messages are
    encrypted already, and jobs do not get the keys.
    """
    others = [
        each
        for each in client.config(active_config=True)["interceptors"]
        if not isinstance(each, Proofs)
    ]
    return reconfigured(client, data_converter=DataConverter.default, interceptors=others)
