"""Unpacks a bundle's archive into files. Checks all entries before it writes any of them, and
follows no link.
"""

import os
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from iris.activities.host.runtimes.threads import Stopped
from iris.model.job.bundles import Entry, Kind, offence, parts_of

#: The types of tar headers for a name that is too long for an entry's own header, and the size
#: limit of these headers in bytes.
_LONG_NAMES, _LONGEST = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK), 8 * 1024
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_ENTRIES = (
    *_PLAIN,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.FIFOTYPE,
)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: The latest modification time that an unpacked file gets, in seconds since 1970. File systems
#: cannot store every number.
_LATEST = 2**32
_BLOCK = 1024 * 1024


class NoArchive(Exception):
    """The error if the data is not a tar archive, or is of a kind that Iris does not accept."""


class Unsafe(Exception):
    """The error if an entry of an archive is not safe to unpack. The message names the entry."""


def unpack(archive: IO[bytes], into: Path, stop: threading.Event) -> None:
    """Writes the archive's files into the directory, which is created if it does not exist. Writes
    nothing to any other place.

    Raises:
        NoArchive, Unsafe: the archive cannot be unpacked. No file was written, unless the archive
            is truncated in the middle of a file.
        OSError: a file cannot be written, or already exists.
        Stopped: `stop` was set.
    """
    members = _members(archive, stop)
    into.mkdir(parents=True, exist_ok=True)
    with _Directory(into) as directory:
        for member in members:
            if stop.is_set():
                raise Stopped
            _write(archive, member, directory)


# -- reading ---------------------------------------------------------------------------------------


class _Header(tarfile.TarInfo):
    """A tar header of one of the kinds that Iris accepts. Other kinds can make `tarfile` read
    without end, or block the interpreter for minutes.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _LONG_NAMES:
            if not 0 < header.size <= _LONGEST:
                raise NoArchive(
                    f"a name in the archive has {header.size:,} bytes (limit: {_LONGEST:,})"
                )
        elif header.type not in _ENTRIES:
            raise NoArchive(
                f"the archive has a header of type {header.type.decode(errors='replace')!r}; pack"
                " with tar --format=gnu"
            )
        elif header.size < 0:
            raise NoArchive(f"its entry {header.name!r} has an invalid size: {header.size:,} bytes")
        return header


def _members(archive: IO[bytes], stop: threading.Event) -> list[tarfile.TarInfo]:
    """Checks all entries, and returns them."""
    members: list[tarfile.TarInfo] = []

    def entries() -> Iterator[Entry]:
        with tarfile.open(fileobj=archive, mode="r:", tarinfo=_Header) as tar:
            for member in tar:
                if stop.is_set():
                    raise Stopped
                members.append(member)
                yield Entry(
                    member.name,
                    _kind(member),
                    member.size if member.isreg() else 0,
                    member.linkname,
                )

    archive.seek(0)
    try:
        wrong = offence(entries())
    except (tarfile.TarError, ValueError, EOFError, RecursionError) as error:
        raise NoArchive(str(error)) from None
    if wrong is not None:
        raise Unsafe(wrong)
    return members


def _kind(member: tarfile.TarInfo) -> Kind:
    kinds: list[tuple[Callable[[], bool], Kind]] = [
        (member.isreg, Kind.FILE),
        (member.isdir, Kind.DIRECTORY),
        (member.issym, Kind.LINK),
        (member.islnk, Kind.HARD_LINK),
    ]
    return next((kind for holds, kind in kinds if holds()), Kind.SPECIAL)


# -- writing ---------------------------------------------------------------------------------------


class _Directory:
    """An open directory into which files are unpacked. It opens a path one level at a time, so that
    no link is followed.
    """

    def __init__(self, path: Path) -> None:
        self._root = os.open(path, _DIRECTORY)
        #: The path and the descriptor of the last entry's directory. They are kept because the next
        #: entry is often in the same directory.
        self._last: tuple[list[str], int] = ([], os.dup(self._root))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._last[1])
        os.close(self._root)

    def below(self, parts: list[str]) -> int:
        """Returns the descriptor of the directory at this path, which is created if it does not
        exist.

        The descriptor is valid until the next call.
        """
        if parts != self._last[0]:
            here = os.dup(self._root)
            try:
                for part in parts:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=here)
                    above, here = here, os.open(part, _DIRECTORY, dir_fd=here)
                    os.close(above)
            except BaseException:
                os.close(here)
                raise
            os.close(self._last[1])
            self._last = (parts, here)
        return self._last[1]


def _write(archive: IO[bytes], member: tarfile.TarInfo, directory: _Directory) -> None:
    parts = parts_of(member.name)
    if member.isdir():
        directory.below(parts)
        return
    where, name = directory.below(parts[:-1]), parts[-1]
    if member.issym():
        os.symlink(member.linkname, name, dir_fd=where)
        return
    with os.fdopen(os.open(name, _NEW_FILE, 0o600, dir_fd=where), "wb") as out:
        archive.seek(member.offset_data)
        left = member.size
        while left > 0:
            if not (block := archive.read(min(left, _BLOCK))):
                raise NoArchive(f"{member.name!r} is truncated")
            out.write(block)
            left -= len(block)
        os.fchmod(out.fileno(), stat.S_IMODE(member.mode) & 0o755 | 0o600)
        changed = max(0, min(member.mtime, _LATEST))
        os.utime(out.fileno(), (changed, changed))
