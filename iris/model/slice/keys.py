"""The key pair of a slice: its machines sign the reports of their agents, and the slice's workflow
verifies them.

Only the platform and the machines of the slice have the private key. Histories and the Web UI show
only the public key and signatures. A signature is valid for one incarnation of one host at one
address.
"""

import hmac
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from iris.model.host.hosts import Host

#: The length of a private key in bytes. Keys and signatures are written as hexadecimal digits.
KEY_BYTES = 32


def derived_key(secret: bytes, slice_id: str, token: str) -> str:
    """Returns the private key for a slice request. A repeated request gets the same key.

    Args:
        secret: a secret that only the platform object that makes the requests knows.
    """
    return hmac.new(secret, json.dumps([slice_id, token]).encode(), "sha256").hexdigest()


def public_key(private_key: str) -> str:
    """Returns the public key that belongs to a private key.

    Raises:
        ValueError: the text is not a private key.
    """
    return (
        Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private_key))
        .public_key()
        .public_bytes_raw()
        .hex()
    )


def key_file(private_key: str, delegation: str) -> str:
    """Returns the content of a file with a slice's private key.

    Args:
        delegation: the text with which the control plane names the key, for Temporal's servers
            (`iris.access.tokens.sign_delegation`); empty if the cluster has no identities.
    """
    return f"{private_key} {delegation}".rstrip()


def read_key_file(text: str) -> tuple[str, str]:
    """Returns the private key and the delegation in the content of a file.

    Raises:
        ValueError: the text has no private key.
    """
    private_key, _, delegation = text.strip().partition(" ")
    public_key(private_key)
    return private_key, delegation.strip()


def sign(private_key: str, host: Host) -> str:
    """Returns the signature for the report that the host is ready.

    Raises:
        ValueError: the text is not a private key.
    """
    return (
        Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private_key))
        .sign(_signed(host, host.slice_id))
        .hex()
    )


def is_signed(public_key: str, slice_id: str, host: Host, signature: str) -> bool:
    """Returns whether a machine of the slice signed the report of this host."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), _signed(host, slice_id))
    except (InvalidSignature, ValueError):
        return False
    return True


def _signed(host: Host, slice_id: str) -> bytes:
    """Returns the text to sign. It leaves out the other facts of a host, whose defaults may differ
    between versions of Iris.
    """
    return json.dumps(
        ["iris host ready", slice_id, host.id, host.incarnation, host.address]
    ).encode()
