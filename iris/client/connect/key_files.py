"""Reads and writes files of keys, which only their owner may read."""

import os
from pathlib import Path

from iris.model.errors import InvalidValue
from iris.storage.files import open_to_others


def read_key_file(variable: str, path: Path, remedy: str) -> str:
    """Returns the content of a file of keys.

    Args:
        variable: the variable that names the file, for errors.
        remedy: how to make such a file, for errors.

    Raises:
        InvalidValue: the file cannot be read, or is readable for other users.
    """
    try:
        text, is_open = path.read_text(), open_to_others(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(variable, path, f"cannot be read: {error}", remedy) from None
    if is_open:
        raise InvalidValue(
            variable, path, "is open to other users of this machine", f"run: chmod 600 {path}"
        )
    return text


def write_key_file(path: Path, text: str) -> None:
    """Replaces a file of keys. Only the current user can read the file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
