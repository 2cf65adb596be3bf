"""A run of a schedule: it starts the job under the job's name, ends as the job does, and takes the
job with it when cancelled.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError, ChildWorkflowError

from iris.messages.scheduled_job import LEFT_OUT, NOT_STARTED, ScheduledJob
from iris.model import names
from iris.model.states import JobState
from iris.workflows import policies
from iris.workflows.jobs.scheduled_job import ScheduledJobWorkflow
from tests.builders import a_spec
from tests.harness import Cluster, Held, fails
from tests.workflows.jobs.test_arrays import an_array


async def start(
    cluster: Cluster, run: str = "1", details: str = "", **changes: Any
) -> WorkflowHandle[Any, Any]:
    """What a schedule of the service does at its time."""
    return await cluster.client.start_workflow(
        ScheduledJobWorkflow.run,
        ScheduledJob(cluster=cluster.name, spec=a_spec(name="nightly", **changes)),
        id=f"{names.schedule_id(cluster.name, 'ada/nightly')}-{run}",
        task_queue=names.control_queue(cluster.name),
        memo={names.MEMO_DETAILS: details} if details else None,
    )


async def why_not(cluster: Cluster, run: WorkflowHandle[Any, Any]) -> ApplicationError:
    """Why the run failed."""
    with pytest.raises(WorkflowFailureError) as failed:
        await cluster.result(run)
    cause = failed.value.cause
    cause = cause.cause if isinstance(cause, ChildWorkflowError) else cause
    assert isinstance(cause, ApplicationError)
    return cause


async def runs(cluster: Cluster) -> bool:
    return (await cluster.snapshot()).running == 1


async def test_each_run_is_a_job_of_the_same_name(cluster: Cluster) -> None:
    """It is found, listed and explained like every other job."""
    await cluster.join()
    for number in ("1", "2"):
        await cluster.result(await start(cluster, number))
        assert (await cluster.end("ada/nightly")).state is JobState.SUCCEEDED
    assert await cluster.nothing_held()


async def test_a_run_gives_its_job_the_details_for_the_web_ui(cluster: Cluster) -> None:
    """The client that creates a schedule knows the address of the dashboard; the workflow that
    starts the job does not.
    """
    await cluster.join()
    await cluster.result(await start(cluster, details="[a link](http://x)"))
    described = await cluster.job("ada/nightly").describe()

    assert await described.static_details() == "[a link](http://x)"


async def test_a_run_fails_as_its_job_does(cluster: Cluster) -> None:
    """The list of runs tells what happened in the night."""
    await cluster.join(program=fails)
    cause = await why_not(cluster, await start(cluster))
    assert cause.type == JobState.FAILED
    assert cause.message == (await cluster.end("ada/nightly")).reason


async def test_a_cancelled_run_cancels_its_job_and_ends_after_it(cluster: Cluster) -> None:
    """The next run takes its place, and must find the name free."""
    await cluster.join(program=Held())
    run = await start(cluster)
    await cluster.until(lambda: runs(cluster))
    await run.cancel()
    with pytest.raises(WorkflowFailureError):
        await cluster.result(run)
    assert (await cluster.job("ada/nightly").describe()).close_time is not None
    assert await cluster.nothing_held()


async def test_a_job_outlives_a_run_that_was_terminated(cluster: Cluster) -> None:
    """Only the schedule's run was terminated, not the job."""
    program = Held()
    await cluster.join(program=program)
    run = await start(cluster)
    await cluster.until(lambda: runs(cluster))
    await run.terminate()
    program.let_go()
    assert (await cluster.end("ada/nightly")).state is JobState.SUCCEEDED


async def test_a_run_does_not_replace_a_job_that_somebody_else_started(cluster: Cluster) -> None:
    """Two jobs cannot have one name, and a submitted job is not the schedule's to end."""
    program = Held()
    await cluster.join(program=program)
    mine = await cluster.submit("nightly")
    cause = await why_not(cluster, await start(cluster))
    assert (cause.type, "a job of this name" in cause.message) == (NOT_STARTED, True)
    program.let_go()
    assert (await cluster.end(mine)).state is JobState.SUCCEEDED


async def test_the_replay_of_a_scheduled_array_in_parts_has_as_much_time_as_that_of_a_submitted_one(
    cluster: Cluster,
) -> None:
    """A replay that never ends in time would hold the job up for ever."""
    await cluster.join()
    await cluster.result(await start(cluster, **an_array(0, 1, part=1)))
    described = await cluster.job("ada/nightly").describe()

    assert (
        described.raw_description.execution_config.default_workflow_task_timeout.ToTimedelta()
        == policies.PARTS_TASK
    )


@pytest.mark.parametrize(("second", "starts"), [(0, False), (7, True)])
async def test_a_run_that_a_user_triggers_in_an_hour_that_comes_twice_starts_its_job(
    cluster: Cluster, second: int, starts: bool
) -> None:
    """It is for no time of the schedule, which are full minutes. Of those, the first in the hour is
    left out.
    """
    host = await cluster.join()
    # As a real server knows it.
    known = {names.SA_SCHEDULED_AT: IndexedValueType.INDEXED_VALUE_TYPE_DATETIME}
    await cluster.client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(search_attributes=known)
    )
    at = datetime(2027, 11, 7, 5, 30, second, tzinfo=UTC)
    run = await cluster.client.start_workflow(
        ScheduledJobWorkflow.run,
        ScheduledJob(
            cluster=cluster.name, spec=a_spec(name="nightly"), time_zone="America/New_York"
        ),
        id=f"{names.schedule_id(cluster.name, 'ada/nightly')}-{at:%Y-%m-%dT%H:%M:%SZ}",
        task_queue=names.control_queue(cluster.name),
        search_attributes=TypedSearchAttributes(
            [SearchAttributePair(SearchAttributeKey.for_datetime(names.SA_SCHEDULED_AT), at)]
        ),
    )

    assert await cluster.result(run) == (None if starts else LEFT_OUT)
    assert len(host.taken) == starts
