"""The queue of events, which takes the place of a clock."""

import heapq
from collections.abc import Callable
from datetime import datetime
from itertools import count

#: The function that performs an event.
Deed = Callable[[], None]


class Event:
    """An event in the future. It can be cancelled."""

    __slots__ = ("at", "deed")

    def __init__(self, at: datetime, deed: Deed) -> None:
        self.at = at
        #: The function that performs the event; None after the event has happened or was cancelled.
        self.deed: Deed | None = deed

    def cancel(self) -> None:
        self.deed = None


class EventQueue:
    """The future events in the order of their times. Events with the same time happen in the order
    in which they were added.

    Args:
        now: the time before the first event.
    """

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._events: list[tuple[datetime, int, Event]] = []
        self._numbers = count()

    def at(self, time: datetime, deed: Deed) -> Event:
        """Adds an event. One whose time has passed happens now."""
        event = Event(max(time, self.now), deed)
        heapq.heappush(self._events, (event.at, next(self._numbers), event))
        return event

    def next_at(self) -> datetime | None:
        """Returns the time of the next event; None if there is none."""
        while self._events and self._events[0][2].deed is None:
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else None

    def run_next(self) -> None:
        """Moves the time to the next event, and runs all events of this time."""
        due = self.next_at()
        assert due is not None
        assert due >= self.now, "time runs back"
        self.now = due
        while self.next_at() == due:
            event = heapq.heappop(self._events)[2]
            deed, event.deed = event.deed, None
            assert deed is not None
            deed()
