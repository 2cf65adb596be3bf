"""Formats scale groups, slices and the autoscaler for people and for programs. The JSON's keys are
a public contract.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from iris.autoscaling.liveness import HELD
from iris.cli.show.columns import Column, age, several
from iris.cli.show.listing import Listing, coloured
from iris.cli.show.resources import free_text, resources_json
from iris.client.connect.clusters import START_HINT, ClusterRecord
from iris.client.fleet.slices import SliceRow
from iris.config import ClusterConfig, scale_groups_of
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import HostView
from iris.model.host.hosts import Host
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Action, Availability, GroupStatus, Outlook
from iris.model.slice.status import SliceState, SliceStatus, SliceStep
from iris.model.units import format_duration

#: The number of actions that people see, the latest ones. Programs get all actions.
LAST = 20
#: The states of slices that count against the limits of their group.
EXISTING = frozenset(SliceState) - {SliceState.FAILED, SliceState.DELETED}
#: The settings of the autoscaler whose change `config_changes` reports.
_AUTOSCALER = ("evaluation_interval", "observe_interval")


def counts_json(counts: Mapping[SliceState, int]) -> dict[str, int]:
    """Returns the number of slices in each state, without states that no slice is in."""
    return {state.value: counts[state] for state in SliceState if counts.get(state)}


def counts_text(counts: Mapping[SliceState, int]) -> str:
    """Returns `2 READY, 1 PROVISIONING`."""
    return ", ".join(f"{count} {state}" for state, count in counts_json(counts).items()) or "none"


def _cluster_state(record: ClusterRecord) -> str:
    """Returns the state of a cluster as this machine knows it. Does not ask the cluster."""
    if record.remote:
        return "STARTED"
    return "RUNNING" if record.alive() else "STOPPED"


CLUSTERS: Listing[ClusterRecord] = Listing(
    Column("NAME", "name", shortens=True),
    Column("STATE", "state", _cluster_state),
    Column(
        "LOCATION",
        "location",
        lambda record: record.location() if record.remote else "this machine",
        wraps=True,
        optional=True,
        importance=1,
    ),
    Column("TEMPORAL", "address", shortens=True),
    Column("WEB UI", "ui", shortens=True, optional=True),
    Column(key="store"),
    empty=f"no clusters were started from here; {START_HINT}",
)

# -- the autoscaler
# --------------------------------------------------------------------------------------------------

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


# -- scale groups
# --------------------------------------------------------------------------------------------------


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


# -- slices
# --------------------------------------------------------------------------------------------------


def tasks_on(slice_id: str, hosts: Iterable[HostView]) -> list[str]:
    """Returns the tasks that run on the hosts of a slice."""
    return [task for view in hosts if view.host.slice_id == slice_id for task in view.running]


def slice_listing(hosts: Sequence[HostView]) -> Listing[SliceRow]:
    """Returns the listing of slices.

    Args:
        hosts: the cluster's hosts, with their tasks.
    """
    return Listing(
        Column("ID", "id", shortens=True),
        Column("STATE", "state"),
        Column(
            "GROUP",
            "group",
            lambda row: row.group or None,
            absent="(joined)",
            shortens=True,
            optional=True,
        ),
        Column("ZONE", "zone", lambda row: row.zone or None, optional=True, importance=1),
        Column(key="made"),
        Column(
            "HOSTS",
            "hosts",
            lambda row: [view.host.id for view in hosts if view.host.slice_id == row.id],
            len,
            absent="0",
        ),
        Column(
            "ADDRESS",
            "addresses",
            lambda row: _addresses(row.id, hosts),
            several,
            absent="",
            optional=True,
        ),
        Column("RUNNING", "running", lambda row: tasks_on(row.id, hosts), len, absent="0"),
        Column("AGE", "requested_at"),
        Column("REASON", "reason", absent="", wraps=True, optional=True, importance=2, least=16),
        keys="id state group zone made hosts running requested_at reason addresses",
        empty="no slices",
    )


def _addresses(slice_id: str, hosts: Iterable[HostView]) -> list[str]:
    """Returns the addresses of the slice's hosts.

    A machine over SSH has the address that the configuration names.
    """
    return [
        view.host.address for view in hosts if view.host.slice_id == slice_id and view.host.address
    ]


def _slice_hosts(hosts: Iterable[HostView]) -> Listing[Host]:
    """Returns the listing of a slice's hosts.

    Args:
        hosts: the hosts that the scheduler knows, with their free resources and tasks.
    """
    views = {view.host.id: view for view in hosts}
    return Listing(
        Column("HOST", "id", shortens=True),
        Column(key="address"),
        Column("OFFERS", "resources", json=resources_json, wraps=True),
        Column(
            "FREE",
            value=lambda host: free_text(views[host.id]) if host.id in views else None,
            wraps=True,
        ),
        Column(
            "RUNNING",
            "running",
            lambda host: views[host.id].running if host.id in views else (),
            wraps=True,
        ),
    )


def _slice_steps(begin: datetime) -> Listing[SliceStep]:
    return Listing(
        Column("TIME (UTC)", "at", text=lambda time: f"{time:%Y-%m-%d %H:%M:%S}"),
        Column("AFTER", value=lambda step: f"+{format_duration(step.at - begin)}"),
        Column("STATE", "state"),
        Column("REASON", "reason", absent="", wraps=True),
    )


def slice_json(status: SliceStatus, hosts: Sequence[HostView]) -> dict[str, Any]:
    listing = _slice_hosts(hosts)
    facts = status.facts.model_dump(mode="json") if status.facts else {}
    return {
        **status.model_dump(mode="json", include={"id", "state", "reason"}),
        "group": facts.get("group"),
        "zone": facts.get("zone"),
        "made": bool(facts),
        "size": status.size,
        **{key: facts.get(key) for key in ("requested_at", "ready_at", "changed_at", "fault")},
        "hosts": [listing.json(host) for host in status.hosts],
        "refused": list(status.refused),
        "last_words": status.last_words.splitlines(),
        "steps": [step.model_dump(mode="json") for step in status.steps],
    }


def slice_text(status: SliceStatus, hosts: Sequence[HostView], now: datetime) -> str:
    """Formats a slice and its history, for people."""
    lines = [
        f"{status.id}  {coloured(status.state)}  {status.reason}".rstrip(),
        _history(status, now),
    ]
    if status.refused:
        lines.append(
            "stopped because their machines were not created for this slice:"
            f" {', '.join(status.refused)}"
        )
    missing = [host.id for host in status.hosts if all(view.host.id != host.id for view in hosts)]
    if missing and status.state is SliceState.READY:
        lines.append(
            f"not in the scheduler's ledger, so they get no work: {', '.join(missing)}; see: iris"
            " cluster status"
        )
    if status.hosts:
        lines += ["", _slice_hosts(hosts).table(status.hosts, now)]
    if status.steps:
        lines += ["", _slice_steps(status.steps[0].at).table(status.steps, now)]
    if status.last_words:
        lines += [
            "",
            "last console output:",
            *(f"  {line}" for line in status.last_words.splitlines()),
        ]
    return "\n".join(lines)


def _history(status: SliceStatus, now: datetime) -> str:
    facts, reported = status.facts, f"{len(status.hosts)} of {status.size} host(s) reported"
    if facts is None:
        return f"joined by itself, {reported}"
    ready = (
        f", ready after {format_duration(facts.ready_at - facts.requested_at)}"
        if facts.ready_at
        else ""
    )
    fault = f", {facts.fault}" if facts.fault else ""
    requested = f"requested {age(facts.requested_at, now)} ago"
    return (
        f"scale group {facts.group}, {facts.zone or 'no zone'}, {requested}{ready},"
        f" {reported}{fault}"
    )


# -- configurations
# --------------------------------------------------------------------------------------------------


def config_changes(before: ClusterConfig, after: ClusterConfig) -> list[str]:
    """Returns a line for each scale group that a new configuration adds, removes or changes."""
    old, new = (
        {group.name: group for group in scale_groups_of(config)} for config in (before, after)
    )
    lines = [
        f"+ {name}: {_limits(group)} of {group.hosts} host(s)"
        for name, group in new.items()
        if name not in old
    ]
    lines += [
        f"- {name}: its slices are deleted when they are idle" for name in old if name not in new
    ]
    for name in old:
        if name in new and (what := _differences(old[name], new[name])):
            lines.append(f"~ {name}: {', '.join(what)}")
    what = _changes(before.autoscaler, after.autoscaler, _AUTOSCALER)
    return [*lines, *([f"~ autoscaler: {', '.join(what)}"] if what else [])]


def _limits(group: ScaleGroup) -> str:
    return f"{group.min_slices} to {group.max_slices} slices"


def _differences(old: ScaleGroup, new: ScaleGroup) -> list[str]:
    own = [name for name in ScaleGroup.model_fields if name != "pace"]
    return _changes(old, new, own) + _changes(old.pace, new.pace, type(old.pace).model_fields)


def _changes(old: BaseModel, new: BaseModel, fields: Iterable[str]) -> list[str]:
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in fields]
    return [
        f"{name} {_shown(before)} → {_shown(after)}"
        for name, before, after in pairs
        if before != after
    ]


def _shown(value: Any) -> str:
    if hasattr(value, "total_seconds"):
        return format_duration(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value) if value != "" else "-"
