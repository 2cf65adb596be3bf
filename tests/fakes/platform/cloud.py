"""Simulates a cloud in memory: its capacity, delays and failures, and an audit log.

Nothing runs in the background. A machine's state follows from its creation time, from what the test
did to it, and from the time that the clock returns. A test can therefore advance the clock by days
in one step.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from iris.model.slice.provisioning import ANYWHERE, MachineState, SliceRequest
from iris.model.slice.scale_groups import region_of
from iris.platforms.base import PlatformError, QuotaExceeded, RateLimited, StockOut, Unavailable
from tests.fakes.platform.machines import AuditEvent, EventKind, FakeMachines, Shortage, kind_of

T = TypeVar("T")
Clock = Callable[[], Awaitable[datetime]]

ZERO = timedelta(0)
#: A delay that never ends. `timedelta.max` would overflow.
FOREVER = timedelta(days=36_500)
MINUTE = timedelta(minutes=1)

#: The states in which machines run or are being created.
LIVING = frozenset({MachineState.CREATING, MachineState.ACTIVE, MachineState.REPAIRING})


class SettableClock:
    """A clock whose time changes only when a test sets it."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    async def __call__(self) -> datetime:
        return self.now

    def advance(self, time: timedelta) -> None:
        """Advances the clock."""
        self.now += time


class Verb(StrEnum):
    """The names of a platform's calls."""

    CREATE = "create_slice"
    DESCRIBE = "describe_slice"
    DELETE = "delete_slice"
    LIST = "list_slices"


class FakeCloud:
    """The state of a simulated cloud, for all clusters in it. A test may set the public attributes
    at any time.

    In a table keyed by name, a name is a slice id, a group or a zone. The first of these with an
    entry applies.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: The time from an accepted create until the machines exist.
        self.boot_delay = ZERO
        #: Other values of `boot_delay`, by the name of a slice, group or zone.
        self.boot_delays: dict[str, timedelta] = {}
        #: The time from an accepted delete until nothing is left.
        self.delete_delay = ZERO
        #: Other values of `delete_delay`, by the name of a slice, group or zone.
        self.delete_delays: dict[str, timedelta] = {}
        #: The most machines of a slice that start, by the name of a slice, group or zone.
        self.partial: dict[str, int] = {}
        #: The latest diagnostics of a slice's machines, by the name of a slice, group or zone.
        self.console: dict[str, str] = {}
        #: The number of slices that a zone can hold, by zone and kind (see `kind_of`). A zone and
        #: kind without an entry have no limit.
        self.capacity: dict[tuple[str, str], int] = {}
        #: The number of slices that the project may have, by region or group. Preempted and broken
        #: slices count until they are deleted.
        self.quota: dict[str, int] = {}
        self.shortages: list[Shortage] = []
        #: The number of calls that all clusters together may make per minute; None for no limit.
        self.calls_per_minute: int | None = None
        #: The reasons why zones do not answer, by zone.
        self.unreachable: dict[str, str] = {}
        #: The time until a new slice appears in lists of slices.
        self.list_lag = ZERO

        #: The machines in the cloud, by slice id.
        self.machines: dict[str, FakeMachines] = {}
        self.audit: list[AuditEvent] = []
        #: The highest number of slices that ran or were being created at the same time, by group.
        self.most_alive: Counter[str] = Counter()
        self._calls: deque[datetime] = deque()
        self._failures: dict[Verb, deque[PlatformError]] = {verb: deque() for verb in Verb}
        self._lost_replies: Counter[Verb] = Counter()

    # Actions of tests. Preempting, breaking or removing a slice that does not exist any more has no
    # effect.

    def fail_next(self, verb: Verb, error: PlatformError, times: int = 1) -> None:
        """Makes the next calls of the verb raise this error and do nothing else."""
        self._failures[verb].extend([error] * times)

    def lose_next_reply(self, verb: Verb, times: int = 1) -> None:
        """Makes the next calls of the verb take effect and then raise Unavailable."""
        self._lost_replies[verb] += times

    async def plant(self, request: SliceRequest, *, manual: bool = False) -> None:
        """Adds machines that no call created: another cluster's, without a cluster (its name is
        empty), or marked as manual.
        """
        self._put(request, await self._clock(), EventKind.PLANTED).manual = manual

    def mark_manual(self, slice_id: str) -> None:
        """Marks the slice as manual, as a person would."""
        self.machines[slice_id].manual = True

    def repair(self, slice_id: str, *, begins: bool = True) -> None:
        """Begins or ends maintenance of the slice's machines."""
        machines = self.machines[slice_id]
        machines.in_repair, machines.reason = begins, "UNHEALTHY_MAINTENANCE" if begins else ""

    async def preempt(self, *slice_ids: str) -> None:
        """Preempts the slices. They stay in lists and count against quotas until they are
        deleted.
        """
        await self._end(
            slice_ids, MachineState.PREEMPTED, EventKind.PREEMPTED, "Instance was preempted."
        )

    async def break_(self, *slice_ids: str, reason: str = "terminated by maintenance") -> None:
        """Stops the slices for good. Also simulates a create that the cloud accepts first and that
        fails later.
        """
        await self._end(slice_ids, MachineState.FAILED, EventKind.BROKEN, reason)

    async def vanish(self, *slice_ids: str) -> None:
        """Removes the slices without a delete call."""
        now = await self._settle()
        for slice_id in [each for each in slice_ids if each in self.machines]:
            self._log(now, EventKind.VANISHED, self.machines.pop(slice_id).request)

    # Questions of tests.

    @property
    def created(self) -> list[str]:
        """Returns the slices that calls have created, in order."""
        return self._slices_of(EventKind.CREATED)

    @property
    def deleted(self) -> list[str]:
        """Returns the slices that calls have deleted completely."""
        return self._slices_of(EventKind.DELETED)

    @property
    def alive(self) -> list[str]:
        """Returns the slices that existed at the last call, in any state."""
        return list(self.machines)

    def lived(self, slice_id: str) -> list[datetime]:
        """Returns when calls created machines of the slice, and when nothing was left of them."""
        ends = (EventKind.CREATED, EventKind.DELETED, EventKind.VANISHED)
        return [each.at for each in self.audit if each.slice_id == slice_id and each.what in ends]

    def up(self, now: datetime) -> list[tuple[SliceRequest, int]]:
        """Returns request and worker id of each running machine: the machines on which an agent
        would run.
        """
        return [
            (machines.request, worker)
            for machines in self.machines.values()
            if machines.state(now) in (MachineState.ACTIVE, MachineState.REPAIRING)
            for worker in range(machines.hosts)
        ]

    def check(self) -> None:
        """Checks that every slice that was created or planted is deleted, vanished or still there.

        Raises:
            AssertionError: the audit log and the machines do not match.
        """
        made = Counter(self.created + self._slices_of(EventKind.PLANTED))
        ended = Counter(self.deleted + self._slices_of(EventKind.VANISHED))
        assert made == ended + Counter(self.alive), (
            f"made {made}, but ended {ended} and alive {self.alive}"
        )

    # Calls of `CloudAccount`.

    async def admit(self, verb: Verb, zone: str = "") -> datetime:
        """Accepts a call and returns the time at which the cloud executes it.

        Raises:
            PlatformError: the cloud rejects the call.
        """
        now = await self._settle()
        while self._calls and self._calls[0] <= now - MINUTE:
            self._calls.popleft()
        if self.calls_per_minute is not None and len(self._calls) >= self.calls_per_minute:
            raise RateLimited(
                f"Quota exceeded for requests per minute: limit {self.calls_per_minute}"
            )
        self._calls.append(now)
        if zone in self.unreachable:
            raise Unavailable(f"zone {zone}: {self.unreachable[zone]}")
        if self._failures[verb]:
            raise self._failures[verb].popleft()
        return now

    def reply(self, verb: Verb) -> None:
        """Sends the reply to the caller.

        Raises:
            Unavailable: the reply is lost, as `lose_next_reply` requested.
        """
        if self._lost_replies[verb]:
            self._lost_replies[verb] -= 1
            raise Unavailable("the connection was closed before a reply came")

    def make(self, request: SliceRequest, now: datetime) -> FakeMachines:
        """Creates machines for the slice.

        Raises:
            StockOut, QuotaExceeded: the zone has no capacity, or a quota is used up.
        """
        group, zone, kind = request.group, request.zone, kind_of(request)
        for scope in (region_of(zone), group.name):
            held = sum(
                scope in (region_of(each.request.zone), each.request.group.name)
                for each in self.machines.values()
            )
            if held >= self.quota.get(scope, held + 1):
                message = f"Quota '{kind}' exhausted. Limit {self.quota[scope]} in {scope}"
                raise QuotaExceeded(message, scope if scope == region_of(zone) else ANYWHERE)
        short = any(
            each.zone == zone and each.kind in ("", kind) and each.since <= now < each.until
            for each in self.shortages
        )
        taken = sum(
            (each.request.zone, kind_of(each.request)) == (zone, kind)
            and each.end is not MachineState.PREEMPTED
            for each in self.machines.values()
        )
        if short or taken >= self.capacity.get((zone, kind), taken + 1):
            raise StockOut(
                f'There is no more capacity in the zone "{zone}"; you can try in another zone'
            )
        return self._put(request, now, EventKind.CREATED)

    def console_of(self, request: SliceRequest) -> str:
        """Returns the latest diagnostics of the slice's machines."""
        return _of(request, self.console, "")

    def remove(self, machines: FakeMachines, now: datetime) -> bool:
        """Begins to delete the machines, unless that has begun already. Returns whether nothing is
        left of them.
        """
        if machines.gone_at is None:
            self._log(now, EventKind.DELETING, machines.request)
            machines.gone_at = now + _of(machines.request, self.delete_delays, self.delete_delay)
        self._sweep(now)
        return self.machines.get(machines.request.slice_id) is not machines

    async def note_refusal(self, request: SliceRequest, error: PlatformError) -> None:
        """Logs a create that failed."""
        self._log(
            await self._clock(), EventKind.NOT_CREATED, request, f"{type(error).__name__}: {error}"
        )

    def _put(self, request: SliceRequest, now: datetime, how: EventKind) -> FakeMachines:
        machines = FakeMachines(
            request=request,
            created_at=now,
            active_at=now + _of(request, self.boot_delays, self.boot_delay),
            listed_at=now + self.list_lag,
            hosts=min(request.group.hosts, _of(request, self.partial, request.group.hosts)),
        )
        self.machines[request.slice_id] = machines
        self._log(now, how, request)
        group = request.group.name
        living = sum(
            each.state(now) in LIVING and each.request.group.name == group
            for each in self.machines.values()
        )
        self.most_alive[group] = max(self.most_alive[group], living)
        return machines

    async def _end(
        self, slice_ids: tuple[str, ...], state: MachineState, what: EventKind, reason: str
    ) -> None:
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
            (each.gone_at, each.request)
            for each in self.machines.values()
            if each.gone_at is not None and each.gone_at <= now
        ]
        for gone_at, request in due:
            del self.machines[request.slice_id]
            self._log(gone_at, EventKind.DELETED, request)

    def _log(self, at: datetime, what: EventKind, request: SliceRequest, reason: str = "") -> None:
        event = AuditEvent(
            at=at,
            what=what,
            slice_id=request.slice_id,
            group=request.group.name,
            zone=request.zone,
            reason=reason,
        )
        self.audit.append(event)

    def _slices_of(self, what: EventKind) -> list[str]:
        return [event.slice_id for event in self.audit if event.what is what]


def _of(request: SliceRequest, by_name: dict[str, T], otherwise: T) -> T:
    for name in (request.slice_id, request.group.name, request.zone):
        if name in by_name:
            return by_name[name]
    return otherwise
