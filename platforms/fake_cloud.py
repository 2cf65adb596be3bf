"""A cloud in memory, in whatever time its clock tells: how much it has, how slow it is, how it misbehaves, and what it has done.

Nothing happens in it by itself. A machine's state follows from when it was asked for, what has been done to it, and the time at
which somebody looks; so a test may go on by days at once.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from iris.machines import ANYWHERE, MachineState, SliceRequest
from iris.platforms.base import PlatformError, QuotaExceeded, RateLimited, StockOut, Unavailable
from iris.platforms.fake_machines import Event, Happening, Machines, Shortage, kind_of
from iris.scale_groups import region_of

T = TypeVar("T")
Clock = Callable[[], Awaitable[datetime]]

NO_TIME = timedelta(0)
#: Until a thing that never happens; timedelta.max would overflow.
FOR_EVER = timedelta(days=36_500)
MINUTE = timedelta(minutes=1)

#: States in which machines run, or are on their way.
LIVING = frozenset({MachineState.CREATING, MachineState.ACTIVE, MachineState.REPAIRING})


class SettableClock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    async def __call__(self) -> datetime:
        return self.now

    def pass_by(self, time: timedelta) -> None:
        """So much time passes."""
        self.now += time


class Verb(StrEnum):
    """The calls of a platform."""

    CREATE = "create_slice"
    DESCRIBE = "describe_slice"
    DELETE = "delete_slice"
    LIST = "list_slices"


class FakeCloud:
    """Everything that the cloud is, for all clusters in it. The public attributes are knobs: turn them whenever you like.

    Where a table is keyed by name, a name is a slice's id, a group or a zone, and the first of these that is in it counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: From the yes to a create until the machines exist, and the exceptions by name.
        self.boot_delay = NO_TIME
        self.boot_delays: dict[str, timedelta] = {}
        #: From the yes to a delete until nothing is left, and the exceptions by name.
        self.delete_delay = NO_TIME
        self.delete_delays: dict[str, timedelta] = {}
        #: By name: only so many of a slice's machines come up.
        self.partial: dict[str, int] = {}
        #: By name: what a slice's machines have said last.
        self.said: dict[str, str] = {}
        #: Slices that a zone can hold, by zone and kind (see `kind_of`); what is not in it is without end.
        self.capacity: dict[tuple[str, str], int] = {}
        #: Slices that the project may have, by region or by group. What is preempted or broken counts until it is deleted.
        self.quota: dict[str, int] = {}
        self.shortages: list[Shortage] = []
        #: Calls of all clusters in any minute; None: as many as they like.
        self.calls_per_minute: int | None = None
        #: Zones that do not answer, and why.
        self.unreachable: dict[str, str] = {}
        #: A new slice is not listed for so long.
        self.list_lag = NO_TIME

        #: What it has, by slice.
        self.machines: dict[str, Machines] = {}
        self.audit: list[Event] = []
        #: The most slices of a group that ran or were on their way at any one time.
        self.most_alive: Counter[str] = Counter()
        self._calls: deque[datetime] = deque()
        self._failures: dict[Verb, deque[PlatformError]] = {verb: deque() for verb in Verb}
        self._lost_replies: Counter[Verb] = Counter()

    # What tests do to it. Nothing happens to a slice of which nothing is left.

    def fail_next(self, verb: Verb, error: PlatformError, times: int = 1) -> None:
        """The next so many calls of the verb do nothing but raise this."""
        self._failures[verb].extend([error] * times)

    def lose_next_reply(self, verb: Verb, times: int = 1) -> None:
        """The next so many calls of the verb do what they should, and then raise Unavailable."""
        self._lost_replies[verb] += times

    async def plant(self, request: SliceRequest, *, manual: bool = False) -> None:
        """Machines that were there already: another cluster's, nobody's (the cluster's name is empty), or somebody's own."""
        self._put(request, await self._clock(), Happening.PLANTED).manual = manual

    def mark_manual(self, slice_id: str) -> None:
        """People say that it is theirs."""
        self.machines[slice_id].manual = True

    def repair(self, slice_id: str, *, begins: bool = True) -> None:
        """Maintenance of its machines begins or is over."""
        machines = self.machines[slice_id]
        machines.in_repair, machines.reason = begins, "UNHEALTHY_MAINTENANCE" if begins else ""

    async def preempt(self, *slice_ids: str) -> None:
        """Take them back. They are listed, and count against quotas, until they are deleted."""
        await self._end(slice_ids, MachineState.PREEMPTED, Happening.PREEMPTED, "Instance was preempted.")

    async def break_(self, *slice_ids: str, reason: str = "terminated by maintenance") -> None:
        """They stop for good; also how a create fails that was agreed to at first."""
        await self._end(slice_ids, MachineState.FAILED, Happening.BROKEN, reason)

    async def vanish(self, *slice_ids: str) -> None:
        """They are gone without a word."""
        now = await self._settle()
        for slice_id in [each for each in slice_ids if each in self.machines]:
            self._log(now, Happening.VANISHED, self.machines.pop(slice_id).request)

    # What tests ask.

    @property
    def created(self) -> list[str]:
        """Slices that calls have created, in order."""
        return self._to_whom(Happening.CREATED)

    @property
    def deleted(self) -> list[str]:
        """Slices that calls have deleted and of which nothing is left."""
        return self._to_whom(Happening.DELETED)

    @property
    def alive(self) -> list[str]:
        """Slices of which anything is left as of the last call, whatever its state."""
        return list(self.machines)

    def up(self, now: datetime) -> list[tuple[SliceRequest, int]]:
        """The machines that run, by request and worker id: where an agent would be."""
        return [
            (machines.request, worker)
            for machines in self.machines.values()
            if machines.state(now) in (MachineState.ACTIVE, MachineState.REPAIRING)
            for worker in range(machines.hosts)
        ]

    def check(self) -> None:
        """Nothing was lost count of: what was made is deleted, vanished or still there.

        Raises:
            AssertionError: the books do not balance.
        """
        made = Counter(self.created + self._to_whom(Happening.PLANTED))
        ended = Counter(self.deleted + self._to_whom(Happening.VANISHED))
        assert made == ended + Counter(self.alive), f"made {made}, but ended {ended} and alive {self.alive}"

    # What accounts do.

    async def admit(self, verb: Verb, zone: str = "") -> datetime:
        """The time at which the call is carried out.

        Raises:
            PlatformError: it is not.
        """
        now = await self._settle()
        while self._calls and self._calls[0] <= now - MINUTE:
            self._calls.popleft()
        if self.calls_per_minute is not None and len(self._calls) >= self.calls_per_minute:
            raise RateLimited(f"Quota exceeded for requests per minute: limit {self.calls_per_minute}")
        self._calls.append(now)
        if zone in self.unreachable:
            raise Unavailable(f"zone {zone}: {self.unreachable[zone]}")
        if self._failures[verb]:
            raise self._failures[verb].popleft()
        return now

    def reply(self, verb: Verb) -> None:
        """The answer leaves for the caller.

        Raises:
            Unavailable: and is lost on the way.
        """
        if self._lost_replies[verb]:
            self._lost_replies[verb] -= 1
            raise Unavailable("the connection was closed before a reply came")

    def make(self, request: SliceRequest, now: datetime) -> Machines:
        """Machines for the slice.

        Raises:
            StockOut, QuotaExceeded: there are none to be had.
        """
        group, zone, kind = request.group, request.zone, kind_of(request)
        for scope in (region_of(zone), group.name):
            held = sum(scope in (region_of(each.request.zone), each.request.group.name) for each in self.machines.values())
            if held >= self.quota.get(scope, held + 1):
                words = f"Quota '{kind}' exhausted. Limit {self.quota[scope]} in {scope}"
                raise QuotaExceeded(words, scope if scope == region_of(zone) else ANYWHERE)
        short = any(each.zone == zone and each.kind in ("", kind) and each.since <= now < each.until for each in self.shortages)
        taken = sum(
            (each.request.zone, kind_of(each.request)) == (zone, kind) and each.end is not MachineState.PREEMPTED
            for each in self.machines.values()
        )
        if short or taken >= self.capacity.get((zone, kind), taken + 1):
            raise StockOut(f'There is no more capacity in the zone "{zone}"; you can try in another zone')
        return self._put(request, now, Happening.CREATED)

    def said_by(self, request: SliceRequest) -> str:
        """What its machines have said last."""
        return _of(request, self.said, "")

    def remove(self, machines: Machines, now: datetime) -> bool:
        """Begin to take the machines away, if that has not begun; whether nothing is left of them."""
        if machines.gone_at is None:
            self._log(now, Happening.DELETING, machines.request)
            machines.gone_at = now + _of(machines.request, self.delete_delays, self.delete_delay)
        self._sweep(now)
        return self.machines.get(machines.request.slice_id) is not machines

    async def note_refusal(self, request: SliceRequest, error: PlatformError) -> None:
        """A create came to nothing."""
        self._log(await self._clock(), Happening.NOT_CREATED, request, f"{type(error).__name__}: {error}")

    def _put(self, request: SliceRequest, now: datetime, how: Happening) -> Machines:
        machines = Machines(
            request=request,
            created_at=now,
            active_at=now + _of(request, self.boot_delays, self.boot_delay),
            listed_at=now + self.list_lag,
            hosts=min(request.group.hosts, _of(request, self.partial, request.group.hosts)),
        )
        self.machines[request.slice_id] = machines
        self._log(now, how, request)
        group = request.group.name
        living = sum(each.state(now) in LIVING and each.request.group.name == group for each in self.machines.values())
        self.most_alive[group] = max(self.most_alive[group], living)
        return machines

    async def _end(self, slice_ids: tuple[str, ...], state: MachineState, what: Happening, reason: str) -> None:
        now = await self._settle()
        for machines in (self.machines[each] for each in slice_ids if each in self.machines):
            machines.end, machines.reason = state, reason
            self._log(now, what, machines.request, reason)

    async def _settle(self) -> datetime:
        now = await self._clock()
        self._sweep(now)
        return now

    def _sweep(self, now: datetime) -> None:
        due = [
            (each.gone_at, each.request) for each in self.machines.values() if each.gone_at is not None and each.gone_at <= now
        ]
        for gone_at, request in due:
            del self.machines[request.slice_id]
            self._log(gone_at, Happening.DELETED, request)

    def _log(self, at: datetime, what: Happening, request: SliceRequest, reason: str = "") -> None:
        event = Event(at=at, what=what, slice_id=request.slice_id, group=request.group.name, zone=request.zone, reason=reason)
        self.audit.append(event)

    def _to_whom(self, what: Happening) -> list[str]:
        return [event.slice_id for event in self.audit if event.what is what]


def _of(request: SliceRequest, by_name: dict[str, T], otherwise: T) -> T:
    for name in (request.slice_id, request.group.name, request.zone):
        if name in by_name:
            return by_name[name]
    return otherwise
