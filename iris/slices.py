"""A slice's life, as a table, and what is known of a slice."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from iris.hosts import Host
from iris.machines import SliceFault
from iris.scale_groups import Pace
from iris.states import step
from iris.units import format_duration


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


#: While it is in one of these, news of it counts.
LIVE = (_S.PROVISIONING, _S.BOOTSTRAPPING, _S.READY, _S.DRAINING)
#: While it is in one of these, its machines are on their way.
COMING = (_S.REQUESTED, _S.PROVISIONING, _S.BOOTSTRAPPING)


def move_slice(now: SliceState, to: SliceState) -> SliceState:
    """The new state.

    Raises:
        IllegalMove: the table has no such step.
    """
    return step(SLICE_MOVES, now, to, "a slice")


def due(facts: "SliceFacts", pace: Pace, look_at: datetime) -> datetime | None:
    """When something has to be done with a slice of which nothing is heard; None: one can wait for ever.

    Args:
        look_at: when it is looked at again, where that is meant to be done: when it is late, or drains.
    """
    usual: datetime | None = None
    match facts.state:
        case SliceState.PROVISIONING:
            usual = max(facts.changed_at + pace.boot_timeout, look_at)
        case SliceState.BOOTSTRAPPING:
            usual = facts.changed_at + pace.init_timeout
        case SliceState.DRAINING:
            usual = look_at
        case SliceState.READY:
            pass
        case _:
            return None
    return min((time for time in (usual, facts.repair_until) if time is not None), default=None)


def lateness(state: SliceState, pace: Pace, reported: int, size: int) -> tuple[SliceFault, str]:
    """What it means that a slice is still in this state at its deadline.

    Args:
        reported: how many of its hosts' agents have.
    """
    if state is SliceState.PROVISIONING:
        told = f"the platform has not made its machines within {format_duration(pace.boot_timeout)}"
        return SliceFault.BOOT_TIMEOUT, told
    told = f"{reported} of {size} agents have reported within {format_duration(pace.init_timeout)}"
    return SliceFault.INIT_TIMEOUT, told


def with_last_words(reason: str, said: str) -> str:
    """A reason of one line, with the last of what a slice's machines have said."""
    lines = said.strip().splitlines()
    return f"{reason}; the last that its machines said: {lines[-1]}" if lines else reason


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
    #: With QUOTA: see `CreateOutcome`.
    quota_scope: str = ""
    #: Until when its machines are waited for, which the platform repairs; None: it does not.
    repair_until: datetime | None = None


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
    #: What its machines said last when they or their agents did not come in time, in lines.
    last_words: str = ""
    #: What became of it so far, the oldest first.
    steps: tuple[SliceStep, ...] = ()
