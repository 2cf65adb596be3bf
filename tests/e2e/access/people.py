"""People and machines with keys, the policy that names them, and the tokens that they sign, also
wrong ones.
"""

import base64
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris.access.rules import rules

CLUSTER, NAMESPACE = "lab", "default"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


@dataclass(frozen=True)
class Principal:
    """Somebody with a key of their own.

    Args:
        delegation: the claims for a key that is not in the policy, and who signs them.
    """

    name: str
    role: str
    delegation: tuple[Mapping[str, Any], "Principal"] | None = None
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def jwk(self) -> dict[str, str]:
        return {"kty": "OKP", "crv": "Ed25519", "x": base64url(self._public)}

    @property
    def key_id(self) -> str:
        return base64url(hashlib.sha256(compact(self.jwk)).digest())

    @property
    def _public(self) -> bytes:
        return self.key.public_key().public_bytes_raw()

    def signed(self, claims: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> str:
        """Returns a JSON Web Signature by this key. The header replaces and adds fields."""
        whole = {"alg": "EdDSA", "typ": "JWT", "kid": self.key_id, **(header or {})}
        text = f"{base64url(compact(whole))}.{base64url(compact(claims))}"
        return f"{text}.{base64url(self.key.sign(text.encode()))}"

    def claims(self, **other: object) -> dict[str, object]:
        """Returns the claims of a valid token; `other` replaces and adds claims."""
        now = int(time.time())
        valid = {"iss": "iris", "sub": self.name, "aud": CLUSTER, "iat": now, "exp": now + 600}
        return {**valid, **other}

    def token(self) -> str:
        """Returns a valid token."""
        return self.signed(self.claims(), self.header())

    def header(self) -> dict[str, str]:
        """Returns the header of tokens of a key that is not in the policy."""
        if self.delegation is None:
            return {}
        claims, signer = self.delegation
        return {"iris_delegation": signer.signed({**claims, "cnf": {"jwk": self.jwk}})}


def of_slice(slice_id: str, signer: Principal, **other: object) -> tuple[dict[str, Any], Principal]:
    """Returns the delegation of the hosts of a slice; `other` replaces and adds claims."""
    claims = {"iss": "iris", "sub": f"slice/{slice_id}", "aud": CLUSTER, "role": "host"}
    return {**claims, **other}, signer


def of_job(job: str, signer: Principal) -> tuple[dict[str, Any], Principal]:
    """Returns the delegation of the programs of a job."""
    return {"iss": "iris", "sub": f"job/{job}", "aud": CLUSTER, "role": "job"}, signer


def write_policy(path: Path, principals: Iterable[Principal], **other: object) -> Path:
    """Writes the policy with those whose keys it has; `other` replaces and adds fields."""
    entries = [
        {"name": each.name, "role": each.role, "keys": [each.jwk]}
        for each in principals
        if each.delegation is None
    ]
    policy = {
        "version": 1,
        "cluster": CLUSTER,
        "namespace": NAMESPACE,
        "principals": entries,
        "issuers": [],
        "certificates": {},
        "revoked": [],
        "audit_dir": str(path.parent / "audit"),
        "rules": rules(CLUSTER),
    }
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**policy, **other}))
    return new.replace(path)
