"""Keeping what an attempt leaves in its output directory: each regular file becomes an object under the same path."""

import asyncio
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from iris.errors import InvalidValue
from iris.store import Store

#: Files of one host that are on their way at once; large ones hold some parts of 5 MiB each in memory.
AT_ONCE = 8
#: Characters of a file's name that no object's name may have, on one store or another, and the one that marks them. What is no
#: UTF-8 is a surrogate in Python.
_ODD = re.compile("[%#\\\\\x00-\x1f\x7f\ud800-\udfff]")


class Kept(NamedTuple):
    """How much there was to keep."""

    files: int
    #: Of all of them, in bytes.
    size: int


async def keep(store: Store, directory: Path, prefix: str, gate: asyncio.Semaphore | None = None) -> Kept:
    """Store every regular file below the directory; saying it again stores the same objects.

    A link to a file of the directory counts as that file. Links to directories, links that lead out, pipes, sockets and devices
    are left out.

    Args:
        gate: for files of all attempts together; None: only these are on their way.

    Raises:
        OSError, obstore's exceptions: not everything could be stored. What could has been.
    """
    files = await asyncio.to_thread(lambda: list(_files(directory)))
    one = gate or asyncio.Semaphore(AT_ONCE)

    async def put(file: Path) -> int:
        async with one:
            size = file.stat().st_size
            await store.put_file(f"{prefix}/{object_name(file.relative_to(directory))}", file)
            return size

    results = await asyncio.gather(*(put(file) for file in files), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return Kept(len(files), sum(size for size in results if isinstance(size, int)))


def object_name(path: PurePath) -> str:
    """The path as part of an object's name: itself, but for characters that some store refuses, which are percent-encoded."""
    return "/".join(_ODD.sub(_encoded, part) for part in path.parts)


def path_of(name: str) -> PurePosixPath:
    """The path that `object_name` made a name of.

    Raises:
        InvalidValue: the name is none that it makes, and leads elsewhere.
    """
    parts = [os.fsdecode(unquote_to_bytes(part)) for part in name.split("/")]
    if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        raise InvalidValue("output", name, "is not the path of a file below a directory", "look at who wrote it into the store")
    return PurePosixPath(*parts)


def _encoded(odd: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(odd[0]))


def _files(directory: Path) -> Iterator[Path]:
    root = directory.resolve()
    for folder, _, names in os.walk(directory):
        for name in sorted(names):
            file = Path(folder, name)
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) or (stat.S_ISLNK(status.st_mode) and _leads_to_a_file_in(root, file)):
                yield file


def _leads_to_a_file_in(root: Path, link: Path) -> bool:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):  # it dangles, or leads to itself
        return False
    return target.is_relative_to(root) and target.is_file()
