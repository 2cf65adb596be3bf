"""Copies a program's output from pipes into files, for its shim.

This module uses only the standard library, as the shim does, and is imported by its bare name.
"""

# ruff: noqa: PTH101

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from iris.activities.host.runtimes.shim.masks import Masker

#: The maximum number of bytes that are read at once from a pipe: as many as a pipe can hold.
PIPE = 64 * 1024


class Output:
    """Copies the program's output from pipes into files.

    Programs do not write into the files directly, because a program that opens its standard output
    again, as `echo x > /dev/stdout` does, would truncate a file. A pipe cannot be truncated.

    Args:
        files: the descriptors of the files, one for each stream.
        secrets: the values to mask in the files.
    """

    def __init__(self, files: Sequence[int], secrets: Collection[str]) -> None:
        #: The number of bytes of output that were lost, because the disk had no space.
        self.lost = 0
        self._files = files
        #: The masker of each output file; empty if there are no secrets.
        self._maskers: dict[int, Masker] = {file: _masker(secrets) for file in files if secrets}
        #: The output file for each pipe, by the descriptor of the pipe's reading end.
        self._ways: dict[int, int] = {}

    def pipe(self, stream: int) -> int:
        """Makes a pipe and returns its writing end."""
        reader, writer = os.pipe()
        self._add(reader, stream)
        return writer

    def named_pipes(self, names: Sequence[str]) -> None:
        """Creates a named pipe for each stream, for a container."""
        for stream, name in enumerate(names):
            os.mkfifo(name)
            # Every user of the container may write. The directory is closed to other users.
            os.chmod(name, 0o622)  # noqa: S103
            self._add(
                os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), stream
            )

    @property
    def readers(self) -> list[int]:
        return list(self._ways)

    def copy(self) -> bool:
        """Copies some of the available output. Returns False if there was none."""
        found = False
        for reader, file in list(self._ways.items()):
            try:
                data = os.read(reader, PIPE)
            except BlockingIOError:
                continue
            if not data:  # no process has it open any more
                del self._ways[reader]
                os.close(reader)
                continue
            found = True
            self._write(file, self._maskers[file].feed(data) if self._maskers else data)
        return found

    def finish(self) -> None:
        """Copies the rest of the output, including the end that a masker has kept because it might
        be the beginning of a secret.
        """
        while self.copy():
            pass
        for file, masker in self._maskers.items():
            self._write(file, masker.end())

    def _write(self, file: int, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(file, data) :]
            except OSError:  # the disk is full, and the program may continue
                self.lost += len(data)
                break

    def _add(self, reader: int, stream: int) -> None:
        os.set_blocking(reader, False)
        self._ways[reader] = self._files[stream]


def _masker(secrets: Collection[str]) -> Masker:
    made: Masker = __import__("masks").Masker(secrets)
    return made
