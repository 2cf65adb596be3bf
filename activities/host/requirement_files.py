"""Reads requirements files, as far as a program's environment depends on them."""

import errno
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from iris.activities.host.projects import MOST_LIST, is_here, read

#: The file whose packages are installed for a program that has no other project.
REQUIREMENTS = "requirements.txt"
_NESTED = re.compile(r"(?:-r|-c|--requirements?|--constraints?)(?:\s+|=)?(?P<path>\S.*)")
#: Options that name files or directories which are installed, or searched for packages.
_FILES = re.compile(r"(?:-e|-f|--editable|--find-links)\b")


def hash_of_requirements(directory: Path, path: str) -> tuple[dict[str, str], bool]:
    """Returns the SHA-256 of this file and of those that it includes, by path, and whether any names files to install.

    Args:
        directory: that of the program; the path may be relative to it.

    Raises:
        OSError: a file is too large.
    """
    found: dict[str, str] = {}
    local = False
    waiting = [directory / path]
    while waiting:
        file = waiting.pop()
        if str(file) in found:
            continue
        data = _read(file)
        # Attempts have different directories, and the same environment.
        found[str(file)] = hashlib.sha256(data).hexdigest()
        for line in _lines(data.decode(errors="replace")):
            if (nested := _NESTED.fullmatch(line)) is not None and "://" not in nested["path"]:
                waiting.append(file.parent / nested["path"].strip("'\""))
            elif _FILES.match(line) or is_here(line) or _is_there(directory / line):
                local = True
    return {path.removeprefix(f"{directory}/"): digest for path, digest in found.items()}, local


def _read(file: Path) -> bytes:
    """Returns the content of the file; nothing if there is none, which uv reports."""
    try:
        return read(file, MOST_LIST)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EFBIG:  # what is not read must not be taken for the same
            raise
        return b""


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a requirement with its hashes is longer than any path
        return False


def _lines(text: str) -> Iterator[str]:
    """Yields the lines without comments; lines that end with a backslash go on with the next."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if stripped := re.sub(r"(?:^|\s)#.*$", "", line).strip():
            yield stripped
