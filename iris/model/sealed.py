"""Seals values so that only the agents of a cluster can read them, and binds each value to the
place where it may be used.

The algorithms are X25519 with a new key for each value, HKDF with SHA-256, and ChaCha20-Poly1305
(RFC 7748, RFC 5869 and RFC 8439). Sealing needs only the public key, which is in the store. A value
is bound to its cluster, its object and its name: a copy in another object cannot be opened.
"""

import base64
import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import Field

from iris.model import key_text
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen

#: The length of private and public keys in bytes.
KEY_BYTES = 32
#: The limit on bytes of an object with sealed values. A reader refuses a larger object, because a
#: job that may write to the store could make one of any size.
MAX_OBJECT_BYTES = 8 * 1024 * 1024
#: The nonce with which all values are encrypted. A constant nonce is safe, because each value has
#: its own key.
_NONCE = bytes(12)
_USE = b"iris secret 1"


class SealedWith(Exception):
    """The value was sealed with a key that is not among the private keys. The error's text is the
    id of that key.
    """


class Place(NamedTuple):
    """The place that a sealed value is bound to: a copy of the value at another place cannot be
    opened.
    """

    cluster: str
    #: The path of the object in the store, without the folder of the cluster.
    path: str
    #: The name of the value within the object.
    name: str


class SealedValue(Frozen):
    """A value that was encrypted with a public key of the cluster."""

    #: The id of the cluster's public key with which the value was sealed.
    key: str
    #: The sender's public key, followed by the ciphertext, in base64.
    data: str


class SealedObject(Frozen):
    """An object of the store with sealed values."""

    #: The name of the user who sealed the values.
    by: str
    #: When the values were sealed.
    at: datetime
    values: dict[str, SealedValue] = Field(default_factory=dict)


class PrivateKeys(NamedTuple):
    """The private keys of a cluster: the current one, the next one, and earlier ones."""

    keys: tuple[bytes, ...]

    @property
    def public(self) -> bytes:
        """Returns the public key with which values are sealed now."""
        return public_of(self.keys[0])

    def open(self, value: SealedValue, place: Place) -> bytes:
        """Returns the plain value.

        Raises:
            SealedWith: none of these keys can open the value.
            ValueError: the value was changed, or was sealed for another place.
        """
        private = next((key for key in self.keys if key_id(public_of(key)) == value.key), None)
        if private is None:
            raise SealedWith(value.key)
        data = base64.b64decode(value.data)
        sender, sealed = data[:KEY_BYTES], data[KEY_BYTES:]
        public = X25519PublicKey.from_public_bytes(sender)
        shared = X25519PrivateKey.from_private_bytes(private).exchange(public)
        try:
            return _cipher(shared, sender, public_of(private)).decrypt(
                _NONCE, sealed, _bound(place)
            )
        except InvalidTag:
            raise ValueError(
                "the sealed value was changed, or it was sealed for another cluster, object or name"
            ) from None


def seal(public: bytes, value: bytes, place: Place, own: bytes) -> SealedValue:
    """Seals a value so that only the cluster can read it.

    Args:
        public: the public key of the cluster.
        own: random bytes, used for this value only, as the sender's private key.

    Raises:
        ValueError: `public` is not a public key.
    """
    sender = X25519PrivateKey.from_private_bytes(own)
    shared = sender.exchange(X25519PublicKey.from_public_bytes(public))
    sealed = _cipher(shared, public_of(own), public).encrypt(_NONCE, value, _bound(place))
    data = base64.b64encode(public_of(own) + sealed).decode()
    return SealedValue(key=key_id(public), data=data)


def public_of(private: bytes) -> bytes:
    """Returns the public key that belongs to a private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def key_id(public: bytes) -> str:
    """Returns the id of a public key: the beginning of its digest."""
    digest = Hash(SHA256())
    digest.update(public)
    return digest.finalize().hex()[:16]


def parse_keys(text: str, source: str) -> PrivateKeys:
    """Parses a file of private keys. Each line has a date and a key in base64.

    Args:
        source: the name of the file in error messages.

    Raises:
        InvalidValue: the file has no keys or malformed ones. The error does not show them.
    """
    keys = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if (key := key_text.key_in(line.split()[-1], KEY_BYTES)) is None:
            problem = f"has no key of {KEY_BYTES} bytes in base64 at the end of line {number}"
            raise InvalidValue("secret keys", source, problem, "make a file: iris secret new-keys")
        keys.append(key)
    if not keys:
        remedy = "make a file: iris secret new-keys"
        raise InvalidValue("secret keys", source, "has no keys", remedy)
    return PrivateKeys(tuple(keys))


def keys_text(keys: Sequence[bytes], day: str, before: str = "") -> str:
    """Returns the content of a file with these keys.

    Args:
        day: the date for keys that are new in the file.
        before: the earlier content. Its lines stay unchanged.
    """
    known = {
        base64.b64decode(line.split()[-1]): line
        for line in before.splitlines()
        if line.strip()[:1] not in ("", "#")
    }
    lines = [known.get(key, f"{day} {key_text.text_of(key)}") for key in keys]
    return "".join(f"{line}\n" for line in lines)


def rotated(keys: Sequence[bytes], new: bytes, used: Sequence[str]) -> tuple[bytes, ...]:
    """Returns the keys after a rotation: the next key becomes the current one.

    Hosts get the new key as the next key, long before values are sealed with it.

    Args:
        keys: the current key, the next key if there is one, and earlier keys.
        new: the new next key.
        used: the ids of the keys of all sealed values. Earlier keys that no value uses are removed.
    """
    current, rest = keys[0], keys[1:]
    following, earlier = (rest[0], rest[1:]) if rest else (new, ())
    last = () if following == new else (new,)
    kept = [key for key in earlier if key_id(public_of(key)) in used]
    return (following, *last, current, *kept)


def _cipher(shared: bytes, sender: bytes, receiver: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(
        HKDF(SHA256(), KEY_BYTES, salt=sender + receiver, info=_USE).derive(shared)
    )


def _bound(place: Place) -> bytes:
    return json.dumps(["iris secret", *place]).encode()
