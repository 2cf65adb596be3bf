"""Finds the key that authenticates a cluster's messages. A cluster with a Temporal dev server of
its own makes it at its first start.

Commands and clients on the machine read the file in the cluster's directory. Control planes and
agents read the file that `IRIS_MESSAGE_KEY` names, and so do clients elsewhere. The program of a
job gets a narrower key in `IRIS_JOB_KEY`.
"""

import os
from pathlib import Path

from iris.client.connect.clusters import MESSAGE_KEY, cluster_dir, known_clusters, make_cluster_dir
from iris.client.connect.key_files import read_key_file, write_key_file
from iris.model import key_text, names
from iris.model.errors import InvalidValue, Rejected
from iris.model.message_keys import KEY_BYTES, MessageKey

_REMEDY = f"name a copy of the cluster's file {MESSAGE_KEY}"


def ensure_key(directory: Path) -> Path:
    """Returns the file of the key in a cluster's directory. Makes the file if it is missing."""
    path = directory / MESSAGE_KEY
    if not path.exists():
        write_key_file(path, text_of(MessageKey(os.urandom(KEY_BYTES))))
    return path


def text_of(key: MessageKey) -> str:
    """Returns the content of a file with this key."""
    return f"{key_text.text_of(key.secret)}\n"


def write_copy(cluster: str, text: str) -> None:
    """Keeps the key of a cluster elsewhere that was started from here. Removes it if the text of
    its file is empty: the cluster has none.
    """
    path = make_cluster_dir(cluster) / MESSAGE_KEY
    if text:
        write_key_file(path, text)
    else:
        path.unlink(missing_ok=True)


def keep_key(cluster: str, address: str) -> None:
    """Makes this process use the same key from now on, also while the cluster does not run.

    Args:
        cluster, address: as in `message_key`.
    """
    if (own := _own_file(cluster, address)) is not None:
        os.environ[names.ENV_MESSAGE_KEY] = str(own)


def message_key(cluster: str = "", address: str = "") -> MessageKey | None:
    """Returns the key with which this process sends messages to a cluster; None if it has none.

    It is the first of these: the key in the directory of the cluster on this machine; the key in
    the file that `IRIS_MESSAGE_KEY` names; the key of the job in which this process runs.

    Args:
        cluster: the name of a cluster that was started from here.
        address: the address of the cluster's service, if its name is not known.

    Raises:
        InvalidValue: a file of a key cannot be used, or `IRIS_JOB_KEY` is not a key.
    """
    if (own := _own_file(cluster, address)) is not None:
        return read_key(own)
    if named := os.environ.get(names.ENV_MESSAGE_KEY, ""):
        return read_key(Path(named).expanduser())
    if text := os.environ.get(names.ENV_JOB_KEY, ""):
        error = InvalidValue(names.ENV_JOB_KEY, "", "is not a key", "leave it as the job has it")
        return MessageKey(_decoded(text, error), os.environ.get(names.ENV_JOB_ID, ""))
    return None


def _own_file(cluster: str, address: str) -> Path | None:
    if not cluster and address:
        cluster = next((each.name for each in known_clusters() if each.address == address), "")
    own = cluster_dir(cluster) / MESSAGE_KEY
    # The program of a job with a user of its own cannot read the directory.
    return own if cluster and os.access(own, os.R_OK) else None


def read_key(path: Path) -> MessageKey:
    """Reads a file with the key of a cluster.

    Raises:
        InvalidValue: the file is missing, is readable for other users, or has no key.
    """
    text = read_key_file(names.ENV_MESSAGE_KEY, path, _REMEDY)
    problem = f"has no key of {KEY_BYTES} bytes in base64"
    return MessageKey(_decoded(text, InvalidValue(names.ENV_MESSAGE_KEY, path, problem, _REMEDY)))


def check_mark(key: MessageKey | None, cluster: str, store: str, mark: str) -> None:
    """Checks that this process has the key of a cluster, by what the cluster says of itself.

    Args:
        mark: what `MessageKey.mark` returns for the cluster's key; empty if it has none.

    Raises:
        Rejected: the cluster has another key, or needs one that this process does not have; or
            somebody without the key has written the description.
    """
    if key is None and mark:
        raise Rejected(
            f"cluster {cluster} accepts only messages that are authenticated with its message key;"
            f" run this as the user who started the cluster, or {_REMEDY}:"
            f" {names.ENV_MESSAGE_KEY}=FILE"
        )
    # The key of a job cannot check it.
    if key is not None and not key.job and mark != key.mark(cluster, store):
        raise Rejected(
            f"cluster {cluster} at this address does not use the message key of this process; set"
            f" {names.ENV_MESSAGE_KEY} to the path of a copy of the cluster's file {MESSAGE_KEY},"
            " or unset it if the cluster has no key"
        )


def _decoded(text: str, error: InvalidValue) -> bytes:
    if (key := key_text.key_in(text, KEY_BYTES)) is None:
        raise error
    return key
