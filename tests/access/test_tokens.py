"""Keys, tokens and delegations, as Temporal's servers verify them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from iris.access.keys import PublicKey, from_base64url
from iris.access.tokens import (
    audience,
    host_name,
    private_key,
    sign_delegation,
    sign_token,
)
from iris.model.errors import InvalidValue

#: The key pair and the thumbprint of RFC 8037, appendix A.
SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
THUMBPRINT = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
NOW = datetime(2026, 11, 28, tzinfo=UTC)


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the header and the claims of a token."""
    header, claims, _ = token.split(".")
    return json.loads(from_base64url(header)), json.loads(from_base64url(claims))


def verify(token: str, key: PublicKey) -> None:
    signed, _, signature = token.rpartition(".")
    public = Ed25519PublicKey.from_public_bytes(from_base64url(key.x))
    public.verify(from_base64url(signature), signed.encode())


def test_a_key_has_the_public_part_and_the_id_of_the_standard() -> None:
    """The servers, which are written in Go, compute the same id from the policy."""
    key = private_key(SECRET)

    assert key.x == X
    assert key.id == THUMBPRINT
    assert key.public.id == THUMBPRINT


def test_a_token_names_its_key_its_owner_and_one_cluster_for_ten_minutes() -> None:
    """A stolen token is of use for minutes, and on no other cluster."""
    key = private_key(SECRET)
    header, claims = parts(sign_token(key, "ada", "lab", NOW))

    assert header == {"alg": "EdDSA", "typ": "JWT", "kid": THUMBPRINT}
    issued = int(NOW.timestamp())
    assert claims == {
        "iss": "iris",
        "sub": "ada",
        "aud": "lab",
        "iat": issued,
        "exp": issued + 600,
    }


def test_a_token_is_signed_by_its_key_only() -> None:
    """Everyone can write the claims."""
    token = sign_token(private_key(SECRET), "ada", "lab", NOW)

    verify(token, PublicKey(x=X))
    with pytest.raises(InvalidSignature):
        verify(token, private_key(bytes(32)).public)


def test_a_delegation_names_the_key_of_a_slice_and_is_the_same_each_time() -> None:
    """A repeated request for a slice has to be the same request."""
    control_plane, of_slice = private_key(SECRET), private_key(bytes(32)).public
    delegation = sign_delegation(control_plane, "tpu-1", of_slice, "lab")

    header, claims = parts(delegation)
    assert header["kid"] == THUMBPRINT
    assert claims == {
        "iss": "iris",
        "sub": "slice/tpu-1",
        "aud": "lab",
        "role": "host",
        "cnf": {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": of_slice.x}},
    }
    verify(delegation, control_plane.public)
    assert sign_delegation(control_plane, "tpu-1", of_slice, "lab") == delegation


def test_the_token_of_a_host_carries_the_delegation_of_its_key() -> None:
    """The policy does not name the hosts of slices."""
    control_plane, of_slice = private_key(SECRET), private_key(bytes(32))
    delegation = sign_delegation(control_plane, "tpu-1", of_slice.public, "lab")
    token = sign_token(
        of_slice, host_name("tpu-1-w-0"), audience(delegation), NOW, delegation=delegation
    )

    header, claims = parts(token)
    assert header["iris_delegation"] == delegation
    assert header["kid"] == of_slice.id
    assert (claims["sub"], claims["aud"]) == ("host/tpu-1-w-0", "lab")


@pytest.mark.parametrize(
    "text", ["", "x", "ed25519:", f"ed25519:{X[:-2]}", f"rsa:{X}", f"ed25519:{X}{X}"]
)
def test_a_text_that_is_no_public_key_is_refused_with_the_remedy(text: str) -> None:
    """People copy keys by hand."""
    with pytest.raises(InvalidValue, match="is no public key; copy the line"):
        PublicKey.parse(text)


def test_a_public_key_is_read_as_it_is_written() -> None:
    """`iris user key` writes it, and `iris user add` reads it."""
    key = private_key(SECRET).public

    assert PublicKey.parse(f" {key}\n") == key


def test_the_repr_of_a_private_key_does_not_show_it() -> None:
    """Values end up in logs and tracebacks."""
    key = private_key(SECRET)

    assert key.d not in f"{key!r} {key}"
