"""Decides what a save of a task's checkpoint directory contains.

The unit is an entry of the directory: a file, or a directory with all below it. Two rules keep a
save consistent:

1.  An entry is saved when it is whole: nothing in it has changed for a while, or it is a file that
    the program replaces by renaming, or the program has ended with exit code 0, or with an exit
    code from 1 to 128 after it was told to stop. `iris.model.checkpoint.end_plan` has the rules for
    all other ends.
2.  A save has all changes of the directory up to a point in time, and none after it. If an entry is
    not whole, neither its changes nor later changes are saved. So if a program writes the weights
    and then the number of the step, no save has the new number and the old weights. Files that only
    grow, such as logs, are excepted: other files do not wait for them.

Each attempt writes its own saves, with increasing numbers. Only the latest save of the latest
attempt is restored. So a late save of an earlier attempt changes nothing, and no lock is needed.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from iris.model.checkpoint.saves import (
    ITEM_BYTES,
    MOST_ENTRIES,
    MOST_MANIFEST,
    Save,
    SavedItem,
)
from iris.model.host.store_limits import MOST_STEPS
from iris.model.units import format_bytes

#: A file that has only grown for this time, in nanoseconds, counts as a log. Changes of other files
#: can be saved although the log still grows.
GROWS_FOR_NS = 60 * 10**9

T = TypeVar("T", "SavedItem", "Found")


class Found(NamedTuple):
    """A file, a directory or a link that is now in the checkpoint directory."""

    path: str
    mode: int
    #: The time of the last change of the item's contents or its name, by the host's clock, in
    #: nanoseconds since 1970. A program cannot set it.
    changed_ns: int
    inode: int
    size: int = 0
    mtime_ns: int = 0
    is_file: bool = False
    target: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that equals `SavedItem.identity` of the same version."""
        return (self.path, self.mode, self.size, self.mtime_ns, self.is_file, self.target)


class Plan(NamedTuple):
    """The content of the next save."""

    #: The items that the next save takes from the last one: unchanged items, and the last saved
    #: version of entries whose changes must wait.
    kept: tuple[SavedItem, ...]
    #: The changed items that the next save stores.
    new: tuple[Found, ...]
    #: The entries (files and directories at the top of the checkpoint directory) whose changes must
    #: wait for a later save, because the program may still write the entry, or because the entry
    #: changed after another entry that must wait.
    waiting: tuple[str, ...]
    #: Whether the next save differs from the last one.
    is_due: bool


def entry_of(path: str) -> str:
    return path.partition("/")[0]


class Changes:
    """The changes in a checkpoint directory since the last save. They are found by reading the
    directory repeatedly.

    Args:
        since: the time at which the directory was still the same as in the last save, in
            nanoseconds since 1970; 0 if it is not known.
    """

    def __init__(self, since: int) -> None:
        #: The time at which the directory was read last, in nanoseconds since 1970.
        self.looked = since
        #: For each changed entry (a file or directory at the top of the checkpoint directory), the
        #: last time at which the entry was still the same as in the last save, in nanoseconds since
        #: 1970.
        self.since: dict[str, int] = {}
        #: For each entry of the last save that is missing now, the time at which `look` first found
        #: it missing, in nanoseconds since 1970.
        self.gone: dict[str, int] = {}
        #: The files that the program replaces as a whole: it writes a new file and renames it to
        #: the path of the old one.
        self.replaced: set[str] = set()
        self._sizes: dict[str, _Growth] = {}

    def look(self, last: Save, found: Iterable[Found], at: int, settled_at: float) -> None:
        """Compares the directory with the last save.

        Args:
            at: a time before the directory was read.
            settled_at: the time after which a change makes a file count as being written.
        """
        saved, now = _by_entry(last.items), _by_entry(found)
        changed = {
            entry
            for entry in saved.keys() | now.keys()
            if _identity(saved, entry) != _identity(now, entry)
        }
        self.since = {entry: self.since.get(entry, self.looked) for entry in changed}
        self.gone = {entry: self.gone.get(entry, at) for entry in saved.keys() - now.keys()}
        before, self._sizes = self._sizes, {}
        for item in (item for entry in changed & now.keys() for item in now[entry]):
            if item.is_file and item.changed_ns > settled_at:
                known = before.get(item.path)
                grows = known is not None and known.inode == item.inode and known.size < item.size
                self._sizes[item.path] = _Growth(
                    item.inode, item.size, known.since if known and grows else at, at
                )
        self.looked = at

    def saved(self, planned: "Plan") -> None:
        """Records that this plan was saved. The plan must be based on the last call of `look`."""
        for entry in {entry_of(item.path) for item in planned.new} | set(self.gone):
            if entry not in planned.waiting:
                self.since.pop(entry, None)
                self.gone.pop(entry, None)

    @property
    def growing(self) -> frozenset[str]:
        """The entries with files that have only grown for a long time, while no other file of the
        entry is being written.
        """
        found: dict[str, bool] = {}
        for path, size in self._sizes.items():
            entry = entry_of(path)
            found[entry] = found.get(entry, True) and size.at - size.since >= GROWS_FOR_NS
        return frozenset(entry for entry, grows in found.items() if grows)


class _Growth(NamedTuple):
    inode: int
    size: int
    #: The time since which the file has only grown, in nanoseconds since 1970.
    since: int
    #: The time at which the directory was read last, in nanoseconds since 1970.
    at: int


def plan(
    last: Save,
    found: Iterable[Found],
    changes: Changes,
    settled_at: float,
    finished: Collection[str] = (),
) -> Plan:
    """Plans the next save.

    Args:
        last: the last save of this attempt, or the save that the attempt restored.
        found: the items that are in the directory now.
        changes: the changes; `look` was called with the same `found`.
        settled_at: a time in nanoseconds. An entry that has not changed after it is whole. If it is
            infinite, all entries are whole.
        finished: entries that are whole and do not wait for others, as
            `iris.model.checkpoint.end_plan` finds at the program's end.
    """
    saved, now = _by_entry(last.items), _by_entry(found)
    times = {
        entry: max(item.changed_ns for item in now[entry])
        for entry in changes.since
        if entry in now
    }
    times |= changes.gone
    whole = {entry for entry, at in times.items() if entry not in now or at <= settled_at}
    # A file that changed at the time of the look may change again with the same time.
    quick = changes.replaced & {entry for entry, at in times.items() if at <= changes.looked}
    whole |= {entry for entry in quick if len(now.get(entry, ())) == 1} | set(finished)
    waiting = times.keys() - whole
    logs = waiting & changes.growing
    while True:
        cut = min((changes.since[entry] for entry in waiting - logs), default=math.inf)
        if not (
            later := {entry for entry, at in times.items() if at >= cut} - waiting - set(finished)
        ):
            break
        waiting |= later
    due = times.keys() - waiting
    return Plan(
        kept=tuple(item for entry, items in saved.items() if entry not in due for item in items),
        new=tuple(item for entry, items in now.items() if entry in due for item in items),
        waiting=tuple(sorted(waiting)),
        is_due=bool(due),
    )


def too_large(planned: Plan, limit: int, prefix: str) -> str:
    """Returns why a plan exceeds the limits of a save; empty if it does not.

    Args:
        limit: the most bytes of all files.
        prefix: the folder of the task's saves.
    """
    items: list[SavedItem | Found] = [*planned.kept, *planned.new]
    size, count = sum(item.size for item in items), len(items)
    if size > limit:
        return (
            f"it has {format_bytes(size)}, and a task may save {format_bytes(limit)}"
            " (bootstrap.max_checkpoint)"
        )
    if count > MOST_ENTRIES:
        return f"it has {count:,} files and directories, and a task may save {MOST_ENTRIES:,}"
    if any(item.path.count("/") >= MOST_STEPS for item in planned.new):
        return f"it has paths of more than {MOST_STEPS} names"
    listed = sum(
        len(item.path.encode()) + item.path.count('"') + len(item.target) for item in items
    )
    if listed + count * (ITEM_BYTES + len(prefix)) > MOST_MANIFEST:
        return (
            f"the list of its {count:,} files and directories may need more than"
            f" {format_bytes(MOST_MANIFEST)}, the limit; use fewer files or shorter paths"
        )
    return ""


def _identity(
    entries: Mapping[str, Sequence[SavedItem | Found]], entry: str
) -> set[tuple[object, ...]]:
    return {item.identity for item in entries.get(entry, ())}


def _by_entry(items: Iterable[T]) -> dict[str, list[T]]:
    entries: dict[str, list[T]] = {}
    for item in items:
        entries.setdefault(entry_of(item.path), []).append(item)
    return entries
