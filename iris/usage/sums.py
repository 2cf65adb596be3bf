"""Sums records of use in one pass. The memory depends on the number of rows and slices, not on the
number of records.

The cost of an attempt is the part of hosts that it held, for its time, at the price of a host of
its slice. So the costs of all attempts, of what no attempt held (idle), and of slices before they
were ready, are together the cost of the slices.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from iris.usage.amounts import Amounts
from iris.usage.prices import Machines, PriceTable
from iris.usage.records import AttemptUse, SliceUse, UseEnd
from iris.usage.report import OF_SLICES, TAG, UsageReport, UsageRow, Waste, WasteKind

_HOUR = 3600.0
_DAY = 86_400.0
#: The ends of attempts whose run time may be lost, with the kind of waste.
_LOST = {UseEnd.FAILED: WasteKind.FAILED, UseEnd.PREEMPTED: WasteKind.PREEMPTED}
#: The machines of attempts whose slices have no record.
_UNKNOWN = Machines("", "machines that joined by themselves, or without a record", "", False, 0, 0)


class Question(NamedTuple):
    """Selects the records to sum and the rows of the result."""

    since: datetime
    until: datetime
    #: The keys of the rows, in the form that `parse_key` accepts. If it is empty, the report has
    #: one row for everything.
    by: Sequence[str] = ()
    #: The user whose attempts are summed; empty for all users.
    user: str = ""
    #: The scale group whose attempts and slices are summed; empty for all groups.
    group: str = ""


class Sum:
    """A sum of resource-hours and of their cost. Host-seconds without a price are in `unpriced`."""

    __slots__ = ("chips", "cores", "cost", "count", "gpus", "has_price", "hosts", "unpriced")

    def __init__(self) -> None:
        self.count = 0
        #: The sums of resources times seconds. `cost` is the sum of host-seconds times the price of
        #: a host for an hour.
        self.hosts = self.chips = self.gpus = self.cores = 0.0
        self.cost = self.unpriced = 0.0
        #: Whether any part of the sum has a price.
        self.has_price = False

    def pay(self, host_seconds: float, price: float | None) -> None:
        """Adds the cost of hosts, at the price of one for an hour."""
        if price is None:
            self.unpriced += host_seconds
        else:
            self.cost += host_seconds * price
            self.has_price = True

    @property
    def money(self) -> float | None:
        """The cost; None if no part of it is known."""
        return self.cost / _HOUR if self.has_price else None

    def amounts(self) -> Mapping[str, Any]:
        """Returns the fields of `Amounts`, in hours."""
        return {
            "attempts": self.count,
            "host_hours": self.hosts / _HOUR,
            "tpu_chip_hours": self.chips / _HOUR,
            "gpu_hours": self.gpus / _HOUR,
            "core_hours": self.cores / _HOUR,
            "cost": self.money,
            "unpriced_host_hours": self.unpriced / _HOUR,
        }


class Part(NamedTuple):
    """A part of a `Phase` of an attempt or of a slice. It has one price and, if rows are by day,
    lies within one day.
    """

    seconds: float
    day: str
    period: int


class Phase(NamedTuple):
    """A phase of an attempt or of a slice. Times are in seconds since 1970. `waste` is None if the
    phase is no waste.
    """

    began: float
    ended: float
    waste: WasteKind | None


class UsageSums:
    """Sums records. Each record must be added once; the order does not matter. Memory use is lowest
    if the records of slices come before the records of their attempts.

    Args:
        team_of: the team of each user that is in one.
    """

    def __init__(
        self, question: Question, prices: PriceTable, team_of: Mapping[str, str] | None = None
    ) -> None:
        self._question = question
        self._prices = prices
        self._team_of = team_of or {}
        self._since, self._until = question.since.timestamp(), question.until.timestamp()
        self._by_day = "day" in question.by
        self._cuts = self._times_to_cut()
        self._rows: dict[tuple[str, ...], Sum] = {}
        self._waste = {kind: Sum() for kind in WasteKind}
        self._total, self._slices, self._ready = Sum(), Sum(), Sum()
        #: The use by all attempts on slices with a record, including attempts that the rows do not
        #: contain. The idle hours are those of the ready slices minus this sum.
        self._held = Sum()
        self._machines: dict[str, Machines] = {}
        self._kinds: dict[Machines, Machines] = {}
        #: The host-seconds that attempts held on slices whose records have not been added yet: for
        #: each slice and price period, by the sums to which they belong.
        self._pending: dict[tuple[str, int], dict[tuple[Sum, ...], float]] = {}
        self._unpriced: dict[Machines, float] = defaultdict(float)

    def add(self, use: AttemptUse | SliceUse) -> None:
        """Adds a record. Ignores it if it does not belong to the question."""
        if self._question.group and use.group != self._question.group:
            return
        if isinstance(use, AttemptUse):
            self._add_attempt(use)
        else:
            self._add_slice(use)

    def report(self, currency: str = "") -> UsageReport:
        """Returns the sums so far. Attempts on slices without a record have no price."""
        for (_, period), sums in self._pending.items():
            for each, seconds in sums.items():
                self._pay(each, seconds, _UNKNOWN, period)
        self._pending.clear()
        priced = bool(self._prices)
        unpriced = sorted(self._unpriced.items(), key=lambda each: -each[1]) if priced else ()
        return UsageReport(
            since=self._question.since,
            until=self._question.until,
            by=tuple(self._question.by),
            currency=currency if priced else "",
            rows=tuple(self._sorted_rows()),
            total=Amounts(**self._total.amounts()),
            slices=None if self._question.user else Amounts(**self._slices.amounts()),
            waste=tuple(self._all_waste()),
            unpriced={str(machines): seconds / _HOUR for machines, seconds in unpriced if seconds},
        )

    def _add_attempt(self, use: AttemptUse) -> None:
        phases = list(self._within(_phases(use)))
        if not phases:
            return
        shown = not self._question.user or use.user == self._question.user
        counted: set[Sum] = set()
        for phase in phases:
            waste = () if phase.waste is None else (self._waste[phase.waste],)
            for part in self._parts(phase):
                sums: tuple[Sum, ...] = ()
                if shown:
                    sums = (self._row(use, part.day), self._total, *waste)
                    for each in sums:
                        _hold(each, use, part.seconds)
                self._charge(sums, use, part)
                counted.update(sums)
        for each in counted:
            each.count += 1

    def _charge(self, sums: tuple[Sum, ...], use: AttemptUse, part: Part) -> None:
        """Divides what the attempt held evenly between its slices, each with its own price."""
        seconds = use.host_share * part.seconds / max(1, len(use.slices))
        for slice_id in use.slices or ("",):
            machines = self._machines.get(slice_id)
            if machines is not None:
                self._pay(sums, seconds, machines, part.period, known=True)
            else:
                pending = self._pending.setdefault((slice_id, part.period), {})
                pending[sums] = pending.get(sums, 0.0) + seconds

    def _add_slice(self, use: SliceUse) -> None:
        machines = Machines.of_slice(use)
        slice_id = use.id.partition("/")[0]  # the rest tells the lives of a joined slice apart
        machines = self._machines[slice_id] = self._kinds.setdefault(machines, machines)
        for period in range(len(self._prices.changes) + 1):
            for sums, seconds in self._pending.pop((slice_id, period), {}).items():
                self._pay(sums, seconds, machines, period, known=True)
        counted: set[Sum] = set()
        for phase in self._within(_phases_of_slice(use)):
            sums = (self._slices, self._ready if phase.waste is None else self._waste[phase.waste])
            for part in self._parts(phase):
                price = self._prices.host_hour(machines, part.period)
                if price is None and not self._question.user:
                    self._unpriced[machines] += use.hosts * part.seconds
                for each in sums:
                    each.hosts += use.hosts * part.seconds
                    each.chips += use.tpu_chips * part.seconds
                    each.gpus += use.gpus * part.seconds
                    each.cores += use.cpu_millis / 1000 * part.seconds
                    each.pay(use.hosts * part.seconds, price)
            counted.update(sums)
        for each in counted:
            each.count += 1

    def _pay(
        self,
        sums: tuple[Sum, ...],
        host_seconds: float,
        machines: Machines,
        period: int,
        *,
        known: bool = False,
    ) -> None:
        """Adds the cost of what an attempt held.

        Args:
            known: whether the slice is known, so that the attempt's part of it was not idle.
        """
        price = self._prices.host_hour(machines, period)
        for each in sums:
            each.pay(host_seconds, price)
        if known:
            self._held.hosts += host_seconds
            self._held.pay(host_seconds, price)
        if price is None and sums and (self._question.user or not known):
            self._unpriced[machines] += host_seconds

    def _row(self, use: AttemptUse, day: str) -> Sum:
        key = tuple(self._value(name, use, day) for name in self._question.by)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Sum()
        return row

    def _value(self, name: str, use: AttemptUse, day: str) -> str:
        match name:
            case "user":
                return use.user
            case "team":
                return self._team_of.get(use.user, "")
            case "job":
                return use.job
            case "group":
                return use.group
            case "band":
                return use.band.value
            case "day":
                return day
            case _:
                return use.tags.get(name.removeprefix(TAG), "")

    def _times_to_cut(self) -> list[float]:
        """Returns the times, in seconds, at which uses are divided: midnights and new prices."""
        cuts = {at for at in self._prices.changes if self._since < at < self._until}
        if self._by_day:
            first = int(self._since // _DAY) + 1
            cuts |= {day * _DAY for day in range(first, int(self._until // _DAY) + 1)}
        return sorted(cuts)

    def _within(self, phases: Iterator[Phase]) -> Iterator[Phase]:
        """Yields the parts of the phases in the time of the question. A phase of no length counts
        if it is in this time.
        """
        for began, ended, waste in phases:
            began, ended = max(began, self._since), min(ended, self._until)
            if began < ended or (began == ended < self._until):
                yield Phase(began, ended, waste)

    def _parts(self, phase: Phase) -> Iterator[Part]:
        began, ended, _ = phase
        if self._cuts:
            index = bisect_right(self._cuts, began)
            while index < len(self._cuts) and self._cuts[index] < ended:
                yield self._part(began, self._cuts[index])
                began, index = self._cuts[index], index + 1
        yield self._part(began, ended)

    def _part(self, began: float, ended: float) -> Part:
        day = datetime.fromtimestamp(began, UTC).date().isoformat() if self._by_day else ""
        return Part(ended - began, day, self._prices.period(began))

    def _sorted_rows(self) -> Iterator[UsageRow]:
        by = self._question.by
        by_day = by[:1] and by[0] == "day"

        def order(entry: tuple[tuple[str, ...], Sum]) -> tuple[object, ...]:
            key, row = entry
            size = (-row.cost, -row.chips, -row.gpus, -row.cores, key)
            return (key[0], *size) if by_day else size

        for key, row in sorted(self._rows.items(), key=order):
            yield UsageRow(by=dict(zip(by, key, strict=True)), **row.amounts())

    def _all_waste(self) -> Iterator[Waste]:
        self._waste[WasteKind.IDLE] = idle = Sum()
        idle.hosts = self._ready.hosts - self._held.hosts
        idle.cost = self._ready.cost - self._held.cost
        idle.unpriced = self._ready.unpriced - self._held.unpriced
        idle.count, idle.has_price = self._ready.count, self._ready.has_price
        for kind, each in self._waste.items():
            if not self._question.user or kind not in OF_SLICES:
                hours = each.hosts / _HOUR
                yield Waste(kind=kind, count=each.count, host_hours=hours, cost=each.money)


def _hold(into: Sum, use: AttemptUse, seconds: float) -> None:
    into.hosts += use.host_share * seconds
    into.chips += use.tpu_chips * seconds
    into.gpus += use.gpus * seconds
    into.cores += use.cpu_millis / 1000 * seconds


def _phases(use: AttemptUse) -> Iterator[Phase]:
    """Yields the set-up of an attempt and the run of its programs."""
    placed, ended = use.placed_at.timestamp(), use.ended_at.timestamp()
    if use.end is UseEnd.SET_UP_FAILED:
        yield Phase(placed, ended, WasteKind.FAILED_SET_UP)
        return
    if use.end is UseEnd.NEVER_STARTED:
        yield Phase(placed, ended, WasteKind.SET_UP)
        return
    started = placed
    if use.started_at is not None:
        # The two times are of different clocks.
        started = min(max(placed, use.started_at.timestamp()), ended)
        yield Phase(placed, started, WasteKind.SET_UP)
    yield Phase(started, ended, _LOST.get(use.end))


def _phases_of_slice(use: SliceUse) -> Iterator[Phase]:
    requested, gone = use.requested_at.timestamp(), use.gone_at.timestamp()
    if use.ready_at is None:
        yield Phase(requested, gone, WasteKind.BOOT if use.open else WasteKind.NEVER_READY)
        return
    ready = min(max(requested, use.ready_at.timestamp()), gone)
    yield Phase(requested, ready, WasteKind.BOOT)
    yield Phase(ready, gone, None)
