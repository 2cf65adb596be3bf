"""What `iris cluster gc` finds and deletes: nothing that another cluster, or a job submitted
meanwhile, may need.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.connection import connect
from iris.client.connect.rpc import Connection
from iris.client.fleet.store_marks import mark_store
from iris.client.fleet.unused_files import delete_unused, find_unused
from iris.messages.job import JobInput
from iris.model import names, store_paths
from iris.model.checkpoint.sources import CheckpointSource
from iris.model.errors import Rejected
from iris.model.job.bundles import Bundle
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store
from iris.worker_agents.control_plane.search_attributes import register_search_attributes
from iris.worker_agents.local.temporal_server import temporal_binary
from iris.workflows.search_attributes import job_facts, keywords

pytestmark = pytest.mark.asyncio(loop_scope="module")

MONTH = timedelta(days=30)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary()
    ) as server:
        client = await connect(server.client.service_client.config.target_host, "default")
        await register_search_attributes(client)
        yield client


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


async def put_old(store: Store, *paths: str) -> None:
    """Writes objects as if forty days ago."""
    then = time.time() - 40 * 86_400
    for path in paths:
        await store.put(path, b"x")
        os.utime(f"{store.url.removeprefix('file://')}/{path}", (then, then))


async def start(client: Client, spec: JobSpec) -> None:
    """Starts the job as a submission does, and waits until lists show it."""
    _, attributes = job_facts("local", spec)
    job = names.job_workflow("local", spec.id)
    await client.start_workflow(
        names.WORKFLOW_TYPES[names.KIND_JOB],
        JobInput(cluster="local", spec=spec),
        id=job,
        task_queue=names.control_queue("local"),
        search_attributes=keywords(attributes),
    )
    async with asyncio.timeout(60):
        while not (await client.count_workflows(f"WorkflowId = '{job}'")).count:  # noqa: ASYNC110  lists tell nobody
            await asyncio.sleep(0.05)


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


async def test_a_cluster_of_the_same_name_in_another_namespace_is_another_cluster(
    client: Client, store: Store
) -> None:
    """Temporal knows the jobs of one namespace only."""
    await mark_store(client, "local", store.url)
    await store.put(store_paths.cluster_namespace("local", "0198c0de"), b"namespace research\n")

    with pytest.raises(
        Rejected,
        match="another Temporal namespace, as its mark shows: clusters/local/namespaces/0198c0de",
    ):
        await find_unused(connected(client, store), MONTH)


async def test_a_store_without_the_mark_of_the_cluster_is_refused(
    client: Client, store: Store
) -> None:
    """The address may be wrong, or the control plane of another cluster may not have left its mark
    either.
    """
    with pytest.raises(Rejected, match="has no file that marks it as the store of cluster local"):
        await find_unused(connected(client, store), MONTH)


async def test_what_a_job_that_was_submitted_meanwhile_writes_or_needs_is_not_deleted(
    client: Client, store: Store
) -> None:
    """Deleting takes long: the bundle of a job is uploaded again, to the same place, and a
    checkpoint gets a new use.
    """
    await mark_store(client, "local", store.url)
    run, again, other = (
        "0198c0de-aaaa",
        store_paths.bundle("ab" * 32),
        store_paths.bundle("cd" * 32),
    )
    source, of_family = (
        store_paths.job_checkpoints("ada/source", run),
        store_paths.job_logs("ada/late", run),
    )
    logs, written = (
        store_paths.job_logs("ada/ended", run),
        store_paths.job_outputs("ada/ended", run),
    )
    await put_old(
        store, again, other, *(f"{each}/0/1/x" for each in (source, of_family, logs, written))
    )
    connection = connected(client, store)
    found = await find_unused(connection, MONTH)
    assert {each.folder for each in found} == {again, other, source, of_family, logs, written}

    await store.put(again, b"x")
    await store.put(f"{written}/0/2/y", b"x")
    taken = CheckpointSource(job="ada/source", folder=source, tasks=(0,))
    spec = JobSpec(
        user="ada",
        name="late",
        command=("true",),
        bundle=Bundle(sha256="ab" * 32),
        from_checkpoint=taken,
    )
    await start(client, spec)
    deleted = await delete_unused(connection, found)

    assert {each.folder for each in deleted} == {other, logs}
    left = {each.path for each in await store.stored() if not each.path.startswith("clusters/")}
    assert left == {
        again,
        f"{source}/0/1/x",
        f"{of_family}/0/1/x",
        f"{written}/0/1/x",
        f"{written}/0/2/y",
    }
