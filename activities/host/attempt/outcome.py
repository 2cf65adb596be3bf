"""Decides the outcome of an attempt from how its program ended and from any earlier decision to end
it. Pure functions.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from iris.activities.host.files.caches import is_disk_full
from iris.activities.host.machine.ports import COORDINATOR_FAULT
from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.cleanup.links import Replaced
from iris.activities.host.runtimes.process.job_users import USERS_FAULT
from iris.activities.host.runtimes.program import Exit, Started
from iris.model.host.exit_codes import explain
from iris.model.host.faults import BEYOND_THE_HOST, Fault, error_line, recognise
from iris.model.host.gpus import GPU_FAULT
from iris.model.job.attempts import TaskOutcome
from iris.model.states import TaskState

#: The name of the fault if an attempt cannot continue because of its host.
HOST_FAULT = "host"
#: The name of the fault if Iris's files were deleted or the shim was killed, perhaps by the program
#: itself. This fault does not count against the host.
LOST_FAULT = "attempt-lost"
#: The name of the fault if the attempt itself filled the disk. Before the start of the program,
#: this counts only if the attempt's files take more than half of the space that was free before the
#: preparation.
FILLED_FAULT = "disk-filled"


class Evidence(NamedTuple):
    """The known facts about an attempt that has ended."""

    taken_at: datetime
    now: datetime
    #: True if this host tried to start the program.
    launched: bool
    #: The record of the program's start; None if the program was not started.
    started: Started | None
    exit: Exit | None = None
    #: The outcome that was decided before the program ended; None if the program ended first.
    decided: TaskOutcome | None = None
    #: The task's memory limit, in bytes; 0 if the task has none.
    memory_limit: int = 0
    last_lines: str = ""
    #: The patterns that recognise faults of the infrastructure.
    faults: Sequence[Fault] = ()
    #: The fault of a device that the task uses, found after the program ended; empty if there is
    #: none.
    device_fault: str = ""
    #: The sentence in the outcome about output files that are not stored; empty if all are stored.
    left_out: str = ""
    #: True if the program reports that every other attempt would end in the same way.
    final: bool = False


def outcome_of(evidence: Evidence) -> TaskOutcome:
    """Returns the outcome of a program that ended, was ended, or could not be started."""
    exited = evidence.exit or Exit()
    status, ran = exited.status, {"peak_memory_bytes": exited.peak_memory_bytes}
    if exited.error and status is not None:
        return of_the_program(evidence, exited.error, status)
    if evidence.decided is not None:
        code = None if status is None else explain(status).exit_code
        return _ended(evidence, evidence.decided.model_copy(update={**ran, "exit_code": code}))
    if status is None:
        return of_the_host(
            evidence,
            exited.error or "the program's exit is unknown: its shim was killed",
            LOST_FAULT,
        )
    if exited.fenced:
        return of_the_host(
            evidence,
            "the program was killed: its host had no contact with the cluster for too long",
        )
    if status == 0:
        return _ended(evidence, TaskOutcome(state=TaskState.SUCCEEDED, exit_code=0, **ran))
    end = explain(status, out_of_memory=exited.out_of_memory, memory_limit=evidence.memory_limit)
    said = error_line(evidence.last_lines)
    reason = f"{end.reason}: {said}" if said else end.reason
    ended = {"exit_code": end.exit_code, "signal": end.signal, "final": evidence.final, **ran}
    outcome = TaskOutcome(state=TaskState.FAILED, reason=reason, **ended)
    if not exited.out_of_memory and (fault := recognise(evidence.last_lines, evidence.faults)):
        reason = f"infrastructure fault: {fault.why} ({end.reason})"
        outcome = outcome.model_copy(
            update={"state": TaskState.WORKER_FAILED, "fault": fault.name, "reason": reason}
        )
    elif not exited.out_of_memory and evidence.device_fault:
        reason = f"infrastructure fault: {evidence.device_fault} ({end.reason})"
        outcome = outcome.model_copy(
            update={"state": TaskState.WORKER_FAILED, "fault": GPU_FAULT, "reason": reason}
        )
    return _ended(evidence, outcome)


def of_the_program(evidence: Evidence, reason: str, exit_code: int) -> TaskOutcome:
    """Returns the outcome of an attempt that no host could start. It is a failure of the job."""
    failed = TaskOutcome(
        state=TaskState.FAILED, reason=reason, exit_code=exit_code, started_at=evidence.taken_at
    )
    return _ended(evidence, failed)


def of_the_host(evidence: Evidence, reason: str, fault: str = "") -> TaskOutcome:
    """Returns a failure of the host, or of something that the attempt needs, such as a registry.

    If the program was not started because of the host, the outcome names no fault, so the attempt
    costs no retry. A fault that other hosts may have too (`BEYOND_THE_HOST`) is always named, so it
    counts.
    """
    counts = evidence.launched or fault in BEYOND_THE_HOST
    return _ended(
        evidence,
        TaskOutcome(state=TaskState.WORKER_FAILED, reason=reason, fault=fault if counts else ""),
    )


def of_a_host_fault(
    evidence: Evidence, error: HostFault, *, filled: bool, others_filled: bool
) -> TaskOutcome:
    """Returns the outcome of an attempt that its host could not prepare.

    The host refuses the attempt, and neither of them is at fault, if other attempts hold all uids
    or the port, or may have filled the disk.

    Args:
        filled: True if this attempt has filled the disk.
        others_filled: True if other attempts may have filled the disk instead.
    """
    outcome = of_the_host(evidence, str(error), FILLED_FAULT if filled else error.fault)
    refused = others_filled or error.fault in (USERS_FAULT, COORDINATOR_FAULT)
    return outcome.model_copy(update={"refused": refused})


def of_a_failure(evidence: Evidence, error: Exception, *, launched: bool) -> TaskOutcome:
    """Returns the outcome of an attempt that an error of the agent's own work has ended.

    Args:
        launched: True if the order to start the program is on the disk.
    """
    reason, fault = str(error), HOST_FAULT
    if isinstance(error, FileNotFoundError):
        reason = "Iris's files beside the program were deleted"
    if isinstance(error, FileNotFoundError | Replaced):
        fault = LOST_FAULT
    if launched and isinstance(error, OSError) and is_disk_full(error):
        fault = FILLED_FAULT  # the disk was free when the program began
    return of_the_host(evidence, f"the attempt cannot continue on this host: {reason}", fault)


def of_an_unreadable_record(host_id: str, kept: Path, now: datetime) -> TaskOutcome:
    """Returns the outcome of an attempt whose record an agent cannot read, for instance because
    another version of Iris wrote it.

    Args:
        kept: the directory on the host with the logs and outputs of the attempt.
    """
    reason = (
        f"host {host_id} could not read the record of the attempt and killed its program; what it"
        f" wrote is there in {kept}"
    )
    return TaskOutcome(
        state=TaskState.WORKER_FAILED, reason=reason, fault=LOST_FAULT, finished_at=now
    )


def _ended(evidence: Evidence, outcome: TaskOutcome) -> TaskOutcome:
    if evidence.exit is not None and evidence.exit.lost_output:
        lost = (
            f"{evidence.exit.lost_output:,} bytes of its output are lost: the disk of its host was"
            " full"
        )
        outcome = _also(outcome, lost)
    if evidence.left_out:
        outcome = _also(outcome, evidence.left_out)
    at = (
        datetime.fromtimestamp(evidence.exit.at, UTC)
        if evidence.exit is not None and evidence.exit.at
        else evidence.now
    )
    started = outcome.started_at or (evidence.taken_at if evidence.launched else None)
    if evidence.started:
        started = evidence.started.started_at
    return outcome.model_copy(
        update={"started_at": started, "finished_at": at, "last_lines": evidence.last_lines}
    )


def _also(outcome: TaskOutcome, fact: str) -> TaskOutcome:
    return outcome.model_copy(update={"reason": f"{outcome.reason}; {fact}".removeprefix("; ")})
