"""What a control plane deletes of the secrets that jobs and schedules were given: all that nothing
needs, and nothing else.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec
from temporalio.testing import WorkflowEnvironment

from iris.activities.control.sealed_secrets import SealedSecrets
from iris.client.connect.connection import connect
from iris.messages.job import ChildRef, JobInput
from iris.messages.job_secrets import UnneededSecrets
from iris.model import names, store_paths
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store
from iris.worker_agents.control_plane.search_attributes import register_search_attributes
from iris.worker_agents.local.temporal_server import temporal_binary
from iris.workflows.search_attributes import job_facts, keywords

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "0123456789abcdef"
OLD = timedelta(0)


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


async def start(client: Client, cluster: str, job: str) -> str:
    """Starts a job, which then waits for a control plane, and returns its run once lists show
    it.
    """
    user, name = job.split("/", 1)
    spec = JobSpec(user=user, name=name.rpartition("/")[2], command=("true",))
    workflow_id, (_, attributes) = names.job_workflow(cluster, job), job_facts(cluster, spec)
    handle = await client.start_workflow(
        "JobWorkflow",
        JobInput(cluster=cluster, spec=spec),
        id=workflow_id,
        task_queue=names.control_queue(cluster),
        search_attributes=keywords(attributes),
    )
    running = f"WorkflowId = '{workflow_id}' AND ExecutionStatus = 'Running'"
    async with asyncio.timeout(60):
        while not (await client.count_workflows(running)).count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return handle.first_execution_run_id or ""


async def put(store: Store, cluster: str, *paths: str) -> None:
    for path in paths:
        await store.put(store_paths.sealed_object(cluster, path), b"{}")


async def left(store: Store, cluster: str) -> list[str]:
    folder = store_paths.sealed_object(cluster, "")
    return sorted(each.path.removeprefix(folder) for each in await store.stored(folder.rstrip("/")))


async def test_secrets_of_jobs_and_schedules_that_are_gone_are_deleted_by_the_second_sweep(
    client: Client, store: Store
) -> None:
    """The job was terminated, or the schedule deleted. One sweep is not enough: a job that
    continues as new is in no list for a moment. A child that still runs keeps the secrets of its
    parent.
    """
    await start(client, "swept", "ada/live")
    await start(client, "swept", "ada/parent/child")
    action = ScheduleActionStartWorkflow("ScheduledJobWorkflow", id="x", task_queue="swept")
    await client.create_schedule(
        names.schedule_id("swept", "ada/nightly"), Schedule(action=action, spec=ScheduleSpec())
    )
    kept = [
        *(
            store_paths.sealed_for_job(job, TOKEN)
            for job in ("ada/live", "ada/parent", "ada/parent/child")
        ),
        *(store_paths.sealed_for_schedule(job, TOKEN) for job in ("ada/live", "ada/nightly")),
        store_paths.sealed_by_user("ada", "HF_TOKEN"),
    ]
    gone = [
        store_paths.sealed_for_job("ada/liv", TOKEN),
        store_paths.sealed_for_job("bob/live", TOKEN),
    ]
    gone += [store_paths.sealed_for_schedule("bob/nightly", TOKEN)]
    await put(store, "swept", *kept, *gone)
    await put(store, "another", *gone)
    secrets = SealedSecrets(client, store.url)

    await secrets.sweep("swept")
    await secrets.sweep("swept")
    # They are young: their jobs may be about to start.
    assert await left(store, "swept") == sorted([*kept, *gone])
    await secrets.sweep("swept", OLD)
    assert await left(store, "swept") == sorted([*kept, *gone])
    await secrets.sweep("swept", OLD)
    assert await left(store, "swept") == sorted(kept)
    assert await left(store, "another") == sorted(gone)


async def test_the_end_of_a_job_deletes_its_secrets_unless_a_child_lives_on_with_them(
    client: Client, store: Store
) -> None:
    """Children of a job that succeeded go on, and their retries look the secrets up again."""
    run = await start(client, "ended", "ada/train/child")
    other = await start(client, "ended", "ada/train/other")
    await client.get_workflow_handle(names.job_workflow("ended", "ada/train/other")).terminate()
    own = store_paths.sealed_for_job("ada/train", TOKEN)
    await put(store, "ended", own, store_paths.sealed_for_job("ada/train", TOKEN[::-1]))
    secrets = SealedSecrets(client, store.url)
    live = ChildRef(job="ada/train/child", run_id=run)
    dead = (
        ChildRef(job="ada/train/other", run_id=other),
        ChildRef(job="ada/train/none", run_id=run),
    )

    unneeded = UnneededSecrets(cluster="ended", objects=(own,), children=(*dead, live))
    await secrets.delete_secrets(unneeded)
    assert own in await left(store, "ended")
    await client.get_workflow_handle(names.job_workflow("ended", "ada/train/child")).terminate()
    await secrets.delete_secrets(unneeded)
    assert await left(store, "ended") == [store_paths.sealed_for_job("ada/train", TOKEN[::-1])]


@pytest.mark.long
async def test_a_grandchild_keeps_the_secrets_of_a_job_whose_children_have_ended(
    client: Client, store: Store
) -> None:
    """Secrets are inherited over generations, and a job knows only the jobs that it started
    itself.
    """
    run = await start(client, "above", "ada/top/child")
    await start(client, "above", "ada/top/child/grandchild")
    await start(client, "above", "ada/topper")
    await client.get_workflow_handle(names.job_workflow("above", "ada/top/child")).terminate()
    own = store_paths.sealed_for_job("ada/top", TOKEN)
    await put(store, "above", own)

    ended = UnneededSecrets(
        cluster="above", objects=(own,), children=(ChildRef(job="ada/top/child", run_id=run),)
    )
    await SealedSecrets(client, store.url).delete_secrets(ended)
    assert await left(store, "above") == [own]
