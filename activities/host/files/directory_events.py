"""Records the order in which files of checkpoint directories are written, closed and renamed, with
Linux's inotify(7).

All attempts of an agent share one inotify instance, because a user may have only 128. Events are
read at intervals, so that a program that writes much causes little load. If the system has no
inotify, or allows no further instance or watch, the order is not known.
"""

import asyncio
import ctypes
import errno
import functools
import logging
import os
import struct
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from iris.activities.host.files.checkpoint_files import FOLDER
from iris.activities.host.runtimes.cleanup import links, trees
from iris.model.checkpoint.end_plan import Order
from iris.storage.output_names import object_name

logger = logging.getLogger(__name__)

#: The shortest pause between two reads of inotify events, in seconds.
PAUSE = 0.1
#: The maximum number of directories of one checkpoint that are watched.
MOST_WATCHED = 1_000
#: The maximum number of bytes of inotify events that one read returns.
_READ = 64 * 1024
#: The maximum number of reads of inotify events in a row before the event loop does other work.
_READS = 32
#: The number of reads after which even a full queue of inotify is empty. A full queue has 16,384
#: events of 272 bytes.
_ALL = 80
#: The numbers of the flags in linux/inotify.h.
_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _ONLY_DIRECTORY, _NOT_UNLINKED, _OF_DIRECTORY = (
    0x4000,
    0x8000,
    0x1000000,
    0x4000000,
    0x40000000,
)
_MASK = (
    _MODIFY
    | _CLOSE_WRITE
    | _MOVED_FROM
    | _MOVED_TO
    | _CREATE
    | _DELETE
    | _ONLY_DIRECTORY
    | _NOT_UNLINKED
)
_HEAD = struct.Struct("iIII")


class Watch:
    """Follows the changes of one checkpoint directory until `close`.

    Args:
        files: the directory of the attempt's files, which contains the checkpoint directory.
    """

    def __init__(self, files: Path) -> None:
        self.order = Order()
        self._files = files
        self._events = _Events.of_this_loop()
        self._watched: set[int] = set()
        self._watch()

    def catch_up(self) -> Order:
        """Reads all events so far, and returns the order of changes."""
        if self._events is not None:
            self._events.read(_ALL)
        return self.order

    def close(self) -> None:
        if self._events is not None:
            self._events.remove(self, self._watched)

    def record(self, event: "_Event", steps: tuple[str, ...]) -> None:
        """Records an event of the file or directory with this path."""
        path, kind = object_name(PurePath(*steps)), event.mask
        is_watched = bool(kind & _OF_DIRECTORY and kind & (_CREATE | _MOVED_TO)) and self._watch(
            *steps
        )
        if kind & _MOVED_TO:
            self.order.placed(path, time.time_ns())
        elif is_watched:
            self.order.made(path, time.time_ns())
        elif kind & _CLOSE_WRITE:
            self.order.closed(path)
        else:
            self.order.written(path)

    def is_gone(self, number: int) -> None:
        self._watched.discard(number)

    def events_are_lost(self) -> None:
        self.order.forget()
        self._watch()

    def _watch(self, *steps: str) -> bool:
        """Watches a directory and those below it. Returns False if it cannot watch all of them."""
        if self._events is None:
            return False
        try:
            with links.directory(self._files, FOLDER, *steps) as top:
                watched = -1
                # The loop repeats, because the program may make a directory before its parent is
                # watched.
                while watched < len(self._watched):
                    watched = len(self._watched)
                    self._watch_below(self._events, top, steps)
        except OSError as error:  # it is gone or replaced already, or there are too many
            logger.debug(
                "the order of changes in %s below %s is not known: %s", steps, self._files, error
            )
            return False
        return True

    def _watch_below(self, events: "_Events", top: int, steps: tuple[str, ...]) -> None:
        """Watches a directory and those below it. Raises OSError if it cannot watch all of them."""
        for visit in trees.visits(top):
            if len(self._watched) >= MOST_WATCHED:
                raise OSError(
                    errno.ENOSPC,
                    f"the checkpoint has too many directories; at most {MOST_WATCHED} are watched",
                )
            if not visit.left:
                self._watched.add(events.add(self, visit.at, (*steps, *visit.steps)))


class _Event(NamedTuple):
    watch: int
    mask: int
    name: str


class _Events:
    """The inotify instance of an event loop."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._watches: dict[int, tuple[Watch, tuple[str, ...]]] = {}
        # The event loop has the only reference, so this closes the file when the loop is gone.
        weakref.finalize(self, os.close, file)
        self._read_on()

    @classmethod
    def of_this_loop(cls) -> "_Events | None":
        loop = asyncio.get_running_loop()
        if loop not in _INSTANCES:
            libc = _libc()
            file = (
                libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if sys.platform == "linux" else -1
            )
            if file < 0:
                return None
            _INSTANCES[loop] = cls(file)
        return _INSTANCES[loop]

    def add(self, watch: Watch, directory: int, steps: tuple[str, ...]) -> int:
        """Watches an open directory. Raises OSError if the system allows no further watch."""
        number = _libc().inotify_add_watch(self._file, f"/proc/self/fd/{directory}".encode(), _MASK)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")
        self._watches[number] = (watch, steps)
        return int(number)

    def remove(self, watch: Watch, numbers: set[int]) -> None:
        for number in numbers:
            # The number may belong to another watch by now.
            if self._watches.get(number, (None,))[0] is watch:
                del self._watches[number]
                _libc().inotify_rm_watch(self._file, number)

    def read(self, most: int = _READS) -> None:
        for _ in range(most):
            try:
                data = os.read(self._file, _READ)
            except BlockingIOError:
                return
            for event in _parsed(data):
                if event.mask & _OVERFLOW:
                    for watch in {watch for watch, _ in self._watches.values()}:
                        watch.events_are_lost()
                elif event.mask & _IGNORED:
                    if event.watch in self._watches:
                        self._watches.pop(event.watch)[0].is_gone(event.watch)
                elif event.name and event.watch in self._watches:
                    watch, steps = self._watches[event.watch]
                    watch.record(event, (*steps, event.name))

    def _read_on(self) -> None:
        asyncio.get_running_loop().add_reader(self._file, self._read_and_pause)

    def _read_and_pause(self) -> None:
        loop, begun = asyncio.get_running_loop(), time.monotonic()
        loop.remove_reader(self._file)
        self.read()
        # Reading uses at most a twentieth of a core. If there are more events, the system drops
        # some and reports that.
        loop.call_later(max(PAUSE, 20 * (time.monotonic() - begun)), self._read_on)


_INSTANCES: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Events]" = (
    weakref.WeakKeyDictionary()
)


def _parsed(data: bytes) -> Iterator[_Event]:
    at = 0
    while at < len(data):
        watch, mask, _, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield _Event(watch, mask, os.fsdecode(data[at : at + size].rstrip(b"\0")))
        at += size


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
