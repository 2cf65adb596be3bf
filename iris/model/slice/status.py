"""The states of a slice with their transitions, and the values that describe a slice."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from iris.model.frozen import Frozen
from iris.model.host.hosts import Host
from iris.model.host.resources import Resources
from iris.model.lifecycle import entering, transition
from iris.model.slice.provisioning import SliceFault


class SliceState(StrEnum):
    REQUESTED = "REQUESTED"  # the autoscaler needs the slice; nothing exists yet
    PROVISIONING = "PROVISIONING"  # the platform creates the machines
    BOOTSTRAPPING = "BOOTSTRAPPING"  # the machines exist, but not all agents have reported
    READY = "READY"  # all hosts accept work
    DRAINING = "DRAINING"  # the hosts accept no new work; running tasks may end
    DELETING = "DELETING"  # the platform deletes the machines
    DELETED = "DELETED"  # the platform confirms that the machines are gone
    FAILED = "FAILED"  # the slice could not be created, or was lost


_S = SliceState
#: The states that a slice may enter next, by its present state. As in every lifecycle table, a row
#: maps events to next states. A slice's event is the next state itself, so each row maps states to
#: themselves (`entering`).
SLICE_MOVES: Mapping[SliceState, Mapping[SliceState, SliceState]] = {
    # The slices of machines over SSH that join by themselves begin with BOOTSTRAPPING.
    _S.REQUESTED: entering(_S.PROVISIONING, _S.BOOTSTRAPPING, _S.FAILED, _S.DELETING),
    _S.PROVISIONING: entering(_S.BOOTSTRAPPING, _S.FAILED, _S.DELETING),
    _S.BOOTSTRAPPING: entering(_S.READY, _S.FAILED, _S.DELETING),
    _S.READY: entering(_S.DRAINING, _S.FAILED, _S.DELETING),
    _S.DRAINING: entering(_S.DELETING, _S.FAILED),
    _S.FAILED: entering(_S.DELETING),
    _S.DELETING: entering(_S.DELETED),
    _S.DELETED: {},
}
#: The states in which the slice's workflow handles reports about the slice.
LIVE = (_S.PROVISIONING, _S.BOOTSTRAPPING, _S.READY, _S.DRAINING)


def move_slice(now: SliceState, to: SliceState) -> SliceState:
    """Returns the new state of a slice.

    Raises:
        IllegalMove: the table has no such transition.
    """
    return transition(SLICE_MOVES, now, to, "a slice")


class SliceStep(Frozen):
    """A change of a slice's state, or an action on the slice."""

    at: datetime
    state: SliceState
    reason: str = ""


class SliceFacts(Frozen):
    """The state of one slice, as the autoscaler knows it."""

    id: str
    group: str
    zone: str
    state: SliceState
    requested_at: datetime
    #: When the slice first accepted work; None if it has not accepted work yet.
    ready_at: datetime | None = None
    #: For a ready slice, the least amount of each resource that its hosts offer; None if it is not
    #: known.
    offers: Resources | None = None
    #: When the slice entered its state.
    changed_at: datetime
    #: Why the slice entered its state.
    reason: str = ""
    #: Why the slice could not be created or was lost; None if it was created and was not lost.
    fault: SliceFault | None = None
    #: The zone or region of the exceeded quota, as in `CreateOutcome`. It is set for the fault
    #: QUOTA.
    quota_scope: str = ""
    #: The time until which the slice waits for the platform to repair its machines; None if there
    #: is no repair.
    repair_until: datetime | None = None


class SliceStatus(Frozen):
    """The current state of one slice."""

    id: str
    state: SliceState
    reason: str = ""
    hosts: tuple[Host, ...] = ()
    #: The number of hosts of the complete slice.
    size: int = 1
    #: The slice as the autoscaler knows it; None if its machines joined by themselves.
    facts: SliceFacts | None = None
    #: Hosts whose agents could not prove that their machines were created for the slice. These
    #: agents stop.
    refused: tuple[str, ...] = ()
    #: The hosts that the scheduler does not accept, because it has ended their incarnations, as
    #: (host id, incarnation). The agents of these hosts begin new incarnations.
    ended: tuple[tuple[str, str], ...] = ()
    #: The last console output of the machines, if the machines or their agents were not ready in
    #: time; otherwise empty.
    last_words: str = ""
    #: The history of the slice, the oldest step first.
    steps: tuple[SliceStep, ...] = ()
