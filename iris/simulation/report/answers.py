"""Counts what happened in one simulation: waits, failures, machines, waste and money.

Hours and money come from `UsageSums`, the code of `iris usage`. They are those of the recorded
time, and of the time after it until the last gang had ended, so a configuration that needs longer
is charged for it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.job.spec import Band
from iris.model.states import TaskState
from iris.scheduling.placement.refusals import RefusalCode
from iris.simulation.history import GangHistory, History, job_of
from iris.simulation.report.quantiles import quantile
from iris.simulation.report.shapes import shape_of
from iris.usage.accounting import Accounting
from iris.usage.prices import PriceTable
from iris.usage.records import AttemptUse, SliceUse
from iris.usage.report import TAG, UsageReport, UsageRow, Waste, WasteKind
from iris.usage.sums import Question, UsageSums

#: The limit on gangs in the list of the longest waits.
WORST = 10
#: The key of the tag in which the records of use carry the shape of a gang, so that `UsageSums` can
#: group by it. No user's tag has this key, because a key contains no space.
_SHAPE = "simulated shape"


class Waits(Frozen):
    """The distribution of the times that gangs waited for their first hosts, in seconds. A gang
    that got no hosts counts with the time until it or the simulation ended. Quantiles use the
    nearest rank.
    """

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    mean: float = 0.0
    longest: float = 0.0

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Waits":
        """Returns the distribution of these waits; zeros if there are none."""
        ordered = sorted(seconds)
        if not ordered:
            return cls()
        return cls(
            p50=quantile(ordered, 0.5),
            p90=quantile(ordered, 0.9),
            p99=quantile(ordered, 0.99),
            mean=sum(ordered) / len(ordered),
            longest=ordered[-1],
        )


class Part(Frozen):
    """Results about a set of gangs, such as the gangs of one band or user."""

    gangs: int = 0
    waits: Waits = Waits()
    #: The number of gangs that ended without hosts, because their scheduling timeout had passed.
    unschedulable: int = 0
    failed: int = 0
    #: The number of gangs that had not ended when the simulation ended.
    unended: int = 0
    #: How many times gangs of the set were evicted for a gang of a higher band, or because they
    #: held amounts that their quota had borrowed.
    evictions: int = 0
    #: How many times gangs of the set lost a host because the host's machine was lost.
    losses: int = 0
    #: The host-hours that the gangs of the set held. A part of a host counts as that part.
    host_hours: float = 0.0
    #: The cost of `host_hours`, without the host-hours that have no price; None if none has a
    #: price.
    cost: float | None = None


class Slices(Frozen):
    """Results about the slices of one scale group, or of all scale groups."""

    #: The number of slices that became ready.
    made: int = 0
    #: The number of requests for slices that failed, by the name of the `SliceFault`.
    refused: dict[str, int] = Field(default_factory=dict)
    #: The number of ready slices that were lost, by the name of the `SliceFault`.
    lost: dict[str, int] = Field(default_factory=dict)
    #: The host-hours of ready slices.
    ready_host_hours: float = 0.0
    #: The share of `ready_host_hours` that gangs held, from 0 to 1.
    held: float = 0.0
    #: The host-hours of ready slices that no gang held.
    idle_host_hours: float = 0.0
    #: The host-hours of slices before they were ready, including slices that never became ready.
    boot_host_hours: float = 0.0
    #: The cost of `ready_host_hours` and `boot_host_hours` together, without the machines that have
    #: no price; None if no machine has a price.
    cost: float | None = None

    @property
    def failed_requests(self) -> int:
        return sum(self.refused.values())


class WhileWaiting(Frozen):
    """A reason for which a gang waited, from the time `after` until the next reason or its first
    hosts.
    """

    #: The time at which the simulation first saw that the gang waited for this reason, in seconds
    #: after the gang first asked for hosts. It looks every ten minutes or less often.
    after: float
    code: RefusalCode
    message: str


class LongWait(Frozen):
    """One of the gangs that waited longest for their first hosts."""

    id: str
    user: str
    band: Band
    shape: str
    asked_at: datetime
    waited: float
    #: The state in which the gang ended; None if it had not ended when the simulation ended.
    state: TaskState | None
    reasons: tuple[WhileWaiting, ...] = ()


class Answers(Frozen):
    """The results of one simulation. Durations are in seconds."""

    begins: datetime
    #: The end of the recorded time.
    ends: datetime
    #: The time at which the simulation ended.
    stopped: datetime
    #: The time from the beginning of the workload until its last gang had ended, or until the end
    #: of the simulation if some gangs never ended.
    makespan: float
    all: Part
    bands: dict[str, Part] = Field(default_factory=dict)
    users: dict[str, Part] = Field(default_factory=dict)
    #: The results for the gangs of each team. The gangs of users without a team are under the empty
    #: name. The mapping is empty if there are no teams.
    teams: dict[str, Part] = Field(default_factory=dict)
    shapes: dict[str, Part] = Field(default_factory=dict)
    slices: Slices = Slices()
    #: The results for the slices of each scale group, in the order of the configuration.
    groups: dict[str, Slices] = Field(default_factory=dict)
    waste: dict[str, Waste] = Field(default_factory=dict)
    #: The currency of all costs; empty without prices.
    currency: str = ""
    #: The host-hours of each kind of machine that has no price.
    unpriced: dict[str, float] = Field(default_factory=dict)
    worst: tuple[LongWait, ...] = ()
    passes: int = 0
    evaluations: int = 0


class _Told(NamedTuple):
    """A gang of the results, with its wait in seconds and its shape."""

    gang: GangHistory
    waited: float
    shape: str


def answers_of(history: History, accounting: Accounting) -> Answers:
    """Returns the numbers of a simulation.

    Args:
        accounting: the prices and the teams.
    """
    told = [
        _Told(gang, gang.waited(history.stopped), shape_of(gang.trace)) for gang in history.gangs
    ]
    team_of = accounting.team_of
    usage = _usage(history, accounting, told)

    def parts(
        of_gang: Callable[[_Told], str], of_row: Callable[[UsageRow], str]
    ) -> dict[str, Part]:
        return _parts(told, usage.rows, of_gang, of_row)

    everything = parts(lambda _: "", lambda _: "").get("", Part())
    bands = parts(lambda each: each.gang.trace.band.value, lambda row: row.by["band"])
    return Answers(
        begins=history.begins,
        ends=history.ends,
        stopped=history.stopped,
        makespan=(_done_at(history) - history.begins).total_seconds(),
        all=everything,
        bands={band.value: bands[band.value] for band in Band if band.value in bands},
        users=parts(lambda each: each.gang.trace.user, lambda row: row.by["user"]),
        teams=parts(
            lambda each: team_of.get(each.gang.trace.user, ""),
            lambda row: team_of.get(row.by["user"], ""),
        )
        if accounting.teams
        else {},
        shapes=parts(lambda each: each.shape, lambda row: row.by[TAG + _SHAPE]),
        slices=_slices(usage, history, history.groups),
        groups=_groups(history, accounting),
        waste={each.kind.value: each for each in usage.waste if each.host_hours},
        currency=usage.currency,
        unpriced=usage.unpriced,
        worst=tuple(map(_long_wait, _longest(told))),
        passes=history.passes,
        evaluations=history.evaluations,
    )


def _done_at(history: History) -> datetime:
    """Returns when the last gang had ended; when the simulation did if some never did."""
    ends = [gang.ended_at for gang in history.gangs]
    known = [each for each in ends if each is not None]
    return max(known, default=history.begins) if len(known) == len(ends) else history.stopped


def _usage(history: History, accounting: Accounting, told: Sequence[_Told]) -> UsageReport:
    """Returns the sums over all records, with a row for each band, user and shape together."""
    by = ("band", "user", TAG + _SHAPE)
    question = Question(history.begins, history.stopped, by)
    sums = UsageSums(question, PriceTable(accounting.rates))
    shapes = {job_of(each.gang.trace, number): each.shape for number, each in enumerate(told, 1)}
    for use in history.uses:
        if isinstance(use, AttemptUse):
            tags = {_SHAPE: shapes.get(use.job, "")}
            sums.add(use.model_copy(update={"tags": tags}))
        else:
            sums.add(use)
    return sums.report(accounting.currency)


def _parts(
    told: Iterable[_Told],
    rows: Iterable[UsageRow],
    of_gang: Callable[[_Told], str],
    of_row: Callable[[UsageRow], str],
) -> dict[str, Part]:
    """Returns the parts by key, the one that waited longest in total first."""
    found: dict[str, list[_Told]] = defaultdict(list)
    for each in told:
        found[of_gang(each)].append(each)
    hours: dict[str, float] = defaultdict(float)
    costs: dict[str, float] = defaultdict(float)
    for row in rows:
        key = of_row(row)
        hours[key] += row.host_hours
        if row.cost is not None:
            costs[key] += row.cost
    parts = {key: _part(those, hours[key], costs.get(key)) for key, those in found.items()}
    return dict(
        sorted(parts.items(), key=lambda each: (-each[1].gangs * each[1].waits.mean, each[0]))
    )


def _part(told: Sequence[_Told], hours: float, cost: float | None) -> Part:
    states = Counter(each.gang.state for each in told)
    return Part(
        gangs=len(told),
        waits=Waits.of(each.waited for each in told),
        unschedulable=states[TaskState.UNSCHEDULABLE],
        failed=states[TaskState.FAILED],
        unended=states[None],
        evictions=sum(each.gang.evictions for each in told),
        losses=sum(each.gang.losses for each in told),
        host_hours=hours,
        cost=cost,
    )


def _groups(history: History, accounting: Accounting) -> dict[str, Slices]:
    prices = PriceTable(accounting.rates)
    question = Question(history.begins, history.stopped)
    sums = {name: UsageSums(question, prices) for name in history.groups}
    for use in history.uses:
        if use.group in sums:
            sums[use.group].add(use)
    return {
        name: _slices(each.report(accounting.currency), history, (name,))
        for name, each in sums.items()
    }


def _slices(usage: UsageReport, history: History, groups: Sequence[str]) -> Slices:
    """Returns the numbers of the slices of these groups.

    Args:
        usage: the sums over the records of these groups.
    """
    ready_at = {
        use.id: use.ready_at
        for use in history.uses
        if isinstance(use, SliceUse) and use.ready_at is not None and use.group in groups
    }
    refused: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for each in history.faults:
        if each.group in groups:
            ready = ready_at.get(each.slice_id)
            was_ready = ready is not None and ready <= each.at
            (lost if was_ready else refused)[each.fault.value] += 1
    hours = {each.kind: each.host_hours for each in usage.waste}
    boot = hours.get(WasteKind.BOOT, 0.0) + hours.get(WasteKind.NEVER_READY, 0.0)
    idle = max(0.0, hours.get(WasteKind.IDLE, 0.0))
    ready_hours = (usage.slices.host_hours if usage.slices else 0.0) - boot
    return Slices(
        made=len(ready_at),
        refused=dict(sorted(refused.items())),
        lost=dict(sorted(lost.items())),
        ready_host_hours=ready_hours,
        held=1 - idle / ready_hours if ready_hours else 0.0,
        idle_host_hours=idle,
        boot_host_hours=boot,
        cost=usage.slices.cost if usage.slices else None,
    )


def _longest(told: Iterable[_Told]) -> list[_Told]:
    waiting = [each for each in told if each.waited > 0]
    return sorted(waiting, key=lambda each: (-each.waited, each.gang.trace.id))[:WORST]


def _long_wait(each: _Told) -> LongWait:
    gang, trace = each.gang, each.gang.trace
    return LongWait(
        id=trace.id,
        user=trace.user,
        band=trace.band,
        shape=each.shape,
        asked_at=gang.asked_at,
        waited=each.waited,
        state=gang.state,
        reasons=tuple(
            WhileWaiting(
                after=(reason.at - gang.asked_at).total_seconds(),
                code=reason.code,
                message=reason.message,
            )
            for reason in gang.reasons
        ),
    )
