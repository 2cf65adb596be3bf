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
