"""Encrypts the data of a cluster in Temporal: requests, states, results and the texts of failures.

The Temporal service, its database and the readers of its Web UI see ids, states, users and times.
They see no command, environment or reason. Every process of the cluster (client, control plane,
agent) reads the keys from the file that `IRIS_PAYLOAD_KEYS` names.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from iris.client.connect.key_files import read_key_file
from iris.model import key_text, names
from iris.model.errors import InvalidValue, IrisError, Rejected

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

logger = logging.getLogger(__name__)

#: The metadata key for the encoding of a payload's data. Temporal's examples use the same metadata
#: keys.
ENCODING = "encoding"
#: The encoding of an encrypted payload.
ENCRYPTED = b"binary/encrypted"
#: The metadata key for the name of the key that encrypts a payload.
KEY_ID = "encryption-key-id"
#: The size of an AES-256 key, in bytes.
KEY_SIZE = 32
#: The size of the random number before each encrypted payload, in bytes. Source: NIST SP 800-38D,
#: section 8.2.
NONCE_SIZE = 12
#: The shell command that makes a file with one key.
NEW_KEY = 'echo "$(date +%F) $(openssl rand -base64 32)" > FILE; chmod 600 FILE'


@dataclass(frozen=True)
class PayloadKeys:
    """The encryption keys of a cluster, by name. The first key encrypts, and all keys decrypt."""

    #: The path of the file that contains the keys, as error messages show it.
    source: str
    keys: Mapping[str, bytes] = field(repr=False)

    @property
    def current(self) -> str:
        return next(iter(self.keys))

    @property
    def text(self) -> str:
        """The content of a file with these keys."""
        return "".join(f"{name} {key_text.text_of(key)}\n" for name, key in self.keys.items())


def payload_keys() -> PayloadKeys | None:
    """Returns the keys in the file that `IRIS_PAYLOAD_KEYS` names; None if it names no file.

    Raises:
        InvalidValue: the file cannot be used.
    """
    path = os.environ.get(names.ENV_PAYLOAD_KEYS, "")
    return read_keys(Path(path).expanduser()) if path else None


def read_keys(path: Path) -> PayloadKeys:
    """Reads a file of keys. Each line has a name and a key in base64.

    Raises:
        InvalidValue: the file is missing, is readable for other users, has no keys, or has a
            malformed key.
    """

    def wrong(problem: str, remedy: str = f"make one: {NEW_KEY}") -> InvalidValue:
        return InvalidValue(names.ENV_PAYLOAD_KEYS, path, problem, remedy)

    lines = read_key_file(names.ENV_PAYLOAD_KEYS, path, f"make one: {NEW_KEY}").splitlines()
    keys: dict[str, bytes] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.strip().partition(" ")
        if (key := key_text.key_in(text, KEY_SIZE)) is None:
            raise wrong(f"has no key of {KEY_SIZE} bytes in base64 after the name on line {number}")
        if name in keys:
            raise wrong(f"has two keys of the name {name}", "name each key differently")
        keys[name] = key
    if not keys:
        raise wrong("has no keys")
    return PayloadKeys(str(path), keys)


def check_both_sides(configured: str) -> None:
    """Checks that this machine and a cluster on Google Cloud both have payload keys, or neither.

    Args:
        configured: the secret in `controller.payload_keys`; empty if the cluster has no keys.

    Raises:
        InvalidValue: only one side has keys; or the file of this machine cannot be used.
    """
    keys = payload_keys()
    if keys is not None and not configured:
        problem = (
            "is only on this machine, and the machines on Google Cloud could not read what it"
            " encrypts"
        )
        remedy = (
            "store the file in Secret Manager and set controller.payload_keys: gcp:SECRET, or"
            " unset the variable"
        )
        raise InvalidValue(names.ENV_PAYLOAD_KEYS, keys.source, problem, remedy)
    if keys is None and configured:
        problem = (
            "is empty, and this machine could not read what the cluster encrypts"
            " (controller.payload_keys is set)"
        )
        raise InvalidValue(
            names.ENV_PAYLOAD_KEYS,
            "",
            problem,
            f"name the file with its keys: {names.ENV_PAYLOAD_KEYS}=FILE",
        )


class EncryptionCodec(PayloadCodec):
    """A codec that encrypts each payload after another codec has encoded it. It also reads payloads
    that are not encrypted, so that a running cluster can change to encryption.

    Without keys it encrypts nothing, and an encrypted payload raises an error that names the key.
    """

    def __init__(self, inner: PayloadCodec, keys: PayloadKeys | None) -> None:
        self._inner = inner
        self._keys = keys

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        encoded = await self._inner.encode(payloads)
        keys = self._keys
        return encoded if keys is None else [encrypt(payload, keys) for payload in encoded]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._inner.decode([decrypt(payload, self._keys) for payload in payloads])


class TolerantCodec(PayloadCodec):
    """A codec for the control plane. If it cannot decode a message, it leaves the message encoded.

    The SDK decodes all events of a workflow together, so one unreadable signal would fail all of
    the workflow's tasks for ever. An encoded message fails alone: the SDK drops the signal, refuses
    the update or fails the query. A workflow with unreadable input waits for the key.
    """

    def __init__(self, inner: PayloadCodec) -> None:
        self._inner = inner

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._inner.encode(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        try:
            return await self._inner.decode(payloads)
        except (IrisError, ValueError) as error:
            logger.warning("a message is ignored: %s", error)
            return list(payloads)


def encrypt(payload: Payload, keys: PayloadKeys) -> Payload:
    """Returns the payload and its metadata, encrypted with the current key (AES-GCM)."""
    name = keys.current.encode()
    nonce = os.urandom(NONCE_SIZE)
    data = nonce + _cipher(keys.keys[keys.current]).encrypt(
        nonce, payload.SerializeToString(), name
    )
    return Payload(metadata={ENCODING: ENCRYPTED, KEY_ID: name}, data=data)


def decrypt(payload: Payload, keys: PayloadKeys | None) -> Payload:
    """Returns the decrypted payload. Returns a payload unchanged that is not encrypted.

    Raises:
        Rejected: the key is not known here, or the payload was changed after its encryption.
    """
    if payload.metadata.get(ENCODING) != ENCRYPTED:
        return payload
    name = payload.metadata.get(KEY_ID, b"")
    shown = name.decode(errors="replace")
    key = keys.keys.get(shown) if keys is not None else None
    if key is None:
        there = f"which is not in {keys.source}" if keys is not None else "which is not known here"
        raise Rejected(
            f"this cluster's payloads are encrypted with key {shown!r}, {there}; "
            f"name the file with its keys: {names.ENV_PAYLOAD_KEYS}=FILE"
        )
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        return Payload.FromString(
            cipher.decrypt(payload.data[:NONCE_SIZE], payload.data[NONCE_SIZE:], name)
        )
    except InvalidTag:
        raise Rejected(
            f"a payload encrypted with key {shown!r} was changed, or this client's key of that"
            " name is a different one"
        ) from None


def _cipher(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # few clusters encrypt

    return AESGCM(key)
