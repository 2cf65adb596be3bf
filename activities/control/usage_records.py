"""Stores the records of use."""

from temporalio import activity

from iris.concurrency import for_each
from iris.messages.scheduler import EndedRecords
from iris.metrics.declared import USES_STORED
from iris.storage.object_store import Store
from iris.usage.lines import to_objects

#: The maximum number of objects that are written at the same time. A batch of records has one
#: object for each day on which an attempt or a slice ended.
_AT_ONCE = 8


class UsageRecords:
    """Stores records of use in the cluster's store: which attempts and slices used which resources,
    and for how long.

    Args:
        store: the address of the store; empty if the cluster has none.
    """

    def __init__(self, store: str) -> None:
        self._store = store

    @activity.defn
    async def store_uses(self, ended: EndedRecords) -> None:
        """Stores the records. Repeating the call writes the same objects."""
        if not self._store:
            return
        store = Store(self._store)

        async def put(item: tuple[str, bytes]) -> None:
            await store.put(*item)

        await for_each(to_objects(ended.cluster, ended.records).items(), put, at_once=_AT_ONCE)
        USES_STORED.add(amount=len(ended.records))
