"""A workflow whose input is for somebody else's job or slice does nothing: Temporal's servers check
the ids that a user starts, and not the inputs.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from iris.messages.job import ChildRef, JobInput
from iris.messages.scheduled_job import ScheduledJob
from iris.messages.slice import SliceInput
from iris.model import names, store_paths
from iris.model.checkpoint.sources import CheckpointSource
from iris.model.states import JobState
from iris.workflows.own_input import FOREIGN_INPUT
from tests.builders import a_spec, some
from tests.harness import Cluster, Held

#: A job of ada that starts from the checkpoint of bob.
READS = a_spec(user="ada", name="reads").model_copy(
    update={
        "from_checkpoint": CheckpointSource(
            job="ada/base",  # of no account: what is read is in the folder
            folder=store_paths.job_checkpoints("bob/train", "0193a1b2-c3d4-7000"),
            tasks=(0,),
        )
    }
)
#: The input of a job of bob.
BOBS = JobInput(cluster="trial", spec=a_spec(user="bob", name="train"))
SLICE = names.WORKFLOW_TYPES[names.KIND_SLICE]
JOB = names.WORKFLOW_TYPES[names.KIND_JOB]
SCHEDULE = names.WORKFLOW_TYPES[names.KIND_SCHEDULE]


async def start(cluster: Cluster, kind: str, workflow_id: str, given: Any) -> Any:
    return await cluster.client.start_workflow(
        kind, given, id=workflow_id, task_queue=names.control_queue(cluster.name)
    )


CASES: Mapping[str, tuple[str, str, Any]] = {
    "another user": (JOB, "trial/job/ada/train", BOBS),
    "another cluster": (
        JOB,
        "trial/job/bob/train",
        BOBS.model_copy(update={"cluster": "other"}),
    ),
    "a state": (
        JOB,
        "trial/job/bob/train",
        BOBS.model_copy(update={"children": (ChildRef(job="ada/train", run_id="r"),)}),
    ),
    "another user's schedule": (
        SCHEDULE,
        "trial/schedule/ada/train-2026-11-28T20:00:00Z",
        ScheduledJob(cluster="trial", spec=BOBS.spec),
    ),
    "a job below the schedule": (
        SCHEDULE,
        "trial/schedule/bob/train-x/child",
        ScheduledJob(cluster="trial", spec=BOBS.spec),
    ),
    "another user's checkpoint": (
        JOB,
        "trial/job/ada/reads",
        JobInput(cluster="trial", spec=READS),
    ),
    "a checkpoint of a schedule": (
        SCHEDULE,
        "trial/schedule/ada/reads-2026-11-28T20:00:00Z",
        ScheduledJob(cluster="trial", spec=READS),
    ),
    "another slice": (SLICE, "trial/slice/h1", SliceInput(cluster="trial", id="h2")),
    "a slice's state": (
        SLICE,
        "trial/slice/h1",
        SliceInput(cluster="trial", id="h1", adopted=True),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_workflow_refuses_an_input_that_does_not_belong_to_it(
    cluster: Cluster, case: str
) -> None:
    """Otherwise a user could run jobs as somebody else, and a host could request machines."""
    await cluster.join("h0", offers=some(cpu=4))
    kind, workflow_id, given = CASES[case]

    refused = await start(cluster, kind, workflow_id, given)

    with pytest.raises(WorkflowFailureError) as error:
        await cluster.result(refused)
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == FOREIGN_INPUT
    assert error.value.cause.non_retryable
    assert (await cluster.snapshot()).running == 0


async def test_a_job_reads_the_checkpoint_of_a_job_that_its_start_names(cluster: Cluster) -> None:
    """The client names the job, so the servers have checked that its user may read it."""
    await cluster.join("h0", offers=some(cpu=4))
    header = DataConverter.default.payload_converter.to_payload("trial/job/bob/train")
    client = Client(**{**cluster.client.config(), "interceptors": [_Tells(header)]})
    given = JobInput(cluster="trial", spec=READS)

    await client.start_workflow(
        JOB, given, id="trial/job/ada/reads", task_queue=names.control_queue(cluster.name)
    )

    assert (await cluster.end("ada/reads")).state is JobState.SUCCEEDED


class _Tells(Interceptor):
    """Starts workflows with this header of what they read."""

    def __init__(self, header: Payload) -> None:
        self._header = header

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        header = self._header

        class Outbound(OutboundInterceptor):
            async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
                input.headers = {**input.headers, names.READS_HEADER: header}
                return await super().start_workflow(input)

        return Outbound(next)


@pytest.mark.parametrize(
    "header",
    [
        Payload(metadata={"encoding": b"unknown"}, data=b'"trial/job/bob/train"'),
        Payload(metadata={"encoding": b"json/plain"}, data=b'["trial/job/bob/train"]'),
        Payload(),
    ],
)
async def test_a_header_that_the_workflow_cannot_read_names_nothing(
    cluster: Cluster, header: Payload
) -> None:
    """An error would stop the workflow, which would then try its first step for ever."""
    client = Client(**{**cluster.client.config(), "interceptors": [_Tells(header)]})
    given = JobInput(cluster="trial", spec=READS)

    refused = await client.start_workflow(
        JOB, given, id="trial/job/ada/reads", task_queue=names.control_queue(cluster.name)
    )

    with pytest.raises(WorkflowFailureError) as error:
        await cluster.result(refused)
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == FOREIGN_INPUT


async def test_a_job_of_somebody_else_that_is_announced_as_a_child_is_not_cancelled(
    cluster: Cluster,
) -> None:
    """A job that fails cancels its children, and a signal names them."""
    program = Held()
    host = await cluster.join("h0", offers=some(cpu=4), program=program)
    bobs = await cluster.submit("bobs", resources=some(cpu=4))
    await cluster.until(lambda: bobs in [each.job for each in host.taken])
    mine = await cluster.submit("mine", resources=some(cpu=4))
    run = await cluster.job(bobs).describe()
    child = ChildRef(job=bobs, run_id=run.run_id or "")
    await cluster.job(mine).signal("child_started", child)

    await cluster.cancel(mine, "not needed")
    assert (await cluster.end(mine)).state is JobState.KILLED

    program.let_go()
    assert (await cluster.end(bobs)).state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("folder", "job"),
    [
        (store_paths.job_checkpoints("ada/top/kid", "0193a1b2-c3d4-7000"), "ada/top/kid"),
        ("checkpoints/bob/train/0193a1b2-c3d4/../x", None),
        ("checkpoints/ada/../bob/train/0193a1b2-c3d4", None),
        ("outputs/bob/train/0193a1b2-c3d4", None),
        ("checkpoints/ada/0193a1b2-c3d4", None),
        ("checkpoints/ada/train/shared", None),
        ("", None),
    ],
)
def test_only_the_folder_of_a_run_is_the_folder_of_a_job(folder: str, job: str | None) -> None:
    """The host reads what is in the folder, so the folder says whose files they are."""
    assert store_paths.job_of_checkpoints(folder) == job
