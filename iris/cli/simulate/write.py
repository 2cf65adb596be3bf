"""Writes the files of a report."""

from collections.abc import Mapping
from pathlib import Path


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Writes the files into a folder, which is created if it does not exist. Other files there
    stay.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
