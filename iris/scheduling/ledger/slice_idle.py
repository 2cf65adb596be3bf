"""The time since which each slice is idle."""

from collections.abc import Iterable, Mapping
from datetime import datetime


class SliceIdle:
    """The time at which a task last ran on each slice. For a new slice it is the time at which its
    first host joined.
    """

    def __init__(self, at: Mapping[str, datetime] | None = None) -> None:
        self.at = dict(at or {})
        #: The slices that are new, or on which a task has ended, since the last call of `now_is`.
        self._left: set[str] = set()
        #: The number of seats of placements on each slice that has any.
        self._seats: dict[str, int] = {}

    def joined(self, slice_id: str) -> None:
        """Records a new slice."""
        self._left.add(slice_id)

    def taken(self, slice_id: str) -> None:
        """Records that a placement has a seat on the slice."""
        self._seats[slice_id] = self._seats.get(slice_id, 0) + 1

    def freed(self, slice_id: str, *, exists: bool) -> None:
        """Records that a placement has one seat less on the slice.

        Args:
            exists: whether the slice still exists.
        """
        left = self._seats.pop(slice_id) - 1
        if left:
            self._seats[slice_id] = left
        if exists:
            self._left.add(slice_id)

    def idle(self, slice_ids: Iterable[str]) -> dict[str, datetime | None]:
        """Returns those of the slices without a placement. The value is the time since which a
        slice is idle; None if that time is not known yet.
        """
        return {each: self.at.get(each) for each in slice_ids if each not in self._seats}

    def now_is(self, now: datetime) -> None:
        """Sets the time of the slices that were recorded since the last call."""
        self.at.update(dict.fromkeys(self._left, now))
        self._left.clear()

    def gone(self, slice_ids: Iterable[str]) -> None:
        """Removes slices that are gone."""
        for slice_id in slice_ids:
            self._left.discard(slice_id)
            self.at.pop(slice_id, None)

    def after(self, slice_id: str, when: datetime | None) -> datetime | None:
        """Returns when a task last ran on the slice if that is later than `when`; None otherwise,
        or if `when` is None.
        """
        used = self.at.get(slice_id)
        return used if used is not None and when is not None and used > when else None
