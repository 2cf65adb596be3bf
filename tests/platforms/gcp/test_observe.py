"""The observation of a slice for each state of Google's resources."""

from datetime import UTC, datetime

import pytest
from google.cloud import tpu_v2
from google.rpc.status_pb2 import Status

from iris.model.slice.provisioning import MachineState, SliceFault, loss_of
from iris.model.slice.scale_groups import ScaleGroup
from iris.platforms.gcp.create_requests import create_request
from iris.platforms.gcp.diagnostics import node_problems
from iris.platforms.gcp.errors import api_error_of_status
from iris.platforms.gcp.labels import is_ours
from iris.platforms.gcp.lean_compute import compute_v1
from iris.platforms.gcp.observe import (
    ResourceKind,
    failed_create,
    observed_instance,
    observed_node,
    observed_queued,
)
from tests.platforms.gcp.requests import KEY, ZONE, asked, gcp, tpu_group, vm_group

NODE, QUEUED = tpu_v2.Node.State, tpu_v2.QueuedResourceState.State
S = MachineState
MADE = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def a_node(state: int = NODE.READY, **changes: object) -> tpu_v2.Node:
    """A node as the service shows it that was asked for."""
    asked_for = create_request(gcp(), asked(), "", KEY).node
    raw = tpu_v2.Node.pb(asked_for)
    raw.name, raw.state = f"projects/my-project/locations/{ZONE}/nodes/iris-v5e-16-abc", int(state)
    raw.create_time.FromDatetime(MADE)
    for key, value in changes.items():
        setattr(asked_for, key, value)
    return asked_for


def a_queued(
    state: int = QUEUED.WAITING_FOR_RESOURCES, group: ScaleGroup | None = None
) -> tpu_v2.QueuedResource:
    """The same as a queued resource."""
    queued = create_request(gcp(), asked(group or tpu_group(queued=True)), "", KEY).queued_resource
    raw = tpu_v2.QueuedResource.pb(queued)
    raw.name, raw.state.state = (
        f"projects/my-project/locations/{ZONE}/queuedResources/iris-v5e-16-abc",
        int(state),
    )
    return queued


def an_instance(status: str = "RUNNING", **changes: object) -> compute_v1.Instance:
    """A virtual machine as the service shows it that was asked for."""
    instance = create_request(
        gcp(), asked(vm_group(**changes), "iris-cpu-abc"), "", KEY
    ).instance_resource
    instance.status, instance.creation_timestamp = status, "2026-01-01T04:00:00.250-08:00"
    instance.zone = f"https://www.googleapis.com/compute/v1/projects/my-project/zones/{ZONE}"
    return instance


def test_an_observation_has_the_fields_of_the_request() -> None:
    """A control plane without state adopts the slice by these fields."""
    node, queued, instance = (
        observed_node(a_node()),
        observed_queued(a_queued()),
        observed_instance(an_instance()),
    )

    for seen, name, group, hosts in (
        (node, "iris-v5e-16-abc", "v5e_16", 4),
        (queued, "iris-v5e-16-abc", "v5e_16", 4),
        (instance, "iris-cpu-abc", "cpu", 1),
    ):
        told = seen.observation
        assert (told.slice_id, told.group, told.zone, told.hosts) == (name, group, ZONE, hosts)
        assert (told.token, seen.labels["iris-uid"]) == (f"token of {name}", "u-1")
    assert (node.observation.created_at, instance.observation.created_at) == (MADE, MADE)
    assert (node.kind, queued.kind, instance.kind) == (
        ResourceKind.NODE,
        ResourceKind.QUEUED,
        ResourceKind.INSTANCE,
    )


@pytest.mark.parametrize(
    ("state", "means"),
    [
        (NODE.CREATING, S.CREATING),
        (NODE.RESTARTING, S.CREATING),
        (NODE.READY, S.ACTIVE),
        (NODE.REPAIRING, S.REPAIRING),
        (NODE.PREEMPTED, S.PREEMPTED),
        (NODE.TERMINATED, S.PREEMPTED),
        (NODE.STOPPED, S.FAILED),
        (NODE.HIDDEN, S.FAILED),
        (NODE.UNKNOWN, S.FAILED),
        (NODE.DELETING, S.DELETING),
        (99, S.ACTIVE),
    ],
)
def test_a_node_has_the_state_of_its_number(state: int, means: MachineState) -> None:
    """An unknown number of a later version must not fail a slice."""
    seen = observed_node(a_node(state)).observation

    assert seen.state is means
    assert (seen.reason == "") == (state in (NODE.CREATING, NODE.READY))


def test_every_state_of_every_kind_is_in_the_table() -> None:
    """A state that the client knows and the table lacks would count as unknown."""
    nodes = [observed_node(a_node(each)).observation for each in NODE if each]
    queued = [
        observed_queued(a_queued(each), node_checked=False).observation for each in QUEUED if each
    ]
    instances = [
        observed_instance(an_instance(each.name)).observation
        for each in compute_v1.Instance.Status
        if each
    ]

    assert [
        each.reason for each in (*nodes, *queued, *instances) if "does not know" in each.reason
    ] == []


@pytest.mark.parametrize(
    ("state", "means"),
    [
        (QUEUED.WAITING_FOR_RESOURCES, S.CREATING),
        (QUEUED.PROVISIONING, S.CREATING),
        (QUEUED.SUSPENDING, S.PREEMPTED),
        (QUEUED.SUSPENDED, S.PREEMPTED),
        (QUEUED.FAILED, S.FAILED),
        (QUEUED.DELETING, S.DELETING),
        (99, S.ACTIVE),
    ],
)
def test_a_queued_resource_has_the_state_of_its_number(state: int, means: MachineState) -> None:
    """A suspended one is not queued again, despite its name."""
    assert observed_queued(a_queued(state), node_checked=False).observation.state is means


def test_an_active_queued_resource_has_the_state_of_its_node() -> None:
    """It stays ACTIVE for a while after its node was preempted, and for ever if only the node was
    deleted.
    """
    queued = a_queued(QUEUED.ACTIVE)

    assert observed_queued(queued, observed_node(a_node(NODE.READY))).observation.state is S.ACTIVE
    assert (
        observed_queued(queued, observed_node(a_node(NODE.PREEMPTED))).observation.state
        is S.PREEMPTED
    )
    assert observed_queued(queued, None).observation.state is S.FAILED
    assert observed_queued(queued, None, node_checked=False).observation.state is S.ACTIVE


def test_a_queued_resource_without_metadata_gets_that_of_its_node() -> None:
    """Otherwise it would have no owner and never be deleted."""
    bare, node = a_queued(QUEUED.ACTIVE), observed_node(a_node())
    raw = tpu_v2.QueuedResource.pb(bare)
    raw.tpu.node_spec[0].node.labels.clear()
    raw.tpu.node_spec[0].node.metadata.clear()
    seen = observed_queued(bare, node)

    assert seen.labels == node.labels
    assert seen.observation == node.observation.model_copy(update={"created_at": None})


def test_a_queued_resource_with_a_node_marked_manual_is_manual() -> None:
    """It has no labels of its own that a person could change."""
    kept = a_node()
    kept.labels["iris-manual"] = "true"

    assert not is_ours(gcp(), observed_queued(a_queued(QUEUED.ACTIVE), observed_node(kept)).labels)


def test_a_failed_queued_resource_has_a_reason() -> None:
    """The autoscaler avoids the zone as after a refused create."""
    queued = a_queued(QUEUED.FAILED)
    error = tpu_v2.QueuedResource.pb(queued).state.failed_data.error
    error.code, error.message = 8, "There is no more capacity in the zone"
    without_words = observed_queued(a_queued(QUEUED.FAILED)).observation

    fault, reason = loss_of(observed_queued(queued).observation) or (None, "")
    assert fault is SliceFault.STOCK_OUT
    assert reason.startswith(f"{ZONE} is out: There is no more capacity")
    assert (without_words.fault, without_words.reason) == (
        SliceFault.PLATFORM,
        "queued resource is FAILED",
    )


@pytest.mark.parametrize(
    ("status", "means", "as_spot"),
    [
        ("PENDING", S.CREATING, S.CREATING),
        ("STAGING", S.CREATING, S.CREATING),
        ("RUNNING", S.ACTIVE, S.ACTIVE),
        ("REPAIRING", S.REPAIRING, S.REPAIRING),
        ("STOPPING", S.DELETING, S.PREEMPTED),
        ("STOPPED", S.FAILED, S.PREEMPTED),
        ("TERMINATED", S.FAILED, S.PREEMPTED),
        ("SUSPENDED", S.FAILED, S.FAILED),
        ("DREAMING", S.ACTIVE, S.ACTIVE),
    ],
)
def test_a_machine_has_the_state_of_its_status(
    status: str, means: MachineState, as_spot: MachineState
) -> None:
    """Google stops only spot machines for good."""
    assert observed_instance(an_instance(status)).observation.state is means
    assert observed_instance(an_instance(status, preemptible=True)).observation.state is as_spot


@pytest.mark.parametrize("status", ["RUNNING", "STOPPING", "STOPPED", "SUSPENDED", "TERMINATED"])
def test_no_program_runs_on_a_machine_that_is_stopped_or_terminated(status: str) -> None:
    """Its attempts end then. A machine that is stopping still has its notice, and a suspended one
    may resume.
    """
    stopped = observed_instance(an_instance(status, preemptible=True)).observation.stopped
    assert stopped is (status in ("STOPPED", "TERMINATED"))


def test_a_create_that_fails_after_the_acceptance_has_its_reason() -> None:
    """Only the operation contains it."""
    stock = failed_create(
        "s",
        ZONE,
        api_error_of_status(Status(code=8, message="There is no more capacity in the zone")),
    )
    early = failed_create(
        "s", ZONE, api_error_of_status(Status(code=3, message="no update while in state PREEMPTED"))
    )

    assert (stock.state, stock.fault) == (S.FAILED, SliceFault.STOCK_OUT)
    assert (loss_of(early) or ("",))[0] is SliceFault.PREEMPTED


def test_the_problems_of_a_tpu_node_are_one_per_line() -> None:
    """Symptoms name the worker; unknown numbers appear as numbers."""
    symptoms = [
        tpu_v2.Symptom(symptom_type="OUT_OF_MEMORY", worker_id="2", details="of its host"),
        tpu_v2.Symptom(worker_id="3"),
    ]
    node = tpu_v2.Node(state=NODE.REPAIRING, health_description="mesh is down", symptoms=symptoms)
    tpu_v2.Node.pb(node).health = 99

    assert node_problems(node).splitlines() == [
        "TPU node is REPAIRING",
        "TPU node's health is 99",
        "mesh is down",
        "worker 2: OUT_OF_MEMORY of its host",
        "worker 3: SYMPTOM_TYPE_UNSPECIFIED",
    ]
    assert node_problems(tpu_v2.Node(state=NODE.READY, health=1)) == ""
