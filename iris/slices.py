"""A slice's life, as a table, and what is known of a slice."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from iris.hosts import Host
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


class SliceStatus(BaseModel):
    """One slice as it is now."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: SliceState
    reason: str = ""
    hosts: tuple[Host, ...] = ()
