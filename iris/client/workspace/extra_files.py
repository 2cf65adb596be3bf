"""Files that `--file` adds to a workspace."""

from pathlib import Path
from typing import NamedTuple

from iris.client.workspace.files import IGNORE_FILE
from iris.model.errors import InvalidValue


class ExtraFile(NamedTuple):
    """A file that is sent with the workspace even if it is ignored or outside of the workspace."""

    source: Path
    #: The path of the file in the job's workspace. None keeps the path of a file that is in the
    #: workspace, and puts any other file into the top directory of the job's workspace.
    dest: str | None = None


def parse_extra(text: str) -> ExtraFile:
    """Parses `PATH[:DEST]`. A colon in the name of an existing file is part of the name.

    Raises:
        InvalidValue: there is no such file, or the destination is not inside a workspace.
    """
    path, colon, dest = (text, "", "") if Path(text).exists() else text.rpartition(":")
    source = Path(path if colon else text)
    if source.is_dir():
        raise InvalidValue(
            "file",
            path or text,
            "is a directory",
            f"name its files, or include it with ! in {IGNORE_FILE}",
        )
    if not source.is_file():
        raise InvalidValue("file", path or text, "is not a file", "write PATH[:DEST]")
    if not colon:
        return ExtraFile(source)
    return ExtraFile(
        source, place_in_workspace(f"{dest}{source.name}" if dest.endswith("/") else dest)
    )


def place_in_workspace(dest: str) -> str:
    """Normalizes the path of a destination.

    Raises:
        InvalidValue: the destination is not inside a workspace.
    """
    parts = Path(dest).parts
    if not parts or Path(dest).is_absolute() or ".." in parts:
        raise InvalidValue(
            "file",
            dest,
            "is not a path in a workspace",
            "write PATH:DEST with DEST relative to the workspace",
        )
    return "/".join(parts)
