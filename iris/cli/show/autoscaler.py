"""Formats the autoscaler and scale groups for people and for programs.

The keys of the JSON are a public contract (tests/cli).
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from iris.autoscaling.liveness import HELD
from iris.cli.show.columns import Column, age
from iris.cli.show.listing import Listing
from iris.cli.show.resources import resources_json
from iris.messages.autoscaler import AutoscalerStatus
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Action, Availability, GroupStatus, Outlook
from iris.model.slice.status import SliceState
from iris.model.units import format_duration

#: The number of the autoscaler's latest actions that the text output shows. The JSON contains all
#: remembered actions.
LAST = 20
#: The states of slices that the column SLICES in the list of scale groups counts.
EXISTING = frozenset(SliceState) - {SliceState.FAILED, SliceState.DELETED}


def counts_json(counts: Mapping[SliceState, int]) -> dict[str, int]:
    """Returns the number of slices in each state, without states that no slice is in."""
    return {state.value: counts[state] for state in SliceState if counts.get(state)}


def counts_text(counts: Mapping[SliceState, int]) -> str:
    """Returns `2 READY, 1 PROVISIONING`."""
    return ", ".join(f"{count} {state}" for state, count in counts_json(counts).items()) or "none"


GROUPS: Listing[GroupStatus] = Listing(
    Column("GROUP", "group", shortens=True),
    Column("AVAILABILITY", "availability"),
    Column(
        "SLICES",
        "slices",
        lambda status: status.counts,
        text=counts_text,
        json=counts_json,
        absent="none",
        wraps=True,
    ),
    Column("DEMAND", "demand"),
    Column("TARGET", "target", optional=True),
    Column("REASON", "why", absent="", wraps=True, optional=True, importance=1, least=16),
    Column(key="until"),
    keys="group availability why until demand target slices",
)
OUTLOOKS: Listing[Outlook] = Listing(
    Column("WAITING", "example", lambda outlook: outlook.example.task, shortens=True),
    Column("AGE", value=lambda outlook: outlook.example.submitted_at),
    Column("OUTLOOK", "message", wraps=True),
    Column(key="since"),
    Column(key="possible"),
)
ACTIONS: Listing[Action] = Listing(
    Column("AGO", "at"),
    Column("GROUP", "group", shortens=True, optional=True),
    Column("ACTION", "what"),
    Column("SLICE", "slice", lambda action: action.slice_id, shortens=True),
    Column("REASON", "reason", absent="", wraps=True),
    keys="slice at group what reason",
)


def autoscaler_json(status: AutoscalerStatus) -> dict[str, Any]:
    return {
        **status.model_dump(
            mode="json", include={"evaluated_at", "next_at", "paused", "closing", "unreachable"}
        ),
        "groups": [GROUPS.json(each) for each in status.groups],
        "waiting": [OUTLOOKS.json(each) for each in status.outlooks],
        "actions": [ACTIONS.json(each) for each in status.actions],
        "unowned": [each.slice_id for each in status.unowned],
    }


def autoscaler_text(status: AutoscalerStatus, now: datetime) -> str:
    """Formats the groups, the waiting jobs and the last actions of the autoscaler, for people."""
    groups = [each.model_copy(update={"why": _why(each, now)}) for each in status.groups]
    tables = [
        GROUPS.table(groups, now),
        OUTLOOKS.table(status.outlooks, now),
        ACTIONS.table(status.actions[: -LAST - 1 : -1], now),
    ]
    return "\n\n".join(
        ["\n".join([_evaluated(status, now), *problems(status)]), *filter(None, tables)]
    )


def _evaluated(status: AutoscalerStatus, now: datetime) -> str:
    if status.settings is None:
        return "the autoscaler only watches hosts: the cluster has no scale groups"
    if status.evaluated_at is None:
        return "the autoscaler has not evaluated yet"
    due = (
        f"within {format_duration(status.next_at - now)}"
        if status.next_at and status.next_at > now
        else ""
    )
    return (
        f"evaluated {age(status.evaluated_at, now)} ago; next evaluation"
        f" {due or 'when something changes'}"
    )


def problems(status: AutoscalerStatus) -> list[str]:
    """Returns the problems that block the whole autoscaler, one line for each."""
    lines = [f"PAUSED    the autoscaler: {status.paused}"] if status.paused is not None else []
    lines += (
        [f"CLOSING   all slices are being deleted: {status.closing}"]
        if status.closing is not None
        else []
    )
    lines += [HELD.format(status.held_hosts)] if status.held_hosts else []
    created = {each.id for each in status.slices}
    lines += [each.problem(created) for each in status.missing]
    lines += [
        f"zone {zone} could not be listed: {why}"
        for zone, why in sorted(status.unreachable.items())
    ]
    lines += [
        f"no workflow manages slice {each.slice_id} in {each.zone}" for each in status.unowned
    ]
    return lines


def blocked_groups(status: AutoscalerStatus) -> dict[str, str]:
    """Returns the reason for each group that cannot grow now (`QUOTA_EXCEEDED` or `BACKOFF`)."""
    able = (
        Availability.AVAILABLE,
        Availability.AT_MAX,
        Availability.COOLDOWN,
        Availability.REQUESTING,
    )
    return {
        each.group: f"{each.availability}: {each.why}"
        for each in status.groups
        if each.availability not in able
    }


def slice_counts(status: AutoscalerStatus) -> dict[SliceState, int]:
    """Returns the number of slices in each state."""
    states = [each.state for each in status.slices]
    return {state: states.count(state) for state in states}


def _why(status: GroupStatus, now: datetime) -> str:
    if status.until is None or status.until <= now:
        return status.why
    return f"{status.why} (for {format_duration(status.until - now)} more)"


def group_listing(status: AutoscalerStatus) -> Listing[ScaleGroup]:
    """Returns the listing of scale groups with their last statuses.

    A group has no status before its first evaluation.
    """
    statuses = {each.group: each for each in status.groups}

    def of_status(
        value: Callable[[GroupStatus], Any], unknown: Any = None
    ) -> Callable[[ScaleGroup], Any]:
        return lambda group: value(statuses[group.name]) if group.name in statuses else unknown

    return Listing(
        Column("NAME", "name", shortens=True),
        Column("TYPE", "type", optional=True),
        Column(
            "ACCELERATOR",
            "accelerator",
            lambda group: group.accelerator_variant or None,
            optional=True,
            importance=2,
        ),
        Column("HOSTS", "hosts", optional=True),
        Column(
            "SLICES",
            value=of_status(lambda status: sum(status.counts.get(state, 0) for state in EXISTING)),
        ),
        Column("MIN", "min_slices"),
        Column("MAX", "max_slices"),
        Column("PRIORITY", "priority", optional=True),
        Column("PREEMPTIBLE", "preemptible", optional=True),
        Column("AVAILABILITY", "availability", of_status(lambda status: status.availability)),
        Column("ZONES", "zones", wraps=True, optional=True, importance=1, least=16),
        Column(key="buffer_slices"),
        Column(key="resources", json=resources_json),
        Column(key="slices", value=of_status(lambda status: counts_json(status.counts), {})),
        Column(key="why", value=of_status(lambda status: status.why, "")),
        keys=(
            "name type zones hosts preemptible priority min_slices max_slices buffer_slices"
            " accelerator resources slices availability why"
        ),
        empty="no scale groups",
    )
