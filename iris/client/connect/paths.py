"""Where this machine keeps the state of Iris. The module has no large imports, because shell
completion uses it at each press of the Tab key.
"""

import os
from pathlib import Path

from iris.model import names


def state_dir() -> Path:
    """Returns the directory for state that outlives a process: `IRIS_STATE_DIR`, or else `iris` in
    the XDG state directory.
    """
    if explicit := os.environ.get(names.ENV_STATE_DIR):
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "iris"


def identity_path() -> Path:
    """Returns the file with the identity of this process's user: that in `IRIS_IDENTITY`, or else
    `identity.json` in the directory of Iris.
    """
    explicit = os.environ.get(names.ENV_IDENTITY)
    return Path(explicit).expanduser() if explicit else state_dir() / "identity.json"


def has_identity() -> bool:
    """Returns whether this process has an identity. Most have none, and then import nothing of
    it.
    """
    return bool(os.environ.get(names.ENV_IDENTITY)) or identity_path().exists()
