"""Runs a workload on a configuration, from the first event to the last."""

from datetime import UTC, timedelta
from itertools import islice
from typing import NamedTuple

from iris.config import ClusterConfig, quotas_of, rules_of, scale_groups_of
from iris.messages.autoscaler import ScalingSettings
from iris.model.host.constraints import SCALE_GROUP
from iris.model.job.spec import Band
from iris.model.quotas import QuotaRules
from iris.model.rules import Rules
from iris.model.slice.record import SliceRecord
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.states import TaskState
from iris.simulation.autoscaler import SimulatedAutoscaler
from iris.simulation.chance import sample, uniform
from iris.simulation.event_queue import EventQueue
from iris.simulation.gangs import SimulatedGang
from iris.simulation.history import GangHistory, History, Reason, Sample
from iris.simulation.scheduler import SimulatedScheduler
from iris.simulation.slices import SimulatedSlice
from iris.simulation.trace import GangTrace, Trace
from iris.simulation.world import World
from iris.usage.records import SliceUse

#: The number of samples of the cluster's state that a simulation takes over the recorded time.
SAMPLES = 1_000
#: The shortest time between two samples of the cluster's state. In a short recorded time, fewer
#: than `SAMPLES` are taken.
SHORTEST_SAMPLE = timedelta(seconds=10)
#: The shortest time between two samples of the cluster's state after the end of the recorded time.
LATE_SAMPLE = timedelta(hours=1)
#: The limit on gangs whose reasons for waiting are recorded at one time. The gangs that have waited
#: longest are recorded.
EXPLAINED = 20
#: The time between two records of the reasons for which gangs wait. Gangs that have waited for less
#: than this time are not recorded.
EXPLAIN_EVERY = timedelta(minutes=10)
#: A simulation ends after this time in which no gang held hosts and none ended, if all gangs have
#: arrived and none waits with a scheduling timeout: the remaining gangs would wait for ever.
NOTHING_HAPPENS = timedelta(days=1)
#: After the recorded time, the pause between two samples of the cluster's state, or between two
#: records of reasons for waiting, is at least the time since the end of the recorded time divided
#: by this number, so that a simulation of years does not fill the memory.
LATE_SAMPLES = 1_000


class Cluster(NamedTuple):
    """The part of a configuration that a simulation needs."""

    groups: tuple[ScaleGroup, ...]
    rules: Rules = Rules()
    quotas: QuotaRules = QuotaRules()
    #: The longest time from a change until the autoscaler evaluates the groups, as in
    #: `ScalingSettings`.
    evaluation_interval: timedelta = ScalingSettings().evaluation_interval


def cluster_of(config: ClusterConfig) -> Cluster:
    """Returns the part of a configuration that a simulation needs."""
    return Cluster(
        scale_groups_of(config),
        rules_of(config),
        quotas_of(config),
        config.autoscaler.evaluation_interval,
    )


def simulate(cluster: Cluster, trace: Trace, world: World, seed: int = 0) -> History:
    """Runs the workload on the cluster until every gang has ended, or waits for ever.

    The cluster begins without slices. The same arguments give the same result.
    """
    return _Simulation(cluster, trace, world, seed).run()


class _Simulation:
    def __init__(self, cluster: Cluster, trace: Trace, world: World, seed: int) -> None:
        self._trace, self._world, self._seed = trace, world, seed
        begins = trace.heading.begins.astimezone(UTC)
        self._events = EventQueue(begins)
        self._history = History(
            begins=begins,
            ends=trace.heading.ends.astimezone(UTC),
            stopped=begins,
            groups=tuple(group.name for group in cluster.groups),
            gangs=[],
            uses=[],
            faults=[],
            samples=[],
        )
        self._scheduler = SimulatedScheduler(
            self._events,
            cluster.groups,
            cluster.rules,
            cluster.quotas,
            lambda: self._autoscaler.wake(),
        )
        settings = ScalingSettings(
            groups=cluster.groups, evaluation_interval=cluster.evaluation_interval
        )
        self._autoscaler = SimulatedAutoscaler(self._events, settings, self._scheduler, self._slice)
        #: The gangs that have not ended, by their number, in the order of their arrival.
        self._gangs: dict[int, SimulatedGang] = {}
        #: The number of gangs that have ended and will be submitted again.
        self._coming = 0
        self._arrivals = iter(trace.gangs)
        self._next_arrival = next(self._arrivals, None)
        self._changed_at = begins
        self._sample_every = max(SHORTEST_SAMPLE, timedelta(seconds=trace.seconds) / SAMPLES)

    def run(self) -> History:
        self._await_arrival()
        self._events.at(self._history.begins, self._sample)
        self._events.at(self._history.begins, self._explain)
        while not self._is_over():
            self._events.run_next()
            while self._scheduler.is_due:
                self._scheduler.run_pass()
        return self._result()

    def _is_over(self) -> bool:
        if self._scheduler.ledger.live:
            self._changed_at = self._events.now
        if self._next_arrival is not None or self._coming:
            return False
        if not self._gangs:
            return self._events.now >= self._history.ends
        due = self._events.next_at()
        patience = max(self._changed_at, self._history.ends) + NOTHING_HAPPENS
        if due is not None and due <= patience:
            return False
        return not any(gang.holds or gang.gives_up for gang in self._gangs.values())

    def _result(self) -> History:
        history = self._history
        self._scheduler.take_records()
        history.stopped = self._events.now
        uses = self._scheduler.uses
        # The autoscaler learns of the end of a slice later than the scheduler.
        ended = {use.id for use in uses if isinstance(use, SliceUse)}
        there = (each for each in self._autoscaler.slices.values() if each.id not in ended)
        history.uses = [*uses, *(each.use(open=True) for each in there)]
        history.faults = self._autoscaler.faults
        history.passes = self._scheduler.passes
        history.evaluations = self._autoscaler.evaluations
        return history

    # Gangs.

    def _await_arrival(self) -> None:
        if (trace := self._next_arrival) is not None:
            at = self._history.begins + timedelta(seconds=trace.at)
            self._events.at(at, self._arrive)

    def _arrive(self) -> None:
        assert self._next_arrival is not None
        self._submit(self._next_arrival)
        self._next_arrival = next(self._arrivals, None)
        self._await_arrival()

    def _submit(self, trace: GangTrace, resubmitted: int = 0) -> None:
        history = GangHistory(trace, self._events.now, resubmitted)
        self._history.gangs.append(history)
        number = len(self._history.gangs)
        gang = SimulatedGang(
            self._events,
            history,
            self._scheduler,
            self._world,
            number,
            lambda: self._ended(number, history),
            lambda slice_id: self._autoscaler.slices[slice_id].is_dead,
        )
        self._gangs[number] = gang
        gang.begin()

    def _ended(self, number: int, history: GangHistory) -> None:
        del self._gangs[number]
        self._changed_at = self._events.now
        again, times = self._world.resubmit, history.resubmitted + 1
        lost = history.state not in (TaskState.SUCCEEDED, TaskState.KILLED)
        if again is None or not lost or times > again.times:
            return
        what = ("again", history.trace.id, times)
        if uniform(self._seed, *what) < again.share:
            after = timedelta(seconds=sample(again.after, uniform(self._seed, *what, "after")))
            self._coming += 1
            self._events.at(self._events.now + after, lambda: self._again(history.trace, times))

    def _again(self, trace: GangTrace, times: int) -> None:
        self._coming -= 1
        self._submit(trace, times)

    # Slices.

    def _slice(self, record: SliceRecord) -> SimulatedSlice:
        return SimulatedSlice(
            self._events,
            record,
            self._scheduler,
            self._world,
            self._seed,
            self._autoscaler.report,
            self._died,
        )

    def _died(self, slice_id: str) -> None:
        """Stops the programs on a slice."""
        for gang in self._gangs.values():
            placement = gang.holds
            if placement is not None and any(seat.slice_id == slice_id for seat in placement.seats):
                gang.died()

    # Samples.

    def _sample(self) -> None:
        """Records the state of the cluster, again and again."""
        ledger, groups = self._scheduler.ledger, self._history.groups
        ready, held = dict.fromkeys(groups, 0), dict.fromkeys(groups, 0.0)
        for host in ledger.hosts.values():
            ready[str(host.attributes[SCALE_GROUP])] += 1
        for placement in ledger.live.values():
            for seat in placement.seats:
                if (here := ledger.hosts.get(seat.host_id)) is not None:
                    share = placement.resources.share_of(here.resources)
                    held[str(here.attributes[SCALE_GROUP])] += share
        waiting = tuple(sum(ledger.waiting.counts(band).values()) for band in Band)
        self._history.samples.append(
            Sample(
                self._events.now,
                waiting,
                len(ledger.live),
                tuple(ready.values()),
                tuple(held.values()),
            )
        )
        late = self._events.now >= self._history.ends
        pause = max(self._sample_every, LATE_SAMPLE) if late else self._sample_every
        self._events.at(self._events.now + self._stretched(pause), self._sample)

    def _stretched(self, pause: timedelta) -> timedelta:
        return max(pause, (self._events.now - self._history.ends) / LATE_SAMPLES)

    def _explain(self) -> None:
        """Records why the gangs wait that have waited longest for their first hosts, again and
        again.
        """
        self._events.at(self._events.now + self._stretched(EXPLAIN_EVERY), self._explain)
        ledger = self._scheduler.ledger
        if not len(ledger.waiting):
            return
        late = (
            gang
            for gang in self._gangs.values()
            if not gang.history.attempts
            and gang.key in ledger.waiting
            and self._events.now - gang.history.asked_at >= EXPLAIN_EVERY
        )
        shown = list(islice(late, EXPLAINED))
        refusals = ledger.wait_reasons().explain_all([gang.key for gang in shown])
        for gang, refusal in zip(shown, refusals, strict=True):
            reasons = gang.history.reasons
            if not reasons or reasons[-1].code is not refusal.code:
                reasons.append(Reason(self._events.now, refusal.code, refusal.message))
