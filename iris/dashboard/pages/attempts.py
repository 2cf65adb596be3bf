"""The attempts of a job on a time line: how long each waited, was set up and ran, and its end."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple

from iris.dashboard.charts import Segment
from iris.model.job.attempts import Account, AttemptRecord
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import ENDED, LIVE
from iris.model.units import format_duration

#: The limit on attempts that a page shows. If there are more, the first ones in the order of tasks
#: and attempts are left out.
MOST_LINES = 60
#: The number of steps in which the bar of a running attempt grows from the left to the right of the
#: drawing. Between two steps the page does not change.
STEPS = 60


class AttemptLine(NamedTuple):
    """One attempt of a task, with its bar on the time line."""

    task: int
    number: int
    hosts: Sequence[str]
    segments: Sequence[Segment]
    #: How long the attempt waited for hosts. It is None if the attempt has not ended, or if the
    #: time is not known.
    waited: timedelta | None
    #: How long the set-up of the attempt took. It is None if the attempt has not ended, or if the
    #: time is not known.
    set_up: timedelta | None
    #: How long the program of the attempt ran. It is None if the attempt has not ended, if the
    #: program never started, or if the time is not known.
    ran: timedelta | None
    #: The retry account that the attempt counts against, such as `failures` or `preemptions`; empty
    #: if the attempt has not ended, or succeeded, or was ended on purpose.
    account: str
    #: The reason why the attempt ended, or why it waits.
    reason: str
    #: A sign for how the attempt ended; empty if it has not ended.
    sign: str
    #: A word for how the attempt ended, or the task's state if it has not ended.
    end: str


class TimeLine(NamedTuple):
    """Attempts of a job's tasks, in the period from `start` to `end`."""

    start: datetime
    end: datetime
    lines: Sequence[AttemptLine]
    #: The number of attempts that the time line leaves out because there are too many.
    left_out: int


#: The sign and the word for how an attempt ended, by the retry account that it counts against. The
#: signs differ, so that they can be read without colours.
_ENDS = {
    Account.FAILURES: ("✕", "failed"),
    Account.PREEMPTIONS: ("⇄", "preempted"),
    Account.SETUPS: ("✕", "set-up failed"),
    Account.UNDELIVERED: ("○", "not started"),
    Account.NONE: ("✓", "ended"),
}


def time_line(
    status: JobStatus,
    attempts: Mapping[int, Sequence[AttemptRecord]],
    task: int | None,
    now: datetime,
) -> TimeLine | None:
    """Returns the attempts of a job, or of one of its tasks. Returns None if there are none.

    Args:
        attempts: the attempts that have ended, by the task's index.
        task: the task that is shown; None for the job.
    """
    shown = [each for each in status.tasks if _is_shown(each, status, attempts, task)]
    last = max((each.ended_at for records in attempts.values() for each in records), default=None)
    live = any(each.state not in ENDED for each in shown)
    start = status.submitted_at
    end = status.finished_at or (now if live or last is None else last)
    if live:
        span = max((now - start).total_seconds(), 1.0)
        step = max(10.0, 10 ** len(str(int(span / STEPS))) / 10)
        end = start + timedelta(seconds=step * ceil(span / step))
    lines: list[AttemptLine] = []
    for each in shown:
        records = attempts.get(each.index, ())
        free = start
        for record in records:
            lines.append(_ended(each.index, record, free))
            free = record.ended_at
        if each.state not in ENDED:
            lines.append(_current(each, free, end))
        elif not records and each.started_at is not None:
            lines.append(_only(each, free))
    if not lines:
        return None
    return TimeLine(start, end, lines[-MOST_LINES:], max(0, len(lines) - MOST_LINES))


def _is_shown(
    task: TaskStatus,
    status: JobStatus,
    attempts: Mapping[int, Sequence[AttemptRecord]],
    wanted: int | None,
) -> bool:
    if wanted is not None:
        return task.index == wanted
    if attempts:
        return task.index in attempts
    return task is status.tasks[0]


def _ended(task: int, record: AttemptRecord, free: datetime) -> AttemptLine:
    set_up_end = record.started_at or record.ended_at
    ran = None if record.started_at is None else record.ended_at - record.started_at
    waited, set_up = record.placed_at - free, set_up_end - record.placed_at
    sign, end = _ENDS[record.account]
    segments = [
        _segment("waiting", free, record.placed_at),
        _segment("set-up", record.placed_at, set_up_end),
    ]
    if record.started_at is not None:
        segments.append(_segment("run", record.started_at, record.ended_at))
    return AttemptLine(
        task,
        record.number,
        list(dict.fromkeys(record.hosts)),
        segments,
        waited,
        set_up,
        ran,
        "" if record.account is Account.NONE else record.account,
        record.reason or "succeeded",
        sign,
        end,
    )


def _current(task: TaskStatus, free: datetime, end: datetime) -> AttemptLine:
    """Returns the attempt that has not ended. The status has no time of its placement."""
    segments = [_segment("waiting", free, task.started_at or end)]
    if task.started_at is not None and task.state in LIVE:
        segments.append(_segment("run", task.started_at, end, "runs"))
    number = task.attempt if task.state in LIVE else task.attempt + 1
    return AttemptLine(
        task.index,
        number,
        [task.host] if task.host and task.state in LIVE else [],
        segments,
        None,
        None,
        None,
        "",
        task.reason,
        "",
        str(task.state),
    )


def _only(task: TaskStatus, free: datetime) -> AttemptLine:
    """Returns the attempt of a task that ended at the first, whose record nobody asked for."""
    assert task.started_at is not None
    end = task.finished_at or task.started_at
    return AttemptLine(
        task.index,
        task.attempt,
        [task.host] if task.host else [],
        [_segment("waiting", free, task.started_at), _segment("run", task.started_at, end)],
        task.started_at - free,
        None,
        end - task.started_at,
        "",
        task.reason,
        "✓" if task.state == "SUCCEEDED" else "✕",
        str(task.state),
    )


def _segment(kind: str, start: datetime, end: datetime, text: str = "") -> Segment:
    length = format_duration(max(timedelta(0), end - start))
    return Segment(kind, start, end, f"{kind} {text or length}")
