"""Bundles: the files of a workspace or of a function call, packed into an archive that is named by
the hash of its content.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field, field_validator

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.units import MIB, format_bytes

#: The limit on bytes of the unpacked files of a bundle, such as a user's workspace. Each host of a
#: job gets a copy, so large data belongs in a bucket.
MAX_BUNDLE = 100 * MIB
#: The limit on files, links and directories of one bundle. A directory that occurs only as part of
#: a path also counts.
MAX_ENTRIES = 250_000
#: The limit on nested directories in a bundle.
MAX_DEPTH = 100
#: The limits on bytes of a name and of a whole path, as in Linux.
MAX_NAME, MAX_PATH = 255, 4095
#: The name of the script that runs the function, in the bundle of a function call.
SCRIPT = "run.py"
#: The name of a file in the bundle of a function call. The file contains the path of the Python
#: interpreter that hosts use if they have it.
PYTHON = "python"
#: The folder for the files of Iris in a task's output directory. `iris fetch` and other downloads
#: of a user leave it out.
FOLDER = ".iris"
#: The file in a task's output directory to which a function's result is written.
RESULT = f"{FOLDER}/result"
#: The file in a task's output directory that says that another attempt would end in the same way,
#: so that Iris does not retry.
FINAL = f"{FOLDER}/final"
#: The limit on characters of a file's name in a message.
_SHOWN = 100


class Bundle(Frozen):
    """A reference to a bundle in the object store."""

    #: The hash of the bundle's uncompressed tar archive. The same files always have the same hash.
    sha256: str
    #: The archive's size in bytes.
    size: int = Field(default=0, ge=0)

    @field_validator("sha256")
    @classmethod
    def _is_a_hash(cls, sha256: str) -> str:
        if re.fullmatch("[0-9a-f]{64}", sha256) is None:
            raise InvalidValue(
                "bundle",
                sha256,
                "is not a SHA-256",
                "give the 64 hexadecimal digits that name a bundle",
            )
        return sha256


class Kind(StrEnum):
    """The kind of a bundle's entry. The value is its name in messages."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    HARD_LINK = "hard link"
    SPECIAL = "special file"


class Entry(NamedTuple):
    """One entry of a bundle's archive."""

    name: str
    kind: Kind
    #: The size of a file's content in bytes.
    size: int = 0
    #: The target of a link.
    target: str = ""


def parts_of(path: str) -> list[str]:
    """Returns the names in a path, without empty names and dots."""
    return [part for part in path.split("/") if part not in ("", ".")]


def climbs_after_a_name(target: str) -> bool:
    """Returns whether `..` follows a name in the target of a link. That name can be a link itself,
    and `..` then leads out of that link's target.
    """
    parts = parts_of(target)
    ups = parts.count("..")
    return parts[:ups] != [".."] * ups


def offence(entries: Iterable[Entry]) -> str | None:
    """Returns the first entry that must not be unpacked, with the reason, or None if all may be
    unpacked.

    No path of an accepted bundle goes through one of its links, and the target of a link goes up
    only from the link's own directory. So no entry can leave the bundle's directory, in whatever
    order the entries are unpacked.
    """
    kinds: dict[str, Kind] = {}
    directories: set[str] = set()
    size = 0
    for entry in entries:
        size += entry.size
        why = _wrong(entry) or _in_the_way(entry, kinds, directories)
        if why is None and size > MAX_BUNDLE:
            why = f"makes the bundle's files larger than {format_bytes(MAX_BUNDLE)}"
        if why is None and len(kinds) + len(directories) > MAX_ENTRIES:
            why = f"exceeds the limit of {MAX_ENTRIES:,} entries in a bundle"
        if why is not None:
            shown = entry.name if len(entry.name) <= _SHOWN else f"{entry.name[: _SHOWN - 3]}..."
            return f"{shown!r} {why}"
    return None


def _wrong(entry: Entry) -> str | None:
    """Returns what is wrong with the entry itself, or None."""
    parts = parts_of(entry.name)
    if entry.name.startswith("/") or ".." in parts:
        return "is outside the bundle"
    if entry.kind is Kind.HARD_LINK:
        return "is a hard link; a bundle may contain only files, directories and symbolic links"
    if entry.kind is Kind.SPECIAL:
        return "is not a file, directory or symbolic link"
    if "\0" in entry.name or (not parts and entry.kind is not Kind.DIRECTORY):
        return f"is not a valid name of a {entry.kind}"
    if too_long := _too_long(parts):
        return f"has {too_long}"
    if len(parts) > MAX_DEPTH:
        return f"is {len(parts)} levels deep; the limit is {MAX_DEPTH}"
    if entry.size < 0:
        return f"has a size of {entry.size:,} bytes"
    return _wrong_target(len(parts) - 1, entry.target) if entry.kind is Kind.LINK else None


def _wrong_target(depth: int, target: str) -> str | None:
    """Returns what is wrong with the target of a link that lies `depth` directories deep, or
    None.
    """
    parts = parts_of(target)
    if not target or "\0" in target:
        return "is a link without a target"
    if target.startswith("/") or parts[: depth + 1] == [".."] * (depth + 1):
        return f"is a link out of the bundle, to {target!r}"
    if climbs_after_a_name(target):
        return f"is a link whose target {target!r} has '..' after a name"
    too_long = _too_long(parts)
    return f"is a link whose target has {too_long}" if too_long else None


def _in_the_way(entry: Entry, kinds: dict[str, Kind], directories: set[str]) -> str | None:
    """Returns how the entry conflicts with earlier entries, or None. An entry without a conflict is
    added to them.
    """
    parts = parts_of(entry.name)
    path = "/".join(parts)
    if entry.kind is not Kind.DIRECTORY:
        if path in directories:
            return f"is a {entry.kind}, but other entries are below it"
        if path in kinds:
            return "is in the bundle twice"
        kinds[path] = entry.kind
    above = len(parts) if entry.kind is Kind.DIRECTORY else len(parts) - 1
    for end in range(above, 0, -1):
        parent = "/".join(parts[:end])
        if parent in directories:  # then all directories above it are known, too
            break
        if parent in kinds:
            return (
                "is in the bundle twice"
                if parent == path
                else f"is below {parent!r}, which is a {kinds[parent]}"
            )
        directories.add(parent)
    return None


def _too_long(parts: list[str]) -> str | None:
    lengths = [len(part.encode(errors="replace")) for part in parts]
    if (longest := max(lengths, default=0)) > MAX_NAME:
        return f"a name of {longest:,} bytes; the limit is {MAX_NAME}"
    if (length := sum(lengths) + len(parts)) > MAX_PATH:
        return f"a path of {length:,} bytes; the limit is {MAX_PATH:,}"
    return None
