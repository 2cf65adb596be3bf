"""A slice's life, as a table, and what is known of a slice."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from iris.hosts import Host
from iris.machines import SliceFault
from iris.states import step


class SliceState(StrEnum):
    REQUESTED = "REQUESTED"  # somebody wants it; nothing exists yet
    PROVISIONING = "PROVISIONING"  # the platform makes it
    BOOTSTRAPPING = "BOOTSTRAPPING"  # its machines exist, not all agents have reported
    READY = "READY"  # every host takes work
    DRAINING = "DRAINING"  # no new work; what runs may end
    DELETING = "DELETING"  # being given back
    DELETED = "DELETED"  # the platform says it is gone
    FAILED = "FAILED"  # it could not be made, or was lost


_S = SliceState
SLICE_MOVES: dict[SliceState, frozenset[SliceState]] = {
    # Machines that people bring themselves join without having been requested: straight to BOOTSTRAPPING.
    _S.REQUESTED: frozenset({_S.PROVISIONING, _S.BOOTSTRAPPING, _S.FAILED, _S.DELETING}),
    _S.PROVISIONING: frozenset({_S.BOOTSTRAPPING, _S.FAILED, _S.DELETING}),
    _S.BOOTSTRAPPING: frozenset({_S.READY, _S.FAILED, _S.DELETING}),
    _S.READY: frozenset({_S.DRAINING, _S.FAILED, _S.DELETING}),
    _S.DRAINING: frozenset({_S.DELETING, _S.FAILED}),
    _S.FAILED: frozenset({_S.DELETING}),
    _S.DELETING: frozenset({_S.DELETED}),
    _S.DELETED: frozenset(),
}


def move_slice(now: SliceState, to: SliceState) -> SliceState:
    """The new state.

    Raises:
        IllegalMove: the table has no such step.
    """
    return step(SLICE_MOVES, now, to, "a slice")


class SliceStep(BaseModel):
    """A slice came into a state, or something was tried with it."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    state: SliceState
    reason: str = ""


class SliceFacts(BaseModel):
    """One slice, as the autoscaler knows it."""

    model_config = ConfigDict(frozen=True)

    id: str
    group: str
    zone: str
    state: SliceState
    requested_at: datetime
    #: When it took work for the first time; None: it has not yet.
    ready_at: datetime | None = None
    #: When it came into its state, and why.
    changed_at: datetime
    reason: str = ""
    #: Why it could not be made or was lost; None: neither.
    fault: SliceFault | None = None


class SliceStatus(BaseModel):
    """One slice as it is now."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: SliceState
    reason: str = ""
    hosts: tuple[Host, ...] = ()
    #: How many hosts make it whole.
    size: int = 1
    #: What the autoscaler knows of it; None: it was not made, but joined by itself.
    facts: SliceFacts | None = None
    #: Hosts whose agents showed another token than the slice's: they are told to stop.
    refused: tuple[str, ...] = ()
    #: What became of it so far, the oldest first.
    steps: tuple[SliceStep, ...] = ()
