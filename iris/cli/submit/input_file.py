"""Reads the file, or the standard input, that a command takes jobs from."""

from typing import BinaryIO

from iris.model.errors import InvalidValue
from iris.model.units import MIB, format_bytes

#: The maximum size in bytes of a file of jobs: some hundred thousand lines. Without a limit, a
#: device that is named by mistake would be read without end.
MOST = 64 * MIB


def name_of(file: BinaryIO) -> str:
    """Returns the name of a file for messages."""
    return "standard input" if file.name == "<stdin>" else file.name


def read_whole(file: BinaryIO) -> bytes:
    """Returns the content of a file of jobs.

    Raises:
        InvalidValue: the file is too large.
    """
    content = file.read(MOST + 1)
    if len(content) > MOST:
        raise InvalidValue(
            "file",
            name_of(file),
            f"has more than {format_bytes(MOST)}",
            "split it, or check the name",
        )
    return content
