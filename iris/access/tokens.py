"""Signs tokens, with which clients and hosts prove who they are, and delegations, with which a
control plane names the key of a slice's hosts.

Both are JSON Web Signatures in the compact form (RFC 7515, RFC 8037). Temporal's servers verify
them (`server/`).
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris.access.keys import PrivateKey, PublicKey, base64url, from_base64url
from iris.model import names

#: How long a token is valid. The servers refuse tokens that are valid for more than ten minutes.
LIFETIME = timedelta(minutes=10)
#: How long the programs of a job may act as the job's user, from the submission of the job.
JOB_LIFETIME = timedelta(days=90)
#: The issuer in tokens that Iris signs.
ISSUER = "iris"
#: The name of the header field of a token that contains a delegation: a signed statement that
#: allows the key of the token to act for the hosts of one slice, or for the programs of one job.
DELEGATION = "iris_delegation"


def private_key(secret: bytes) -> PrivateKey:
    """Returns the key pair with this private key.

    Raises:
        ValueError: it does not have 32 bytes.
    """
    key = Ed25519PrivateKey.from_private_bytes(secret)
    public = key.public_key().public_bytes_raw()
    return PrivateKey(x=base64url(public), d=base64url(secret))


def sign_token(
    key: PrivateKey, name: str, cluster: str, now: datetime, *, delegation: str = ""
) -> str:
    """Returns a token that proves to the servers of a cluster that its sender is `name`.

    Args:
        key: the key that the cluster's policy, or the delegation, names for `name`.
        delegation: the result of `sign_delegation` for the key of a slice's hosts; empty: the
            policy has the key.
    """
    issued = int(now.timestamp())
    expires = issued + int(LIFETIME.total_seconds())
    claims = {"iss": ISSUER, "sub": name, "aud": cluster, "iat": issued, "exp": expires}
    return _signed(key, claims, {DELEGATION: delegation} if delegation else {})


def sign_delegation(key: PrivateKey, slice_id: str, public: PublicKey, cluster: str) -> str:
    """Returns a delegation: the hosts of the slice sign tokens with the private key that belongs to
    `public`. It has no end, because ids of slices are never used again. The same arguments give the
    same text, so a repeated request for a slice is the same request.

    Args:
        key: that of the control plane.
    """
    return _signed(key, _delegation(f"slice/{slice_id}", "host", public, cluster), {})


def sign_job_delegation(
    key: PrivateKey, job: str, public: PublicKey, cluster: str, now: datetime
) -> str:
    """Returns a delegation: the programs of the job sign tokens with the private key that belongs
    to `public`, and may change this job and jobs below it.

    Args:
        key: that of the job's user.
    """
    claims = _delegation(job_name(job), "job", public, cluster)
    return _signed(key, {**claims, "exp": int((now + JOB_LIFETIME).timestamp())}, {})


def _delegation(name: str, role: str, public: PublicKey, cluster: str) -> dict[str, Any]:
    return {
        "iss": ISSUER,
        "sub": name,
        "aud": cluster,
        "role": role,
        "cnf": {"jwk": public.model_dump()},
    }


def host_name(host_id: str) -> str:
    """Returns the name under which a host proves who it is."""
    return f"{names.HOST_PREFIX}{host_id}"


def job_name(job: str) -> str:
    """Returns the name under which the programs of a job prove who they are."""
    return f"job/{job}"


def audience(delegation: str) -> str:
    """Returns the cluster of a delegation, without a check of its signature.

    Raises:
        ValueError: the text is not a delegation.
    """
    cluster = claims_of(delegation).get("aud")
    if not isinstance(cluster, str) or not names.is_name(cluster):
        raise ValueError("the token names no cluster")
    return cluster


def claims_of(token: str) -> Mapping[str, Any]:
    """Returns the claims of a token, without a check of its signature.

    Raises:
        ValueError: the text is not a JSON Web Signature in the compact form.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("the token does not have three parts")
    claims = json.loads(from_base64url(parts[1]))
    if not isinstance(claims, dict):
        raise ValueError("the token's claims are not a JSON object")
    return claims


def _signed(key: PrivateKey, claims: Mapping[str, Any], header: Mapping[str, Any]) -> str:
    whole = {"alg": "EdDSA", "typ": "JWT", "kid": key.id, **header}
    parts = [
        base64url(json.dumps(each, separators=(",", ":")).encode()) for each in (whole, claims)
    ]
    signed = ".".join(parts)
    signature = Ed25519PrivateKey.from_private_bytes(key.secret).sign(signed.encode())
    return f"{signed}.{base64url(signature)}"
