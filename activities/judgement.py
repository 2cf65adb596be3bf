"""What an attempt comes to: from how its program ended, and from who wanted it ended before. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from iris import exits
from iris.activities.runtimes.program import Exit, Started
from iris.faults import BEYOND_THE_HOST, Fault, recognise
from iris.jobs import TaskOutcome
from iris.states import TaskState

#: The name of the fault when it is the host on which an attempt cannot go on, …
HOST_FAULT = "host"
#: … and when somebody, perhaps the program itself, has taken from it what it needs there: no word against the host.
LOST_FAULT = "attempt-lost"


class Case(NamedTuple):
    """What is known of an attempt that is over."""

    taken_at: datetime
    now: datetime
    #: Whether there was a program, …
    begun: bool
    #: … and what is known of it.
    started: Started | None
    exit: Exit | None = None
    #: What somebody who ended it had decided.
    verdict: TaskOutcome | None = None
    #: In bytes; 0: none.
    memory_limit: int = 0
    last_lines: str = ""
    faults: Sequence[Fault] = ()


def judge(case: Case) -> TaskOutcome:
    """The outcome of a program that ended, or was ended, or could not be started."""
    exited = case.exit or Exit()
    status, ran = exited.status, {"peak_memory_bytes": exited.peak_memory_bytes}
    if exited.error and status is not None:
        return of_the_program(case, exited.error, status)
    if case.verdict is not None:
        code = None if status is None else exits.explain(status).exit_code
        return _ended(case, case.verdict.model_copy(update={**ran, "exit_code": code}))
    if status is None:
        return of_the_host(case, exited.error or "nobody knows how the program ended: its shim was killed", LOST_FAULT)
    if exited.fenced:
        return of_the_host(case, "the program was killed: its host had no contact with the cluster for too long")
    if status == 0:
        return _ended(case, TaskOutcome(state=TaskState.SUCCEEDED, exit_code=0, **ran))
    end = exits.explain(status, out_of_memory=exited.out_of_memory, memory_limit=case.memory_limit)
    outcome = TaskOutcome(state=TaskState.FAILED, reason=end.reason, exit_code=end.exit_code, signal=end.signal, **ran)
    if not exited.out_of_memory and (fault := recognise(case.last_lines, case.faults)):
        reason = f"infrastructure fault: {fault.why} ({end.reason})"
        outcome = outcome.model_copy(update={"state": TaskState.WORKER_FAILED, "fault": fault.name, "reason": reason})
    return _ended(case, outcome)


def of_the_program(case: Case, reason: str, exit_code: int) -> TaskOutcome:
    """It would not have started on any host: its own failure, though there was no program."""
    failed = TaskOutcome(state=TaskState.FAILED, reason=reason, exit_code=exit_code, started_at=case.taken_at)
    return _ended(case, failed)


def of_the_host(case: Case, reason: str, fault: str = "") -> TaskOutcome:
    """It is the fault of the host, or of what it needs. What never started for want of a host that can costs nobody anything, and
    has no fault to count; what fails wherever it is tried, such as a registry, has to."""
    counts = case.begun or fault in BEYOND_THE_HOST
    return _ended(case, TaskOutcome(state=TaskState.WORKER_FAILED, reason=reason, fault=fault if counts else ""))


def _ended(case: Case, outcome: TaskOutcome) -> TaskOutcome:
    if case.exit is not None and case.exit.lost_output:
        lost = f"{case.exit.lost_output:,} bytes of its output are lost: the disk of its host was full"
        outcome = outcome.model_copy(update={"reason": f"{outcome.reason}; {lost}".removeprefix("; ")})
    at = datetime.fromtimestamp(case.exit.at, UTC) if case.exit is not None and case.exit.at else case.now
    started = case.started.started_at if case.started else outcome.started_at or (case.taken_at if case.begun else None)
    return outcome.model_copy(update={"started_at": started, "finished_at": at, "last_lines": case.last_lines})
