"""Reads and changes the file with the policy of a cluster, which Temporal's servers read."""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from iris.access.policy import Policy, parse_policy
from iris.access.rules import rules
from iris.config.errors import InvalidConfig
from iris.model import names
from iris.model.errors import InvalidValue, Rejected, first_line
from iris.storage.files import write_whole

#: The permission bits of an access policy's file. Other users may read the file: it contains no
#: secrets, and the servers may run as another user.
MODE = 0o644


def policy_path(given: Path | None = None) -> Path:
    """Returns the policy's file: the given one, or else that in `IRIS_ACCESS_POLICY`.

    Raises:
        InvalidValue: neither names a file.
    """
    found = given or os.environ.get(names.ENV_ACCESS_POLICY)
    if not found:
        raise InvalidValue(
            "policy",
            "",
            "is not given",
            f"name the file with --policy FILE or {names.ENV_ACCESS_POLICY}",
        )
    return Path(found).expanduser()


def read_policy(path: Path) -> Policy:
    """Returns the policy in a file.

    Raises:
        InvalidValue: the file cannot be read.
        InvalidConfig: the policy has errors.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(
            "policy",
            path,
            f"cannot be read: {first_line(error)}",
            "make one: iris cluster access --create FILE --name CLUSTER",
        ) from None
    return parse_policy(text, str(path))


def check_policy(path: Path) -> Policy:
    """Returns the policy in a file, if the servers and this version of Iris can use it.

    Raises:
        InvalidValue: the file cannot be read.
        InvalidConfig: the policy has errors, or its rules are of another version of Iris.
    """
    policy = read_policy(path)
    if policy.rules != json.loads(json.dumps(rules(policy.cluster))):
        problem = (
            "rules: are not those of this version of Iris; to replace them, run: iris cluster"
            f" access --update {path}"
        )
        raise InvalidConfig([problem], str(path))
    return policy


def create_policy(path: Path, policy: Policy) -> None:
    """Writes a new policy, with the rules of this version of Iris.

    Raises:
        Rejected: the file exists.
        OSError: the file cannot be written.
    """
    with _locked(path):
        if path.exists():
            raise Rejected(f"{path} exists already; to check it, run: iris cluster access --check")
        _write(path, policy)


def change_policy(path: Path, change: Callable[[Policy], Policy]) -> Policy:
    """Changes the policy in a file, gives it the rules of this version of Iris, and returns it. The
    servers read the file again within seconds.

    Raises:
        InvalidValue, InvalidConfig: the file cannot be read, or has errors; nothing is changed.
        OSError: the file cannot be written.
    """
    with _locked(path):
        changed = change(read_policy(path))
        _write(path, changed)
    return changed


def _write(path: Path, policy: Policy) -> None:
    ruled = policy.model_copy(update={"rules": rules(policy.cluster)})
    mode = path.stat().st_mode & 0o777 if path.exists() else MODE
    write_whole(path, ruled.to_json(), mode)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lets one command at a time change the policies in the file's directory."""
    try:
        directory = os.open(path.absolute().parent, os.O_RDONLY)
    except OSError as error:
        raise InvalidValue(
            "policy",
            path,
            f"is in a directory that cannot be opened: {error.strerror}",
            "create the directory",
        ) from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)
