"""Decides what the last save of a checkpoint directory contains when the end of the program does not
say that all its files are whole.

Two ends say so: exit code 0, and an exit code from 1 to 128 of a program that was told to stop, if
no process that it left was killed (`end_of` in `activities/host/files/checkpoints.py`). Any other
program may have ended in the middle of a write, and neither the exit code nor the times of
files tell. The order of its changes does. A change is finished in these cases:

1.  The program renamed the file, or a directory around it, into its place, and has not written to
   it since.
2.  The program closed the file before it last renamed something: whoever renames has finished what
   he wrote before.
3.  The last thing that happened to the file was no write: the program, or a command such as `cp
   -p`, gave it its times or mode.
4.  Nothing has changed it for a while, as in `iris.model.job.checkpoints`.

All finished changes are saved, and of what is not finished, the version of the last save stays. So,
other than a save of a running program, this one may have a later change without an earlier one that
is not finished: what was renamed is in it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import accumulate

from iris.model.job.checkpoints import Changes, Found, Plan, Save, SavedItem, entry_of, plan

#: A change has the time of the system's last tick, so it may seem to be this much older than it is.
TICK_NS = 10_000_000
#: The most names of each kind of which the last change is remembered.
MOST_REMEMBERED = 20_000


class Order:
    """The order of changes in a checkpoint directory, as the system tells them. Paths are those of
    `Found`.
    """

    def __init__(self) -> None:
        self._count = 0
        #: When a path was last made, written or removed; when a writer last closed it; when it was
        #: last renamed into place.
        self._written: dict[str, int] = {}
        self._closed: dict[str, int] = {}
        self._placed: dict[str, int] = {}
        #: The directories that were made, with the times from which changes in them are told.
        self._made: dict[str, int] = {}
        #: The last renaming, and a time after it, in nanoseconds since 1970.
        self._last_placed, self._last_placed_at = 0, 0

    def written(self, path: str) -> None:
        self._record(self._written, path)

    def closed(self, path: str) -> None:
        self._record(self._closed, path)

    def placed(self, path: str, now: int) -> None:
        self._record(self._placed, path)
        self._last_placed, self._last_placed_at = self._count, now

    def made(self, directory: str, told_from: int) -> None:
        """A directory was made; the changes in it before this time are not told."""
        self.written(directory)
        self._made[directory] = told_from
        _shorten(self._made)

    def forget(self) -> None:
        """Changes were missed: what is not told again is not known."""
        for paths in (self._written, self._closed, self._placed, self._made):
            paths.clear()
        self._last_placed = 0

    def is_placed(self, item: Found, now: Mapping[str, Found]) -> bool:
        """Returns whether the version that was found was renamed into its place, itself or with a
        directory around it.
        """
        written, last_written = self._written.get(item.path), item.mtime_ns
        if self._placed.get(item.path, 0) > (written or 0):
            return last_written <= self._last_placed_at
        for above in _above(item.path):
            if above in now and self._placed.get(above, 0) > (written or 0):
                # What was written before it was looked at is told by its time only.
                return written is not None or last_written <= now[above].changed_ns
        return False

    def is_finished(self, item: Found, now: Mapping[str, Found]) -> bool:
        """Returns whether the version that was found is known to be whole."""
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
        """Returns whether a version of which nothing was told is taken for whole.

        A program that makes a directory may save in it before the directory is watched. A writer
        that had not finished by then is told of later, at the latest when the program has ended and
        its files are closed.
        """
        told_from = next(
            (self._made[above] for above in _above(item.path) if above in self._made), 0
        )
        if item.is_file:
            # Where the last change in the directory came before the last write, that was no
            # renaming.
            told_from = min(told_from, now[_above(item.path)[0]].changed_ns) if told_from else 0
        return told_from > 0 and item.mtime_ns <= told_from

    def is_removed(self, path: str) -> bool:
        """Returns whether a path that is gone was gone before the last renaming."""
        return (
            0
            < max(self._written.get(each, 0) for each in (path, *_above(path)))
            < self._last_placed
        )

    def _record(self, paths: dict[str, int], path: str) -> None:
        self._count += 1
        paths.pop(path, None)
        paths[path] = self._count  # the last one is at the end
        _shorten(paths)


def plan_end(
    last: Save, found: Iterable[Found], changes: Changes, settled_at: float, order: Order
) -> Plan:
    """Returns what to save of a directory in which nothing changes any more.

    Args:
        changes: has looked at the same.
        settled_at: an entry that has not changed after this time is whole, in nanoseconds.
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
    """Yields the paths of changes that are not known to be whole. A directory is as whole as what
    is in it.
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
    """Returns the outermost directory around an unfinished file without anything that was renamed
    into place; or the file.

    It is left as it was: a program that finds a directory for its last step expects all of its
    files.
    """
    return next((above for above in reversed(_above(path)) if above not in around_placed), path)


def _with_directories(kept: Iterable[SavedItem], new: Iterable[Found]) -> list[SavedItem]:
    """Returns the kept versions for which the save has directories."""
    directories = {item.path for item in new if not item.is_file and not item.target}
    there = []
    for item in sorted(kept, key=lambda item: item.path.count("/")):
        if all(above in directories for above in _above(item.path)):
            there.append(item)
            if not item.stored_as and not item.target:
                directories.add(item.path)
    return there


def _above(path: str) -> list[str]:
    """Returns the directories around a path, the innermost first."""
    return list(accumulate(path.split("/"), lambda above, step: f"{above}/{step}"))[-2::-1]


def _is_below(path: str, tops: Collection[str]) -> bool:
    return path in tops or any(above in tops for above in _above(path))
