"""Defines the data of the simulated cloud: machines whose state follows from the time, and the
entries of its audit log.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from iris.model.frozen import Frozen
from iris.model.slice.keys import derived_key, public_key
from iris.model.slice.provisioning import MachineState, SliceObservation, SliceRequest

#: The simulated cloud derives the private keys of slices from this value.
SECRET = b"of the simulated cloud"


class EventKind(StrEnum):
    CREATED = "CREATED"  # a call created it
    PLANTED = "PLANTED"  # the test added it without a call
    NOT_CREATED = "NOT_CREATED"  # a create call failed
    DELETING = "DELETING"  # the first delete call
    DELETED = "DELETED"  # nothing is left
    PREEMPTED = "PREEMPTED"
    BROKEN = "BROKEN"
    VANISHED = "VANISHED"  # nothing is left, without a delete call


class AuditEvent(Frozen):
    """An entry of the simulated cloud's audit log."""

    at: datetime
    what: EventKind
    slice_id: str
    group: str = ""
    zone: str = ""
    #: The reason for the event, or the reason why a create failed.
    reason: str = ""


class Shortage(Frozen):
    """A period in which a zone has no capacity."""

    zone: str
    since: datetime
    until: datetime
    #: The kind of machines without capacity, as `kind_of` returns it; empty for all kinds.
    kind: str = ""


@dataclass
class FakeMachines:
    """The machines of one slice."""

    request: SliceRequest
    created_at: datetime
    active_at: datetime
    listed_at: datetime
    #: The number of machines that start: those with the lowest worker ids. The other machines of
    #: the slice never start.
    hosts: int
    #: True if a person has marked the slice as manual.
    manual: bool = False
    #: True if the cloud is repairing one of the machines.
    in_repair: bool = False
    #: PREEMPTED or FAILED, if the machines have ended; None while they have not.
    end: MachineState | None = None
    reason: str = ""
    #: True if they are switched off and not deleted yet.
    stopped: bool = False
    gone_at: datetime | None = None

    def state(self, now: datetime) -> MachineState:
        """Returns the state of the machines at that time."""
        if self.gone_at is not None:
            return MachineState.DELETING
        if self.end is not None:
            return self.end
        if now < self.active_at:
            return MachineState.CREATING
        return MachineState.REPAIRING if self.in_repair else MachineState.ACTIVE

    def observed(self, now: datetime) -> SliceObservation:
        """Returns the observation that a platform reports at that time."""
        return SliceObservation(
            slice_id=self.request.slice_id,
            group=self.request.group.name,
            zone=self.request.zone,
            state=self.state(now),
            reason=self.reason,
            stopped=self.stopped,
            created_at=self.created_at,
            hosts=self.request.group.hosts,
            token=self.request.token,
            public_key=public_key(derived_key(SECRET, self.request.slice_id, self.request.token)),
        )


def kind_of(request: SliceRequest) -> str:
    """Returns the key that capacity is counted by: the accelerator's variant, else the machine
    type, else the group's name.
    """
    group = request.group
    return group.accelerator_variant or group.machine_type or group.name
