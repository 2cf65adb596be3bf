"""Hosts and placements in few bytes: the scheduler's book has to fit into one payload of 2 MiB. (Requests: `iris.waiting`.)

They become rows. What many rows share (resources, constraints, attributes …) is written once and
referred to by number; what follows from a key (its task, that task's workflow) is not written at all.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from iris.constraints import TPU_NAME, TPU_WORKER_ID
from iris.gangs import EPOCH, MICROSECOND, Names, Placement, Request, Seat
from iris.hosts import Closure, Host
from iris.placement import Rules
from iris.scale_groups import ScaleGroup
from iris.scale_plan import Outlook

Table = dict[str, Any]

#: Attributes that differ from host to host.
_OWN = (TPU_NAME, TPU_WORKER_ID)


class LedgerState(BaseModel):
    """Everything in the book, as it travels from one run of the scheduler to the next."""

    #: Hosts, placements and requests, compactly; None in what version 0.1 wrote, which has the lists below.
    tables: dict[str, Any] | None = None
    hosts: list[Host] = Field(default_factory=list)
    live: list[Placement] = Field(default_factory=list)
    queue: list[Request] = Field(default_factory=list)
    forgotten: list[str] = Field(default_factory=list)
    #: (host, incarnation) of lives that are over.
    ended: list[tuple[str, str]] = Field(default_factory=list)
    closed: dict[str, Closure] = Field(default_factory=dict)
    strikes: dict[str, int] = Field(default_factory=dict)
    #: When the requests with these keys were last changed.
    amended: dict[str, datetime] = Field(default_factory=dict)
    #: Why the cluster takes nothing new; None when it does.
    paused: str | None = None
    paused_groups: dict[str, str] = Field(default_factory=dict)
    #: The placements that have been told to go.
    evicting: list[str] = Field(default_factory=list)
    rules: Rules = Rules()
    #: When something last ran on each slice.
    used_at: dict[str, datetime] = Field(default_factory=dict)
    #: The kinds of slice that can be made, and what those who wait may hope for.
    groups: list[ScaleGroup] = Field(default_factory=list)
    outlooks: list[Outlook] = Field(default_factory=list)


class _Shared:
    """What rows have in common, each once."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, write: Callable[[], dict[str, Any]]) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.written)
            self.written.append(write())
        return self._numbers[key]


# -- hosts ---------------------------------------------------------------------------------------------------------------------


def pack_hosts(hosts: Iterable[Host]) -> Table:
    """Rows of (shared part, id, slice, incarnation, address, the attributes that are its own)."""
    shared, rows = _Shared(), []
    for host in hosts:
        own = [host.attributes.get(name) for name in _OWN]
        common = {name: value for name, value in host.attributes.items() if name not in _OWN}

        def write(host: Host = host, common: Mapping[str, Any] = common) -> dict[str, Any]:
            return {**host.model_dump(mode="json", include={"resources", "accept_cpu_jobs"}), "attributes": common}

        resources, typed = host.resources, tuple((name, type(value), value) for name, value in common.items())
        alike = (resources.kind, resources.vector, host.accept_cpu_jobs, typed)
        rows.append((shared.number(alike, write), host.id, host.slice_id, host.incarnation, host.address, own))
    return {"shared": shared.written, "rows": rows}


def unpack_hosts(table: Table) -> list[Host]:
    templates = [Host.model_validate({"id": "", "slice_id": "", "incarnation": "", **each}) for each in table["shared"]]
    hosts = []
    for number, host_id, slice_id, incarnation, address, own in table["rows"]:
        template = templates[number]
        attributes = {**template.attributes, **{name: value for name, value in zip(_OWN, own, strict=True) if value is not None}}
        hosts.append(
            Host.model_construct(
                None,
                id=host_id,
                slice_id=slice_id,
                incarnation=incarnation,
                address=address,
                resources=template.resources,
                attributes=attributes,
                accept_cpu_jobs=template.accept_cpu_jobs,
            )
        )
    return hosts


# -- placements ----------------------------------------------------------------------------------------------------------------


def dated(placement: Placement) -> Placement:
    """Version 0.1 did not write down when gangs were placed: long enough ago for any rule."""
    return placement if placement.placed_at else placement.model_copy(update={"placed_at": EPOCH + MICROSECOND})


def pack_placements(placements: Iterable[Placement], hosts: Iterable[Host]) -> Table:
    """Rows of (shared part, key, microseconds since the row before, coordinator, seats); a seat is a host's number, or spelled
    out where that host is not there any more."""
    numbers = {(host.id, host.slice_id, host.incarnation): number for number, host in enumerate(hosts)}
    shared, rows, before = _Shared(), [], 0
    for placement in placements:
        at = (placement.placed_at - EPOCH) // MICROSECOND if placement.placed_at else 0
        names = Names.of(placement)

        def write(placement: Placement = placement, names: Names = names) -> dict[str, Any]:
            return {"names": names, **placement.model_dump(mode="json", include={"user", "resources", "band"})}

        alike = (placement.resources.kind, placement.resources.vector, placement.user, placement.band, names)
        lives = [((seat.host_id, seat.slice_id, seat.incarnation), seat.group) for seat in placement.seats]
        seats = [[numbers.get(life, life), group] for life, group in lives]
        rows.append((shared.number(alike, write), placement.key, at - before, placement.coordinator, seats))
        before = at
    return {"shared": shared.written, "rows": rows}


def unpack_placements(table: Table, hosts: list[Host]) -> list[Placement]:
    templates = [Placement.model_validate({"key": "", "task": "", "owner": "", "seats": (), **each}) for each in table["shared"]]
    names = [Names(*each["names"]) for each in table["shared"]]
    placements, at = [], 0
    for number, key, delta, coordinator, seats in table["rows"]:
        at += delta
        template = templates[number]
        task, owner = names[number].follow(key)
        # What was packed was valid; checking every row again would take longer than a workflow task may.
        placements.append(
            Placement.model_construct(
                None,
                key=key,
                task=task,
                owner=owner,
                user=template.user,
                resources=template.resources,
                band=template.band,
                seats=tuple(_seat(where, group, hosts) for where, group in seats),
                coordinator=coordinator,
                placed_at=EPOCH + at * MICROSECOND if at else None,
            )
        )
    return placements


def _seat(where: int | list[str], group: int, hosts: list[Host]) -> Seat:
    if isinstance(where, int):
        host = hosts[where]
        where = [host.id, host.slice_id, host.incarnation]
    return Seat(where[0], where[1], where[2], group)
