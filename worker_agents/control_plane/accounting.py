"""Writes the prices, teams and budgets of the configuration into the store, for clients."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

from iris.concurrency import beside
from iris.config import ClusterConfig
from iris.model import store_paths
from iris.model.errors import IrisError
from iris.storage.object_store import STORE_ERRORS, Store
from iris.usage.accounting import Accounting, accounting_of

logger = logging.getLogger(__name__)

#: The interval between two comparisons of the current configuration with the published one, and
#: between two tries to reach the store.
INTERVAL = timedelta(seconds=15)


@contextlib.asynccontextmanager
async def publishing_accounting(
    cluster: str, store: str, current: Callable[[], ClusterConfig]
) -> AsyncIterator[None]:
    """Keeps the prices and teams in the store those of the configuration for as long as the block
    lasts. Jobs do not wait for it.

    Args:
        current: returns the present configuration.
    """

    async def keep() -> None:
        published: Accounting | None = None
        while True:
            accounting = accounting_of(current())
            if accounting != published:
                try:
                    await publish(Store(store), cluster, accounting)
                    published = accounting
                except (IrisError, *STORE_ERRORS) as error:
                    logger.warning(
                        "cannot write the prices into the store, trying again: %s", error
                    )
            await asyncio.sleep(INTERVAL.total_seconds())

    async with beside(keep()):
        yield


async def publish(store: Store, cluster: str, accounting: Accounting) -> None:
    """Writes the prices and teams of the cluster. Deletes them if there are none.

    Raises:
        OSError, BaseError: the store does not answer.
    """
    path = store_paths.accounting(cluster)
    if accounting.rates or accounting.teams or accounting.budgets:
        await store.put(path, accounting.model_dump_json().encode())
    else:
        await store.delete([path])
