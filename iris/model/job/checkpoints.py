"""Decides what a save of a task's checkpoint directory has, and which of a task's saves an attempt
restores.

The unit is an entry of the directory: a file, or a directory with all below it. Two rules keep a
save consistent:

1.  An entry is saved when it is whole: nothing in it has changed for a while, or it is a file that
    the program replaces by renaming, or the program has ended with exit code 0, or with an exit
    code from 1 to 128 after it was told to stop. `iris.model.job.checkpoint_ends` has the rules for
    all other ends.
2.  A save has all changes of the directory up to a point in time, and none after it. If an entry is
    not whole, neither its changes nor later changes are saved. So if a program writes the weights
    and then the number of the step, no save has the new number and the old weights. Files that only
    grow, such as logs, are excepted: nothing waits for them.

Each attempt writes saves of its own, with numbers that rise. The latest save of the latest attempt
counts. So a late save of an attempt that has a successor changes nothing, and no lock is needed.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Self, TypeVar

from pydantic import Field

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.host.store_limits import MOST_STEPS
from iris.model.job.arrays import Array, parse_indices
from iris.model.units import format_bytes

#: The most files, directories and links of a checkpoint directory. Each save lists them all.
MOST_ENTRIES = 100_000
#: The most bytes of a manifest that is read.
MOST_MANIFEST = 64 * 1024 * 1024
#: A file that only grows for this long is a log, and other files are saved without it.
GROWS_FOR_NS = 60 * 10**9

T = TypeVar("T", "SavedItem", "Found")


class SavedItem(Frozen):
    """A file, a directory or a link in a save."""

    #: Relative to the checkpoint directory, with its odd characters encoded as in
    #: `iris.storage.output_names`.
    path: str
    mode: int = 0o700
    #: Of a file: its size, its time of modification, and its object in the store. Empty: it is a
    #: directory or a link.
    size: int = 0
    mtime_ns: int = 0
    stored_as: str = ""
    sha256: str = ""
    #: The target of a link, encoded.
    target: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells two versions apart, as in rsync: contents are not compared."""
        return (self.path, self.mode, self.size, self.mtime_ns, bool(self.stored_as), self.target)


class Save(Frozen):
    """The manifest of a save: all that a checkpoint directory had."""

    attempt: int = 0
    number: int = 0
    saved_at: datetime | None = None
    items: tuple[SavedItem, ...] = Field(default=(), max_length=MOST_ENTRIES)

    @property
    def objects(self) -> frozenset[str]:
        return frozenset(item.stored_as for item in self.items if item.stored_as)

    @property
    def size(self) -> int:
        return sum(item.size for item in self.items)

    @property
    def files(self) -> int:
        return sum(1 for item in self.items if item.stored_as)


class Found(NamedTuple):
    """A file, a directory or a link that is in the directory now."""

    path: str
    mode: int
    #: The time of the last change of its contents or its name, in nanoseconds, by the clock of the
    #: host. A program cannot set it.
    changed_ns: int
    inode: int
    size: int = 0
    mtime_ns: int = 0
    is_file: bool = False
    target: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """Equals `SavedItem.identity` of the same version."""
        return (self.path, self.mode, self.size, self.mtime_ns, self.is_file, self.target)


class Plan(NamedTuple):
    """The next save."""

    #: Unchanged parts of the last save, and earlier versions of entries that are not saved now.
    kept: tuple[SavedItem, ...]
    #: The new versions.
    new: tuple[Found, ...]
    #: The entries of which changes are not saved now.
    waiting: tuple[str, ...]
    #: False if the save would equal the last one.
    is_due: bool


def entry_of(path: str) -> str:
    return path.partition("/")[0]


class Changes:
    """What several looks at a directory tell about its changes since the last save.

    Args:
        since: the time at which the directory was as in the last save; 0: it is not known.
    """

    def __init__(self, since: int) -> None:
        #: The time of the last look.
        self.looked = since
        #: The last time at which an entry was as in the last save.
        self.since: dict[str, int] = {}
        #: When an entry of the last save was missing first.
        self.gone: dict[str, int] = {}
        #: The files that the program replaces by renaming.
        self.replaced: set[str] = set()
        self._sizes: dict[str, _Growth] = {}

    def look(self, last: Save, found: Iterable[Found], at: int, settled_at: float) -> None:
        """Compares the directory with the last save.

        Args:
            at: the time before the directory was read.
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
        """Records that the plan, made after the last look, was saved."""
        for entry in {entry_of(item.path) for item in planned.new} | set(self.gone):
            if entry not in planned.waiting:
                self.since.pop(entry, None)
                self.gone.pop(entry, None)

    @property
    def growing(self) -> frozenset[str]:
        """The entries with files that have only grown for a long time, and in which no other file
        is being written.
        """
        found: dict[str, bool] = {}
        for path, size in self._sizes.items():
            entry = entry_of(path)
            found[entry] = found.get(entry, True) and size.at - size.since >= GROWS_FOR_NS
        return frozenset(entry for entry, grows in found.items() if grows)


class _Growth(NamedTuple):
    inode: int
    size: int
    #: The time since which it only grows, and that of the last look.
    since: int
    at: int


def plan(
    last: Save,
    found: Iterable[Found],
    changes: Changes,
    settled_at: float,
    finished: Collection[str] = (),
) -> Plan:
    """Returns what to save.

    Args:
        last: the last save of this attempt, or the one that it has restored.
        found: what the directory has.
        changes: has looked at the same.
        settled_at: an entry that has not changed after this time is whole, in nanoseconds;
            infinite: all are.
        finished: entries that are whole and wait for no other, as `iris.model.job.checkpoint_ends`
            tells at the end.
    """
    saved, now = _by_entry(last.items), _by_entry(found)
    times = {
        entry: max(item.changed_ns for item in now[entry])
        for entry in changes.since
        if entry in now
    }
    times |= changes.gone
    whole = {entry for entry, at in times.items() if entry not in now or at <= settled_at}
    # A version from the time of the look itself may have the same time as the next one.
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


def too_large(planned: Plan, limit: int) -> str:
    """Returns the reason why a plan exceeds the limits; empty: it does not."""
    size = sum(item.size for item in planned.kept) + sum(item.size for item in planned.new)
    count = len(planned.kept) + len(planned.new)
    if size > limit:
        return (
            f"it has {format_bytes(size)}, and a task may save {format_bytes(limit)}"
            " (bootstrap.max_checkpoint)"
        )
    if count > MOST_ENTRIES:
        return f"it has {count:,} files and directories, and a task may save {MOST_ENTRIES:,}"
    if any(item.path.count("/") >= MOST_STEPS for item in planned.new):
        return f"it has paths of more than {MOST_STEPS} names"
    return ""


def unused(stored: Iterable[str], prefix: str, attempt: int, keep: Sequence[Save]) -> list[str]:
    """Returns the objects that an attempt deletes after it has saved: all of its own and of earlier
    attempts, but the kept saves.

    An earlier attempt that still runs somewhere does not harm a later one: it deletes nothing of a
    later attempt, and each attempt's saves have objects of their own.

    Args:
        stored: the objects that are in the store.
        prefix: the folder of the task's saves.
        keep: saves of this attempt.
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
    """Returns the number of the save whose manifest has this name; None: it is not the name of a
    manifest.
    """
    stem, _, suffix = name.rpartition("/")[2].partition(".")
    return int(stem) if suffix == "json" and stem.isdecimal() else None


def _identity(
    entries: Mapping[str, Sequence[SavedItem | Found]], entry: str
) -> set[tuple[object, ...]]:
    return {item.identity for item in entries.get(entry, ())}


def _by_entry(items: Iterable[T]) -> dict[str, list[T]]:
    entries: dict[str, list[T]] = {}
    for item in items:
        entries.setdefault(entry_of(item.path), []).append(item)
    return entries


#: The option, as errors name it.
FIELD = "from_checkpoint"


class CheckpointSource(Frozen):
    """Whose checkpoint the first attempts of a job's tasks restore. Later attempts restore the
    job's own, once it has one.
    """

    #: The id of the earlier job.
    job: str
    #: Until the source is looked up, True for a bare name in a program that runs in a job: it means
    #: the job's own child first.
    bare: bool = Field(default=False, exclude=True)
    #: The number of its run, as `iris jobs --all` shows it; None: the latest at the time of the
    #: submission.
    run: int | None = None
    #: All tasks restore the checkpoint of this one; None: each restores that of the task with its
    #: own index, if there is one.
    task: int | None = None
    #: The folder of the run's checkpoints in the object store; empty: it has not been looked up
    #: yet.
    folder: str = ""
    #: The tasks that had a checkpoint at the time of the submission.
    tasks: tuple[int, ...] = ()

    def found(
        self, folder: str, tasks: Sequence[int], replicas: int, array: Array | None = None
    ) -> Self:
        """Returns the source with its folder, for a job of this many tasks, or of the tasks of this
        array.

        Raises:
            InvalidValue: the tasks of the job cannot start from these checkpoints.
        """
        if not tasks:
            why = "files in $IRIS_CHECKPOINT_DIR are saved some seconds after their last change"
            raise InvalidValue(
                FIELD, self, "has no checkpoint in the store", f"name another job or run: {why}"
            )
        if self.task is not None and self.task not in tasks:
            raise InvalidValue(
                FIELD,
                self,
                "has no checkpoint in the store",
                f"name a task that has one: {_first(tasks)}",
            )
        if self.task is None:
            self._check_tasks(tasks, replicas, array)
        return self.model_copy(update={"folder": folder, "tasks": tuple(tasks)})

    def _check_tasks(self, tasks: Sequence[int], replicas: int, array: Array | None) -> None:
        one = f"name the task whose checkpoint all of them get: {self.job}:{tasks[0]}"
        if array is None and max(tasks) >= replicas:
            remedy = f"give the job {max(tasks) + 1} tasks, or {one}"
            raise InvalidValue(
                FIELD,
                self,
                f"has checkpoints of tasks up to {max(tasks)}, and the job has {replicas}",
                remedy,
            )
        if (
            array is None or array.size > replicas
        ):  # tasks that run again may be those without a checkpoint
            return
        indices = parse_indices(array.indices)
        if not {*tasks} & {*indices}:
            problem = (
                f"has checkpoints of tasks {_first(tasks)}, and the job has the tasks"
                f" {_first(indices)}"
            )
            raise InvalidValue(FIELD, self, problem, one)

    def saves_of(self, index: int) -> str:
        """Returns the folder of the saves from which a task of the job starts; empty: it starts
        without a checkpoint.
        """
        task = index if self.task is None else self.task
        return f"{self.folder}/{task}" if self.folder and task in self.tasks else ""

    def __str__(self) -> str:
        run = "" if self.run is None else f"#{self.run}"
        return f"{self.job}{run}" + ("" if self.task is None else f":{self.task}")


def _first(tasks: Sequence[int]) -> str:
    return ", ".join(map(str, tasks[:10])) + (", …" if len(tasks) > 10 else "")


def parse_source(text: str) -> CheckpointSource:
    """Parses `train`, `ada/train`, an earlier run `train#2`, or one task `train:0`. The job is as
    in the text.

    Raises:
        InvalidValue: the text has another form.
    """
    match = re.fullmatch(
        "(?P<job>[^#:]+)(#(?P<run>[1-9][0-9]{0,8}))?(:(?P<task>[0-9]{1,9}))?", text
    )
    if match is None:
        remedy = (
            "write NAME or USER/NAME; NAME#2 for an earlier run, NAME:0 for the checkpoint of one"
            " task"
        )
        raise InvalidValue(FIELD, text, "does not name a job", remedy)
    run, task = match["run"], match["task"]
    return CheckpointSource(
        job=match["job"], run=int(run) if run else None, task=int(task) if task else None
    )
