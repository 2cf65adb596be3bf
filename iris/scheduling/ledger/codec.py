"""Packs hosts and placements into few bytes, because the scheduler's ledger must fit into one
payload of 2 MiB.

Hosts and placements become rows. Values that many rows share (resources, constraints, attributes …)
are written once, and rows refer to them by number. Values that follow from a key (its task, that
task's workflow) are not written at all. `iris.scheduling.placement.queue` packs the requests.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from iris.model.host.constraints import TPU_NAME, TPU_WORKER_ID
from iris.model.host.hosts import Closure, Host
from iris.model.job.requests import EPOCH, MICROSECOND, NO_CLAIM, Names, Placement, Seat
from iris.model.quotas import QuotaRules
from iris.model.rules import Contact, Rules
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Outlook
from iris.scheduling.ledger.ended_uses import EndedUsesState
from iris.scheduling.placement.recent_use import RecentUseState

Table = dict[str, Any]

#: The attributes that are different for each host. They are stored in the host's own row, not in
#: the part that rows share.
_OWN = (TPU_NAME, TPU_WORKER_ID)


class LedgerState(BaseModel):
    """The ledger's state, as one run of the scheduler passes it to the next."""

    #: The hosts, placements and requests in packed form; None in the empty ledger of a new
    #: scheduler.
    tables: dict[str, Any] | None = None
    forgotten: list[str] = Field(default_factory=list)
    #: The (host, incarnation) of each incarnation that has ended.
    ended: list[tuple[str, str]] = Field(default_factory=list)
    closed: dict[str, Closure] = Field(default_factory=dict)
    strikes: dict[str, int] = Field(default_factory=dict)
    #: When each host got its last strike (an attempt that the host spoilt).
    struck_at: dict[str, datetime] = Field(default_factory=dict)
    #: When a user last changed each request, by its key. An older change that arrives later is
    #: ignored.
    amended: dict[str, datetime] = Field(default_factory=dict)
    #: Why the cluster is paused; None when it is not.
    paused: str | None = None
    paused_groups: dict[str, str] = Field(default_factory=dict)
    #: The keys of placements that are being evicted.
    evicting: list[str] = Field(default_factory=list)
    rules: Rules = Rules()
    quotas: QuotaRules = QuotaRules()
    #: When a task last ran on each slice.
    used_at: dict[str, datetime] = Field(default_factory=dict)
    #: What each user has used recently: the weight of the user's placements times how long they
    #: held their hosts, where older use counts less.
    recent_use: RecentUseState = Field(default_factory=RecentUseState)
    #: The records of what ended attempts and slices have used. They leave the ledger when the
    #: control plane has written them to the cluster's store.
    ended_uses: EndedUsesState = Field(default_factory=EndedUsesState)
    #: The scale groups of the cluster.
    groups: list[ScaleGroup] = Field(default_factory=list)
    #: The autoscaler's latest `Outlook` record for each shape of waiting gangs: the slice that they
    #: can expect.
    outlooks: list[Outlook] = Field(default_factory=list)


class _Shared:
    """The values that several rows of a table have in common. Each value is stored once, and the
    rows contain its number.
    """

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, write: Callable[[], dict[str, Any]]) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.written)
            self.written.append(write())
        return self._numbers[key]


# Hosts.


def pack_hosts(hosts: Iterable[Host]) -> Table:
    """Returns rows of (shared part, id, slice, incarnation, address, values of `_OWN`), and the
    faults of the few hosts that have one.
    """
    shared, rows, faults = _Shared(), [], {}
    for host in hosts:
        own = [host.attributes.get(name) for name in _OWN]
        if host.fault:
            faults[host.id] = host.fault
        common = {name: value for name, value in host.attributes.items() if name not in _OWN}

        def write(host: Host = host, common: Mapping[str, Any] = common) -> dict[str, Any]:
            return {
                **host.model_dump(mode="json", include={"resources", "accept_cpu_jobs"}),
                "attributes": common,
            }

        resources, typed = (
            host.resources,
            tuple((name, type(value), value) for name, value in common.items()),
        )
        alike = (resources.kind, resources.vector, host.accept_cpu_jobs, typed)
        rows.append(
            (
                shared.number(alike, write),
                host.id,
                host.slice_id,
                host.incarnation,
                host.address,
                own,
            )
        )
    return {"shared": shared.written, "rows": rows, **({"faults": faults} if faults else {})}


def unpack_hosts(table: Table) -> list[Host]:
    templates = [
        Host.model_validate({"id": "", "slice_id": "", "incarnation": "", **each})
        for each in table["shared"]
    ]
    faults: Mapping[str, str] = table.get("faults", {})
    hosts = []
    for number, host_id, slice_id, incarnation, address, own in table["rows"]:
        template = templates[number]
        attributes = {
            **template.attributes,
            **{name: value for name, value in zip(_OWN, own, strict=True) if value is not None},
        }
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
                fault=faults.get(host_id, ""),
            )
        )
    return hosts


# Placements.


def pack_placements(placements: Iterable[Placement], hosts: Iterable[Host]) -> Table:
    """Returns rows of (shared part, key, microseconds since the row before, coordinator, seats).

    A seat is a host's number, or is written in full if that host is no longer there.
    """
    numbers = {
        (host.id, host.slice_id, host.incarnation): number for number, host in enumerate(hosts)
    }
    shared, rows, before = _Shared(), [], 0
    for placement in placements:
        at = (placement.placed_at - EPOCH) // MICROSECOND if placement.placed_at else 0
        names = Names.of(placement)

        def write(placement: Placement = placement, names: Names = names) -> dict[str, Any]:
            alike = {
                "user",
                "resources",
                "band",
                *(["tasks_per_host"] if placement.tasks_per_host > 1 else []),
                *(["claim"] if placement.claim != NO_CLAIM else []),
            }
            return {"names": names, **placement.model_dump(mode="json", include=alike)}

        resources, each, claim = placement.resources, placement.tasks_per_host, placement.claim
        same = (placement.user, placement.band, claim, each, names)
        alike = (resources.kind, resources.vector, *same)
        incarnations = [
            ((seat.host_id, seat.slice_id, seat.incarnation), seat.group)
            for seat in placement.seats
        ]
        seats = [[numbers.get(each, each), group] for each, group in incarnations]
        rows.append(
            (shared.number(alike, write), placement.key, at - before, placement.coordinator, seats)
        )
        before = at
    return {"shared": shared.written, "rows": rows}


def unpack_placements(table: Table, hosts: list[Host], contact: Contact) -> list[Placement]:
    """Returns the packed placements.

    Args:
        contact: the contact of all of them. Only an owner that has not received its placement yet
            reads it.
    """
    templates = [
        Placement.model_validate({"key": "", "task": "", "owner": "", "seats": (), **each})
        for each in table["shared"]
    ]
    names = [Names(*each["names"]) for each in table["shared"]]
    placements, at = [], 0
    for number, key, delta, coordinator, seats in table["rows"]:
        at += delta
        template = templates[number]
        task, owner = names[number].follow(key)
        # Packed values were valid. Validating every row again would take longer than the limit of a
        # workflow task.
        placements.append(
            Placement.model_construct(
                None,
                key=key,
                task=task,
                owner=owner,
                user=template.user,
                resources=template.resources,
                band=template.band,
                claim=template.claim,
                seats=tuple(_seat(where, group, hosts) for where, group in seats),
                tasks_per_host=template.tasks_per_host,
                coordinator=coordinator,
                placed_at=EPOCH + at * MICROSECOND if at else None,
                contact=contact,
            )
        )
    return placements


def _seat(where: int | list[str], group: int, hosts: list[Host]) -> Seat:
    if isinstance(where, int):
        host = hosts[where]
        where = [host.id, host.slice_id, host.incarnation]
    return Seat(where[0], where[1], where[2], group)
