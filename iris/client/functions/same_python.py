"""Starts a call with the version of Python that pickled it. Each call has a copy of this module,
which needs Python 3.8 or later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

#: The maximum number of seconds to wait until a command named `python…` prints its version.
PATIENCE = 30
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def problem_with(version: Sequence[int]) -> str:
    """Returns why this interpreter cannot unpickle a call of that version of Python. Returns an
    empty text if it can.

    If `PATH` has an interpreter of that version, this function starts the script again with it and
    does not return. It keeps the interpreter of a virtual environment, which was chosen for the
    job.
    """
    here, there = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, version))
    if here == there:
        return ""
    if "VIRTUAL_ENV" not in os.environ:
        for directory in os.get_exec_path():
            python = os.path.join(directory, f"python{there}")
            if _says(python, there):
                os.execv(python, [python, *sys.argv])
    _leave_mark()
    return (
        f"pickled by Python {there}, and this job runs Python {here}; install python{there} on the"
        f" host, give the job a project or an image with it, or submit from Python {here}"
        f" ({sys.executable})"
    )


def _says(python: str, version: str) -> bool:
    """Returns whether the command is a Python of this version. A shim of pyenv may have the name
    and start no Python.
    """
    if not os.access(python, os.X_OK):
        return False
    try:
        ran = subprocess.run(
            [python, "-c", _VERSION],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.stdout.decode(errors="replace").strip() == version


def _leave_mark() -> None:
    """Tells the host that another attempt would end in the same way
    (`iris.model.job.bundles.FINAL`).
    """
    folder = os.path.join(os.environ["IRIS_OUTPUT_DIR"], ".iris")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "final"), "w"):
        pass
