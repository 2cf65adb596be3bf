"""The file with the identity of this machine's user: a name, a private key, and the clusters for
which the key is used.

A connection sends tokens only to the addresses in the file, so a command that is pointed at another
service does not identify its user there.
"""

import json
import os
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from iris.access.keys import KEY_BYTES, PrivateKey
from iris.client.connect.key_files import read_key_file
from iris.client.connect.paths import has_identity, identity_path, state_dir
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.storage.files import make_private, write_whole

_REMEDY = "make one: iris user key --cluster ADDRESS/NAME"


class IdentityCluster(Frozen):
    """A cluster to which clients send tokens that are signed with the key of an identity."""

    name: str
    #: The address of the cluster's Temporal service: `HOST:PORT`.
    address: str


class Identity(Frozen):
    """The name and the private key with which a client proves who its user is."""

    name: str
    clusters: tuple[IdentityCluster, ...] = ()
    key: PrivateKey

    def cluster_at(self, address: str) -> str | None:
        """Returns the name of the cluster whose Temporal service has this address; None if the
        identity is not for this service.
        """
        wanted = address.strip().lower()
        return next((each.name for each in self.clusters if each.address.lower() == wanted), None)

    def with_cluster(self, name: str, address: str) -> Self:
        """Returns the identity for another cluster, too."""
        rest = (each for each in self.clusters if each.address.lower() != address.lower())
        return self.model_copy(
            update={"clusters": (*rest, IdentityCluster(name=name, address=address))}
        )


def own_identity() -> Identity | None:
    """Returns the identity of this process; None if it has none.

    Raises:
        InvalidValue: the file cannot be used, or `IRIS_IDENTITY` names a missing file.
    """
    return read_identity(identity_path()) if has_identity() else None


def own_identity_at(address: str) -> tuple[Identity, str] | None:
    """Returns the identity of this process and the name of the cluster whose Temporal service has
    this address; None if it has no identity for this service.

    Raises:
        InvalidValue: as in `own_identity`.
    """
    identity = own_identity()
    cluster = identity.cluster_at(address) if identity is not None else None
    return (identity, cluster) if identity is not None and cluster is not None else None


def read_identity(path: Path) -> Identity:
    """Reads the file of an identity.

    Raises:
        InvalidValue: the file is missing, is readable for other users, or is malformed.
    """
    text = read_key_file(names.ENV_IDENTITY, path, _REMEDY)
    try:
        return Identity.model_validate_json(text)
    except ValidationError as error:
        # The error itself would show the private key.
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "the file"
        raise InvalidValue(
            names.ENV_IDENTITY, path, f"is not an identity file: {where} is not valid", _REMEDY
        ) from None


def write_identity(path: Path, identity: Identity) -> None:
    """Writes the file of an identity. Only the current user can read it.

    Raises:
        OSError: the file cannot be written.
    """
    if path.parent == state_dir():
        make_private(path.parent)
    write_whole(path, json.dumps(identity.model_dump(mode="json"), indent=2) + "\n", 0o600)


def new_identity(name: str) -> Identity:
    """Returns an identity with a new key, for no cluster yet."""
    from iris.access.tokens import private_key  # imports cryptography

    return Identity(name=name, key=private_key(os.urandom(KEY_BYTES)))
