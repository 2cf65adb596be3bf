"""Bundles on a host: fetched from the store, checked, kept for the next attempt, unpacked into a program's directory."""

import asyncio
import errno
import gzip
import hashlib
import os
import posixpath
import tarfile
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from obstore.exceptions import BaseError

from iris import names
from iris.activities.caches import DISK_FAULT, Cache, no_room
from iris.activities.runtimes.base import CannotStart, HostUnable
from iris.activities.threads import Stopped, in_thread
from iris.bundles import MAX_BUNDLE, Bundle
from iris.errors import first_line
from iris.store import Store
from iris.units import format_bytes

#: Before each further try to reach the store, in seconds: about half a minute in all.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
STORE_FAULT = "store"
BUNDLE_FAULT = "bundle"
#: The shell's code for what is found but will not do.
_WILL_NOT_DO = 126
#: What a path can be refused for that another host would refuse, too.
_NAMES_FAULT = {errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ENOTEMPTY}
_BLOCK = 1024 * 1024
#: What may not be unpacked is refused here: Python's own filter came with 3.11.4, and lets more through. Newer ones ask for one.
_NO_FILTER: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}


class _Damaged(Exception):
    """The bytes are not those that the bundle is named by."""


class Bundles:
    """The bundles of a host.

    Args:
        cache_dir: shared with other agents of this machine.
        limit: of what is kept there, in bytes.
        pauses: before each further try to reach the store, in seconds.
    """

    def __init__(self, store: Store, cache_dir: Path, limit: int, pauses: Sequence[float] = PAUSES) -> None:
        self._store = store
        self._cache = Cache(cache_dir, limit)
        self._pauses = pauses

    async def unpack(self, bundle: Bundle, into: Path) -> None:
        """Put the bundle's files into a directory, which is made when it is not there.

        Raises:
            CannotStart: the store has no such bundle, or one that cannot be unpacked safely.
            HostUnable: the store does not answer or has something else under its name, or the disk is full.
        """
        with await self._cache.use(bundle.sha256, lambda place: self._get(bundle, place)) as entry:
            await in_thread(lambda stop: _unpack(entry.path / "bundle.tar", into, stop))

    async def _get(self, bundle: Bundle, place: Path) -> None:
        """Have the archive, uncompressed and checked, in this directory."""
        packed, archive = place / "bundle.tar.gz", place / "bundle.tar"
        for further in (True, False):
            await self._fetch(bundle, packed)
            try:
                await in_thread(lambda stop: _uncompress(packed, archive, bundle, stop))
            except _Damaged as damage:
                if not further:
                    reason = f"bundle {bundle.sha256[:12]} in {self._store.url} is damaged: {damage}"
                    raise HostUnable(reason, BUNDLE_FAULT) from None
            else:
                return
            finally:
                packed.unlink(missing_ok=True)

    async def _fetch(self, bundle: Bundle, file: Path) -> None:
        for pause in (*self._pauses, None):
            try:
                if await self._store.get_file(names.bundle(bundle.sha256), file):
                    return
            except (OSError, BaseError) as error:
                if isinstance(error, OSError) and no_room(error):
                    raise
                if pause is None:
                    told = first_line(error)
                    raise HostUnable(f"the store {self._store.url} does not answer: {told}", STORE_FAULT) from None
                await asyncio.sleep(pause)
            else:
                raise CannotStart(
                    f"bundle {bundle.sha256[:12]} is not in the store {self._store.url} (any more); submit the job again",
                    _WILL_NOT_DO,
                )


def _uncompress(packed: Path, archive: Path, bundle: Bundle, stop: threading.Event) -> None:
    """Write the archive, and never more of it than a bundle may have.

    Raises:
        _Damaged: it is not the archive of this bundle.
    """
    most = min(bundle.size or MAX_BUNDLE, MAX_BUNDLE)
    size, content = 0, hashlib.sha256()
    with archive.open("wb") as out, packed.open("rb") as raw, gzip.GzipFile(fileobj=raw) as blocks:
        while True:
            if stop.is_set():
                raise Stopped
            try:
                block = blocks.read(_BLOCK)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise _Damaged(str(error)) from None
            if not block:
                break
            size += len(block)
            if size > most:
                raise _Damaged(f"it has more than the {format_bytes(most)} that it should")
            content.update(block)
            out.write(block)
        if content.hexdigest() != bundle.sha256:
            raise _Damaged(f"its SHA-256 is {content.hexdigest()[:12]}")
        out.flush()
        os.fsync(out.fileno())  # what is called complete has to be, also after the machine has lost its power


def _unpack(archive: Path, into: Path, stop: threading.Event) -> None:
    """Put the archive's files into the directory, and nothing anywhere else."""
    name = ""
    try:
        into.mkdir(parents=True, exist_ok=True)
        files: set[str] = set()
        links: set[str] = set()
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                if stop.is_set():
                    raise Stopped
                name = member.name
                if why := _refused(member, files, links):
                    raise _unsafe(name, why)
                member.mode = member.mode & 0o755 | 0o600
                tar.extract(member, into, **_NO_FILTER)
                if not member.isdir():
                    (links if member.issym() else files).add(posixpath.normpath(name))
        for name in links:  # what a link means can depend on links that came after it
            if not Path(os.path.realpath(into / name)).is_relative_to(os.path.realpath(into)):
                raise _unsafe(name, "is a link out of it")
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise CannotStart(f"the bundle cannot be unpacked: it is no tar archive: {error}", _WILL_NOT_DO) from None
    except OSError as error:
        if no_room(error):
            raise HostUnable(f"the disk of this host is full: {into}", DISK_FAULT) from None
        if error.errno in _NAMES_FAULT:
            raise _unsafe(name, f"cannot be made: {error}") from None
        raise HostUnable(f"{into} cannot be written to: {error}", DISK_FAULT) from None


def _unsafe(name: str, why: str) -> CannotStart:
    shown = name if len(name) <= 100 else f"{name[:97]}..."
    return CannotStart(f"the bundle cannot be unpacked: {shown!r} {why}", _WILL_NOT_DO)


def _refused(member: tarfile.TarInfo, files: set[str], links: set[str]) -> str | None:
    """Why this member may not be unpacked. Stricter than tarfile's own filter, which could be got around with links to links.

    Args:
        files, links: what has been unpacked so far, directories left out.
    """
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        return "lies outside of it"
    if str(path) in links or any(str(parent) in links for parent in path.parents):
        return "would be written through a link"
    if member.issym():
        target = posixpath.normpath(path.parent / member.linkname)
        if target.startswith(("/", "../")) or target == "..":
            return f"is a link out of it, to {member.linkname!r}"
    elif member.islnk():
        if posixpath.normpath(member.linkname) not in files:
            return f"is a link to {member.linkname!r}, which is no file of it"
    elif not (member.isreg() or member.isdir()):
        return "is neither a file nor a directory nor a link"
    return None
