"""What Google shows of a slice, in the words that every platform has for it. Nothing here calls anybody.

Google adds states from time to time. One that this version does not know is no reason to give a slice up: whether its hosts live
is better known from their agents.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from google.cloud import compute_v1, tpu_v2
from google.protobuf.timestamp_pb2 import Timestamp

from iris.machines import MachineState, SliceFault, SliceObservation
from iris.platforms.base import Refused
from iris.platforms.gcp import marks
from iris.platforms.gcp.errors import Trouble, trouble_of_status, verdict
from iris.platforms.gcp.requests import zone_of

_N = tpu_v2.Node.State
#: Source: the enumeration's descriptions in cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes
_NODE_STATES = {
    _N.CREATING: MachineState.CREATING,
    _N.STARTING: MachineState.CREATING,
    _N.RESTARTING: MachineState.CREATING,
    _N.REIMAGING: MachineState.CREATING,
    _N.READY: MachineState.ACTIVE,
    # It may come back by itself: in maintenance, for one.
    _N.REPAIRING: MachineState.REPAIRING,
    _N.PREEMPTED: MachineState.PREEMPTED,
    # By maintenance, or at the end of a preemptible life.
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
    # Its node was taken back. It is not queued again, and holds its quota until it is deleted.
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
#: A spot machine that stops was taken back: nobody else stops machines. While Iris deletes one it looks the same, and to whoever
#: deletes a slice it does not matter.
_TAKEN_BACK = {"PENDING_STOP", "STOPPING", "STOPPED", "TERMINATED"}


#: These are what everybody expects, and not worth a word.
_USUAL = {"CREATING", "ACCEPTED", "PENDING", "PROVISIONING", "STAGING", "READY", "RUNNING", "ACTIVE"}


class Kind(StrEnum):
    """What a slice may be."""

    NODE = "node"  # a TPU node
    QUEUED = "queued"  # a queued resource, and the TPU node that it has made
    INSTANCE = "instance"  # a virtual machine


class Sight(NamedTuple):
    """Something of Google's that has a slice's name."""

    kind: Kind
    observation: SliceObservation
    labels: Mapping[str, str]


class Making(NamedTuple):
    """An operation that makes a slice, or was to."""

    #: Its name.
    operation: str
    done: bool = False
    #: Why nothing came of it; None: it went well, or is still under way.
    trouble: Trouble | None = None


def node_sight(node: tpu_v2.Node) -> Sight:
    """A TPU node."""
    number = tpu_v2.Node.pb(node).state  # as a number: the enumeration does not hold those of later versions
    state = _NODE_STATES.get(_N(number)) if number in set(_N) else None
    observation = _observation(
        node.name,
        node.metadata,
        node.labels,
        state or MachineState.ACTIVE,
        _reason("TPU node", _N(number).name if state else str(number), state, node.health_description),
        _created(tpu_v2.Node.pb(node).create_time),
        len(node.network_endpoints),
    )
    return Sight(Kind.QUEUED if node.queued_resource else Kind.NODE, observation, dict(node.labels))


def queued_sight(queued: tpu_v2.QueuedResource, node: Sight | None = None, *, looked: bool = True) -> Sight:
    """A queued resource, and the node that it has made. What it was made with is written on both, as far as it is told; people
    can write on the node only.

    Args:
        node: what was seen of it, after the queued resource had been seen.
        looked: whether the node was looked for; what was not looked for may be there.
    """
    number = tpu_v2.QueuedResource.pb(queued).state.state
    state = _QUEUED_STATES.get(_Q(number)) if number in set(_Q) else None
    name = _Q(number).name if state else str(number)
    spec = queued.tpu.node_spec[0] if queued.tpu.node_spec else tpu_v2.QueuedResource.Tpu.NodeSpec()
    reason = _reason("queued resource", name, state)
    fault, scope = None, ""
    if state is MachineState.FAILED:
        why = trouble_of_status(queued.state.failed_data.error)
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
    elif state is MachineState.ACTIVE and looked:
        told = {"state": MachineState.FAILED, "reason": "the queued resource is ACTIVE, and its node is gone"}
        observation = observation.model_copy(update=told)
    if node is not None and not observation.token:
        seen = node.observation
        observation = observation.model_copy(update={"group": seen.group, "token": seen.token, "hosts": seen.hosts})
    return Sight(Kind.QUEUED, observation, {**spec.node.labels, **(node.labels if node is not None else {})})


def instance_sight(instance: compute_v1.Instance) -> Sight:
    """A virtual machine."""
    metadata = {item.key: item.value for item in instance.metadata.items}
    state = _INSTANCE_STATES.get(instance.status)
    if instance.scheduling.provisioning_model == "SPOT" and instance.status in _TAKEN_BACK:
        state = MachineState.PREEMPTED
    observation = _observation(
        f"zones/{zone_of(instance.zone)}/instances/{instance.name}",
        metadata,
        instance.labels,
        state or MachineState.ACTIVE,
        _reason("virtual machine", instance.status, state, instance.status_message),
        datetime.fromisoformat(instance.creation_timestamp) if instance.creation_timestamp else None,
        1,
    )
    return Sight(Kind.INSTANCE, observation, dict(instance.labels))


def failure(trouble: Trouble, zone: str, otherwise: str) -> tuple[SliceFault, str]:
    """Why something that Google had agreed to did not come about: which fault, and in which words."""
    if trouble.code == 0 and not trouble.words:
        return SliceFault.PLATFORM, otherwise
    error = verdict(trouble, zone)
    return (error.fault if isinstance(error, Refused) else SliceFault.PLATFORM), str(error)


def failed_create(slice_id: str, zone: str, trouble: Trouble) -> SliceObservation:
    """A slice of which there is nothing but the operation that failed to make it."""
    if trouble.is_taken_back:
        words = f"taken back before it was whole: {trouble.words}"
        return SliceObservation(slice_id=slice_id, group="", zone=zone, state=MachineState.PREEMPTED, reason=words)
    fault, reason = failure(trouble, zone, "")
    scope = trouble.quota_scope(zone) if fault is SliceFault.QUOTA else ""
    return SliceObservation(
        slice_id=slice_id, group="", zone=zone, state=MachineState.FAILED, reason=reason, fault=fault, quota_scope=scope
    )


def unseen(slice_id: str, zone: str) -> SliceObservation:
    """A slice that was asked for, and of which nothing is to be seen yet."""
    words = "it was asked for, and nothing is to be seen of it yet"
    return SliceObservation(slice_id=slice_id, group="", zone=zone, state=MachineState.CREATING, reason=words)


def _reason(what: str, name: str, state: MachineState | None, more: str = "") -> str:
    if state is None:
        return f"{what} is in state {name or '?'}, which this version of Iris does not know"
    if name in _USUAL:
        return more
    said = f"{what} is {name}"
    return f"{said}: {more}" if more else said


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
    written = metadata.get(marks.HOSTS_KEY, "")
    return SliceObservation(
        slice_id=slice_id,
        group=metadata.get(marks.GROUP_KEY) or labels.get(marks.GROUP, ""),
        zone=zone,
        state=state,
        reason=reason,
        created_at=created_at,
        hosts=int(written) if written.isdecimal() else max(1, hosts),
        token=metadata.get(marks.TOKEN_KEY, ""),
        fault=fault,
        quota_scope=quota_scope,
    )


def _created(moment: Timestamp) -> datetime | None:
    """The same as a plain value; the epoch is written where there is none."""
    return moment.ToDatetime(UTC) if moment.seconds else None
