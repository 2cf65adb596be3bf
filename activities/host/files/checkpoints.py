"""Saves a task's checkpoint directory in the store, while its program runs and when it has ended.

`iris.model.checkpoint.plan` decides what a save contains. A save is a manifest with a name of its
own, which is written after the objects of its files. Objects are never overwritten. After a save,
each attempt deletes only objects of its own and of earlier attempts. So the latest save of the
latest attempt is complete at any time, whenever an agent dies or continues.
"""

import asyncio
import contextlib
import logging
import math
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pydantic import ValidationError

from iris.activities.host.files.checkpoint_files import (
    Changed,
    Reading,
    TooLarge,
    Unreadable,
    check,
    is_empty,
    open_found,
    scan,
)
from iris.activities.host.files.directory_events import Watch
from iris.activities.host.runtimes.cleanup import links
from iris.activities.host.runtimes.process.job_users import files_of, owner_of
from iris.activities.host.runtimes.program import Exit
from iris.model.checkpoint.end_plan import TICK_NS, Order, plan_end
from iris.model.checkpoint.plan import Changes, Found, Plan, plan, too_large
from iris.model.checkpoint.saves import (
    MOST_MANIFEST,
    Save,
    SavedItem,
    attempt_folder,
    save_name,
    unused,
)
from iris.model.errors import first_line
from iris.storage.object_store import STORE_ERRORS, Store

logger = logging.getLogger(__name__)

#: The interval between two checks of the directory for changes.
LOOK_INTERVAL = timedelta(seconds=1)
#: The shortest pause after a save. The pause is longer after a long save.
SAVE_PAUSE = timedelta(seconds=10)
#: A file that has not changed for this long counts as complete, in nanoseconds.
SETTLE_NS = 2 * 10**9
#: The name of the file in the attempt's directory that records the last save. An agent that
#: continues the attempt reads it.
RECORD = "checkpoint.json"
#: The maximum number of reads of the checkpoint directory in a row. A read is repeated if the
#: program has replaced a file before the agent could open it.
_LOOKS = 5
#: The maximum number of paths that one line of the log names.
_NAMED = 3
#: The maximum number of files that are kept open, to find out whether the program replaces them.
_HELD = 64


class End(NamedTuple):
    """When a program ended, and whether the files that it left are complete."""

    #: True if all files count as complete: the program exited with code 0, or with a code up to 128
    #: after it was told to stop, and no process that it left was killed or ended by SIGTERM.
    by_itself: bool
    #: The time at which the program ended, in nanoseconds since 1970; 0 if it is not known.
    at: int


def end_of(found: Exit | None, *, told_to_stop: bool) -> End:
    """Returns the end of a program that was started.

    Exit code 0 says that all files are whole. So does an exit code from 1 to 128 of a program that
    was told to stop, because the program had the time to write its files. Without that, such an
    exit code may be that of a fault, for instance a full disk in the middle of a file. Exit codes
    above 128 are those of shells for a signal. If processes that the program has left were killed,
    they may have been writing. In all these cases, `iris.model.checkpoint.end_plan` decides which
    files are whole.

    Args:
        found: how the program ended; None if that is not known.
        told_to_stop: True if the attempt was ended before its program ended.
    """
    if found is None or found.status is None:
        return End(by_itself=False, at=0)
    # After the first process has failed, its files do not change, however long others outlive it.
    at = found.first_ended_at if found.first_ended_at and found.status != 0 else found.at
    code_says_so = found.status == 0 or (told_to_stop and 0 < found.status <= 128)
    return End(code_says_so and not found.cut, int(at * 1e9))


class Saver:
    """Saves the checkpoint directory of one attempt.

    Args:
        prefix: the folder of the task's saves in the store; if it is empty, nothing is saved.
        directory: the directory of the attempt.
        gate: limits the number of files that all attempts upload at once.
        limit: the most bytes to save.
        say: writes a line into the log of the attempt.
        taken_over: True if an earlier agent took the attempt.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        attempt: int,
        directory: Path,
        gate: asyncio.Semaphore,
        limit: int,
        say: Callable[[str], None],
        *,
        taken_over: bool = False,
    ) -> None:
        self._store, self._prefix, self._attempt, self._dir = store, prefix, attempt, directory
        self._gate, self._limit, self._say = gate, limit, say
        self._changes = Changes(0 if taken_over else time.time_ns() - TICK_NS)
        #: The last save; None before this agent has read the file `RECORD`.
        self._last: Save | None = None
        #: The save before the last one; None if there is none, or if another attempt made it.
        self._before: Save | None = None
        #: The inode number and the open file of each file that the program has just written, by
        #: path. While a file is open, no other file gets its inode number, so a replacement is
        #: recognised.
        self._held: dict[str, tuple[int, BinaryIO]] = {}
        #: The stored objects of uploaded files that no save contains yet.
        self._uploaded: dict[Found, SavedItem] = {}
        self._token, self._count = secrets.token_hex(6), 0
        #: True if the store has no objects of this attempt, or of an earlier one, besides those of
        #: the last two saves.
        self._swept = False
        self._problem = ""
        #: The maximum number of bytes that one try to save has read; reset when the program has
        #: ended. A later try that reads more makes progress, so the attempt waits longer for the
        #: store.
        self.progress = 0
        self._reads, self._finishing = 0, False
        #: Follows the changes of the checkpoint directory, from the call of `watch` until `finish`
        #: returns True. None before `watch`.
        self._watch: Watch | None = None
        #: The order of the changes in the checkpoint directory, from which the save at the
        #: program's end learns which files are complete. None while the program runs, and if all
        #: files are complete at its end (`End.by_itself`).
        self._order: Order | None = None
        #: Set while changed files may be saved. It is cleared when the program fails, because a
        #: file that was being written does not change any more but is not complete.
        self._may_save = asyncio.Event()
        self._may_save.set()
        #: The paths of files that the last save left out, because the program had not finished them
        #: when it ended.
        self._unfinished: tuple[str, ...] = ()

    def watch(self) -> None:
        """Starts to follow the order of changes, which decides at the program's end which files are
        whole.
        """
        if self._prefix and self._watch is None:
            self._watch = Watch(files_of(self._dir))

    def program_failed(self) -> None:
        """Stops saving until the end. The files that the failed program was writing do not change
        any more, but are not whole.
        """
        self._may_save.clear()

    async def save_on(self) -> None:
        """Saves changes of the directory until this is cancelled. Raises nothing."""
        if not self._prefix:
            await asyncio.Event().wait()
        self.watch()
        while True:
            await self._may_save.wait()
            begun = time.monotonic()
            result = await self._try_to_save(lambda: time.time_ns() - SETTLE_NS)
            took = time.monotonic() - begun
            saved = result is _Result.SAVED
            pause = (
                max(SAVE_PAUSE.total_seconds(), took)
                if saved
                else max(LOOK_INTERVAL.total_seconds(), 20 * took)
            )
            await asyncio.sleep(pause)

    async def finish(self, end: End | None) -> bool:
        """Saves the last changes of a program that has ended. Returns False if the caller must try
        again.

        Args:
            end: the end of the program; None if no program was started. Then nothing is saved,
                because the directory may be half-restored.
        """
        if not self._prefix or end is None:
            return True
        if not self._finishing:
            self._finishing, self.progress = True, 0
        if not end.by_itself and self._order is None:
            self._order = Order() if self._watch is None else self._watch.catch_up()
        at = end.at - SETTLE_NS if end.at else -math.inf
        result = await self._try_to_save(lambda: math.inf if end.by_itself else at)
        self._release()
        if result is _Result.LATER:
            return False
        if self._watch is not None:
            self._watch.close()
        if self._unfinished:
            self._say(
                "not in the checkpoint, because the program had not finished it when it ended:"
                f" {_listed(self._unfinished)}"
            )
        return True

    # -- inside ------------------------------------------------------------------------------------

    async def _try_to_save(self, settled_at: Callable[[], float]) -> "_Result":
        try:
            if self._last is None:
                self._last = self._recorded()
            if not self._last.items and is_empty(files_of(self._dir)):
                return _Result.NOTHING
            saved = await self._save_changes(self._last, settled_at)
        except Changed as changed:
            logger.debug("the checkpoint is not saved now: %s has just changed", changed)
            return _Result.LATER
        except TooLarge as error:
            self._report(f"the checkpoint is not saved: {error}")
            return _Result.NOTHING
        except Unreadable as error:
            self._report(
                f"the checkpoint is not saved: the agent may not read {error}; let its user read it"
            )
            return _Result.NOTHING
        except (links.Replaced, FileNotFoundError):
            self._report(
                "the checkpoint is not saved: the directory, or Iris's record of it, was deleted or"
                " replaced"
            )
            return _Result.NOTHING
        except STORE_ERRORS as error:
            self._report(f"the checkpoint could not be saved, trying again: {first_line(error)}")
            return _Result.LATER
        if saved and self._problem:
            self._problem = ""
            self._say("the checkpoint is saved again")
        return _Result.SAVED if saved else _Result.NOTHING

    def _report(self, problem: str) -> None:
        if problem.partition(":")[0] != self._problem:  # each problem is reported once
            self._problem = problem.partition(":")[0]
            self._say(problem)

    def _recorded(self) -> Save:
        """Returns the last save of an earlier agent, or the restored save."""
        path = self._dir / RECORD
        try:
            return Save.model_validate_json(links.read(path, MOST_MANIFEST))
        except FileNotFoundError:
            if self._attempt == 1:
                return Save()
            raise links.Replaced(path) from None
        except ValidationError:
            raise links.Replaced(path) from None

    async def _save_changes(self, last: Save, settled_at: Callable[[], float]) -> bool:
        with contextlib.ExitStack() as opened:
            looked = await asyncio.to_thread(self._look, last, settled_at, opened)
            planned = looked.plan
            # A save of another job is saved at once as this task's own, because the other job's
            # saves may be deleted.
            of_another_job = last.attempt == 0 and bool(last.items)
            if not planned.is_due and not of_another_job:
                return False
            if reason := too_large(planned, self._limit, self._prefix):
                raise TooLarge(reason)
            swept, self._swept, self._reads = self._swept, False, 0
            new = await _all(
                self._upload(item, looked.files.get(item.path)) for item in planned.new
            )
            kept = await _all(self._own(item, looked.found.get(item.path)) for item in planned.kept)
        items = tuple(sorted((*new, *kept), key=lambda item: item.path))
        save, manifest = await self._commit(last, items)
        self._uploaded.clear()
        self._changes.saved(planned)
        dropped, self._before, self._last = (
            self._before,
            (last if last.attempt == self._attempt else None),
            save,
        )
        await asyncio.to_thread(links.write, self._dir / RECORD, manifest)
        await self._sweep(
            [save, *([self._before] if self._before else [])],
            dropped if swept else None,
            listed=swept,
        )
        return True

    def _look(
        self, last: Save, settled_at: Callable[[], float], opened: contextlib.ExitStack
    ) -> "_Look":
        """Decides what to save, and opens the files that the program may replace before the upload.
        Raises `Changed` if the program replaces files faster than they can be opened.
        """
        files, owner = files_of(self._dir), owner_of(self._dir)
        for further in reversed(range(_LOOKS)):
            at, settled = time.time_ns() - (0 if self._finishing else TICK_NS), settled_at()
            found = scan(files, owner)
            self._changes.look(last, found, at, settled)
            self._find_replaced(files, owner, found, settled)
            planned = self._plan(last, found, settled)
            try:
                # A file that can be opened has not changed since the end of the scan.
                taken = {
                    item.path: opened.enter_context(open_found(files, item, owner))
                    for item in planned.new
                    if item.is_file and item.path in self._changes.replaced
                }
            except Changed:
                if not further:
                    raise
            else:
                return _Look(planned, {item.path: item for item in found}, taken)
        raise AssertionError("unreachable: the last read of the directory returns or raises")

    def _plan(self, last: Save, found: Sequence[Found], settled: float) -> Plan:
        if self._order is None:
            return plan(last, found, self._changes, settled)
        planned = plan_end(last, found, self._changes, settled, self._order)
        self._unfinished = planned.waiting
        return planned

    def _find_replaced(
        self, files: Path, owner: int | None, found: Sequence[Found], settled: float
    ) -> None:
        """Finds the files that the program replaces by renaming another file. After that, the
        version of the last look has no name any more.

        The versions of the last look are kept open, so that no other file gets their inode numbers.
        """
        now = {item.path: item for item in found}
        for path, (inode, file) in self._held.items():
            if path in now and now[path].inode != inode and os.fstat(file.fileno()).st_nlink == 0:
                self._changes.replaced.add(path)
        self._release()
        for item in found:
            written = (
                item.is_file and item.changed_ns > settled and item.path in self._changes.since
            )
            if written and item.path not in self._changes.replaced and len(self._held) < _HELD:
                with contextlib.suppress(Changed):
                    self._held[item.path] = (item.inode, open_found(files, item, owner))

    def _release(self) -> None:
        for _, file in self._held.values():
            file.close()
        self._held.clear()

    async def _upload(self, item: Found, file: BinaryIO | None) -> SavedItem:
        """Stores a new version of a file. Raises `Changed` if the file has changed before that."""
        saved = SavedItem(
            path=item.path,
            mode=item.mode,
            size=item.size,
            mtime_ns=item.mtime_ns,
            target=item.target,
        )
        if not item.is_file:
            return saved
        if (known := self._uploaded.get(item)) is not None:
            return known
        async with self._gate:
            if file is None:
                file = await asyncio.to_thread(
                    open_found, files_of(self._dir), item, owner_of(self._dir)
                )
            with file:
                reading = Reading(file, item.size, self._read)
                name = self._new_name()
                await self._store.put_blocks(name, iter(reading))
                check(file, item)
                if reading.read != item.size:
                    raise Changed(item.path)
        self._uploaded[item] = saved.model_copy(
            update={"stored_as": name, "sha256": reading.sha256}
        )
        return self._uploaded[item]

    async def _own(self, item: SavedItem, found: Found | None) -> SavedItem:
        """Returns an unchanged item with an object of this attempt, which no other attempt deletes.
        Raises `Changed` if both the object of the earlier attempt and the file are gone.
        """
        if not item.stored_as or item.stored_as.startswith(
            f"{attempt_folder(self._prefix, self._attempt)}/"
        ):
            return item
        name = self._new_name()
        async with self._gate:
            if await self._store.copy(item.stored_as, name):
                return item.model_copy(update={"stored_as": name})
        if found is None or found.identity != item.identity:
            raise Changed(item.path)
        return await self._upload(found, None)

    async def _commit(self, last: Save, items: tuple[SavedItem, ...]) -> tuple[Save, str]:
        """Stores the manifest of a new save, and returns both."""
        number = last.number + 1 if last.attempt == self._attempt else 1
        while True:
            save = Save(
                attempt=self._attempt, number=number, saved_at=datetime.now(UTC), items=items
            )
            name = save_name(self._prefix, self._attempt, number)
            if await self._store.put_new(name, (manifest := save.manifest()).encode()):
                return save, manifest
            number += 1  # an agent that died has used this number and could not record it

    async def _sweep(self, keep: Sequence[Save], dropped: Save | None, *, listed: bool) -> None:
        """Deletes the objects that no save needs any more. After an error, the next save deletes
        them.
        """
        try:
            if not listed:
                stored = [name for name, _ in await self._store.sizes(self._prefix)]
            elif dropped is not None:
                stored = [
                    *dropped.objects,
                    save_name(self._prefix, dropped.attempt, dropped.number),
                ]
            else:
                stored = []
            await self._store.delete(unused(stored, self._prefix, self._attempt, keep))
            self._swept = True
        except STORE_ERRORS as error:
            logger.warning(
                "old objects below %s could not be deleted: %s", self._prefix, first_line(error)
            )

    def _new_name(self) -> str:
        """Returns a name that no object has ever had, because the token belongs to this saver."""
        self._count += 1
        return f"{attempt_folder(self._prefix, self._attempt)}/files/{self._token}-{self._count}"

    def _read(self, count: int) -> None:
        self._reads += count
        self.progress = max(self.progress, self._reads)


class _Result(Enum):
    """The result of a try to save."""

    SAVED = auto()
    #: There was nothing to save, or nothing that can be saved.
    NOTHING = auto()
    #: The try failed, and a later try may succeed.
    LATER = auto()


class _Look(NamedTuple):
    """The result of one read of the checkpoint directory: the files in it, and those to save."""

    plan: Plan
    found: dict[str, Found]
    #: The open files, by path. They are open because the program may replace them.
    files: dict[str, BinaryIO]


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


async def _all(work: Iterable[Awaitable[SavedItem]]) -> list[SavedItem]:
    """Waits for all, and then raises the first exception, if any."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if isinstance(result, SavedItem)]
