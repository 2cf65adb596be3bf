"""The Ed25519 key pairs of people, control planes and hosts, as JSON Web Keys (RFC 8037).

The module only checks and writes keys. `iris.access.tokens` computes with them, and imports
`cryptography`.
"""

import base64
import binascii
import json
from hashlib import sha256
from typing import Literal, Self

from pydantic import ConfigDict, field_validator

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen

#: The length in bytes of a private key and of a public key.
KEY_BYTES = 32
#: The beginning of a public key in command lines and messages.
PREFIX = "ed25519:"
#: The number of characters of a key id that messages show.
SHORT = 12


def base64url(data: bytes) -> str:
    """Returns the data in base64url without padding, as RFC 7515 wants it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Returns the data of a text in base64url without padding.

    Raises:
        ValueError: the text is not base64url.
    """
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


class PublicKey(Frozen):
    """A public key of Ed25519, in the form of a JSON Web Key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    #: The public key in base64url.
    x: str

    @field_validator("x")
    @classmethod
    def _check(cls, x: str) -> str:
        try:
            size = len(from_base64url(x))
        except ValueError:
            size = 0
        if size != KEY_BYTES:
            raise InvalidValue(
                "x", x, "is no public key of Ed25519", f"write its {KEY_BYTES} bytes in base64url"
            )
        return x

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Returns the key with these bytes."""
        return cls(x=base64url(data))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the key that `str` has written.

        Raises:
            InvalidValue: the text is not a public key.
        """
        try:
            return cls(x=text.strip().removeprefix(PREFIX))
        except ValueError:
            raise InvalidValue(
                "key", text, "is no public key", "copy the line that `iris user key` prints"
            ) from None

    def __str__(self) -> str:
        return f"{PREFIX}{self.x}"

    @property
    def id(self) -> str:
        """The thumbprint of the key (RFC 7638), which tokens name."""
        # RFC 7638 fixes the members, their order and the lack of blanks.
        text = json.dumps(
            {"crv": self.crv, "kty": self.kty, "x": self.x}, separators=(",", ":"), sort_keys=True
        )
        return base64url(sha256(text.encode()).digest())


class PrivateKey(PublicKey):
    """A private key with its public key. Its `repr` does not show the private key."""

    #: The private key in base64url.
    d: str

    @property
    def secret(self) -> bytes:
        return from_base64url(self.d)

    @property
    def public(self) -> PublicKey:
        return PublicKey(x=self.x)

    def __repr__(self) -> str:
        return f"PrivateKey({self.x!r})"
