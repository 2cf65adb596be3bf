"""The keys that seal users' secrets for a cluster. The public key is in the store, and the private
keys are in a file.

Control planes and agents read the file that `IRIS_SECRET_KEYS` names. Only agents open secrets. A
control plane publishes the public key, and passes the file to agents that it starts over SSH.
Clients need only the store.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from iris.client.connect.key_files import read_key_file, write_key_file
from iris.model import names, store_paths
from iris.model.errors import Rejected
from iris.storage.object_store import Store

if TYPE_CHECKING:
    from iris.model.sealed import PrivateKeys

#: The name of the file with the private keys, in the directory of a cluster.
FILE = "secret.keys"


class SecretKeys(NamedTuple):
    """A file of private keys. Its `repr` does not show the keys."""

    path: Path
    private: "PrivateKeys"
    text: str

    def __repr__(self) -> str:
        return f"SecretKeys({str(self.path)!r})"


def secret_keys() -> SecretKeys | None:
    """Returns the keys in the file that `IRIS_SECRET_KEYS` names; None if it names no file.

    Raises:
        InvalidValue: the file cannot be used.
    """
    path = os.environ.get(names.ENV_SECRET_KEYS, "")
    return read_secret_keys(Path(path).expanduser()) if path else None


def read_secret_keys(path: Path) -> SecretKeys:
    """Reads a file of private keys.

    Raises:
        InvalidValue: the file is missing, is readable for other users, has no keys, or has a
            malformed key.
    """
    from iris.model.sealed import parse_keys  # most commands use no keys

    text = read_key_file(names.ENV_SECRET_KEYS, path, "make one: iris secret new-keys")
    return SecretKeys(path, parse_keys(text, str(path)), text)


def today() -> str:
    """Returns the date that marks new keys in their file."""
    return datetime.now(UTC).date().isoformat()


def new_keys() -> str:
    """Returns the content of a new file of keys: the current key, and the key that is current after
    the next rotation.
    """
    from iris.model.sealed import KEY_BYTES, keys_text

    return keys_text([os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)], today())


def ensure_keys(directory: Path) -> Path:
    """Returns the file of keys in a cluster's directory. Makes the file if it is missing."""
    path = directory / FILE
    if not path.exists():
        write_key_file(path, new_keys())
    return path


def use_keys_of(directory: Path) -> None:
    """Sets `IRIS_SECRET_KEYS` in this process to the file of keys in a cluster's directory. Does
    nothing if there is no such file or the variable is set.
    """
    if not os.environ.get(names.ENV_SECRET_KEYS) and (path := directory / FILE).exists():
        os.environ[names.ENV_SECRET_KEYS] = str(path)


async def publish_key(store: str, cluster: str, keys: SecretKeys | None) -> None:
    """Writes the public key into the store of the cluster. Deletes it there if `keys` is None.

    Raises:
        Unreachable, OSError, BaseError: the store does not answer.
    """
    path, opened = store_paths.secret_key(cluster), Store(store)
    before = await opened.get(path)
    if keys is None:
        if before is not None:
            await opened.delete([path])
        return
    public = f"{keys.private.public.hex()}\n".encode()
    if before != public:
        await opened.put(path, public)


async def public_key(store: Store, cluster: str) -> bytes:
    """Returns the public key that seals secrets for the cluster's agents.

    Raises:
        Rejected: the cluster has no such key.
        OSError, BaseError: the store does not answer.
    """
    found = await store.get(store_paths.secret_key(cluster), most=1_000)
    if found is None:
        raise Rejected(
            f"cluster {cluster} has no key for secrets of its users: start its control plane and"
            f" its agents with {names.ENV_SECRET_KEYS}=FILE (on Google Cloud:"
            " controller.secret_keys), or name a secret that the hosts have:"
            " NAME=host-env:VARIABLE, NAME=host-file:/PATH or NAME=gcp:SECRET"
        )
    try:
        key = bytes.fromhex(found.decode().strip())
    except ValueError:
        key = b""
    if len(key) != 32:
        raise Rejected(
            f"the key for secrets in the store of cluster {cluster} is malformed; restart its"
            " control plane"
        )
    return key
