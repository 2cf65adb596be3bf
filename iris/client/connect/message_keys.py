"""Finds the key that authenticates a cluster's messages. `iris cluster start --local` makes it.

Commands and clients of the machine read the file in the cluster's directory. Control planes and
agents read the file that `IRIS_MESSAGE_KEY` names, and a job's program gets a narrower key in
`IRIS_JOB_KEY`.
"""

import base64
import binascii
import os
from pathlib import Path

from iris.client.connect.clusters import cluster_dir, kept_records
from iris.client.connect.key_files import read_key_file, write_key_file
from iris.model import names
from iris.model.errors import InvalidValue, Rejected
from iris.model.message_keys import KEY_BYTES, MessageKey

#: The name of the file with the key, in the directory of a cluster.
FILE = "message.key"


def ensure_key(directory: Path) -> Path:
    """Returns the file of the key in a cluster's directory. Makes the file if it is missing."""
    path = directory / FILE
    if not path.exists():
        write_key_file(path, base64.b64encode(os.urandom(KEY_BYTES)).decode() + "\n")
    return path


def message_key(cluster: str = "", address: str = "") -> MessageKey | None:
    """Returns the key with which this process sends messages to a cluster; None if it has none.

    It is the first of these: the key in the directory of the cluster on this machine; the key in
    the file that `IRIS_MESSAGE_KEY` names; the key of the job in which this process runs.

    Args:
        cluster: the name of a cluster that is known on this machine.
        address: the address of the cluster's service, if only that is known.

    Raises:
        InvalidValue: a file of a key cannot be used, or `IRIS_JOB_KEY` is not a key.
    """
    if not cluster and address:
        cluster = next((each.name for each in kept_records() if each.address == address), "")
    named = os.environ.get(names.ENV_MESSAGE_KEY, "")
    if cluster and _readable(own := cluster_dir(cluster) / FILE):
        return read_key(own)
    if named:
        return read_key(Path(named).expanduser())
    if text := os.environ.get(names.ENV_JOB_KEY, ""):
        remedy = "leave the variable as the job has it"
        secret = _key(text, InvalidValue(names.ENV_JOB_KEY, "", "is not a key", remedy))
        return MessageKey(secret, os.environ.get(names.ENV_JOB_ID, ""))
    return None


def check_key(cluster: str, key_id: str, key: MessageKey | None) -> None:
    """Checks that this process has the key of a cluster.

    Args:
        key_id: the id of the cluster's key; empty if the cluster has none.

    Raises:
        Rejected: the cluster takes no messages of this process.
    """
    if not key_id or (key is not None and (key.job or key.id == key_id)):
        return
    which = "with its key" if key is None else f"with its key {key_id}, and this one is {key.id}"
    raise Rejected(
        f"cluster {cluster} takes only messages that are authenticated {which}; run this as the"
        f" user who started the cluster, or name a copy of its file {FILE}:"
        f" {names.ENV_MESSAGE_KEY}=FILE"
    )


def _readable(path: Path) -> bool:
    # A program with a user of its own cannot even look into the directory.
    return os.access(path, os.R_OK)


def read_key(path: Path) -> MessageKey:
    """Reads a file with the key of a cluster.

    Raises:
        InvalidValue: the file is missing, is readable for other users, or has no key.
    """
    remedy = f"name a copy of the cluster's file {FILE}"
    text = read_key_file(names.ENV_MESSAGE_KEY, path, remedy)
    problem = f"has no key of {KEY_BYTES} bytes in base64"
    return MessageKey(_key(text, InvalidValue(names.ENV_MESSAGE_KEY, path, problem, remedy)))


def _key(text: str, error: InvalidValue) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise error from None
    if len(key) != KEY_BYTES:
        raise error
    return key
