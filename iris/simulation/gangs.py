"""The gangs of a simulation: the real lifecycle and rules of retries, and programs that take the
times of the trace.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from iris.messages.scheduler import Ask
from iris.model.host.constraints import SCALE_GROUP, parse_marked
from iris.model.host.faults import SETUP_TIMEOUT
from iris.model.host.resources import Device, Resources
from iris.model.job.attempts import TaskOutcome
from iris.model.job.gangs import Gang, GangState
from iris.model.job.requests import Placement, Seat
from iris.model.job.spec import Coscheduling, JobSpec
from iris.model.job.status import TaskStatus
from iris.model.job.tags import parse_tag
from iris.model.states import TaskState
from iris.planners.ledger_messages import Entered
from iris.planners.messages_sent import ask_of, release_of
from iris.scheduling.jobs.gang_lifecycle import LEDGER_FULL, MAX_LEDGER_FULL, GangLifecycle
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import TURNED_AWAY
from iris.simulation.event_queue import Event, EventQueue
from iris.simulation.history import CLUSTER, GangHistory, Placed, job_name
from iris.simulation.scheduler import SimulatedScheduler
from iris.simulation.trace import GangTrace, Run
from iris.simulation.world import World
from iris.usage.records import UseEnd

_CANCELLED = "cancelled"


@dataclass(slots=True)
class _Program:
    """The program of an attempt."""

    #: The time at which the program starts; None if it was stopped before.
    starts_at: datetime | None
    #: The event in which the program ends by itself.
    end: Event
    #: True if the program was stopped, or if the machines of one of its hosts have stopped working.
    is_dead: bool = False

    def started_at(self, now: datetime) -> datetime | None:
        """Returns when the program has started; None if it has not."""
        at = self.starts_at
        return at if at is not None and at <= now else None


class SimulatedGang:
    """One gang of a simulation, from its arrival to its end.

    Args:
        ended: called once, at the end.
        is_dead: tells whether the machines of the slice with this id have stopped working.
    """

    def __init__(
        self,
        events: EventQueue,
        history: GangHistory,
        scheduler: SimulatedScheduler,
        world: World,
        number: int,
        ended: Callable[[], None],
        is_dead: Callable[[str], bool],
    ) -> None:
        self.history = history
        self._trace = history.trace
        self._events = events
        self._scheduler = scheduler
        self._world = world
        self._ended = ended
        self._is_dead = is_dead
        self._run_id = f"{number:08x}-0000"
        self._lifecycle = GangLifecycle(_gang_of(history, number))
        self._program: _Program | None = None
        #: The number of attempts that ended by themselves; and how many seconds of the program are
        #: saved in a checkpoint, so that the next attempt does not repeat them.
        self._runs, self._saved = 0, 0.0
        self._timer: Event | None = None
        #: True while the gang waits for hosts and has a scheduling timeout, after which it ends.
        self.gives_up = False
        self._full_pause = LEDGER_FULL

    # Before the hosts.

    def begin(self) -> None:
        """Begins an attempt: asks for hosts."""
        gang = self._lifecycle.gang
        ask = ask_of(gang, self._run_id, gang.spec.id)
        self._lifecycle = self._lifecycle.begin(ask.request.key)
        self._ask(ask)

    def _ask(self, ask: Ask) -> None:
        self._lifecycle = self._lifecycle.requested(ask.request)
        self._scheduler.own(ask.request.key, self)
        self._scheduler.send(ask, lambda entered: self._asked(ask, entered))

    def _asked(self, ask: Ask, entered: Entered) -> None:
        """Sets the timer for the scheduling timeout, or asks again later if the request
        was turned away."""
        if self._lifecycle.state is not GangState.WAITING:
            return
        left = self._lifecycle.time_left(self._events.now)
        refusal = entered.refusal
        if refusal is not None and refusal.code in TURNED_AWAY:
            self._lifecycle = self._lifecycle.turned_away()
            pause = self._full_pause
            self._full_pause = min(2 * pause, MAX_LEDGER_FULL)
            if left is None or pause < left:
                self._set_timer(pause, lambda: self._ask(ask))
                return
        if left is not None:
            self.gives_up = True
            self._set_timer(left, self._time_out)

    def _time_out(self) -> None:
        self._lifecycle = self._lifecycle.timed_out()
        self._release()

    def _set_timer(self, pause: timedelta, deed: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self._events.at(self._events.now + pause, deed)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # On hosts.

    def placed(self, placement: Placement) -> None:
        """Takes hosts, and starts the program there."""
        if self._lifecycle.state is not GangState.WAITING:
            return
        self._cancel_timer()
        self.gives_up, self._full_pause = False, LEDGER_FULL
        now = self._events.now
        self._lifecycle = self._lifecycle.placed(placement, now)
        host = self._scheduler.ledger.hosts[placement.seats[0].host_id]
        slices = tuple(dict.fromkeys(seat.slice_id for seat in placement.seats))
        group = str(host.attributes.get(SCALE_GROUP, ""))
        self.history.attempts.append(Placed(now, group, slices))
        run = self._run
        starts_at = now + timedelta(seconds=run.set_up)
        ends_at = starts_at + timedelta(seconds=run.seconds - self._saved)
        self._program = _Program(starts_at, self._events.at(ends_at, self._end_by_itself))
        if any(map(self._is_dead, slices)):
            self.died()

    @property
    def _run(self) -> Run:
        return self._trace.runs[min(self._runs, len(self._trace.runs) - 1)]

    def _end_by_itself(self) -> None:
        end = self._run.end
        self._runs, self._saved = self._runs + 1, 0.0
        match end:
            case UseEnd.SUCCEEDED:
                self._finish(self._outcomes(TaskState.SUCCEEDED))
            case UseEnd.FAILED:
                self._finish(self._outcomes(TaskState.FAILED))
            case UseEnd.SET_UP_FAILED:
                self._finish(self._outcomes(TaskState.WORKER_FAILED, fault=SETUP_TIMEOUT))
            case _:
                self._finish(self._outcomes(TaskState.KILLED), cancelled=_CANCELLED)

    def died(self) -> None:
        """Stops the program, because its machines have stopped working. Nobody knows that until the
        machines are gone, or heartbeats were missing for too long.
        """
        placement = self._lifecycle.placement
        if self._program is not None and not self._program.is_dead and placement is not None:
            self._stop_program(self._program)
            self._set_timer(placement.contact.heartbeat_timeout, self._fall_silent)

    def _fall_silent(self) -> None:
        """Ends the attempt, because its tasks on dead machines send no heartbeats."""
        self.history.losses += 1
        self._finish(
            self._outcomes_of_loss(
                lambda seat: self._is_dead(seat.slice_id), "its host was lost", host_leaves=False
            )
        )

    def evicted(self, eviction: Eviction) -> None:
        """Ends the program, because its hosts are gone or another gang needs them."""
        lifecycle = self._lifecycle
        if self._program is None or lifecycle.state is not GangState.RUNNING:
            return
        if eviction.gone:
            lifecycle = lifecycle.hosts_gone(eviction.key, eviction.gone, eviction.why_gone)
        self._lifecycle = (
            lifecycle.evicted(eviction.key, eviction.reason) if eviction.reason else lifecycle
        )
        if self._lifecycle.gone:
            self.died()
            self.history.losses += 1
            gone = self._lifecycle.gone
            self._finish(
                self._outcomes_of_loss(
                    lambda seat: (seat.host_id, seat.incarnation) in gone,
                    "its machine is gone",
                    host_leaves=True,
                )
            )
        elif eviction.reason and not self._program.is_dead:
            self.history.evictions += 1
            self._stop_program(self._program)
            self._set_timer(timedelta(seconds=self._world.stop), self._stop)

    def _stop(self) -> None:
        self._finish(self._outcomes(TaskState.KILLED))

    def _stop_program(self, program: _Program) -> None:
        """Stops a program, and keeps its work up to the last checkpoint for the next attempt."""
        program.is_dead = True
        program.end.cancel()
        program.starts_at = started_at = program.started_at(self._events.now)
        every = self._world.checkpoint_every
        if every > 0 and started_at is not None:
            ran = (self._events.now - started_at).total_seconds()
            self._saved = min(self._saved + ran // every * every, self._run.seconds)

    # The end of an attempt.

    def _outcomes(self, state: TaskState, fault: str = "") -> list[TaskOutcome]:
        """Returns the outcomes of all tasks. A failure is that of the first task, and ends the
        others.
        """
        assert self._program is not None
        now = self._events.now
        started_at = self._program.started_at(now) if not fault else None
        first = TaskOutcome(
            state=state,
            reason=state.value.lower(),
            exit_code={TaskState.SUCCEEDED: 0, TaskState.FAILED: 1}.get(state),
            started_at=started_at,
            finished_at=now,
            fault=fault,
        )
        other = first if state is not TaskState.FAILED else _killed(first)
        return [first, *[other] * (len(self._lifecycle.gang.tasks) - 1)]

    def _outcomes_of_loss(
        self, is_lost: Callable[[Seat], bool], reason: str, *, host_leaves: bool
    ) -> list[TaskOutcome]:
        """Returns the outcomes of all tasks: those on lost hosts have failed, and the others were
        ended.
        """
        placement, program = self._lifecycle.placement, self._program
        assert placement is not None
        assert program is not None
        now = self._events.now
        lost = TaskOutcome(
            state=TaskState.WORKER_FAILED,
            reason=reason,
            started_at=program.started_at(now),
            finished_at=now,
            host_leaves=host_leaves,
        )
        left = _killed(lost)
        return [lost if is_lost(seat) else left for seat in placement.seat_of_each_task]

    def _finish(self, outcomes: list[TaskOutcome], cancelled: str | None = None) -> None:
        self._cancel_timer()
        if self._program is not None:
            self._program.end.cancel()
        self._program = None
        self._lifecycle = self._lifecycle.finished(outcomes, self._lifecycle.eviction)
        self._release(cancelled)

    def _release(self, cancelled: str | None = None) -> None:
        release = release_of(self._lifecycle, cancelled=cancelled is not None)
        self._scheduler.send(release, lambda _: self._released(cancelled))

    def _released(self, cancelled: str | None) -> None:
        now = self._events.now
        self._lifecycle = self._lifecycle.released(None, cancelled, now)
        if self._lifecycle.state is GangState.ENDED:
            self.history.state = self._lifecycle.gang.first.state
            self.history.ended_at = now
            self._ended()
        else:
            self._events.at(now + self._lifecycle.delay, self.begin)

    @property
    def holds(self) -> Placement | None:
        """The hosts of the present attempt."""
        return self._lifecycle.placement

    @property
    def key(self) -> str:
        """The key of the request or the placement."""
        return self._lifecycle.gang.first.key or ""


def _killed(other: TaskOutcome) -> TaskOutcome:
    return other.model_copy(
        update={"state": TaskState.KILLED, "exit_code": None, "host_leaves": False}
    )


def _gang_of(history: GangHistory, number: int) -> Gang:
    """Returns the gang as it is when its workflow begins."""
    trace, at = history.trace, history.asked_at
    queued = trace.queued_at
    later = queued is not None and not history.resubmitted and queued != trace.at
    queued_at = at - timedelta(seconds=trace.at - (queued or 0.0)) if later else at
    spec = spec_of(trace, number)
    return Gang(
        cluster=CLUSTER,
        spec=spec,
        run_id=f"{number}",
        submitted_at=queued_at,
        admitted_at=at if later else None,
        tasks=tuple(TaskStatus(index=index) for index in range(spec.replicas)),
    )


def spec_of(trace: GangTrace, number: int) -> JobSpec:
    """Returns the job that stands for a gang.

    Args:
        number: the number of the gang, from 1 on.

    Raises:
        ValueError: the trace has values that no job can have.
    """
    tasks = trace.tasks * trace.tasks_per_host if trace.group_by is not None else 1
    failures = sum(run.end is UseEnd.FAILED for run in trace.runs[:-1])
    return JobSpec(
        user=trace.user,
        name=job_name(number),
        command=("true",),
        resources=_of_one_task(trace) if trace.group_by is not None else trace.resources,
        replicas=tasks,
        coscheduling=Coscheduling(
            group_by=trace.group_by, groups=trace.groups, tasks_per_host=trace.tasks_per_host
        )
        if trace.group_by is not None
        else None,
        constraints=tuple(map(parse_marked, trace.constraints)),
        band=trace.band,
        tags=dict(map(parse_tag, trace.tags)),
        limits=trace.limits,
        scheduling_timeout=(
            timedelta(seconds=trace.patience) if trace.patience is not None else None
        ),
        max_retries_failure=failures,
    )


def _of_one_task(trace: GangTrace) -> Resources:
    """Returns the resources of one of the tasks that share a host."""
    each, whole = trace.tasks_per_host, trace.resources
    if each == 1:
        return whole
    device = whole.device and Device(
        kind=whole.device.kind, variant=whole.device.variant, count=whole.device.count // each
    )
    return Resources(
        cpu_millis=whole.cpu_millis // each,
        memory_bytes=whole.memory_bytes // each,
        disk_bytes=whole.disk_bytes // each,
        device=device,
    )
