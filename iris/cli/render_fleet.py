"""Formats scale groups, slices and the autoscaler as tables for people and as JSON for programs.

The JSON's keys are a public contract.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from iris.cli.render import age, resources_json, table
from iris.client.operate.scaling import SliceRow
from iris.config import ClusterConfig, scale_groups_of
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import HostView
from iris.model.resources import format_amounts
from iris.model.scale_groups import ScaleGroup
from iris.model.scaling import Availability, GroupVerdict
from iris.model.slices import SliceState, SliceStatus
from iris.model.units import format_duration
from iris.workflows.web_ui import counts

#: Number of last actions shown to people. Programs get all that are kept.
LAST = 20
#: Shown for a group about which the autoscaler has reported nothing.
UNKNOWN = "-"

# -- the autoscaler ------------------------------------------------------------------------------------------------------------


def autoscaler_json(status: AutoscalerStatus) -> dict[str, Any]:
    fields = {"evaluated_at", "next_at", "paused", "closing", "unreachable"}
    waiting = [
        {"example": each.example.task, **each.model_dump(mode="json", include={"message", "since", "possible"})}
        for each in status.outlooks
    ]
    actions = [
        {"slice": each.slice_id, **each.model_dump(mode="json", include={"at", "group", "what", "reason"})}
        for each in status.actions
    ]
    return {
        **status.model_dump(mode="json", include=fields),
        "groups": [_verdict_json(each) for each in status.groups],
        "waiting": waiting,
        "actions": actions,
        "unowned": [each.slice_id for each in status.unowned],
    }


def _verdict_json(verdict: GroupVerdict) -> dict[str, Any]:
    fields = {"group", "availability", "why", "until", "demand", "target"}
    return {**verdict.model_dump(mode="json", include=fields), "slices": counts_json(verdict.counts)}


def counts_json(found: Mapping[SliceState, int]) -> dict[str, int]:
    """Returns the number of slices in each state, without states that no slice is in."""
    return {state.value: found[state] for state in SliceState if found.get(state)}


def autoscaler_text(status: AutoscalerStatus, now: datetime) -> str:
    """Formats what the autoscaler has, wants, waits for and did, for people."""
    lines = [_evaluated(status, now), *troubles(status)]
    if status.groups:
        cells = [
            (each.group, each.availability, counts(each), str(each.demand), str(each.target), _why(each, now))
            for each in status.groups
        ]
        lines += ["", table(("GROUP", "AVAILABILITY", "SLICES", "WANTED", "TARGET", "WHY"), cells)]
    if status.outlooks:
        rows = [(each.example.task, age(each.example.submitted_at, now), each.message) for each in status.outlooks]
        lines += ["", table(("WAITS", "FOR", "OUTLOOK"), rows)]
    if status.actions:
        acts = [
            (age(each.at, now), each.group or "-", each.what, each.slice_id or "-", each.reason)
            for each in reversed(status.actions[-LAST:])
        ]
        lines += ["", table(("AGO", "GROUP", "WHAT", "SLICE", "WHY"), acts)]
    return "\n".join(lines)


def _evaluated(status: AutoscalerStatus, now: datetime) -> str:
    if status.settings is None:
        return "the autoscaler only watches hosts: the cluster has no scale groups"
    if status.evaluated_at is None:
        return "the autoscaler has not evaluated yet"
    due = f"in {format_duration(status.next_at - now)} at the latest" if status.next_at and status.next_at > now else ""
    return f"evaluated {age(status.evaluated_at, now)} ago, again {due or 'when something changes'}"


def troubles(status: AutoscalerStatus) -> list[str]:
    """Returns what blocks the autoscaler as a whole, one line for each cause."""
    lines = [f"PAUSED    the autoscaler: {status.paused}"] if status.paused is not None else []
    lines += [f"CLOSING   all slices are given back: {status.closing}"] if status.closing is not None else []
    lines += [f"zone {zone} could not be listed: {why}" for zone, why in sorted(status.unreachable.items())]
    lines += [f"nobody looks after slice {each.slice_id} in {each.zone}" for each in status.unowned]
    return lines


def blocked(status: AutoscalerStatus) -> dict[str, str]:
    """Returns the groups that cannot grow for now (`QUOTA_EXCEEDED` or `BACKOFF`), and why."""
    able = (Availability.AVAILABLE, Availability.AT_MAX, Availability.COOLDOWN, Availability.REQUESTING)
    return {each.group: f"{each.availability}: {each.why}" for each in status.groups if each.availability not in able}


def slice_counts(status: AutoscalerStatus) -> dict[str, int]:
    """Counts all slices that were created, by state."""
    states = [each.state for each in status.slices]
    return counts_json({state: states.count(state) for state in states})


def slice_counts_text(status: AutoscalerStatus) -> str:
    """Returns `2 READY, 1 PROVISIONING`."""
    return ", ".join(f"{count} {state}" for state, count in slice_counts(status).items()) or "none"


def _why(verdict: GroupVerdict, now: datetime) -> str:
    if verdict.until is None or verdict.until <= now:
        return verdict.why
    return f"{verdict.why} (for {format_duration(verdict.until - now)} more)"


# -- scale groups --------------------------------------------------------------------------------------------------------------


def groups_json(status: AutoscalerStatus) -> list[dict[str, Any]]:
    return [_group_json(group, verdict) for group, verdict in _groups(status)]


def _group_json(group: ScaleGroup, verdict: GroupVerdict | None) -> dict[str, Any]:
    fields = {"name", "type", "hosts", "zones", "min_slices", "max_slices", "buffer_slices", "priority", "preemptible"}
    return {
        **group.model_dump(mode="json", include=fields),
        "accelerator": group.accelerator_variant or None,
        "resources": resources_json(group.resources),
        "slices": counts_json(verdict.counts) if verdict else {},
        "availability": verdict.availability.value if verdict else None,
        "why": verdict.why if verdict else "",
    }


def groups_table(status: AutoscalerStatus) -> str:
    cells = [
        (
            group.name,
            group.type,
            group.accelerator_variant or "-",
            str(group.hosts),
            str(_alive(verdict)) if verdict else UNKNOWN,
            str(group.min_slices),
            str(group.max_slices),
            str(group.priority),
            "yes" if group.preemptible else "no",
            verdict.availability if verdict else UNKNOWN,
            ", ".join(group.zones),
        )
        for group, verdict in _groups(status)
    ]
    if not cells:
        return "no scale groups"
    header = ("NAME", "TYPE", "ACCELERATOR", "HOSTS", "SLICES", "MIN", "MAX", "PRIORITY", "PREEMPTIBLE", "AVAILABILITY", "ZONES")
    return table(header, cells)


def _groups(status: AutoscalerStatus) -> Iterable[tuple[ScaleGroup, GroupVerdict | None]]:
    said = {each.group: each for each in status.groups}
    return ((group, said.get(group.name)) for group in (status.settings.groups if status.settings else ()))


def _alive(verdict: GroupVerdict) -> int:
    return sum(count for state, count in verdict.counts.items() if state not in (SliceState.FAILED, SliceState.DELETED))


# -- slices --------------------------------------------------------------------------------------------------------------------


def tasks_on(slice_id: str, hosts: Iterable[HostView]) -> list[str]:
    """Returns the tasks that run on the hosts of a slice."""
    return [task for view in hosts if view.host.slice_id == slice_id for task in view.running]


def slice_row_json(row: SliceRow, hosts: Sequence[HostView]) -> dict[str, Any]:
    return {
        "id": row.id,
        "state": row.state.value,
        "group": row.group or None,
        "zone": row.zone or None,
        "made": row.made,
        "hosts": [view.host.id for view in hosts if view.host.slice_id == row.id],
        "running": tasks_on(row.id, hosts),
        "requested_at": row.model_dump(mode="json")["requested_at"],
        "reason": row.reason,
    }


def slices_table(rows: Sequence[SliceRow], hosts: Sequence[HostView], now: datetime) -> str:
    if not rows:
        return "no slices"
    cells = [
        (
            row.id,
            row.state,
            row.group or "(joined)",
            row.zone or "-",
            str(sum(view.host.slice_id == row.id for view in hosts)),
            str(len(tasks_on(row.id, hosts))),
            age(row.requested_at, now),
            row.reason,
        )
        for row in rows
    ]
    return table(("ID", "STATE", "GROUP", "ZONE", "HOSTS", "RUNNING", "AGE", "REASON"), cells)


def slice_json(status: SliceStatus, hosts: Sequence[HostView]) -> dict[str, Any]:
    facts = status.facts
    times = facts.model_dump(mode="json", include={"requested_at", "ready_at", "changed_at", "fault"}) if facts else {}
    return {
        "id": status.id,
        "state": status.state.value,
        "reason": status.reason,
        "group": facts.group if facts else None,
        "zone": facts.zone if facts else None,
        "made": facts is not None,
        "size": status.size,
        "requested_at": times.get("requested_at"),
        "ready_at": times.get("ready_at"),
        "changed_at": times.get("changed_at"),
        "fault": times.get("fault"),
        "hosts": [
            {"id": host.id, "address": host.address, "resources": resources_json(host.resources), "running": _on(host.id, hosts)}
            for host in status.hosts
        ],
        "refused": list(status.refused),
        "last_words": status.last_words.splitlines(),
        "steps": [step.model_dump(mode="json") for step in status.steps],
    }


def slice_text(status: SliceStatus, hosts: Sequence[HostView], now: datetime) -> str:
    """Formats a slice and its history, for people."""
    lines = [f"{status.id}  {status.state}  {status.reason}".rstrip(), _story(status, now)]
    if status.refused:
        lines.append(f"told to stop, for they showed another slice's token: {', '.join(status.refused)}")
    if status.hosts:
        views = {view.host.id: view for view in hosts}
        rows = [
            (
                host.id,
                str(host.resources),
                format_amounts(views[host.id].free) if host.id in views else "-",
                ", ".join(_on(host.id, hosts)) or "-",
            )
            for host in status.hosts
        ]
        lines += ["", table(("HOST", "OFFERS", "FREE", "RUNNING"), rows)]
    if status.steps:
        begin = status.steps[0].at
        steps = [
            (f"{step.at:%Y-%m-%d %H:%M:%S}", f"+{format_duration(step.at - begin)}", step.state, step.reason)
            for step in status.steps
        ]
        lines += ["", table(("WHEN (UTC)", "AFTER", "STATE", "WHY"), steps)]
    if status.last_words:
        lines += ["", "its machines said last:", *(f"  {line}" for line in status.last_words.splitlines())]
    return "\n".join(lines)


def _story(status: SliceStatus, now: datetime) -> str:
    facts, reported = status.facts, f"{len(status.hosts)} of {status.size} host(s) reported"
    if facts is None:
        return f"joined by itself, {reported}"
    ready = f", ready after {format_duration(facts.ready_at - facts.requested_at)}" if facts.ready_at else ""
    fault = f", {facts.fault}" if facts.fault else ""
    asked = f"asked for {age(facts.requested_at, now)} ago"
    return f"scale group {facts.group}, {facts.zone or 'no zone'}, {asked}{ready}, {reported}{fault}"


def _on(host_id: str, hosts: Iterable[HostView]) -> list[str]:
    return [task for view in hosts if view.host.id == host_id for task in view.running]


# -- configurations ------------------------------------------------------------------------------------------------------------


def config_changes(before: ClusterConfig, after: ClusterConfig) -> list[str]:
    """Returns what another configuration changes: one line for each group that is added, removed or changed."""
    old, new = ({group.name: group for group in scale_groups_of(config)} for config in (before, after))
    lines = [f"+ {name}: {_limits(group)} of {group.hosts} host(s)" for name, group in new.items() if name not in old]
    lines += [f"- {name}: its slices are given back when they are idle" for name in old if name not in new]
    for name in old:
        if name in new and (what := _differences(old[name], new[name])):
            lines.append(f"~ {name}: {', '.join(what)}")
    paces = [(each, getattr(before.autoscaler, each), getattr(after.autoscaler, each)) for each in _AUTOSCALER]
    what = [f"{each} {_shown(was)} → {_shown(becomes)}" for each, was, becomes in paces if was != becomes]
    return [*lines, *([f"~ autoscaler: {', '.join(what)}"] if what else [])]


_AUTOSCALER = ("evaluation_interval", "observe_interval")


def _limits(group: ScaleGroup) -> str:
    return f"{group.min_slices} to {group.max_slices} slices"


def _differences(old: ScaleGroup, new: ScaleGroup) -> list[str]:
    fields = [name for name in ScaleGroup.model_fields if name != "pace" and getattr(old, name) != getattr(new, name)]
    what = [f"{name} {_shown(getattr(old, name))} → {_shown(getattr(new, name))}" for name in fields]
    pace = [name for name in type(old.pace).model_fields if getattr(old.pace, name) != getattr(new.pace, name)]
    return what + [f"{name} {_shown(getattr(old.pace, name))} → {_shown(getattr(new.pace, name))}" for name in pace]


def _shown(value: Any) -> str:
    if hasattr(value, "total_seconds"):
        return format_duration(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value) if value != "" else "-"
