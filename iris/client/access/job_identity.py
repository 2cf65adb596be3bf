"""The identity of a job: with it, the job's programs sign in to a cluster with identities, and may
submit child jobs, serve pools and make endpoints known.

It is a key pair of the job's own and a delegation that the job's user has signed. The client seals
it like a secret of the submitter, so only the host of the job can read it.
"""

import json
import os
from datetime import UTC, datetime

from iris.access.keys import KEY_BYTES, PrivateKey, from_base64url
from iris.access.tokens import (
    audience,
    claims_of,
    private_key,
    sign_job_delegation,
)
from iris.client.access.identity_file import own_identity_at
from iris.client.access.token import Token
from iris.client.access.token_sources import signed
from iris.model import names
from iris.model.errors import InvalidValue, Rejected

_FIELD = names.ENV_JOB_IDENTITY


class JobTokens:
    """Makes tokens for the job in which this program runs.

    Args:
        text: the value of `IRIS_JOB_IDENTITY`.

    Raises:
        InvalidValue: the value is malformed.
    """

    def __init__(self, text: str) -> None:
        try:
            values = json.loads(text)
            self._delegation = str(values["delegation"])
            self._key: PrivateKey = private_key(from_base64url(values["key"]))
            self._cluster = audience(self._delegation)
            self.name = str(claims_of(self._delegation)["sub"])
        except (ValueError, KeyError, TypeError):
            # The error must not show the key.
            raise InvalidValue(_FIELD, "...", "is not the identity of a job", "unset it") from None

    def token(self) -> Token:
        """Implements `TokenSource.token`."""
        return signed(self._key, self.name, self._cluster, self._delegation)


def new_job_identity(job: str, address: str) -> bytes:
    """Returns the value of `IRIS_JOB_IDENTITY` for a job of this process's user.

    Args:
        address: that of the cluster's Temporal service.

    Raises:
        Rejected: this process has no identity for the cluster.
    """
    if (found := own_identity_at(address)) is None:
        raise Rejected(
            f"secret {_FIELD}: this machine has no identity for {address}, and the job's key must"
            f" be signed with it; make a key: iris user key --cluster {address}/NAME"
        )
    identity, cluster = found
    key = private_key(os.urandom(KEY_BYTES))
    delegation = sign_job_delegation(identity.key, job, key.public, cluster, datetime.now(UTC))
    return json.dumps({"key": key.d, "delegation": delegation}).encode()
