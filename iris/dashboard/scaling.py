"""What the autoscaler does with slices: those on their way, those that leave, and blocked zones."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from iris.autoscaling.idle_slices import Return, expected_returns
from iris.messages.autoscaler import AutoscalerStatus
from iris.model.slice.provisioning import ANYWHERE
from iris.model.slice.scaling import GroupStatus
from iris.model.slice.status import SliceFacts, SliceState

#: The states of slices that are being created, the state closest to READY first.
COMING = (SliceState.BOOTSTRAPPING, SliceState.PROVISIONING, SliceState.REQUESTED)
#: The states of slices that are being deleted or have failed.
LEAVING = (SliceState.DRAINING, SliceState.DELETING, SliceState.FAILED)
#: The states of slices that count towards the limits of their scale group.
EXISTING = frozenset(SliceState) - {SliceState.FAILED, SliceState.DELETED}


class Coming(NamedTuple):
    """A slice that is being created."""

    facts: SliceFacts
    #: Why the autoscaler requested the slice; empty if the autoscaler no longer has the record of
    #: this request.
    purpose: str


class Blocked(NamedTuple):
    """A zone, or all zones, where the platform currently creates no machines of one kind."""

    zone: str
    kind: str
    what: str
    since: datetime
    until: datetime
    reason: str


def coming(status: AutoscalerStatus) -> list[Coming]:
    """Returns the slices that are being created, the oldest first."""
    purposes = {
        action.slice_id: action.reason for action in status.actions if action.what == "scale_up"
    }
    found = [
        Coming(each, purposes.get(each.id, "")) for each in status.slices if each.state in COMING
    ]
    return sorted(found, key=lambda each: (each.facts.requested_at, each.facts.id))


def leaving(status: AutoscalerStatus) -> list[SliceFacts]:
    """Returns the slices that are being deleted, the oldest first."""
    found = [each for each in status.slices if each.state in LEAVING]
    return sorted(found, key=lambda each: (each.changed_at, each.id))


def returns(status: AutoscalerStatus, idle: Mapping[str, datetime]) -> list[Return]:
    """Returns the idle slices of all groups with the times at which they are due for deletion, the
    next one first. While the autoscaler is paused, none is.

    Args:
        idle: the slices on which nothing runs, with the time since which they are idle.
    """
    found: list[Return] = []
    for group in status.settings.groups if status.settings is not None else ():
        ready = [
            each
            for each in status.slices
            if each.group == group.name and each.state is SliceState.READY
        ]
        since = {
            each.id: max(idle[each.id], each.ready_at or each.changed_at)
            for each in ready
            if each.id in idle
        }
        found += expected_returns(group, len(ready), since)
    if status.paused is not None:
        found = [each._replace(due=None, kept="the autoscaler is paused") for each in found]
    return sorted(
        found, key=lambda each: (each.due is None, each.due or each.idle_since, each.slice_id)
    )


def blocked(status: AutoscalerStatus, now: datetime) -> list[Blocked]:
    """Returns the zones in which the platform creates no machines of a kind now, the one that ends
    first first.
    """
    stock = [
        Blocked(
            each.zone,
            _kind(each.kind),
            "stock-out" if each.times == 1 else f"stock-out, {each.times} in a row",
            each.at,
            each.until,
            each.reason,
        )
        for each in status.stocked_out
    ]
    quotas = [
        Blocked(
            "all zones" if each.scope == ANYWHERE else each.scope,
            _kind(each.kind),
            "quota used up",
            each.asked_at,
            each.until,
            each.reason,
        )
        for each in status.used_up
    ]
    found = [each for each in (*stock, *quotas) if each.until > now]
    return sorted(found, key=lambda each: (each.until, each.zone))


def _kind(kind: str) -> str:
    """Returns a kind of machine without its type: `v5litepod-16, preemptible`."""
    _, _, rest = kind.partition(":")
    return rest.replace(":", ", ")


def counts_of(group: GroupStatus) -> list[tuple[SliceState, int]]:
    """Returns the numbers of a group's slices by state, without states that no slice is in."""
    return [(state, group.counts[state]) for state in SliceState if group.counts.get(state)]


def existing(status: AutoscalerStatus) -> list[tuple[str, int, int]]:
    """Returns for each scale group its name, the number of its slices, and the most that it can
    have.
    """
    counts = Counter(each.group for each in status.slices if each.state in EXISTING)
    groups = status.settings.groups if status.settings is not None else ()
    return [(group.name, counts[group.name], group.max_slices) for group in groups]


def limits(status: AutoscalerStatus) -> dict[str, str]:
    """Returns the limits of each scale group: `0 to 4`, or `2 to 4, 1 in reserve`."""
    found = {}
    for group in status.settings.groups if status.settings is not None else ():
        reserve = f", {group.buffer_slices} in reserve" if group.buffer_slices else ""
        found[group.name] = f"{group.min_slices} to {group.max_slices}{reserve}"
    return found


def group_names(status: AutoscalerStatus | None, others: Iterable[str] = ()) -> list[str]:
    """Returns the names of the scale groups, also of those that only hosts still have."""
    known = (
        {group.name for group in status.settings.groups} if status and status.settings else set()
    )
    return sorted({*known, *others} - {""})
