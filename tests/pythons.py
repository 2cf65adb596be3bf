"""Interpreters for tests: commands that are called like a Python of another version, and a real one
if the machine has it.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

#: The minor version that runs the tests.
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
#: Where a Python that says that it is version 3.2 runs the script that it is given.
_RUN = (
    "import runpy, sys; sys.version_info = (3, 2); sys.argv = sys.argv[1:];"
    " runpy.run_path(sys.argv[0], run_name='__main__')"
)


def another_python(directory: Path) -> Path:
    """Makes a command `python`, in a directory of its own for PATH, that says that it has version
    3.2.
    """
    return a_command(
        directory, "python", f'exec {shlex.quote(sys.executable)} -c {shlex.quote(_RUN)} "$@"'
    )


def a_command(directory: Path, name: str, script: str) -> Path:
    """Makes a command of a shell script."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)
    return directory / name


def a_real_other_python() -> tuple[str, Path]:
    """Returns the version and the path of a Python of another version that this machine has. Skips
    the test without one.
    """
    places = [Path(each) for each in os.get_exec_path()] + sorted(
        Path.home().glob(".pyenv/versions/*/bin")
    )
    for version in ("3.12", "3.13", "3.11"):
        for python in (place / f"python{version}" for place in places if version != VERSION):
            if (
                python.is_file()
                and subprocess.run([python, "-c", "import venv"], capture_output=True).returncode
                == 0
            ):
                return version, python
    pytest.skip("this machine has no Python of another version")
