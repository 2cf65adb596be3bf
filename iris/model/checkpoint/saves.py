"""Saves of a checkpoint directory: their manifests, and the names of the manifests in the object
store.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from pydantic import Field

from iris.model.frozen import Frozen

#: The limit on files, directories and links of a checkpoint directory. Each save lists all of them.
MOST_ENTRIES = 100_000
#: The limit on bytes of a manifest. A larger manifest is not read.
MOST_MANIFEST = 64 * 1024 * 1024
#: The maximum number of bytes of an item in a manifest, without its path, its target, and the
#: folder of the task's saves, with which the name of its object begins.
ITEM_BYTES = 256


class SavedItem(Frozen):
    """A file, a directory or a link in a save."""

    #: The path relative to the checkpoint directory. `iris.storage.output_names` encodes its
    #: special characters.
    path: str
    mode: int = 0o700
    #: The size of a file in bytes; 0 for directories and links.
    size: int = 0
    #: The time of a file's last modification, in nanoseconds since 1970; 0 for directories and
    #: links.
    mtime_ns: int = 0
    #: The name of the object in the store with a file's content; empty for directories and links.
    stored_as: str = ""
    #: The hash of a file's content; empty for directories and links.
    sha256: str = ""
    #: The path to which a link points, as hexadecimal digits of its bytes; empty for files and
    #: directories.
    target: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """The properties that distinguish two versions of the item. As in rsync, contents are not
        compared.
        """
        return (self.path, self.mode, self.size, self.mtime_ns, bool(self.stored_as), self.target)


class Save(Frozen):
    """The manifest of a save: all items of the checkpoint directory."""

    attempt: int = 0
    number: int = 0
    saved_at: datetime | None = None
    items: tuple[SavedItem, ...] = Field(default=(), max_length=MOST_ENTRIES)

    def manifest(self) -> str:
        """Returns the text of the manifest."""
        return self.model_dump_json(exclude_defaults=True)

    @property
    def objects(self) -> frozenset[str]:
        return frozenset(item.stored_as for item in self.items if item.stored_as)

    @property
    def size(self) -> int:
        return sum(item.size for item in self.items)

    @property
    def files(self) -> int:
        return sum(1 for item in self.items if item.stored_as)


def unused(stored: Iterable[str], prefix: str, attempt: int, keep: Sequence[Save]) -> list[str]:
    """Returns the objects that an attempt deletes after a save: all objects of its own and of
    earlier attempts, except those of the saves to keep.

    A late, earlier attempt does no harm to a later one: it deletes no objects of later attempts,
    and each attempt's saves have objects of their own.

    Args:
        stored: the objects that are in the store.
        prefix: the folder of the task's saves.
        keep: the saves of this attempt to keep.
    """
    kept = {save_name(prefix, save.attempt, save.number) for save in keep}.union(
        *(save.objects for save in keep)
    )
    found = []
    for name in stored:
        number = name.removeprefix(f"{prefix}/").partition("/")[0]
        if number.isdecimal() and int(number) <= attempt and name not in kept:
            found.append(name)
    return found


def attempt_folder(prefix: str, attempt: int) -> str:
    """Returns the folder of an attempt's saves."""
    return f"{prefix}/{attempt}"


def save_name(prefix: str, attempt: int, number: int) -> str:
    """Returns the name of a save's manifest."""
    return f"{attempt_folder(prefix, attempt)}/{number:010d}.json"


def number_of(name: str) -> int | None:
    """Returns the number of the save whose manifest has this name, or None if it is not the name of
    a manifest.
    """
    stem, _, suffix = name.rpartition("/")[2].partition(".")
    return int(stem) if suffix == "json" and stem.isdecimal() else None
