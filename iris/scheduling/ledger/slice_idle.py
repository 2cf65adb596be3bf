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

    def left(self, slice_id: str) -> None:
        """Records that a task has ended on the slice, or that the slice is new."""
        self._left.add(slice_id)

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
