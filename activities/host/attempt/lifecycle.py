"""The lifecycle of an attempt on a host, as a table: state x event -> state.

    PREPARING ─ STARTED ─▶ RUNNING ──────── ENDED ─▶ ENDED ─ UPLOADED ─▶ REPORTING
        │                    │ │ │                     ▲                 │     │
        │ stop, host over    │ │ └ stop ─▶ STOPPING ───┤ ENDED  ACCEPTED │     │ REFUSED
        ├──▶ CANCELLED ──────┼─┼───────────────────────┤                 ▼     ▼
        │                    │ └ host over ─▶ KILLING ─┘                 SETTLED
        │ given up           │                                              ▲
        │                    └ given up ─▶ DROPPING ─ ENDED ─▶ DROPPED ─────┘ UPLOADED
        └─────────────────────────────────────────────────────────▲

The rules:

1.  All changes of an attempt's state are in this file. `step` decides; `Attempt` performs the
    effects, in their order.
2.  Only PREPARING + STARTED starts a program. No other state leads back to PREPARING, so at most
    one program is started.
3.  The first event that stops an attempt decides its outcome (`Lifecycle.outcome`). A later event
    may shorten the program's grace, but does not change the outcome.
4.  Nothing changes the outcome once the program has ended. `Attempt` must therefore look for the
    end of the program before every other event. If the program's first process has ended by itself
    (FIRST_ENDED), its exit decides the outcome, though the program still runs. An event that stops
    the program then stops the processes that are left.
5.  An attempt that was given up reports nothing, because it has a successor or will have one soon.
    Lost contact is treated in the same way, because the server may have given the attempt up. There
    are two exceptions, in which the attempt waits for contact and reports its outcome: an attempt
    that has ended, and one whose outcome is known (FIRST_ENDED) and whose processes are killed.
6.  Only ENDED + UPLOADED leads to REPORT, and never twice.
7.  HOST_OVER also sets `hurried`, for the rest of the attempt: uploads and the report get one short
    try. If that fails (UNREPORTED), the attempt's directory stays, and the next agent reports the
    outcome.
8.  The placement is freed if the server has no outcome from which the job frees it. A placement
    ends with its host's incarnation, so a hurried attempt frees nothing.

An event that is ignored on purpose is in the table, with the same state. Every other combination is
a fault of the agent: `step` raises and nothing changes. The table needs no clock: timeouts arrive
as events, and the shim keeps the grace and the lease.

Only the decided outcome and SETTLED are recorded in the attempt's directory
(`leftover_processes.AttemptFile`). For an attempt that an agent finds, `restore` derives the state
from these two records and from the files of its program.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from iris.model.job.attempts import TaskOutcome
from iris.model.lifecycle import transition
from iris.model.states import TaskState


class State(StrEnum):
    """The state of an attempt on its host."""

    #: The host prepares the attempt.
    PREPARING = "PREPARING"
    #: No program was started and none will be started. The outcome is decided.
    CANCELLED = "CANCELLED"
    #: The program was started.
    RUNNING = "RUNNING"
    #: The program got SIGTERM, and has its grace period to end. The outcome is decided.
    STOPPING = "STOPPING"
    #: The program is being killed, because the attempt cannot continue on this host or has filled
    #: its disk.
    KILLING = "KILLING"
    #: The program is being killed. The outcome will not be reported.
    DROPPING = "DROPPING"
    #: No program runs. The outcome is not reported.
    DROPPED = "DROPPED"
    #: The program ended or was never started. Its logs and outputs are being uploaded; then the
    #: outcome is reported.
    ENDED = "ENDED"
    #: The outcome is being reported.
    REPORTING = "REPORTING"
    #: No report is left to make: the Temporal server has accepted the outcome, or has given the
    #: attempt up, or contact with it was lost for too long. Some logs and outputs may remain to be
    #: uploaded.
    SETTLED = "SETTLED"


class Event(StrEnum):
    """Something that happened to an attempt."""

    #: The program is prepared and is started now.
    STARTED = "STARTED"
    #: The program ended, or the preparation ended without a program.
    ENDED = "ENDED"
    #: The program's first process ended by itself, and other processes of the program are left.
    FIRST_ENDED = "FIRST_ENDED"
    #: The user cancelled the job.
    CANCEL = "CANCEL"
    #: The attempt ran longer than its timeout.
    TIMEOUT = "TIMEOUT"
    #: The attempt used more of its host's disk than it may. Its program gets no grace period,
    #: because it could use even more space in that time.
    DISK_LIMIT = "DISK_LIMIT"
    #: The host stops, so the program has to end.
    PREEMPT = "PREEMPT"
    #: The attempt belongs to an earlier incarnation of the host.
    INCARNATION_OVER = "INCARNATION_OVER"
    #: The present incarnation of the host is over.
    HOST_OVER = "HOST_OVER"
    #: The host cannot continue the attempt: its disk is full, or its files were deleted.
    HOST_FAILED = "HOST_FAILED"
    #: The server does not wait for the attempt any more.
    GIVEN_UP = "GIVEN_UP"
    #: The host had no contact with the server for so long that the server may have given the
    #: attempt up.
    CONTACT_LOST = "CONTACT_LOST"
    #: Logs and outputs are in the store, or the store did not answer in time.
    UPLOADED = "UPLOADED"
    #: The server accepted the outcome.
    ACCEPTED = "ACCEPTED"
    #: The server does not want the outcome any more.
    REFUSED = "REFUSED"
    #: The cluster has given the host up, and the only try to report the outcome has failed.
    UNREPORTED = "UNREPORTED"


class Effect(StrEnum):
    """An action that the caller of `step` must perform. The actions are performed in the order in
    which `step` returns them.
    """

    #: The cluster has given the host up, and the job waits for the outcome. From now on, each
    #: upload and the report of the outcome get one short try, including those that are in progress.
    HURRY = "HURRY"
    #: Writes the decided outcome to the attempt's directory.
    RECORD_OUTCOME = "RECORD_OUTCOME"
    #: Stops the preparation of the program.
    CANCEL_PREPARATION = "CANCEL_PREPARATION"
    #: Sends SIGTERM, and SIGKILL after the job's grace.
    STOP_PROGRAM = "STOP_PROGRAM"
    #: Kills the program without a grace period.
    KILL_PROGRAM = "KILL_PROGRAM"
    #: Reports the outcome until the server answers.
    REPORT = "REPORT"
    #: Records in the attempt's directory that only the upload of logs and outputs is left to do.
    RECORD_SETTLED = "RECORD_SETTLED"
    #: Sends the scheduler a message that the placement is free.
    FREE_PLACEMENT = "FREE_PLACEMENT"


@dataclass(frozen=True)
class Lifecycle:
    """The state of an attempt, and the facts that decide its outcome."""

    state: State = State.PREPARING
    #: True if the program was started at any time.
    launched: bool = False
    #: The outcome that was decided before the program ended. If it is None, the program's exit
    #: decides the outcome.
    outcome: TaskOutcome | None = None
    #: True if the cluster has given the host up, so that each upload and the report of the outcome
    #: get only one more short try.
    hurried: bool = False
    #: True if the exit of the program's first process decides the outcome. Later events then do not
    #: change it.
    exited: bool = False


class Load(NamedTuple):
    """The state of an attempt at one moment, for the metrics of its host."""

    state: State
    #: The end of the attempt's lease, on the clock of `shim.now`; None if the attempt needs no
    #: lease any more.
    lease: float | None
    #: The bytes of output that are not in the store yet.
    log_backlog: int


#: The states of an attempt in which processes of its program may be alive.
STARTED = frozenset({State.RUNNING, State.STOPPING, State.KILLING, State.DROPPING})

_STOP = (Event.CANCEL, Event.TIMEOUT, Event.PREEMPT)
_KILL = (Event.INCARNATION_OVER, Event.HOST_OVER, Event.HOST_FAILED, Event.DISK_LIMIT)
_DROP = (Event.GIVEN_UP, Event.CONTACT_LOST)
_END = (*_STOP, *_KILL, *_DROP)
#: The events after which the attempt's incarnation of the host is over. The outcome records this
#: fact, because the slice may report the end of the incarnation only after the job has requested
#: hosts again: see `retries.hosts_after`.
_OVER = (Event.PREEMPT, Event.INCARNATION_OVER, Event.HOST_OVER)

#: The state of the outcome, by the event that decides the outcome. HOST_FAILED is not a key: its
#: outcome is made from the failure, after the program has been killed.
_OUTCOMES: Mapping[Event, TaskState] = {
    Event.CANCEL: TaskState.KILLED,
    Event.TIMEOUT: TaskState.FAILED,
    Event.DISK_LIMIT: TaskState.FAILED,
    Event.PREEMPT: TaskState.PREEMPTED,
    Event.INCARNATION_OVER: TaskState.WORKER_FAILED,
    Event.HOST_OVER: TaskState.WORKER_FAILED,
}


def _row(
    changes: Mapping[Event, State], *, stop: State, kill: State, drop: State
) -> Mapping[Event, State]:
    return {
        **dict.fromkeys(_STOP, stop),
        **dict.fromkeys(_KILL, kill),
        **dict.fromkeys(_DROP, drop),
        **changes,
    }


#: The next state, by present state and event. If a state has no entry for an event, the event is
#: illegal in that state.
TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.PREPARING: _row(
        {Event.STARTED: State.RUNNING, Event.ENDED: State.ENDED},
        stop=State.CANCELLED,
        kill=State.CANCELLED,
        drop=State.DROPPED,
    ),
    State.CANCELLED: _row(
        {Event.ENDED: State.ENDED}, stop=State.CANCELLED, kill=State.CANCELLED, drop=State.DROPPED
    ),
    State.RUNNING: _row(
        {Event.ENDED: State.ENDED, Event.FIRST_ENDED: State.RUNNING},
        stop=State.STOPPING,
        kill=State.KILLING,
        drop=State.DROPPING,
    ),
    State.STOPPING: _row(
        {Event.ENDED: State.ENDED}, stop=State.STOPPING, kill=State.KILLING, drop=State.DROPPING
    ),
    State.KILLING: _row(
        {Event.ENDED: State.ENDED}, stop=State.KILLING, kill=State.KILLING, drop=State.DROPPING
    ),
    State.DROPPING: _row(
        {Event.ENDED: State.DROPPED}, stop=State.DROPPING, kill=State.DROPPING, drop=State.DROPPING
    ),
    State.DROPPED: _row(
        {Event.ENDED: State.DROPPED, Event.UPLOADED: State.SETTLED},
        stop=State.DROPPED,
        kill=State.DROPPED,
        drop=State.DROPPED,
    ),
    State.ENDED: _row(
        {
            Event.ENDED: State.ENDED,
            Event.UPLOADED: State.REPORTING,
            Event.CONTACT_LOST: State.ENDED,
        },
        stop=State.ENDED,
        kill=State.ENDED,
        drop=State.DROPPED,
    ),
    State.REPORTING: _row(
        {
            Event.ACCEPTED: State.SETTLED,
            Event.REFUSED: State.SETTLED,
            Event.UNREPORTED: State.REPORTING,
        },
        stop=State.REPORTING,
        kill=State.REPORTING,
        drop=State.REPORTING,  # the server refuses the report
    ),
    State.SETTLED: _row({}, stop=State.SETTLED, kill=State.SETTLED, drop=State.SETTLED),
}


def step(
    lifecycle: Lifecycle, event: Event, reason: str = ""
) -> tuple[Lifecycle, tuple[Effect, ...]]:
    """Returns the lifecycle after the event, and the effects to perform, in order.

    Args:
        reason: the reason for the outcome, if the event decides it.

    Raises:
        IllegalMove: the state does not accept the event.
    """
    state = transition(TRANSITIONS, lifecycle.state, event, "an attempt")
    keeps_outcome = event is Event.CONTACT_LOST and lifecycle.exited  # rule 5
    if keeps_outcome and state is State.DROPPING and lifecycle.state is not State.DROPPING:
        state = State.KILLING
    after = replace(
        lifecycle,
        state=state,
        launched=lifecycle.launched or event is Event.STARTED,
        hurried=lifecycle.hurried or event is Event.HOST_OVER,
        exited=lifecycle.exited or event is Event.FIRST_ENDED,
    )
    decided = lifecycle.exited or lifecycle.outcome is not None
    if (
        not decided
        and event in _OUTCOMES
        and state in (State.CANCELLED, State.STOPPING, State.KILLING)
    ):
        outcome = TaskOutcome(state=_OUTCOMES[event], reason=reason, host_leaves=event in _OVER)
        after = replace(after, outcome=outcome)
    return after, _effects(lifecycle, event, after)


def restore(
    *, launched: bool, ended: bool, outcome: TaskOutcome | None, settled: bool
) -> Lifecycle:
    """Returns the lifecycle of an attempt that an earlier agent began.

    Args:
        launched: True if the start of the program was ordered.
        ended: True if the program has ended.
        outcome: the recorded outcome; None if no outcome was decided.
        settled: True if the record says that only uploads are left.
    """
    if settled:
        state = State.SETTLED
    elif launched and ended:
        state = State.ENDED
    elif launched:
        state = State.RUNNING if outcome is None else State.STOPPING
    else:
        state = State.PREPARING if outcome is None else State.CANCELLED
    return Lifecycle(state, launched, outcome)


def _effects(before: Lifecycle, event: Event, after: Lifecycle) -> tuple[Effect, ...]:
    unreported = event is Event.REFUSED or before.state is State.DROPPED
    settles = after.state is State.SETTLED is not before.state
    due = {
        Effect.HURRY: event is Event.HOST_OVER,
        Effect.RECORD_OUTCOME: after.outcome is not before.outcome,
        Effect.CANCEL_PREPARATION: before.state is State.PREPARING
        and after.state in (State.CANCELLED, State.DROPPED),
        # A repeated order costs nothing, and the shim may not have read the first one.
        Effect.STOP_PROGRAM: event in _END and after.state is State.STOPPING,
        Effect.KILL_PROGRAM: event in _END and after.state in (State.KILLING, State.DROPPING),
        Effect.REPORT: event is Event.UPLOADED and after.state is State.REPORTING,
        Effect.RECORD_SETTLED: settles,
        Effect.FREE_PLACEMENT: settles and unreported and not after.hurried,
    }
    return tuple(effect for effect, is_due in due.items() if is_due)
