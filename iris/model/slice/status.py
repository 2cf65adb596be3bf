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
    REQUESTED = "REQUESTED"  # the autoscaler needs it; nothing exists yet
    PROVISIONING = "PROVISIONING"  # the platform creates it
    BOOTSTRAPPING = "BOOTSTRAPPING"  # its machines exist, but not all agents have reported
    READY = "READY"  # every host accepts work
    DRAINING = "DRAINING"  # accepts no new work; running tasks may end
    DELETING = "DELETING"  # the platform deletes it
    DELETED = "DELETED"  # the platform confirms that it is gone
    FAILED = "FAILED"  # it could not be created, or was lost


_S = SliceState
#: The transitions by state and event. The event is the state that a slice enters.
SLICE_MOVES: Mapping[SliceState, Mapping[SliceState, SliceState]] = {
    # Manual machines join without a request, so they start at BOOTSTRAPPING.
    _S.REQUESTED: entering(_S.PROVISIONING, _S.BOOTSTRAPPING, _S.FAILED, _S.DELETING),
    _S.PROVISIONING: entering(_S.BOOTSTRAPPING, _S.FAILED, _S.DELETING),
    _S.BOOTSTRAPPING: entering(_S.READY, _S.FAILED, _S.DELETING),
    _S.READY: entering(_S.DRAINING, _S.FAILED, _S.DELETING),
    _S.DRAINING: entering(_S.DELETING, _S.FAILED),
    _S.FAILED: entering(_S.DELETING),
    _S.DELETING: entering(_S.DELETED),
    _S.DELETED: {},
}
#: The states in which the slice's workflow handles reports about it.
LIVE = (_S.PROVISIONING, _S.BOOTSTRAPPING, _S.READY, _S.DRAINING)


def move_slice(now: SliceState, to: SliceState) -> SliceState:
    """Returns the new state of a slice.

    Raises:
        IllegalMove: the table has no such transition.
    """
    return transition(SLICE_MOVES, now, to, "a slice")


class SliceStep(Frozen):
    """A record of a state change of a slice, or of an action on it."""

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
    #: When it first accepted work; None: not yet.
    ready_at: datetime | None = None
    #: Of a ready slice: the least of each resource that its hosts offer. None: unknown.
    offers: Resources | None = None
    #: When it entered its state, and the reason.
    changed_at: datetime
    reason: str = ""
    #: Why it could not be created or was lost; None: neither.
    fault: SliceFault | None = None
    #: With QUOTA: as in `CreateOutcome`.
    quota_scope: str = ""
    #: Until when the slice waits for the platform to repair its machines; None: no repair is under
    #: way.
    repair_until: datetime | None = None


class SliceStatus(Frozen):
    """The current state of one slice."""

    id: str
    state: SliceState
    reason: str = ""
    hosts: tuple[Host, ...] = ()
    #: How many hosts the complete slice has.
    size: int = 1
    #: The autoscaler's view of it; None: it joined by itself and was not created.
    facts: SliceFacts | None = None
    #: Hosts whose agents could not prove that their machines were created for the slice. These
    #: agents stop.
    refused: tuple[str, ...] = ()
    #: The (host, incarnation) of hosts that the scheduler does not take, because it has ended their
    #: incarnations. Their agents begin new ones.
    ended: tuple[tuple[str, str], ...] = ()
    #: The last output of its machines, if they or their agents were late.
    last_words: str = ""
    #: Its history, the oldest step first.
    steps: tuple[SliceStep, ...] = ()
