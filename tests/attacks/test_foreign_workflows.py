"""Other programs' workflows with the search attributes of Iris: they stop no command and no part of
a control plane.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.testing import ActivityEnvironment

from iris.activities.control import ledger_check
from iris.activities.control.notifier import Notifier
from iris.activities.control.observe import made_slices
from iris.activities.control.recovery import RecoveryQueries
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.remote import discover
from iris.messages.wire import RepeatedCheck, Repetition
from iris.model import names
from iris.model.errors import NotFound, Rejected
from iris.model.slice.status import SliceState
from iris.scheduling.ledger.recovery import RecoveryCursor
from iris.worker_agents.control_plane.serve import (
    ControlPlaneOptions,
    check_versions,
    start_planners,
)
from iris.workflows.autoscaler.autoscaler import AutoscalerWorkflow
from iris.workflows.jobs.job import JobWorkflow
from iris.workflows.jobs.scheduled_job import ScheduledJobWorkflow
from iris.workflows.jobs.task import TaskWorkflow
from iris.workflows.scheduler.scheduler import SchedulerWorkflow
from iris.workflows.search_attributes import keywords
from iris.workflows.slices.slice import SliceWorkflow
from tests.builders import some
from tests.harness import Cluster, dev_server_cluster

UNREADABLE = RawValue(Payload(metadata={"encoding": b"binary/of-another-program"}, data=b"\xff"))
KINDS = (
    names.KIND_JOB,
    names.KIND_TASK,
    names.KIND_SLICE,
    names.KIND_SCHEDULER,
    names.KIND_AUTOSCALER,
)
#: Long enough for all the work here, and shorter than one query of a workflow that nobody runs.
SOON = 8


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with dev_server_cluster() as cluster:
        yield cluster


async def plant(client: Client, cluster: str, workflow_id: str, kind: str, **given: Any) -> None:
    """Starts a workflow that no worker runs."""
    attributes = {
        names.SA_CLUSTER: cluster,
        names.SA_KIND: kind,
        names.SA_STATE: SliceState.READY,
        names.SA_GROUP: "g",
    }
    memo = dict.fromkeys((names.MEMO_COMMAND, names.MEMO_STORE, names.MEMO_VERSION), UNREADABLE)
    started = {
        "task_queue": "theirs",
        "memo": memo,
        "search_attributes": keywords(attributes),
        **given,
    }
    await client.start_workflow("Theirs", id=workflow_id, **started)


async def plant_all(cluster: Cluster) -> None:
    """One of every kind, some with ids as Iris forms them, and waits until lists show them."""
    ids = ("theirs-{1}", "{1}", "other/{1}", "{0}/{1}/x/y")
    for kind in KINDS:
        for workflow_id in ids:
            await plant(cluster.client, cluster.name, workflow_id.format(cluster.name, kind), kind)

    async def listed() -> bool:
        return (await cluster.client.count_workflows("TaskQueue = 'theirs'")).count == len(
            KINDS
        ) * len(ids)

    await cluster.until(listed)


@pytest.mark.long
async def test_lists_of_users_show_what_is_of_the_cluster(cluster: Cluster) -> None:
    """One such workflow ended `iris jobs` with a traceback for everybody."""
    await plant_all(cluster)
    await cluster.join("h1", offers=some(cpu=1))
    mine = await cluster.submit("mine")
    await cluster.until(lambda: _lists(cluster, mine))

    assert [row.id for row in await cluster.users.jobs.list(limit=1)] == [mine]
    assert set(await cluster.users.slices._listed()) == {"slice-of-h1"}
    assert await cluster.users.slices._ended_ids("") == ()


async def _lists(cluster: Cluster, job: str) -> bool:
    return job in [row.id for row in await cluster.users.jobs.list()]


async def test_a_cluster_is_found_by_its_address_among_them(cluster: Cluster) -> None:
    """The memo of one of them could not be read, and ended every command that names a cluster by
    its address.
    """
    await plant_all(cluster)
    options = ControlPlaneOptions(
        address="here:1", namespace="default", cluster="near", store="file:///near"
    )
    await start_planners(cluster.client, options)
    # The name of a cluster is part of paths and queries.
    await start_planners(cluster.client, options.model_copy(update={"cluster": "..\\' OR "}))

    async def found() -> bool:
        return (
            await cluster.client.count_workflows(f"WorkflowType = '{names.SCHEDULER_TYPE}'")
        ).count == 3

    await cluster.until(found)

    record, _ = await discover(cluster.client, "here:1", None)
    assert record == ClusterRecord(name="near", address="here:1", store="file:///near")


async def test_another_workflow_with_the_id_of_a_job_is_no_job(cluster: Cluster) -> None:
    """Its queries would wait for a worker that nobody runs."""
    await plant(
        cluster.client, cluster.name, names.job_workflow(cluster.name, "ada/train"), names.KIND_JOB
    )

    async with asyncio.timeout(SOON):
        for command in (
            cluster.users.jobs.status,
            cluster.users.jobs.log_source,
            cluster.users.jobs.cancel,
        ):
            with pytest.raises(NotFound, match="there is no job ada/train"):
                await command("ada/train")


async def test_the_control_plane_asks_none_of_them_anything(cluster: Cluster) -> None:
    """Nobody answers, so a recovery would wait for each of them and fail, and the comparison of
    slices and ledger, too.
    """
    await plant_all(cluster)
    here, once = ActivityEnvironment(), Repetition(every=timedelta(0), longest=timedelta(0))
    ref = RepeatedCheck(cluster=cluster.name, repetition=once)
    recovery = RecoveryQueries(cluster.client)

    async with asyncio.timeout(SOON):
        page = await here.run(recovery.query_page, RecoveryCursor(cluster=cluster.name))
        slices = await here.run(recovery.list_slices, ref)
        missing = await ledger_check.missing_hosts(cluster.client, cluster.name, (), (), ())
        owned = [each.id async for each in cluster.client.list_workflows(made_slices(cluster.name))]
        gone = await here.run(Notifier(cluster.client).check_jobs, ref)

    assert (page.claims, page.hosts, page.token, slices.slices, missing, owned, gone.keys) == (
        (),
        (),
        "",
        (),
        (),
        [],
        (),
    )


async def test_a_control_plane_does_not_replace_another_programs_workflow(cluster: Cluster) -> None:
    """It would end with a traceback about the memo, or terminate what is not its own."""
    await plant(
        cluster.client, "theirs", names.autoscaler_workflow("theirs"), names.KIND_AUTOSCALER
    )

    with pytest.raises(
        Rejected, match="workflow theirs/autoscaler is a Theirs, which Iris did not start"
    ):
        await check_versions(cluster.client, "theirs")


def test_the_types_by_which_lists_are_limited_are_those_of_the_workflows() -> None:
    """A workflow of another name would be in no list."""

    def name(defined: type) -> str:
        found = workflow._Definition.must_from_class(defined).name
        assert found is not None
        return found

    types = {
        names.KIND_JOB: JobWorkflow,
        names.KIND_TASK: TaskWorkflow,
        names.KIND_SLICE: SliceWorkflow,
        names.KIND_SCHEDULE: ScheduledJobWorkflow,
    }
    assert {kind: name(each) for kind, each in types.items()} == names.WORKFLOW_TYPES
    assert name(SchedulerWorkflow) == names.SCHEDULER_TYPE
    assert name(AutoscalerWorkflow) == names.AUTOSCALER_TYPE
