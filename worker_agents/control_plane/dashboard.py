"""Serves the dashboard beside the work of a control plane.

Its libraries are imported in a thread, after the control plane has begun to serve: they take a
tenth of a second of CPU, and no job waits for them.
"""

import asyncio
import contextlib
import importlib
import logging
from collections.abc import AsyncIterator

from temporalio.client import Client

from iris.client.access.selection import token_source
from iris.client.connect.clusters import ClusterRecord
from iris.concurrency import beside
from iris.config import DashboardAddress
from iris.dashboard.installed import INSTALL, is_installed

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(
    client: Client, record: ClusterRecord, listen: DashboardAddress
) -> AsyncIterator[None]:
    """Serves the dashboard for as long as the block lasts. A dashboard that cannot be served is
    logged, because the control plane's own work is more important.

    On a cluster with identities it changes nothing: it does not know who its readers are, and
    would act as the control plane.
    """
    if listen.allow_actions and token_source(record.address) is not None:
        logger.warning("the dashboard has no actions, because the cluster has identities")
        listen = listen._replace(allow_actions=False)
    if not listen.port:
        yield
    elif not is_installed():
        logger.info("no dashboard is served: to install it, run: %s", INSTALL)
        yield
    else:
        async with beside(_serve(client, record, listen)):
            yield


async def _serve(client: Client, record: ClusterRecord, listen: DashboardAddress) -> None:
    try:
        module = await asyncio.to_thread(importlib.import_module, "iris.dashboard.serve")
        from iris.client.client import AsyncIrisClient  # imported with the dashboard

        async with module.serving_dashboard(AsyncIrisClient(client, record), listen):
            await asyncio.Event().wait()
    except Exception:
        logger.exception("the dashboard has ended; the control plane continues without it")
