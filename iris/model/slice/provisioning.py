"""The values that the autoscaler's workflows and the platforms exchange about the machines of a
slice.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.slice.scale_groups import ScaleGroup


class SliceRequest(Frozen):
    """A request to create a slice.

    The autoscaler generates the id before the first call, and the machines are named and labelled
    with it. So a repeated request finds the slice that the first one created.
    """

    slice_id: str
    cluster: str
    #: The zone for the slice, one of the group's zones.
    zone: str
    #: Identifies the request. With the token, a repeated request recognises the machines that the
    #: first request created. The token is not a secret.
    token: str
    group: ScaleGroup


class MachineState(StrEnum):
    """A state in which a platform reports the machines of a slice."""

    CREATING = "CREATING"  # the platform creates the machines, now or when it has capacity
    ACTIVE = "ACTIVE"  # the machines exist
    REPAIRING = (
        # the machines exist, and the platform repairs one of them: maintenance, or a broken machine
        "REPAIRING"
    )
    # the platform has preempted the machines; the rest of them must be deleted
    PREEMPTED = "PREEMPTED"
    # the machines are broken, stopped or suspended, and will not recover by themselves
    FAILED = "FAILED"
    DELETING = "DELETING"  # the platform deletes the machines


class SliceFault(StrEnum):
    """The reason why a slice could not be created, or why it was lost."""

    STOCK_OUT = "STOCK_OUT"  # the zone has no capacity for such machines now
    QUOTA = "QUOTA"  # the project's quota does not allow more of them
    BAD_CONFIG = "BAD_CONFIG"  # the platform does not understand or does not allow the request
    PLATFORM = "PLATFORM"  # any other refusal by the platform
    BOOT_TIMEOUT = "BOOT_TIMEOUT"  # the machines were not created in time
    INIT_TIMEOUT = "INIT_TIMEOUT"  # the agents did not report in time
    PREEMPTED = "PREEMPTED"  # the platform preempted the slice
    HOST_LOST = "HOST_LOST"  # a host of the slice stopped reporting
    HOST_LEFT = "HOST_LEFT"  # an agent of the slice was stopped, and reported that
    VANISHED = "VANISHED"  # the platform no longer knows the slice


class SliceObservation(Frozen):
    """The state of a slice's machines, as the platform reports it."""

    slice_id: str
    group: str
    zone: str
    state: MachineState
    #: The platform's own text about the state.
    reason: str = ""
    #: True if the machines still exist and are switched off: no program runs on them any more.
    stopped: bool = False
    created_at: datetime | None = None
    #: The number of machines of the complete slice, if the platform stores this number with the
    #: slice. Otherwise the number of the slice's machines that the platform shows now, at least 1.
    hosts: int = 1
    #: The token of the request that created the slice; empty if the platform did not keep it.
    token: str = ""
    #: The key that verifies the reports of the slice's agents; empty if it is not known.
    public_key: str = ""
    #: Why the slice is FAILED, if the platform gives details: for example, the platform first
    #: accepted the request and then found no capacity.
    fault: SliceFault | None = None
    #: The zone or region of the exceeded quota, as in `CreateOutcome`. It is set for the fault
    #: QUOTA.
    quota_scope: str = ""


#: The value that stands for all zones. `FleetListing.unreachable` contains it if no zone except
#: those in `FleetListing.listed` was listed completely, and `quota_scope` if a quota applies
#: everywhere.
ANYWHERE = "*"


class FleetListing(Frozen):
    """The list of this cluster's slices, as the platform reports it."""

    slices: tuple[SliceObservation, ...] = ()
    #: The zones that could not be listed, with the reason. The listing does not show whether they
    #: have slices.
    unreachable: dict[str, str] = Field(default_factory=dict)
    #: The zones that were listed although `unreachable` contains `ANYWHERE` (all zones): the zones
    #: of machines over SSH, if the cluster also has a cloud and only the cloud was not listed
    #: completely.
    listed: tuple[str, ...] = ()

    def knows(self, zone: str) -> bool:
        """Returns whether the listing is complete for the zone."""
        return zone not in self.unreachable and (
            ANYWHERE not in self.unreachable or zone in self.listed
        )


class DeleteResult(StrEnum):
    # the platform confirms that no machine is left, and no program on one
    GONE = "GONE"
    GOING = "GOING"  # the platform has accepted the deletion, which is not finished
    # there is nothing to delete, but a machine may run: it belongs to somebody else now, or it is
    # not known which one it was
    LEFT = "LEFT"


class CreateOutcome(Frozen):
    """The result of a request for a slice: the machines that the platform created or found, or why
    the platform refused.
    """

    observation: SliceObservation | None = None
    fault: SliceFault | None = None
    reason: str = ""
    #: The zone or region to which the exceeded quota applies, or `ANYWHERE`. It is set for the
    #: fault QUOTA, and empty if the platform does not report it.
    quota_scope: str = ""


#: How long the tasks of a preempted slice may take to end before Iris deletes the slice's machines.
#: Google gives thirty seconds (spot) or a minute (maintenance). A task needs its grace period, 30 s
#: by default, and then the task's agent reports the end. Sources:
#: cloud.google.com/compute/docs/instances/create-use-spot and
#: .../metadata/getting-live-migration-notice
TIME_TO_LEAVE = timedelta(minutes=1)
#: The time after a preemption at which Iris evicts the tasks that still run on the slice. If a
#: host's own agent was not notified, the host's tasks do not know of the preemption. The rest of
#: TIME_TO_LEAVE suffices for the default grace period and for the agents' reports.
EVICTED_AFTER = timedelta(seconds=10)

_LOSSES = {
    MachineState.PREEMPTED: (SliceFault.PREEMPTED, "the platform has preempted its machines"),
    MachineState.FAILED: (SliceFault.PLATFORM, "the platform reports that its machines are broken"),
    MachineState.DELETING: (SliceFault.VANISHED, "another client deletes its machines"),
}


def ends_its_tasks(fault: SliceFault | None) -> bool:
    """Returns whether the agents of a slice with this fault may still run and end their tasks in
    order.
    """
    return fault in (SliceFault.PREEMPTED, SliceFault.HOST_LEFT)


def loss_of(seen: SliceObservation | None) -> tuple[SliceFault, str] | None:
    """Returns the fault and the reason if the observation means that the slice is lost, otherwise
    None.

    Args:
        seen: the observation; None if the platform does not know the slice.
    """
    if seen is None:
        return SliceFault.VANISHED, "the platform no longer knows its machines"
    if seen.state not in _LOSSES:
        return None
    fault, reason = _LOSSES[seen.state]
    return seen.fault or fault, seen.reason or reason
