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

    The id is generated before the first call and is the name and label of the machines. So a
    repeated request finds the slice that it created.
    """

    slice_id: str
    cluster: str
    #: One of the group's zones.
    zone: str
    #: Identifies the request, so that a repeated one recognises the machines of the first. It is
    #: not a secret.
    token: str
    group: ScaleGroup


class MachineState(StrEnum):
    """The state that a platform reports for a slice's machines."""

    CREATING = "CREATING"  # it creates them now, or when it has capacity
    ACTIVE = "ACTIVE"  # they exist
    REPAIRING = (
        "REPAIRING"  # they exist, and it repairs one of them: maintenance, or a broken machine
    )
    PREEMPTED = "PREEMPTED"  # it has preempted them; what is left has to be deleted
    FAILED = "FAILED"  # they are broken, stopped or suspended, and will not recover by themselves
    DELETING = "DELETING"  # it deletes them


class SliceFault(StrEnum):
    """The reason that a slice could not be created, or was lost."""

    STOCK_OUT = "STOCK_OUT"  # the zone has no capacity for such machines now
    QUOTA = "QUOTA"  # the project's quota does not allow more of them
    BAD_CONFIG = "BAD_CONFIG"  # the platform does not understand or does not allow the request
    PLATFORM = "PLATFORM"  # any other refusal by the platform
    BOOT_TIMEOUT = "BOOT_TIMEOUT"  # the machines were not created in time
    INIT_TIMEOUT = "INIT_TIMEOUT"  # the agents did not report in time
    PREEMPTED = "PREEMPTED"  # the platform preempted it
    HOST_LOST = "HOST_LOST"  # one of its hosts stopped reporting
    HOST_LEFT = "HOST_LEFT"  # one of its agents was stopped and reported that
    VANISHED = "VANISHED"  # the platform no longer knows it


class SliceObservation(Frozen):
    """The state of a slice's machines, as the platform reports it."""

    slice_id: str
    group: str
    zone: str
    state: MachineState
    #: In the platform's own text.
    reason: str = ""
    created_at: datetime | None = None
    #: How many machines the complete slice has, if the platform knows.
    hosts: int = 1
    #: The token of the request that created it; empty: the platform did not keep it.
    token: str = ""
    #: Verifies the reports of the slice's agents; empty: unknown.
    public_key: str = ""
    #: Why it is FAILED, if the platform gives more detail. For example, it accepted the request
    #: first and then found no capacity.
    fault: SliceFault | None = None
    #: With QUOTA: as in `CreateOutcome`.
    quota_scope: str = ""


#: Stands for all zones: when no zone could be listed, or when a quota applies everywhere.
ANYWHERE = "*"


class FleetListing(Frozen):
    """All slices of this cluster that the platform lists."""

    slices: tuple[SliceObservation, ...] = ()
    #: The zones that could not be listed, with the reason. Their slices are unknown, which does not
    #: mean that there are none.
    unreachable: dict[str, str] = Field(default_factory=dict)
    #: With `ANYWHERE` in `unreachable`: the zones that were listed nevertheless, because another
    #: service has their machines.
    listed: tuple[str, ...] = ()

    def knows(self, zone: str) -> bool:
        """Returns whether the listing has all slices of the zone."""
        return zone not in self.unreachable and (
            ANYWHERE not in self.unreachable or zone in self.listed
        )


class DeleteResult(StrEnum):
    GONE = "GONE"  # the platform confirms that nothing is left
    GOING = "GOING"  # the platform has accepted the deletion and works on it


class CreateOutcome(Frozen):
    """The result of a request: what the platform created or found, or why it refused."""

    observation: SliceObservation | None = None
    fault: SliceFault | None = None
    reason: str = ""
    #: With QUOTA: the zone or region where it applies, or `ANYWHERE`; empty: the platform does not
    #: say.
    quota_scope: str = ""


#: How long the tasks of a slice that is taken back may take to end before its machines are deleted.
#: Google gives thirty seconds (spot) or a minute (maintenance). A task's grace is 30 s by default,
#: and then its agent reports it. cloud.google.com/compute/docs/instances/create-use-spot and
#: .../metadata/getting-live-migration-notice
TIME_TO_LEAVE = timedelta(minutes=1)
#: When tasks on such a slice are evicted that still run: on a host whose own agent does not leave,
#: they know of nothing. The rest of the time is enough for the default grace and the report.
EVICTED_AFTER = timedelta(seconds=10)

_LOSSES = {
    MachineState.PREEMPTED: (SliceFault.PREEMPTED, "the platform has preempted its machines"),
    MachineState.FAILED: (SliceFault.PLATFORM, "the platform reports that its machines are broken"),
    MachineState.DELETING: (SliceFault.VANISHED, "another client deletes its machines"),
}


def ends_its_tasks(fault: SliceFault | None) -> bool:
    """Returns whether the agents of a slice with this fault may still be alive, and end their tasks
    in order.
    """
    return fault in (SliceFault.PREEMPTED, SliceFault.HOST_LEFT)


def loss_of(seen: SliceObservation | None) -> tuple[SliceFault, str] | None:
    """Returns the fault and the reason if the observation means that a wanted slice is lost,
    otherwise None.
    """
    if seen is None:
        return SliceFault.VANISHED, "the platform no longer knows its machines"
    if seen.state not in _LOSSES:
        return None
    fault, reason = _LOSSES[seen.state]
    return seen.fault or fault, seen.reason or reason
