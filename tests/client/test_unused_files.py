"""What `iris cluster gc` finds and deletes: nothing that another cluster, or a job submitted meanwhile, may need."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.rpc import Connection
from iris.client.store_marks import mark_store
from iris.client.unused_files import find_unused
from iris.model import names
from iris.model.errors import Rejected
from iris.storage.object_store import Store
from iris.worker_agents.control_plane.search_attributes import register_search_attributes
from iris.worker_agents.local.temporal_server import temporal_binary

pytestmark = pytest.mark.asyncio(loop_scope="module")

MONTH = timedelta(days=30)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal_binary()) as server:
        await register_search_attributes(server.client)
        yield server.client


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri())


def connected(client: Client, store: Store) -> Connection:
    address = client.service_client.config.target_host
    return Connection(client, ClusterRecord(name="local", address=address, store=store.url))


async def test_a_store_that_another_cluster_uses_is_refused(client: Client, store: Store) -> None:
    """Its live jobs are not known here. No cluster needs a cloud for its mark."""
    await mark_store(client, "local", store.url)
    assert await find_unused(connected(client, store), MONTH) == []

    await mark_store(client, "other", store.url)

    with pytest.raises(Rejected, match="also has files of other"):
        await find_unused(connected(client, store), MONTH)


async def test_a_cluster_of_the_same_name_in_another_namespace_is_another_cluster(client: Client, store: Store) -> None:
    """Temporal knows the jobs of one namespace only."""
    await mark_store(client, "local", store.url)
    await store.put(names.cluster_namespace("local", "0198c0de"), b"namespace research\n")

    with pytest.raises(Rejected, match="another Temporal namespace: clusters/local/namespaces/0198c0de"):
        await find_unused(connected(client, store), MONTH)


async def test_a_store_without_the_mark_of_the_cluster_is_refused(client: Client, store: Store) -> None:
    """The address may be wrong, or the control plane of another cluster may not have left its mark either."""
    with pytest.raises(Rejected, match="has no mark of the cluster local"):
        await find_unused(connected(client, store), MONTH)
