"""Since when nothing runs on a slice: what an autoscaler needs to know before it gives one back."""

from collections.abc import Iterable, Mapping
from datetime import datetime


class Uses:
    """When something last ran on each slice; one that is new was used when it came."""

    def __init__(self, at: Mapping[str, datetime] | None = None) -> None:
        self.at = dict(at or {})
        #: What has become free, or has come, since the time was last known.
        self._left: set[str] = set()

    def left(self, slice_id: str) -> None:
        """Something has ended there."""
        self._left.add(slice_id)

    def now_is(self, now: datetime) -> None:
        """What has ended has ended now."""
        self.at.update(dict.fromkeys(self._left, now))
        self._left.clear()

    def gone(self, slice_ids: Iterable[str]) -> None:
        """These slices are no more."""
        for slice_id in slice_ids:
            self._left.discard(slice_id)
            self.at.pop(slice_id, None)

    def after(self, slice_id: str, when: datetime | None) -> datetime | None:
        """When something last ran there, if that was later; None: it was not, or nobody asks."""
        used = self.at.get(slice_id)
        return used if used is not None and when is not None and used > when else None
