"""Decides what the last save of a checkpoint directory contains when the end of the program does
not say that all its files are whole.

Two ends say so: exit code 0, and an exit code from 1 to 128 of a program that was told to stop, if
no process that it left was killed (`end_of` in `activities/host/files/checkpoints.py`). Any other
program may have ended in the middle of a write. Neither its exit code nor the times of its files
show that, but the order of its changes does. A change is finished in these cases:

1.  The program renamed the file, or a directory around it, into its place, and has not written to
    it since.
2.  The program closed the file before it last renamed a file. A program that renames has finished
    its earlier writes.
3.  The last change of the file was not a write: the program, or a command such as `cp -p`, set its
    times or its mode.
4.  The file has not changed for a while, as in `iris.model.checkpoint.plan`.

The save contains all finished changes. Of an unfinished file, it keeps the version of the last
save. So unlike a save of a running program, this save may contain a later change without an
unfinished earlier one: the later change was renamed into place.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import accumulate

from iris.model.checkpoint.plan import Changes, Found, Plan, entry_of, plan
from iris.model.checkpoint.saves import Save, SavedItem

#: The time between two ticks of the kernel's clock, in nanoseconds. The kernel sets the time of a
#: change to the last tick, so a change can appear to be earlier than it was by up to this time.
TICK_NS = 10_000_000
#: The limit on paths that `Order` remembers for each kind of change, such as writing or renaming.
#: The oldest entry is dropped first.
MOST_REMEMBERED = 20_000


class Order:
    """The order of the changes in a checkpoint directory, as the kernel reports them. Paths are
    relative to this directory, and their special characters are encoded as in
    `iris.storage.output_names`.
    """

    def __init__(self) -> None:
        self._count = 0
        #: By path, the last creation, write or removal of the file, as its position in the order of
        #: all changes.
        self._written: dict[str, int] = {}
        #: By path, the last time that a writer closed the file, as its position in the order of all
        #: changes.
        self._closed: dict[str, int] = {}
        #: By path, the last time that a file was renamed to this path, as its position in the order
        #: of all changes.
        self._placed: dict[str, int] = {}
        #: The directories that the program made. For each one, the time from which the kernel
        #: reports changes in the directory, in nanoseconds since 1970.
        self._made: dict[str, int] = {}
        #: The position of the last renaming in the order of changes, and the time at which Iris
        #: read the report of this renaming, in nanoseconds since 1970. The renaming itself was
        #: earlier.
        self._last_placed, self._last_placed_at = 0, 0

    def written(self, path: str) -> None:
        self._record(self._written, path)

    def closed(self, path: str) -> None:
        self._record(self._closed, path)

    def placed(self, path: str, now: int) -> None:
        self._record(self._placed, path)
        self._last_placed, self._last_placed_at = self._count, now

    def made(self, directory: str, told_from: int) -> None:
        """Records that a directory was made. Changes in it before `told_from` were not reported."""
        self.written(directory)
        self._made[directory] = told_from
        _shorten(self._made)

    def forget(self) -> None:
        """Forgets everything, because the kernel's reports were incomplete."""
        for paths in (self._written, self._closed, self._placed, self._made):
            paths.clear()
        self._last_placed = 0

    def is_placed(self, item: Found, now: Mapping[str, Found]) -> bool:
        """Returns whether the program renamed this version into its place, by itself or with a
        directory around it.
        """
        written, last_written = self._written.get(item.path), item.mtime_ns
        if self._placed.get(item.path, 0) > (written or 0):
            return last_written <= self._last_placed_at
        for above in _above(item.path):
            if above in now and self._placed.get(above, 0) > (written or 0):
                # For writes before the directory was watched, only the file's time is known.
                return written is not None or last_written <= now[above].changed_ns
        return False

    def is_finished(self, item: Found, now: Mapping[str, Found]) -> bool:
        """Returns whether this version is certainly whole."""
        if self.is_placed(item, now) or (
            item.is_file and item.changed_ns - item.mtime_ns >= TICK_NS
        ):
            return True
        written, closed = self._written.get(item.path, 0), self._closed.get(item.path, 0)
        if not (written or closed):
            return self._seems_finished(item, now)
        if not max(written, closed) < self._last_placed or item.mtime_ns > self._last_placed_at:
            return False
        return closed > written or not item.is_file

    def _seems_finished(self, item: Found, now: Mapping[str, Found]) -> bool:
        """Returns whether to take a version for whole although none of its changes was reported.

        A program that makes a directory may write into it before the directory is watched. If a
        writer has not finished by then, a later report shows that, at the latest when the program
        has ended and its files are closed.
        """
        told_from = next(
            (self._made[above] for above in _above(item.path) if above in self._made), 0
        )
        if item.is_file:
            # If the directory's last change is older than the file's last write, that change was
            # not a renaming of the file.
            told_from = min(told_from, now[_above(item.path)[0]].changed_ns) if told_from else 0
        return told_from > 0 and item.mtime_ns <= told_from

    def is_removed(self, path: str) -> bool:
        """Returns whether a missing path was removed before the last renaming."""
        return (
            0
            < max(self._written.get(each, 0) for each in (path, *_above(path)))
            < self._last_placed
        )

    def _record(self, paths: dict[str, int], path: str) -> None:
        self._count += 1
        paths.pop(path, None)
        paths[path] = self._count  # the latest change is at the end
        _shorten(paths)


def plan_end(
    last: Save, found: Iterable[Found], changes: Changes, settled_at: float, order: Order
) -> Plan:
    """Returns what to save of a directory in which nothing changes any more.

    Args:
        changes: the changes; `look` was called with the same `found`.
        settled_at: a time in nanoseconds. An entry that has not changed after it is whole.
    """
    now, saved = {item.path: item for item in found}, {item.path: item for item in last.items}
    unfinished = set(_unfinished(saved, now, changes, settled_at, order))
    open_entries = {entry_of(path) for path in unfinished}
    finished = changes.since.keys() - open_entries
    base = plan(last, now.values(), changes, settled_at, finished)
    placed = {
        path for path, item in now.items() if path not in unfinished and order.is_placed(item, now)
    }
    mixed = {entry_of(path) for path in placed} & open_entries & set(base.waiting)
    if not mixed:
        return base
    around_placed = placed.union(*(_above(path) for path in placed))
    held = {_outermost(path, around_placed) for path in unfinished if entry_of(path) in mixed}
    new = [
        item for path, item in now.items() if entry_of(path) in mixed and not _is_below(path, held)
    ]
    kept = [
        item for path, item in saved.items() if entry_of(path) in mixed and _is_below(path, held)
    ]
    others = [item for item in base.kept if entry_of(item.path) not in mixed]
    waiting = {*(entry for entry in base.waiting if entry not in mixed), *held}
    return Plan(
        kept=(*others, *_with_directories(kept, new)),
        new=(*base.new, *new),
        waiting=tuple(sorted(waiting)),
        is_due=True,
    )


def _unfinished(
    saved: Mapping[str, SavedItem],
    now: Mapping[str, Found],
    changes: Changes,
    settled_at: float,
    order: Order,
) -> Iterator[str]:
    """Yields the paths whose last change is not certainly whole. A directory counts as whole if all
    its files are.
    """
    filled = {path.rpartition("/")[0] for path in now}
    for path, item in now.items():
        is_new = path not in filled and (path not in saved or saved[path].identity != item.identity)
        if (
            is_new
            and entry_of(path) in changes.since
            and item.changed_ns > settled_at
            and not order.is_finished(item, now)
        ):
            yield path
    yield from (
        path
        for path in saved
        if path not in now and entry_of(path) in changes.since and not order.is_removed(path)
    )


def _shorten(paths: dict[str, int]) -> None:
    if len(paths) > MOST_REMEMBERED:
        del paths[next(iter(paths))]


def _outermost(path: str, around_placed: Collection[str]) -> str:
    """Returns the outermost directory that contains an unfinished file but nothing that was renamed
    into place; or the file itself.

    The save leaves this directory as it was, because a program that finds a directory for its last
    step expects all of the directory's files.
    """
    return next((above for above in reversed(_above(path)) if above not in around_placed), path)


def _with_directories(kept: Iterable[SavedItem], new: Iterable[Found]) -> list[SavedItem]:
    """Returns the kept items whose directories are in the save."""
    directories = {item.path for item in new if not item.is_file and not item.target}
    there = []
    for item in sorted(kept, key=lambda item: item.path.count("/")):
        if all(above in directories for above in _above(item.path)):
            there.append(item)
            if not item.stored_as and not item.target:
                directories.add(item.path)
    return there


def _above(path: str) -> list[str]:
    """Returns the directories that contain a path, the innermost first."""
    return list(accumulate(path.split("/"), lambda above, step: f"{above}/{step}"))[-2::-1]


def _is_below(path: str, tops: Collection[str]) -> bool:
    return path in tops or any(above in tops for above in _above(path))
