"""The lifecycle of a gang as a table, and the value that its workflow passes from run to run.

Rule 1: a gang's state changes only through `move_gang`. An event that a state does not accept
raises `IllegalMove` and changes nothing. Rule 2: signals may arrive late, so every state has an
entry for every signal.

In each state the gang's workflow does one thing until an event ends it
(`iris.workflows.jobs.gang_run`). Not in this module: the other changes of an event
(`iris.scheduling.jobs.gang_lifecycle`), and which account pays for an attempt
(`iris.scheduling.jobs.retries`).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from iris.model.frozen import Frozen
from iris.model.job.attempts import AttemptRecord
from iris.model.job.spec import Band, JobSpec, Overrides
from iris.model.job.status import TaskStatus
from iris.model.lifecycle import transition

#: The first words of the reason of a task that is ready and waits for other tasks of its gang.
WAITS_FOR = "waits for"


class GangState(StrEnum):
    # has no request and no hosts; the first attempt begins at once, a later one after a delay
    BACKOFF = "BACKOFF"
    HELD = "HELD"  # its user holds it, and it has not sent its request
    WAITING = "WAITING"  # sends its request, and waits for hosts
    RUNNING = "RUNNING"  # has hosts, on which its programs start, run and end
    RELEASING = "RELEASING"  # withdraws its request or releases its hosts
    ENDED = "ENDED"


class GangEvent(StrEnum):
    # Steps of the gang's workflow.
    HOLD = "HOLD"  # an attempt begins while the user holds the gang
    BEGIN = "BEGIN"  # an attempt begins, or continues after the hold
    ASK = "ASK"  # the request is sent, or sent again
    REFUSE = "REFUSE"  # the scheduler has no hosts yet
    PLACE = "PLACE"  # the gang takes its hosts
    FORGET = "FORGET"  # the scheduler does not accept the key of the request
    TIME_OUT = "TIME_OUT"  # the scheduling timeout is over
    FINISH = "FINISH"  # all programs have ended
    RETRY = "RETRY"  # request or hosts are released, and another attempt follows
    END = "END"  # request or hosts are released, and no attempt follows
    CANCEL = "CANCEL"  # the workflow is cancelled
    # Signals.
    OFFER = "OFFER"  # the scheduler found hosts for a gang that waits
    EXPLAIN = "EXPLAIN"  # the reason why the gang waits has changed
    EVICT = "EVICT"  # the scheduler takes the hosts away
    LOSE = "LOSE"  # the platform confirms that machines of the gang are gone
    PROGRESS = "PROGRESS"  # a host prepares or runs a program
    OVERRIDE = "OVERRIDE"  # the user changes the band, holds or releases the gang


_S, _E = GangState, GangEvent
#: The entry in `GANG_MOVES` for an event that a state ignores: the gang stays exactly as it is.
IGNORED = None

#: The next state of a gang, by its state and the event. If the next state is the same state, the
#: event is accepted, and other data of the gang may change.
GANG_MOVES: Mapping[GangState, Mapping[GangEvent, GangState | None]] = {
    _S.BACKOFF: {
        _E.HOLD: _S.HELD,
        _E.BEGIN: _S.WAITING,
        _E.CANCEL: _S.ENDED,
        _E.OFFER: IGNORED,
        _E.EXPLAIN: _S.BACKOFF,
        _E.EVICT: IGNORED,
        _E.LOSE: IGNORED,
        _E.PROGRESS: IGNORED,
        _E.OVERRIDE: _S.BACKOFF,
    },
    _S.HELD: {
        _E.BEGIN: _S.WAITING,
        _E.CANCEL: _S.RELEASING,
        _E.OFFER: IGNORED,
        _E.EXPLAIN: _S.HELD,
        _E.EVICT: IGNORED,
        _E.LOSE: IGNORED,
        _E.PROGRESS: IGNORED,
        _E.OVERRIDE: _S.HELD,
    },
    _S.WAITING: {
        _E.ASK: _S.WAITING,
        _E.REFUSE: _S.WAITING,
        _E.PLACE: _S.RUNNING,
        _E.FORGET: _S.RELEASING,
        _E.TIME_OUT: _S.RELEASING,
        _E.CANCEL: _S.RELEASING,
        _E.OFFER: _S.WAITING,
        _E.EXPLAIN: _S.WAITING,
        _E.EVICT: _S.WAITING,  # an eviction may arrive before the gang has taken its hosts
        _E.LOSE: _S.WAITING,
        _E.PROGRESS: IGNORED,
        _E.OVERRIDE: _S.WAITING,
    },
    _S.RUNNING: {
        _E.FINISH: _S.RELEASING,
        _E.CANCEL: _S.RELEASING,
        _E.OFFER: IGNORED,
        _E.EXPLAIN: IGNORED,
        _E.EVICT: _S.RUNNING,
        _E.LOSE: _S.RUNNING,
        _E.PROGRESS: _S.RUNNING,
        _E.OVERRIDE: _S.RUNNING,
    },
    _S.RELEASING: {
        _E.RETRY: _S.BACKOFF,
        _E.END: _S.ENDED,
        _E.CANCEL: IGNORED,  # the release completes, and then the cancellation counts
        _E.OFFER: IGNORED,  # the release after a timeout also releases an offer that comes late
        _E.EXPLAIN: _S.RELEASING,
        _E.EVICT: IGNORED,
        _E.LOSE: IGNORED,
        _E.PROGRESS: _S.RELEASING,  # a report may arrive after the program's end
        _E.OVERRIDE: _S.RELEASING,
    },
    _S.ENDED: {
        _E.CANCEL: IGNORED,
        _E.OFFER: IGNORED,
        _E.EXPLAIN: IGNORED,
        _E.EVICT: IGNORED,
        _E.LOSE: IGNORED,
        _E.PROGRESS: IGNORED,
        _E.OVERRIDE: _S.ENDED,
    },
}


def move_gang(now: GangState, event: GangEvent) -> GangState | None:
    """Returns the state of a gang after an event; `IGNORED` if the event has no effect.

    Raises:
        IllegalMove: the state does not accept the event.
    """
    return transition(GANG_MOVES, now, event, "a gang")


class Gang(Frozen):
    """Tasks that are placed, started and retried together, and the state of these tasks.

    A gang is the input of a job's or task's workflow, and contains everything that one run of the
    workflow passes to the next run.
    """

    cluster: str
    spec: JobSpec
    #: The id of the job's first run, set by the job's workflow. The paths of the job's logs contain
    #: it.
    run_id: str = ""
    #: When the job was submitted. If it is None, the first run of the workflow sets it to the time
    #: of its own start.
    submitted_at: datetime | None = None
    #: When the gang began to wait for hosts, because the last dependency had ended. It is None if
    #: the job has no dependencies, or still waits for them.
    ready_at: datetime | None = None
    #: When the gang was allowed to request hosts, if an array's limit on running tasks delayed it;
    #: None if no limit did.
    admitted_at: datetime | None = None
    #: The statuses of the tasks; empty until the workflow begins.
    tasks: tuple[TaskStatus, ...] = ()
    #: The changes that the user made after the submission.
    overrides: Overrides = Overrides()
    #: How long the user has held the gang. This time does not count for the scheduling timeout.
    held_for: timedelta = timedelta(0)
    attempts: tuple[AttemptRecord, ...] = ()
    #: The hosts on which the last attempts failed through a fault of the host. A host may occur
    #: several times. The next attempt avoids these hosts if another host is possible.
    avoided: tuple[str, ...] = ()

    @property
    def first(self) -> TaskStatus:
        """The first task. The tasks of a gang differ only in their hosts and their outcomes."""
        return self.tasks[0]

    @property
    def band(self) -> Band:
        return self.overrides.band or self.spec.band

    @property
    def submission(self) -> datetime:
        """When the job was submitted. The workflow must have begun."""
        assert self.submitted_at is not None
        return self.submitted_at

    @property
    def queued_at(self) -> datetime:
        """The time from which the scheduler counts how long the gang has been waiting for hosts."""
        return self.ready_at or self.submission

    @property
    def could_ask_at(self) -> datetime:
        """The time from which the scheduling timeout counts: when the gang could first request
        hosts.
        """
        return self.admitted_at or self.queued_at

    def with_task(self, place: int, task: TaskStatus) -> Self:
        """Returns the gang with another status for the task at this place."""
        return self.model_copy(
            update={"tasks": (*self.tasks[:place], task, *self.tasks[place + 1 :])}
        )

    def with_tasks(self, **changes: object) -> Self:
        """Returns the gang with these fields changed in the status of every task."""
        return self.model_copy(
            update={"tasks": tuple(task.model_copy(update=changes) for task in self.tasks)}
        )
