"""Formats slices for people and for programs.

The keys of the JSON are a public contract (tests/cli).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from iris.cli.show.columns import Column, age, several
from iris.cli.show.listing import Listing, headline
from iris.cli.show.resources import free_text, resources_json
from iris.client.fleet.slices import SliceRow
from iris.messages.scheduler import HostView
from iris.model.host.hosts import Host
from iris.model.slice.status import SliceState, SliceStatus, SliceStep
from iris.model.units import format_duration


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
        headline(status.id, status.state, status.reason),
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
