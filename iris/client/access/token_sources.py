"""Makes the tokens of connections: from the identity of this machine's user, from the key of a
slice, from the identity of a job, or with a command.

With the identity of a job, its programs sign in to a cluster with identities, and may submit child
jobs, serve pools and make endpoints known. It is a key pair of the job's own and a delegation that
the job's user has signed. The client seals it like a secret of the submitter, so only the host of
the job can read it.
"""

import json
import os
import shlex
import subprocess
import time
from datetime import UTC, datetime

from iris.access.keys import KEY_BYTES, PrivateKey, PublicKey, from_base64url
from iris.access.tokens import (
    LIFETIME,
    audience,
    claims_of,
    host_name,
    private_key,
    sign_delegation,
    sign_job_delegation,
    sign_token,
)
from iris.client.access.identity_file import own_identity_at
from iris.client.access.token_interface import Token
from iris.client.connect.credentials import ADDRESS
from iris.model import names
from iris.model.errors import InvalidValue, Rejected, Unreachable, first_line

#: The fraction of a token's lifetime after which the token is replaced. The rest of the lifetime is
#: a reserve for failed attempts and for clocks that differ.
RENEW_AFTER = 0.5
#: How long `IRIS_TOKEN_COMMAND` may run, in seconds.
COMMAND_TIMEOUT = 60
_FIELD = names.ENV_JOB_IDENTITY


class IdentityTokens:
    """Makes tokens for a user, signed with the key in the user's identity file. It reads the file
    for each token, so a new key needs no restart.
    """

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self.name = name

    def token(self) -> Token:
        """Implements `TokenSource.token`."""
        if (found := own_identity_at(self._address)) is None:
            raise Unreachable(f"the identity for {self._address} was removed; see iris user key")
        identity, cluster = found
        return signed(identity.key, identity.name, cluster)


class HostTokens:
    """Makes tokens for a host, signed with the private key of its slice.

    Args:
        slice_key: the slice's private key, in hexadecimal digits.
        delegation: the signed statement of the control plane that this key belongs to the slice.

    Raises:
        ValueError: the key or the delegation is malformed.
    """

    def __init__(self, host_id: str, slice_key: str, delegation: str) -> None:
        self.name = host_name(host_id)
        self._key = private_key(bytes.fromhex(slice_key))
        self._cluster = audience(delegation)
        self._delegation = delegation

    def token(self) -> Token:
        """Implements `TokenSource.token`."""
        return signed(self._key, self.name, self._cluster, self._delegation)


class CommandTokens:
    """Runs the command in `IRIS_TOKEN_COMMAND`, which prints a token of an identity provider
    (OpenID Connect).
    """

    #: The name of the user; empty, because only the cluster's policy knows whose token the command
    #: prints.
    name = ""

    def __init__(self, command: str) -> None:
        self._command = command

    def token(self) -> Token:
        """Implements `TokenSource.token`."""
        try:
            done = subprocess.run(
                shlex.split(self._command),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=COMMAND_TIMEOUT,
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise self._wrong(f"cannot be run: {first_line(error)}") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:]
            raise self._wrong(
                f"exited with {done.returncode}{''.join(f': {each}' for each in said)}"
            )
        text, now = done.stdout.strip(), time.time()
        try:
            expires = float(claims_of(text)["exp"])
        except (ValueError, KeyError, TypeError):
            raise self._wrong("printed no token with an expiry time (exp)") from None
        if expires <= now:
            raise self._wrong("printed a token that has expired")
        return Token(text, now + (expires - now) * RENEW_AFTER)

    def _wrong(self, problem: str) -> InvalidValue:
        return InvalidValue(
            names.ENV_TOKEN_COMMAND,
            self._command,
            problem,
            "name a command that prints a JSON Web Token",
        )


def of_identity(address: str) -> IdentityTokens | None:
    """Returns the tokens of this process's identity for the service at the address; None if the
    identity is not for it.

    Raises:
        InvalidValue: the identity cannot be used.
    """
    found = own_identity_at(address)
    return IdentityTokens(address, found[0].name) if found is not None else None


def delegation(address: str, slice_id: str, public_key: bytes) -> str:
    """Implements `slice_delegation` for a process with an identity."""
    if (found := own_identity_at(address)) is None:
        return ""
    identity, cluster = found
    return sign_delegation(identity.key, slice_id, PublicKey.of(public_key), cluster)


def of_command(command: str, address: str) -> CommandTokens | None:
    """Returns the tokens of `IRIS_TOKEN_COMMAND`; None if they are for another service: they are
    for the one in `TEMPORAL_ADDRESS`, as Temporal's own credentials are.
    """
    owner = os.environ.get(ADDRESS, "")
    return CommandTokens(command) if owner.strip().lower() == address.strip().lower() else None


def signed(key: PrivateKey, name: str, cluster: str, delegation: str = "") -> Token:
    """Returns a token that is valid from now on, with the arguments of `sign_token`."""
    now = datetime.now(UTC)
    text = sign_token(key, name, cluster, now, delegation=delegation)
    return Token(text, now.timestamp() + LIFETIME.total_seconds() * RENEW_AFTER)


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
