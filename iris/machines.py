"""What the autoscaler's workflows and the platforms say to each other about the machines of a slice."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from iris.scale_groups import ScaleGroup


class SliceRequest(BaseModel):
    """A slice that is wanted. The id was minted before the first call, and is the machines' name and label: a request that is
    repeated finds its own work."""

    model_config = ConfigDict(frozen=True)

    slice_id: str
    cluster: str
    #: One of the group's.
    zone: str
    #: What the slice's agents show, so that nobody else's are taken for them.
    token: str
    group: ScaleGroup


class MachineState(StrEnum):
    """What a platform says of a slice's machines."""

    CREATING = "CREATING"  # it makes them, or will when it can
    ACTIVE = "ACTIVE"  # they exist
    REPAIRING = "REPAIRING"  # they exist, and it is mending one of them: maintenance, or a machine that broke
    PREEMPTED = "PREEMPTED"  # it has taken them back; what is left of them has to be deleted
    FAILED = "FAILED"  # they are broken, stopped or suspended, and will not come back by themselves
    DELETING = "DELETING"  # it is taking them away


class SliceFault(StrEnum):
    """Why a slice could not be made, or was lost."""

    STOCK_OUT = "STOCK_OUT"  # the zone has no such machines now
    QUOTA = "QUOTA"  # the project may not have more of them
    BAD_CONFIG = "BAD_CONFIG"  # the platform does not understand what is wanted, or does not allow it
    PLATFORM = "PLATFORM"  # any other refusal of the platform
    BOOT_TIMEOUT = "BOOT_TIMEOUT"  # the machines did not come in time
    INIT_TIMEOUT = "INIT_TIMEOUT"  # the agents did not report in time
    PREEMPTED = "PREEMPTED"  # the platform has taken it back
    HOST_LOST = "HOST_LOST"  # one of its hosts is silent
    HOST_LEFT = "HOST_LEFT"  # one of its agents was stopped, and said so
    VANISHED = "VANISHED"  # the platform no longer knows it


class SliceObservation(BaseModel):
    """A slice's machines, as the platform sees them."""

    model_config = ConfigDict(frozen=True)

    slice_id: str
    group: str
    zone: str
    state: MachineState
    #: In the platform's words.
    reason: str = ""
    created_at: datetime | None = None
    #: How many machines it has when it is whole, if the platform knows.
    hosts: int = 1
    #: Of the request that made it, as far as the platform kept it; empty: it did not.
    token: str = ""
    #: Why it is FAILED, when the platform says more than that it is broken: it may have agreed first, and found nothing to give.
    fault: SliceFault | None = None
    #: With QUOTA: see `CreateOutcome`.
    quota_scope: str = ""


#: In the place of a zone: all of them. Nothing at all could be listed; a quota counts everywhere.
ANYWHERE = "*"


class FleetListing(BaseModel):
    """All slices of this cluster that the platform knows of, where it could be asked."""

    model_config = ConfigDict(frozen=True)

    slices: tuple[SliceObservation, ...] = ()
    #: Zones that could not be listed, and why: what is there is unknown, which is not nothing.
    unreachable: dict[str, str] = Field(default_factory=dict)


class DeleteResult(StrEnum):
    GONE = "GONE"  # the platform says that nothing is left
    GOING = "GOING"  # it has understood, and is at it


class CreateOutcome(BaseModel):
    """What became of a request: what the platform made or found, or why it would not."""

    model_config = ConfigDict(frozen=True)

    observation: SliceObservation | None = None
    fault: SliceFault | None = None
    reason: str = ""
    #: With QUOTA: the zone or region in which it counts, or `ANYWHERE`; empty: the platform does not say.
    quota_scope: str = ""


_LOSSES = {
    MachineState.PREEMPTED: (SliceFault.PREEMPTED, "the platform has taken its machines back"),
    MachineState.FAILED: (SliceFault.PLATFORM, "the platform says that its machines are broken"),
    MachineState.DELETING: (SliceFault.VANISHED, "somebody else has its machines deleted"),
}


def loss_of(seen: SliceObservation | None) -> tuple[SliceFault, str] | None:
    """Which fault it is, and in which words, when the platform says this of a slice that is wanted; None: there is none."""
    if seen is None:
        return SliceFault.VANISHED, "the platform no longer knows its machines"
    if seen.state not in _LOSSES:
        return None
    fault, words = _LOSSES[seen.state]
    return seen.fault or fault, seen.reason or words
