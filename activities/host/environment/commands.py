"""Provides the commands that every program finds on its PATH after those of the machine: `python`
and `iris`.
"""

import hashlib
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

#: The PATH of a program whose environment has no PATH. Most container images have this PATH.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def without_environment(path: str, prefix: str = sys.prefix, base: str = sys.base_prefix) -> str:
    """Returns the PATH without the directory of the virtual environment in which this agent runs,
    because programs must not find the agent's packages.

    Args:
        prefix: the directory of the agent's environment.
        base: the directory of the Python on which the environment is based.
    """
    if prefix == base:
        return path
    own = os.path.realpath(Path(prefix, "bin"))
    return ":".join(each for each in path.split(":") if os.path.realpath(each) != own)


def with_commands(env: Mapping[str, str], directory: Path, mode: int = 0o700) -> dict[str, str]:
    """Returns the environment with a PATH that ends with a directory of commands that the machine
    may lack.

    The directory contains these commands:

    - `iris` runs the agent's own installation.
    - `python3.12`, or another version, is the Python on which the agent's environment is based,
      without the agent's packages. Some functions need this version.
    - `python3` is the same Python, if the machine has no `python3`.
    - `python` is the machine's `python3` or that Python, if the machine has no `python`.

    Args:
        directory: the parent of the directory with the commands. It is created if it does not
            exist.
        mode: the mode of the directory and of the commands. If jobs have users of their own, these
            users need them, too.
    """
    # Several agents of a machine may use the same parent.
    directory = directory / hashlib.sha256(sys.executable.encode()).hexdigest()[:12]
    path = env.get("PATH") or PATH
    versioned = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = str(Path(sys.base_prefix, "bin", versioned))
    python3 = shutil.which("python3", path=path)
    links = {versioned: base} | ({"python3": base} if python3 is None else {})
    if shutil.which("python", path=path) is None:
        links["python"] = python3 or base
    with suppress(OSError):  # without them, the program still has the machine's commands
        if not directory.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            for each in (directory, directory.parent):
                each.chmod(mode)  # whatever the umask of the agent is
        script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -m iris.cli.main "$@"\n'
        if not _has(directory / "iris", script):
            _put(directory / "iris", script, mode)
        for name, target in links.items():
            if not (directory / name).is_symlink() or str((directory / name).readlink()) != target:
                _link(directory / name, target)
    return {**env, "PATH": f"{path}:{directory}"}


def _has(file: Path, text: str) -> bool:
    try:
        return (
            file.is_file()
            and not file.is_symlink()
            and file.stat().st_size == len(text)
            and file.read_text() == text
        )
    except (OSError, ValueError):
        return False


def _put(file: Path, text: str, mode: int) -> None:
    draft = file.with_name(f".{secrets.token_hex(6)}")
    try:
        draft.write_text(text)
        draft.chmod(mode)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _link(link: Path, target: str) -> None:
    draft = link.with_name(f".{secrets.token_hex(6)}")
    draft.symlink_to(target)
    draft.replace(link)
