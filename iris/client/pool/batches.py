"""Decides which calls travel together. A batch has calls of one function, as many as take a
fraction of a second. Has no clock.
"""

import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

#: How long a batch should take, in seconds: about ten times the cost of sending it.
TARGET = 0.2
#: The maximum number of calls in a batch, unless the program sets `chunksize`. It is limited
#: because, if a worker dies, another worker repeats all calls of the dead worker's batch.
MOST = 1_000
#: The maximum size in bytes of the arguments of a batch with several calls. With the function and
#: the encryption, the message stays small enough for Temporal.
MOST_BYTES = 48 * 1024
#: The weight of the earlier average, from 0 to 1, when a measured duration updates the average
#: duration of a function's calls.
_MEMORY = 0.5


@dataclass(eq=False)
class Call:
    """A call that a program has submitted to a pool.

    Attributes:
        function, arguments: the pickled function and its pickled arguments.
        most: the maximum number of calls in the call's batch; None for as many as should take
            `TARGET` seconds together.
        crashes: how often a process died while it ran the call.
        started: whether the call was sent to a worker. A started call cannot be cancelled.
    """

    function: bytes
    arguments: bytes
    name: str
    most: int | None = None
    future: "Future[Any]" = field(default_factory=Future)
    crashes: int = 0
    started: bool = False

    def start(self) -> bool:
        """Marks the call as started, so that it can no longer be cancelled. Returns False if it was
        cancelled before.
        """
        self.started = self.started or self.future.set_running_or_notify_cancel()
        return self.started


class CallQueue:
    """The calls that wait for a worker. Any thread may add a call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Call] = deque()
        #: The average duration of a call for each function that was used recently, in seconds.
        self._seconds: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: Call) -> None:
        with self._lock:
            self._waiting.append(call)

    def put_back(self, calls: Sequence[Call]) -> None:
        """Puts calls that have not been run in front of all others."""
        with self._lock:
            self._waiting.extendleft(reversed(calls))

    def took(self, function: bytes, calls: int, seconds: float) -> None:
        """Records how long some calls of the function took."""
        before = self._seconds.pop(function, seconds / calls)
        self._seconds[function] = _MEMORY * before + (1 - _MEMORY) * seconds / calls
        if len(self._seconds) > MOST:
            del self._seconds[next(iter(self._seconds))]

    def take(self, senders: int) -> list[Call]:
        """Takes the calls of the next batch. Returns an empty list if no call waits.

        Args:
            senders: how many batches are sent at the same time. They share the waiting calls.
        """
        batch: list[Call] = []
        with self._lock:
            size = 0
            most = 1
            while self._waiting and len(batch) < most:
                call = self._waiting[0]
                fits = (
                    call.function == batch[0].function and size + len(call.arguments) <= MOST_BYTES
                    if batch
                    else True
                )
                if not fits or (batch and call.crashes):
                    break
                self._waiting.popleft()
                if not call.start():
                    continue
                if not batch:
                    most = self._most(call, senders)
                    size = len(call.function)
                batch.append(call)
                size += len(call.arguments)
        return batch

    def clear(self) -> Iterable[Call]:
        """Takes all waiting calls."""
        with self._lock:
            calls, self._waiting = self._waiting, deque()
        return calls

    def _most(self, call: Call, senders: int) -> int:
        if call.crashes:  # alone, so that it harms no other call
            return 1
        if call.most is not None:
            return call.most
        return batch_size(len(self._waiting) + 1, senders, self._seconds.get(call.function))


def batch_size(waiting: int, senders: int, seconds: float | None) -> int:
    """Returns how many calls a batch has.

    Args:
        seconds: the average time of a call; None if it is unknown.
    """
    if seconds is None:
        return 1
    in_time = MOST if seconds * MOST <= TARGET else int(TARGET / seconds)
    return max(1, min(in_time, MOST, math.ceil(waiting / senders)))
