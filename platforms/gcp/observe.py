"""Maps Google's node, queued-resource and instance states to `SliceObservation`. Makes no calls.

Google adds states from time to time. A slice in a state that this version does not know counts as
ACTIVE: the agents' heartbeats show better than the state whether its hosts are alive.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from google.cloud import tpu_v2
from google.protobuf.timestamp_pb2 import Timestamp

from iris.model.slice.provisioning import MachineState, SliceFault, SliceObservation
from iris.platforms.base import Refused
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.create_requests import zone_of
from iris.platforms.gcp.errors import ApiError, api_error_of_status, platform_error
from iris.platforms.gcp.lean_compute import compute_v1

_N = tpu_v2.Node.State
#: The state of a machine for each state of a TPU node. Source: the descriptions of the states in
#: cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes
_NODE_STATES = {
    _N.CREATING: MachineState.CREATING,
    _N.STARTING: MachineState.CREATING,
    _N.RESTARTING: MachineState.CREATING,
    _N.REIMAGING: MachineState.CREATING,
    _N.READY: MachineState.ACTIVE,
    # The node may recover by itself, for example after maintenance.
    _N.REPAIRING: MachineState.REPAIRING,
    _N.PREEMPTED: MachineState.PREEMPTED,
    # Maintenance, or the end of a preemptible node's maximum run time.
    _N.TERMINATED: MachineState.PREEMPTED,
    _N.STOPPING: MachineState.FAILED,
    _N.STOPPED: MachineState.FAILED,
    _N.HIDING: MachineState.FAILED,
    _N.HIDDEN: MachineState.FAILED,
    _N.UNHIDING: MachineState.FAILED,
    # A repair has failed.
    _N.UNKNOWN: MachineState.FAILED,
    _N.DELETING: MachineState.DELETING,
}
_Q = tpu_v2.QueuedResourceState.State
_QUEUED_STATES = {
    _Q.CREATING: MachineState.CREATING,
    _Q.ACCEPTED: MachineState.CREATING,
    _Q.WAITING_FOR_RESOURCES: MachineState.CREATING,
    _Q.PROVISIONING: MachineState.CREATING,
    _Q.ACTIVE: MachineState.ACTIVE,
    # Its node was preempted. The resource is not queued again, and holds its quota until it is
    # deleted.
    _Q.SUSPENDING: MachineState.PREEMPTED,
    _Q.SUSPENDED: MachineState.PREEMPTED,
    _Q.FAILED: MachineState.FAILED,
    _Q.DELETING: MachineState.DELETING,
}
_INSTANCE_STATES = {
    "PENDING": MachineState.CREATING,
    "PROVISIONING": MachineState.CREATING,
    "STAGING": MachineState.CREATING,
    "RUNNING": MachineState.ACTIVE,
    "REPAIRING": MachineState.REPAIRING,
    "PENDING_STOP": MachineState.DELETING,
    "STOPPING": MachineState.DELETING,
    "DEPROVISIONING": MachineState.DELETING,
    "STOPPED": MachineState.FAILED,
    "SUSPENDING": MachineState.FAILED,
    "SUSPENDED": MachineState.FAILED,
    "TERMINATED": MachineState.FAILED,
}
#: Google's states of a machine that stops or is stopped. A spot machine in one of them counts as
#: preempted, because Iris deletes hosts and never stops them. A machine that Iris is deleting has
#: these states, too; it then does not matter that it counts as preempted.
_STOPPING_STATES = {"PENDING_STOP", "STOPPING", "STOPPED", "TERMINATED"}
#: The states of a machine that is switched off. A suspended machine is not, because its programs
#: may resume.
_STOPPED_STATES = {"STOPPED", "TERMINATED"}


#: Google's names of the states that are no cause for concern. The reason that Iris shows for a
#: slice does not mention them.
_USUAL = {
    "CREATING",
    "ACCEPTED",
    "PENDING",
    "PROVISIONING",
    "STAGING",
    "READY",
    "RUNNING",
    "ACTIVE",
}


class ResourceKind(StrEnum):
    """The kinds of Google resources that can be a slice."""

    NODE = "node"  # a TPU node
    QUEUED = "queued"  # a queued resource with the TPU node that it creates
    INSTANCE = "instance"  # a virtual machine


class ObservedResource(NamedTuple):
    """A Google resource that has a slice's name, as Google reports it."""

    kind: ResourceKind
    observation: SliceObservation
    labels: Mapping[str, str]


class CreateOperation(NamedTuple):
    """The Google operation that creates a slice."""

    name: str
    done: bool = False
    #: The error of the operation; None if it succeeded or is still running.
    error: ApiError | None = None


def observed_node(node: tpu_v2.Node) -> ObservedResource:
    """Converts a TPU node to an `ObservedResource`."""
    number = tpu_v2.Node.pb(
        node
    ).state  # as a number, because the enumeration lacks the states of later versions
    state = _NODE_STATES.get(_N(number)) if number in set(_N) else None
    observation = _observation(
        node.name,
        node.metadata,
        node.labels,
        state or MachineState.ACTIVE,
        _reason(
            "TPU node", _N(number).name if state else str(number), state, node.health_description
        ),
        _created(tpu_v2.Node.pb(node).create_time),
        len(node.network_endpoints),
    )
    kind = ResourceKind.QUEUED if node.queued_resource else ResourceKind.NODE
    return ObservedResource(kind, observation, dict(node.labels))


def observed_queued(
    queued: tpu_v2.QueuedResource,
    node: ObservedResource | None = None,
    *,
    node_checked: bool = True,
) -> ObservedResource:
    """Converts a queued resource and the node that it created to an `ObservedResource`.

    Both carry the labels and metadata of the request, as far as the API returns them. People can
    change only the node's labels.

    Args:
        node: the observed node. The caller must observe it after the queued resource.
        node_checked: False if the caller did not look for the node; then it may exist.
    """
    number = tpu_v2.QueuedResource.pb(queued).state.state
    state = _QUEUED_STATES.get(_Q(number)) if number in set(_Q) else None
    name = _Q(number).name if state else str(number)
    spec = queued.tpu.node_spec[0] if queued.tpu.node_spec else tpu_v2.QueuedResource.Tpu.NodeSpec()
    reason = _reason("queued resource", name, state)
    fault, scope = None, ""
    if state is MachineState.FAILED:
        why = api_error_of_status(queued.state.failed_data.error)
        zone = queued.name.split("/")[3]
        fault, reason = failure(why, zone, reason)
        scope = why.quota_scope(zone) if fault is SliceFault.QUOTA else ""
    observation = _observation(
        queued.name,
        spec.node.metadata,
        spec.node.labels,
        state or MachineState.ACTIVE,
        reason,
        _created(tpu_v2.QueuedResource.pb(queued).create_time),
        fault=fault,
        quota_scope=scope,
    )
    if observation.state is MachineState.ACTIVE and node is not None:
        seen = node.observation
        observation = observation.model_copy(update={"state": seen.state, "reason": seen.reason})
    elif state is MachineState.ACTIVE and node_checked:
        lost = {
            "state": MachineState.FAILED,
            "reason": "the queued resource is ACTIVE, but its node does not exist",
        }
        observation = observation.model_copy(update=lost)
    if node is not None and not observation.token:
        seen = node.observation
        told = {
            "group": seen.group,
            "token": seen.token,
            "public_key": seen.public_key,
            "hosts": seen.hosts,
        }
        observation = observation.model_copy(update=told)
    return ObservedResource(
        ResourceKind.QUEUED,
        observation,
        {**spec.node.labels, **(node.labels if node is not None else {})},
    )


def observed_instance(instance: compute_v1.Instance) -> ObservedResource:
    """Converts a virtual machine to an `ObservedResource`."""
    metadata = {item.key: item.value for item in instance.metadata.items}
    state = _INSTANCE_STATES.get(instance.status)
    if instance.scheduling.provisioning_model == "SPOT" and instance.status in _STOPPING_STATES:
        state = MachineState.PREEMPTED
    observation = _observation(
        f"zones/{zone_of(instance.zone)}/instances/{instance.name}",
        metadata,
        instance.labels,
        state or MachineState.ACTIVE,
        _reason("virtual machine", instance.status, state, instance.status_message),
        datetime.fromisoformat(instance.creation_timestamp)
        if instance.creation_timestamp
        else None,
        1,
    )
    stopped = {"stopped": instance.status in _STOPPED_STATES}
    return ObservedResource(
        ResourceKind.INSTANCE, observation.model_copy(update=stopped), dict(instance.labels)
    )


def failure(api_error: ApiError, zone: str, otherwise: str) -> tuple[SliceFault, str]:
    """Returns fault and reason of a create that Google accepted and that failed later."""
    if api_error.code == 0 and not api_error.message:
        return SliceFault.PLATFORM, otherwise
    error = platform_error(api_error, zone)
    return (error.fault if isinstance(error, Refused) else SliceFault.PLATFORM), str(error)


def failed_create(slice_id: str, zone: str, api_error: ApiError) -> SliceObservation:
    """Returns the observation of a slice of which only the failed create operation exists."""
    if api_error.is_preemption:
        reason = f"preempted before all its machines existed: {api_error.message}"
        return SliceObservation(
            slice_id=slice_id, group="", zone=zone, state=MachineState.PREEMPTED, reason=reason
        )
    fault, reason = failure(api_error, zone, "")
    scope = api_error.quota_scope(zone) if fault is SliceFault.QUOTA else ""
    return SliceObservation(
        slice_id=slice_id,
        group="",
        zone=zone,
        state=MachineState.FAILED,
        reason=reason,
        fault=fault,
        quota_scope=scope,
    )


def not_visible(slice_id: str, zone: str) -> SliceObservation:
    """Returns the observation of a slice that was requested and is not visible yet."""
    reason = "requested, but not visible in Google's API yet"
    return SliceObservation(
        slice_id=slice_id, group="", zone=zone, state=MachineState.CREATING, reason=reason
    )


def _reason(what: str, name: str, state: MachineState | None, more: str = "") -> str:
    if state is None:
        return f"{what} is in state {name or '?'}, which this version of Iris does not know"
    if name in _USUAL:
        return more
    return f"{what} is {name}: {more}" if more else f"{what} is {name}"


def _observation(
    name: str,
    metadata: Mapping[str, str],
    labels: Mapping[str, str],
    state: MachineState,
    reason: str,
    created_at: datetime | None,
    hosts: int = 0,
    fault: SliceFault | None = None,
    quota_scope: str = "",
) -> SliceObservation:
    *_, zone, _kind, slice_id = name.split("/")
    written = metadata.get(label_rules.HOSTS_KEY, "")
    return SliceObservation(
        slice_id=slice_id,
        group=metadata.get(label_rules.GROUP_KEY) or labels.get(label_rules.GROUP, ""),
        zone=zone,
        state=state,
        reason=reason,
        created_at=created_at,
        hosts=int(written) if written.isdecimal() else max(1, hosts),
        token=metadata.get(label_rules.TOKEN_KEY, ""),
        public_key=metadata.get(label_rules.PUBLIC_KEY, ""),
        fault=fault,
        quota_scope=quota_scope,
    )


def _created(moment: Timestamp) -> datetime | None:
    """Converts a timestamp; the epoch means that there is none."""
    return moment.ToDatetime(UTC) if moment.seconds else None
