"""What a cloud in memory consists of: machines whose state follows from the time, and a log of all that became of them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from iris.machines import MachineState, SliceObservation, SliceRequest


class Happening(StrEnum):
    CREATED = "CREATED"  # by a call
    PLANTED = "PLANTED"  # by the test: it was there already
    NOT_CREATED = "NOT_CREATED"  # a call that was refused, or not understood
    DELETING = "DELETING"  # by the first call
    DELETED = "DELETED"  # nothing is left
    PREEMPTED = "PREEMPTED"
    BROKEN = "BROKEN"
    VANISHED = "VANISHED"  # nothing is left, although nobody deleted it


class Event(BaseModel):
    """A line of the audit log."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    what: Happening
    slice_id: str
    group: str = ""
    zone: str = ""
    #: Why not, or why.
    reason: str = ""


class Shortage(BaseModel):
    """A zone has nothing to give for a while."""

    model_config = ConfigDict(frozen=True)

    zone: str
    since: datetime
    until: datetime
    #: An accelerator variant or machine type; empty: of all.
    kind: str = ""


@dataclass
class Machines:
    """What the cloud has of one slice."""

    request: SliceRequest
    created_at: datetime
    active_at: datetime
    listed_at: datetime
    #: Those with the lower worker ids; the others never come up.
    hosts: int
    #: People have marked it as theirs.
    manual: bool = False
    #: The cloud is mending one of them.
    in_repair: bool = False
    #: PREEMPTED or FAILED.
    end: MachineState | None = None
    reason: str = ""
    gone_at: datetime | None = None

    def state(self, now: datetime) -> MachineState:
        """What the cloud says of it at that time."""
        if self.gone_at is not None:
            return MachineState.DELETING
        if self.end is not None:
            return self.end
        if now < self.active_at:
            return MachineState.CREATING
        return MachineState.REPAIRING if self.in_repair else MachineState.ACTIVE

    def observed(self, now: datetime) -> SliceObservation:
        """The same as a platform tells it."""
        return SliceObservation(
            slice_id=self.request.slice_id,
            group=self.request.group.name,
            zone=self.request.zone,
            state=self.state(now),
            reason=self.reason,
            created_at=self.created_at,
            hosts=self.request.group.hosts,
            token=self.request.token,
        )


def kind_of(request: SliceRequest) -> str:
    """What capacity is counted by: the accelerator's variant, else the machine type, else the group's name."""
    group = request.group
    return group.accelerator_variant or group.machine_type or group.name
