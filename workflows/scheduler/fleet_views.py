"""Builds the scheduler's answers about the whole queue and the whole fleet from its ledger."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from iris.messages.fleet_views import (
    Amounts,
    GroupHoldings,
    Holdings,
    QueuedGang,
    QueuePage,
    QueueView,
    UserHoldings,
    WaitingUser,
)
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.resources import Resources
from iris.model.job.demand_limits import fitting, size_of
from iris.model.job.requests import Request
from iris.model.job.spec import Band
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.lines import Line, line_of
from iris.scheduling.placement.refusals import Refusal

#: The maximum number of users in an answer about the resources that users hold, and the maximum
#: number of users of one band on a page of the queue.
MOST_USERS = 100
MOST_USERS_OF_BAND = 10
#: The maximum number of idle slices in one answer about resources.
MOST_IDLE = 1_000
#: The maximum number of bytes of all reasons on one page of the queue. The rest of the page is for
#: the gangs.
REASONS_BYTES = 128 * 1024


def queue_of(ledger: Ledger, page: QueuePage, now: datetime, instead: Refusal | None) -> QueueView:
    """Returns a page of the queue.

    Args:
        instead: the reason of all gangs while the ledger is not complete; None if it is.
    """
    reasons = ledger.wait_reasons(now)
    waiting = {band: sum(count for count, _ in ledger.waiting.sums(band).values()) for band in Band}
    if page.held:
        shown = ledger.held.oldest(page.offset, page.limit)
        total = len(ledger.held)
    else:
        shown = reasons.in_order(page.offset, page.limit, page.band)
        total = waiting[page.band] if page.band is not None else len(ledger.waiting)
    shapes = dict.fromkeys(request.shape for request in shown)
    by_shape = (
        {}
        if page.held
        else dict.fromkeys(shapes, instead)
        if instead is not None
        else reasons.by_shape(shapes)
    )
    why = {
        line_of(request): instead or reasons.of_line(request, by_shape[request.shape])
        for request in {line_of(request): request for request in shown}.values()
        if request.shape in by_shape
    }
    known, places = _numbered(why)
    return QueueView(
        gangs=tuple(
            fitting(
                (
                    (gang := _gang(request, places.get(line_of(request))), size_of(gang))
                    for request in shown
                ),
                page.limit,
            )
        ),
        reasons=tuple(known),
        total=total,
        waiting={band: count for band, count in waiting.items() if count},
        held=len(ledger.held),
        users=()
        if page.held
        else tuple(
            WaitingUser(
                user=turn.user, band=band, gangs=turn.waiting, held=turn.held, recent=turn.recent
            )
            for band in Band
            if page.band in (None, band)
            for turn in reasons.turns_of_users(band)[:MOST_USERS_OF_BAND]
        ),
    )


def _gang(request: Request, reason: int | None) -> QueuedGang:
    return QueuedGang(
        task=request.task,
        user=request.user,
        band=request.band,
        submitted_at=request.submitted_at,
        resources=request.resources,
        hosts=request.tasks,
        reason=reason,
    )


def _numbered(why: dict[Line, Refusal]) -> tuple[Sequence[Refusal], dict[Line, int]]:
    """Returns the different reasons that fit in an answer, and the place of each line's reason."""
    different: dict[str, Refusal] = {}
    texts = {line: refusal.model_dump_json() for line, refusal in why.items()}
    for line, refusal in why.items():
        different.setdefault(texts[line], refusal)
    sizes = ((text, len(text.encode())) for text in different)
    kept = fitting(sizes, len(different), REASONS_BYTES) if different else []
    places = {text: place for place, text in enumerate(kept)}
    return (
        [different[text] for text in kept],
        {line: places[text] for line, text in texts.items() if text in places},
    )


class _Sum:
    """Sums of accelerators, millicores and bytes of memory."""

    def __init__(self) -> None:
        self.devices = self.cpu = self.memory = 0

    def add(self, resources: Resources) -> None:
        devices, cpu, memory, _ = resources.vector
        self.devices += devices
        self.cpu += cpu
        self.memory += memory

    def add_rest(self, offers: Resources, used: "_Sum") -> None:
        """Adds what is left of the offers. A host that shrank may have less than nothing left."""
        devices, cpu, memory, _ = offers.vector
        self.devices += max(0, devices - used.devices)
        self.cpu += max(0, cpu - used.cpu)
        self.memory += max(0, memory - used.memory)

    @property
    def amounts(self) -> Amounts:
        return Amounts(devices=self.devices, cpu_millis=self.cpu, memory_bytes=self.memory)


class _Group:
    """Sums over the hosts of one scale group."""

    def __init__(self) -> None:
        self.hosts = self.busy = self.closed = 0
        self.offers, self.used, self.closed_off = _Sum(), _Sum(), _Sum()


class _User:
    """Sums over the gangs of one user that hold hosts: the number of the gangs, their weight, and
    the resources that they hold.
    """

    def __init__(self) -> None:
        self.gangs = self.weight = 0
        self.devices: Counter[str] = Counter()
        self.held = _Sum()


def holdings_of(ledger: Ledger) -> Holdings:
    """Returns what the hosts offer and what runs on them."""
    used, users = _held(ledger)
    first = sorted(users, key=lambda user: (-users[user].weight, user))[:MOST_USERS]
    idle = ((slice_id, since) for slice_id, since in ledger.idle().items() if since is not None)
    return Holdings(
        groups=_groups(ledger, used),
        users=tuple(
            UserHoldings(
                user=user,
                gangs=users[user].gangs,
                devices=dict(users[user].devices),
                cpu_millis=users[user].held.cpu,
                memory_bytes=users[user].held.memory,
            )
            for user in first
        ),
        total_users=len(users),
        idle=dict(islice(idle, MOST_IDLE)),
    )


def _held(ledger: Ledger) -> tuple[dict[str, _Sum], dict[str, _User]]:
    """Returns what is used on each host, and what each user holds. Seats on incarnations that have
    ended do not count.
    """
    used: dict[str, _Sum] = {}
    users: dict[str, _User] = {}
    for placement in ledger.live.values():
        user = users.setdefault(placement.user, _User())
        user.gangs += 1
        user.weight += placement.weight
        for seat in placement.seats:
            host = ledger.hosts.get(seat.host_id)
            if host is None or host.incarnation != seat.incarnation:
                continue
            used.setdefault(host.id, _Sum()).add(placement.resources)
            user.held.add(placement.resources)
            if count := placement.resources.device_count:
                user.devices[_device(host.resources)] += count
    return used, users


def _groups(ledger: Ledger, used: dict[str, _Sum]) -> tuple[GroupHoldings, ...]:
    sums: dict[tuple[str, str], _Group] = {}
    for host in ledger.hosts.values():
        key = str(host.attributes.get(SCALE_GROUP, "")), _device(host.resources)
        group, here = sums.setdefault(key, _Group()), used.get(host.id, _Sum())
        is_closed = ledger.host_index.closed(host) is not None
        group.hosts += 1
        group.busy += host.id in used
        group.closed += is_closed and host.id not in used
        group.offers.add(host.resources)
        group.used.devices += here.devices
        group.used.cpu += here.cpu
        group.used.memory += here.memory
        if is_closed:
            group.closed_off.add_rest(host.resources, here)
    return tuple(
        GroupHoldings(
            group=group,
            device=device,
            hosts=sums[group, device].hosts,
            busy=sums[group, device].busy,
            closed=sums[group, device].closed,
            offers=sums[group, device].offers.amounts,
            used=sums[group, device].used.amounts,
            closed_off=sums[group, device].closed_off.amounts,
        )
        for group, device in sorted(sums)
    )


def _device(resources: Resources) -> str:
    return ":".join(resources.kind) if resources.kind is not None else ""
