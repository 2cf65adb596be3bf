"""Another user of the machine reaches the Temporal service of a local cluster, and does not have
the cluster's key: nothing that this user sends is done.
"""

import asyncio
import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, UpdateWorkflowExecutionLifecycleStage
from temporalio.api.history.v1 import (
    HistoryEvent,
)
from temporalio.api.history.v1 import (
    WorkflowExecutionSignaledEventAttributes as Signaled,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    DescribeActivityExecutionRequest,
    SignalWorkflowExecutionRequest,
    StartActivityExecutionRequest,
    StartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import (
    ActivityFailureError,
    Client,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
)

from iris.client.connect.connection import data_converter
from iris.messages.autoscaler import CloseDown, PauseScaling
from iris.messages.exec import ExecRequest
from iris.messages.job import JobInput
from iris.messages.port_forward import ForwardRequest
from iris.messages.scheduler import Batch, Close
from iris.model import names
from iris.model.host.hosts import ClosedBy, Closure
from tests.builders import a_spec
from tests.e2e.cluster import USER, Cluster, a_cluster

pytestmark = pytest.mark.long

SOON = timedelta(seconds=30)
COMPLETED = (
    UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with a_cluster("--ephemeral", "--cpu", "16") as cluster:
        yield cluster


@pytest.fixture
async def stranger(cluster: Cluster) -> Client:
    """A client of somebody who knows all of Iris but the key."""
    return await Client.connect(cluster.address, data_converter=data_converter())


def workflow_of(cluster: Cluster, job: str) -> str:
    return names.job_workflow(cluster.name, f"{USER}/{job}")


def a_running_job(cluster: Cluster, name: str) -> str:
    """A job that runs until it is cancelled; the id of its workflow."""
    cluster.submit(name, "--", "bash", "-c", f"touch {name}; sleep 600")
    cluster.there_is(name)
    return workflow_of(cluster, name)


def is_held(cluster: Cluster, job: str) -> bool:
    """Asked of the workflow, which has had all earlier messages by then."""
    return bool(cluster.query(f"job/{USER}/{job}", "status")["held"])


async def events(
    client: Client, workflow_id: str, kind: "EventType.ValueType"
) -> list[HistoryEvent]:
    history = await client.get_workflow_handle(workflow_id).fetch_history()
    return [event for event in history.events if event.event_type == kind]


async def send_again(client: Client, workflow_id: str, name: str, recorded: Signaled) -> None:
    await client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=workflow_id),
            signal_name=name,
            input=recorded.input,
            header=recorded.header,
        )
    )


def test_commands_of_another_user_are_refused_with_the_remedy(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The commands say what is missing, before they send anything."""
    elsewhere: dict[str, Any] = {"IRIS_STATE_DIR": str(tmp_path), "IRIS_USER": "nobody"}
    for command in (("jobs",), ("submit", "-d", "--", "true"), ("host", "list")):
        ran = cluster.iris("--cluster", cluster.address, *command, code=5, **elsewhere)
        assert "IRIS_MESSAGE_KEY" in ran.err
    copy = tmp_path / "key"
    copy.touch(0o600)
    copy.write_text((cluster.home / "clusters" / "local" / "message.key").read_text())
    given = {**elsewhere, "IRIS_MESSAGE_KEY": str(copy)}
    cluster.iris("--cluster", cluster.address, "submit", "--", "true", **given)
    assert "the cluster's key" in cluster.iris("cluster", "status").out


async def test_a_job_of_a_stranger_does_not_start(cluster: Cluster, stranger: Client) -> None:
    """Its workflow fails, and no program runs."""
    spec = a_spec(user=USER, name="planted", command=("touch", str(cluster.file("planted"))))
    planted = await stranger.start_workflow(
        "JobWorkflow",
        JobInput(cluster=cluster.name, spec=spec),
        id=workflow_of(cluster, "planted"),
        task_queue=names.control_queue(cluster.name),
    )
    with pytest.raises(WorkflowFailureError) as failed:
        await asyncio.wait_for(planted.result(), SOON.total_seconds())
    assert "refused" in str(failed.value.cause)

    cluster.iris("submit", "--", "true")
    assert not cluster.file("planted").exists()


async def test_no_command_runs_beside_a_task(cluster: Cluster, stranger: Client) -> None:
    """Neither does a forward of the host's ports begin."""
    a_running_job(cluster, "victim")
    queue = names.host_queue(cluster.name, cluster.host_ids()[0])
    job = f"{USER}/victim"
    requests: dict[str, ExecRequest | ForwardRequest] = {
        "exec_task": ExecRequest(
            session=uuid4().hex, job=job, index=0, argv=("touch", str(cluster.file("entered")))
        ),
        "forward_ports": ForwardRequest(session=uuid4().hex, job=job, index=0, ports=("22",)),
    }
    for name, request in requests.items():
        with pytest.raises(ActivityFailureError) as failed:
            await stranger.execute_activity(
                name,
                args=[request],
                id=names.session(cluster.name, f"{job}:0", name, request.session),
                task_queue=queue,
                start_to_close_timeout=SOON,
                schedule_to_close_timeout=SOON,
            )
        assert failed.value.cause is not None
        assert "refused" in str(failed.value.cause), name
    assert cluster.iris("exec", "victim", "--", "echo", "inside").out == "inside\n"
    assert not cluster.file("entered").exists()
    cluster.iris("cancel", "victim")


async def test_the_planners_do_nothing_for_a_stranger(cluster: Cluster, stranger: Client) -> None:
    """Hosts stay open, and groups are not paused."""
    (host,) = cluster.host_ids()
    scheduler = stranger.get_workflow_handle(names.scheduler_workflow(cluster.name))
    closing = Batch(
        messages=(Close(host_id=host, closure=Closure(by=ClosedBy.CORDON, reason="planted")),)
    )
    with pytest.raises(WorkflowUpdateFailedError):
        await scheduler.execute_update("exchange", closing)
    await scheduler.signal("deliver", closing)
    autoscaler = stranger.get_workflow_handle(names.autoscaler_workflow(cluster.name))
    await autoscaler.signal("pause", PauseScaling(reason="planted"))
    await autoscaler.signal("close_down", CloseDown(reason="planted", deadline=datetime.now(UTC)))
    cluster.iris("submit", "--", "true")
    assert cluster.iris("host", "list", "--json").json[0]["state"] == "READY"
    shown = cluster.query("autoscaler", "status")
    assert not shown["paused"]
    assert shown["slices"]


async def test_signals_count_once_and_for_their_receiver(
    cluster: Cluster, stranger: Client
) -> None:
    """A stranger reads recorded messages, and sends them again, or to others."""
    first, second = a_running_job(cluster, "first"), a_running_job(cluster, "second")
    cluster.iris("hold", "first")
    assert is_held(cluster, "first")
    cluster.iris("release", "first")
    signaled = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    recorded = {
        event.workflow_execution_signaled_event_attributes.signal_name: (
            event.workflow_execution_signaled_event_attributes
        )
        for event in await events(stranger, first, signaled)
    }

    await send_again(stranger, first, "hold", recorded["hold"])
    await send_again(stranger, second, "hold", recorded["hold"])
    await stranger.get_workflow_handle(first).signal("hold")

    for job in ("first", "second"):
        assert not is_held(cluster, job)
    cluster.iris("cancel", "first", "second")


async def test_updates_count_once(cluster: Cluster, stranger: Client) -> None:
    """The recorded order to close a host does not close it again."""
    (host,) = cluster.host_ids()
    cluster.iris("host", "cordon", host)
    cluster.iris("host", "uncordon", host)
    scheduler = names.scheduler_workflow(cluster.name)
    accepted = await events(
        stranger, scheduler, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    )
    (closing,) = (
        request.input
        for event in accepted
        for request in [event.workflow_execution_update_accepted_event_attributes.accepted_request]
        if request.input.header.fields and b"close" in request.input.args.payloads[0].data.lower()
    )
    sent = await stranger.workflow_service.update_workflow_execution(
        UpdateWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=scheduler),
            request=Request(
                meta=Meta(update_id=uuid4().hex),
                input=Input(name="exchange", header=closing.header, args=closing.args),
            ),
            wait_policy=WaitPolicy(lifecycle_stage=COMPLETED),
        )
    )
    assert "the same proof was received before" in sent.outcome.failure.message
    assert cluster.iris("host", "list", "--json").json[0]["state"] == "READY"


async def test_a_recorded_start_starts_no_other_job(cluster: Cluster, stranger: Client) -> None:
    """Neither under another name, nor the input of a message as that of a start."""
    cluster.iris("submit", "-n", "once", "--", "bash", "-c", f"echo ran >> {cluster.file('ran')}")
    started = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
    (begun,) = await events(stranger, workflow_of(cluster, "once"), started)
    attributes = begun.workflow_execution_started_event_attributes
    await stranger.workflow_service.start_workflow_execution(
        StartWorkflowExecutionRequest(
            namespace="default",
            workflow_id=workflow_of(cluster, "twice"),
            workflow_type=attributes.workflow_type,
            task_queue=attributes.task_queue,
            input=attributes.input,
            header=attributes.header,
            request_id=uuid4().hex,
        )
    )
    handle = stranger.get_workflow_handle(workflow_of(cluster, "twice"))
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(handle.result(), SOON.total_seconds())
    assert cluster.lines("ran") == ["ran"]


async def commands_beside_tasks(client: Client) -> set[str]:
    """The ids of the activities of `iris exec`."""
    found = client.list_activities("ActivityType = 'exec_task'")
    return {each.activity_id async for each in found}


async def test_a_recorded_command_does_not_run_again(cluster: Cluster, stranger: Client) -> None:
    """Also with the id of its activity, after that has ended."""
    a_running_job(cluster, "target")
    others = await commands_beside_tasks(stranger)
    cluster.iris("exec", "target", "--", "bash", "-c", "echo ran >> commands")
    (recorded,) = await commands_beside_tasks(stranger) - others
    service = stranger.workflow_service
    described = await service.describe_activity_execution(
        DescribeActivityExecutionRequest(
            namespace="default", activity_id=recorded, include_input=True
        )
    )
    again = StartActivityExecutionRequest(
        namespace="default",
        activity_id=recorded,
        activity_type=described.info.activity_type,
        task_queue=TaskQueue(name=described.info.task_queue),
        input=described.input,
        header=described.info.header,
        start_to_close_timeout=described.info.start_to_close_timeout,
        retry_policy=described.info.retry_policy,
        request_id=uuid4().hex,
    )
    started = await service.start_activity_execution(again)
    handle = stranger.get_activity_handle(recorded, run_id=started.run_id)
    with pytest.raises(ActivityFailureError) as failed:
        await asyncio.wait_for(handle.result(), SOON.total_seconds())
    assert "the same proof was received before" in str(failed.value.cause)
    assert cluster.lines("commands") == ["ran"]
    cluster.iris("cancel", "target")


def test_the_key_is_private_and_programs_get_the_key_of_their_job(cluster: Cluster) -> None:
    """A job's key is not the cluster's, and opens nothing to others."""
    path = cluster.home / "clusters" / "local" / "message.key"
    assert path.stat().st_mode & 0o777 == 0o600
    cluster.iris("submit", "-n", "keyed", "--", "bash", "-c", "echo $IRIS_JOB_KEY")
    (line,) = cluster.logs("keyed")
    assert len(base64.b64decode(line)) == 32
    assert line != path.read_text().strip()


def test_a_program_acts_on_its_own_jobs_only(cluster: Cluster, tmp_path: Path) -> None:
    """A program without the files of the cluster, as one in a container, submits child jobs. It
    cannot submit others, nor act on jobs that are not its own.
    """
    a_running_job(cluster, "other")
    refused = (
        f"iris hold {USER}/other",
        "iris host cordon $IRIS_HOST_ID",
        f"iris exec {USER}/other -- true",
        "env -u IRIS_JOB_ID iris submit -d -n free -- true",
    )
    program = "; ".join(
        (
            f"set -e; export IRIS_STATE_DIR={tmp_path}",
            "iris submit -n child -- echo from the child",
            *(f"{command} && exit 9" for command in refused),
            "exit 0",
        )
    )
    cluster.iris("submit", "-n", "parent", "--", "bash", "-c", program)
    assert "from the child" in "\n".join(cluster.logs(f"{USER}/parent/child"))
    assert "\n".join(cluster.logs("parent")).count("may not send") == 3
    assert not is_held(cluster, "other")
    assert cluster.iris("host", "list", "--json").json[0]["state"] == "READY"
    cluster.iris("cancel", "other")
