"""Keeps the cluster's mark and the public key for users' secrets in the store, deletes secrets that
no job needs any more, and merges the records of use.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from iris.activities.control.sealed_secrets import SealedSecrets
from iris.client.connect.secret_keys import publish_key, secret_keys
from iris.client.fleet.store_marks import mark_store
from iris.client.fleet.usage_records import merge_objects
from iris.concurrency import beside, pause
from iris.model.errors import IrisError
from iris.storage.object_store import STORE_ERRORS, Store

logger = logging.getLogger(__name__)

#: The pause between two sweeps, which delete sealed values that no job needs.
SWEEP_INTERVAL = timedelta(minutes=5)
#: The pause between two merges of the records of use. A busy cluster stores 120 objects an hour.
MERGE_INTERVAL = timedelta(hours=1)
#: The pause between two tries to reach the store.
RETRY_INTERVAL = timedelta(seconds=15)
#: The time for which a starting control plane waits for the store. The first job can have secrets
#: only if the store answers.
FIRST_TRY = timedelta(seconds=5)


@contextlib.asynccontextmanager
async def keeping_secrets(client: Client, cluster: str, store: str) -> AsyncIterator[None]:
    """Publishes the key and sweeps the store for as long as the block lasts. Jobs do not wait for
    it.

    Raises:
        InvalidValue: the file of keys that the environment names cannot be used.
    """
    keys, published = secret_keys(), asyncio.Event()

    async def keep() -> None:
        while True:
            try:
                await publish_key(store, cluster, keys)
                published.set()
                break
            except (IrisError, *STORE_ERRORS) as error:
                logger.warning(
                    "cannot publish the key for the secrets of users, trying again: %s", error
                )
            await asyncio.sleep(RETRY_INTERVAL.total_seconds())
        secrets = SealedSecrets(client, store)
        while True:
            try:
                await secrets.sweep(cluster)
            except (IrisError, RPCError, *STORE_ERRORS) as error:
                logger.warning(
                    "cannot look for secrets of jobs that are gone, trying again: %s", error
                )
            await asyncio.sleep(SWEEP_INTERVAL.total_seconds())

    async with beside(keep()):
        await pause(published, FIRST_TRY)
        yield


@contextlib.asynccontextmanager
async def marking_store(client: Client, cluster: str, store: str) -> AsyncIterator[None]:
    """Marks the store as this cluster's. Jobs do not wait for it: without the mark, only `iris
    cluster gc` refuses to work.
    """

    async def mark() -> None:
        while True:
            try:
                return await mark_store(client, cluster, store)
            except (IrisError, RPCError) as error:
                logger.warning("cannot mark the store as the cluster's, trying again: %s", error)
            await asyncio.sleep(RETRY_INTERVAL.total_seconds())

    async with beside(mark()):
        yield


@contextlib.asynccontextmanager
async def merging_uses(cluster: str, store: str) -> AsyncIterator[None]:
    """Merges the stored records of use for as long as the block lasts. Several control planes may
    do it at the same time.
    """

    async def merge() -> None:
        while True:
            try:
                merged = await merge_objects(Store(store), cluster, datetime.now(UTC))
                if merged:
                    logger.info("has merged %d objects with records of use", merged)
            except (IrisError, *STORE_ERRORS) as error:
                logger.warning("cannot merge the records of use, trying again: %s", error)
            await asyncio.sleep(MERGE_INTERVAL.total_seconds())

    async with beside(merge()):
        yield
