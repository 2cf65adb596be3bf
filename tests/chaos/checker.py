"""The verdict on a chaos run. It imports nothing of Iris, and reads only files of the run:

    attempts/*.jsonl   what the programs wrote (`program.py`)
    accepted.jsonl     the jobs whose submission was accepted, their number of tasks, and after how
                       many failures of one task FAILED is right (0: never)
    cancelled.jsonl    the jobs that were cancelled, written before the command
    seen.jsonl         when a job was first reported with a final state, or that it never was
    faults.jsonl       what was done to the cluster, with the hosts on which nothing could run
    left.jsonl         processes that were found after everything had ended
    pool.jsonl         the results of the calls of a pool of workers, and how its program ended
    commands.jsonl     commands that showed their user a traceback
    audit.jsonl        the audit log of the platform
    run.json           the time of the last fault, and how long everything may take after it

All times but the platform's are of CLOCK_BOOTTIME, in seconds. By hand: `python checker.py DIR`.
"""

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]

#: How long a program may go on after its host was stopped and continues, in seconds. While a whole
#: host is stopped, nothing on it can end the program; the shim does that first of all when it runs
#: again (decision 19, and decision 36 for the five seconds in which the agent helps).
WAKES = 5.0
#: The states in which a job has ended.
FINAL = ("SUCCEEDED", "FAILED", "KILLED", "WORKER_FAILED", "UNSCHEDULABLE")


class Evidence(NamedTuple):
    """The rows of each file."""

    attempts: list[Row]
    accepted: list[Row]
    cancelled: list[Row]
    seen: list[Row]
    faults: list[Row]
    left: list[Row]
    pool: list[Row]
    commands: list[Row]
    audit: list[Row]
    last_fault: float
    bound: float


class Violation(NamedTuple):
    """One promise that was not kept."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class Process(NamedTuple):
    """What one process wrote for a task."""

    attempt: int
    pid: int
    host: str
    began: float
    #: The last time at which it ran although nothing had kept its host from ending it.
    ran_until: float
    #: The exit code that it was about to have; None: it was ended before.
    code: int | None


class Summary(NamedTuple):
    """What happened, in numbers."""

    faults: int
    jobs: int
    attempts: int
    #: Attempts that were ended before they wrote an end.
    interrupted: int
    #: The longest time from the last record of an attempt that was ended to the next attempt's
    #: start, in seconds.
    longest_recovery: float

    def __str__(self) -> str:
        return (
            f"{self.faults} faults, {self.jobs} jobs, {self.attempts} attempts"
            f" ({self.interrupted} interrupted), longest recovery {self.longest_recovery:.0f} s"
        )


def read(directory: Path) -> Evidence:
    """Reads a run's directory."""
    run = json.loads((directory / "run.json").read_text())
    attempts = [row for file in sorted(directory.glob("attempts/*.jsonl")) for row in rows(file)]
    names = ("accepted", "cancelled", "seen", "faults", "left", "pool", "commands", "audit")
    written = {name: list(rows(directory / f"{name}.jsonl")) for name in names}
    return Evidence(attempts=attempts, last_fault=run["last_fault"], bound=run["bound"], **written)


def rows(file: Path) -> Iterator[Row]:
    """Reads a file's rows. A last line that was cut off by the end of its writer is none."""
    whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
    for line in whole.splitlines():
        yield json.loads(line)


def violations(evidence: Evidence) -> list[Violation]:
    """Returns everything that is wrong."""
    return [
        *not_lost(evidence),
        *not_twice(evidence),
        *not_after_the_end(evidence),
        *pool_results(evidence.pool),
        *nothing_left(evidence),
        *(
            Violation("TRACEBACK", f"iris {row['command']}: {row['said']}")
            for row in evidence.commands
        ),
        *machines(evidence.audit),
    ]


def not_lost(evidence: Evidence) -> Iterator[Violation]:
    """Each accepted job has ended in time, and as its programs did."""
    seen = {row["job"]: row for row in evidence.seen}
    cancelled = {row["job"] for row in evidence.cancelled}
    deadline = evidence.last_fault + evidence.bound
    tasks = processes(evidence)
    for row in accepted(evidence):
        job, last = row["job"], seen.get(row["job"], {"state": None})
        if last["state"] is None:
            yield Violation("LOST", f"{job} was accepted, and the cluster does not know it")
        elif last["state"] not in FINAL:
            yield Violation("WAITS", f"{job} is {last['state']}: {last.get('why', '')}")
        elif last["time"] > deadline:
            late = last["time"] - deadline
            yield Violation("WAITS", f"{job} ended {late:.0f} s later than the bound")
        elif not ends_with_another(job, cancelled, seen):
            runs = {task: tasks.get((job, task), []) for task in range(row["tasks"])}
            yield from fits(row, last["state"], runs)


def accepted(evidence: Evidence) -> list[Row]:
    """Returns the jobs that users submitted, and those that programs did."""
    children = {
        row["child"]: {"job": row["child"], "tasks": 1, "fails": 0}
        for row in evidence.attempts
        if row["event"] == "submitted"
    }
    return [*evidence.accepted, *children.values()]


def ends_with_another(job: str, cancelled: set[str], seen: dict[str, Row]) -> bool:
    """Returns whether the job, or one whose child it is, was cancelled, or an ancestor did not
    succeed, which cancels its children.
    """
    parts = job.split("/")
    ancestors = ["/".join(parts[:end]) for end in range(2, len(parts))]
    return any(each in cancelled for each in (job, *ancestors)) or any(
        seen.get(each, {"state": None})["state"] not in ("SUCCEEDED", None) for each in ancestors
    )


def fits(row: Row, state: str, runs: dict[int, list[Process]]) -> Iterator[Violation]:
    """The reported state is that of the records."""
    job = row["job"]
    codes = {task: [each.code for each in found] for task, found in runs.items()}
    without = [task for task, found in codes.items() if 0 not in found]
    if state == "SUCCEEDED" and without:
        yield Violation("LOST", f"{job} SUCCEEDED, but tasks {without} have not recorded success")
    elif state == "FAILED":
        failures = [sum(code not in (0, None) for code in found) for found in codes.values()]
        if not row["fails"] or max(failures, default=0) < row["fails"]:
            yield Violation("UNFIT", f"{job} FAILED, but its programs ended with {codes}")
    elif state != "SUCCEEDED":
        yield Violation("UNFIT", f"{job} is {state}, and nobody cancelled it")


def not_twice(evidence: Evidence) -> Iterator[Violation]:
    """No process of a task begins while another one of the same task may run."""
    for (job, task), found in sorted(processes(evidence).items()):
        for position, later in enumerate(found):
            for earlier in found[:position]:
                if later.began < earlier.ran_until:
                    beside = earlier.ran_until - later.began
                    yield Violation(
                        "TWICE",
                        f"{job}:{task}: attempt {later.attempt} (pid {later.pid}, host"
                        f" {later.host}) began at {later.began:.2f} and ran beside attempt"
                        f" {earlier.attempt} (pid {earlier.pid}, host {earlier.host}) for"
                        f" {beside:.2f} s",
                    )


def not_after_the_end(evidence: Evidence) -> Iterator[Violation]:
    """When a job is reported as ended, nothing of it runs."""
    seen = {row["job"]: row for row in evidence.seen if row["state"] in FINAL}
    for (job, task), found in sorted(processes(evidence).items()):
        if job in seen:
            for each in found:
                if each.ran_until > seen[job]["time"]:
                    late = each.ran_until - seen[job]["time"]
                    yield Violation(
                        "AFTER_END",
                        f"{job}:{task}@{each.attempt} (pid {each.pid}, host {each.host}) ran"
                        f" {late:.2f} s after its job was reported as {seen[job]['state']}",
                    )


def pool_results(pool: list[Row]) -> Iterator[Violation]:
    """Each call of the pool has one result, which is right: the square of its number."""
    ends = [row["ended"] for row in pool if "ended" in row]
    results = [row for row in pool if "call" in row]
    if ends != [0]:
        yield Violation("LOST", f"the program with the pool ended with {ends}")
    if [row["call"] for row in results] != [*range(len(results))]:
        yield Violation("LOST", "the calls of the pool do not have one result each, in their order")
    for row in results:
        if row["result"] != row["call"] ** 2:
            yield Violation("UNFIT", f"call {row['call']} of the pool returned {row['result']}")


def nothing_left(evidence: Evidence) -> Iterator[Violation]:
    for row in evidence.left:
        yield Violation("LEFT", f"process {row['pid']} runs {row['when']}: {row['command']}")


def machines(audit: Iterable[Row]) -> Iterator[Violation]:
    """Every machine that was created is gone, and no name had two at once."""
    alive: dict[str, str] = {}
    for row in audit:
        if row["what"] == "created":
            if row["path"] in alive.values():
                yield Violation("TWICE", f"machine {row['path']} was created while it existed")
            alive[row["uid"]] = row["path"]
        elif row["what"] in ("deleted", "vanished"):
            alive.pop(row["uid"], None)
    for path in alive.values():
        yield Violation("LEFT", f"machine {path} exists")


def processes(evidence: Evidence) -> dict[tuple[str, int], list[Process]]:
    """Returns what ran of each task, in the order of the starts."""
    freezes: dict[str, list[Row]] = defaultdict(list)
    for fault in evidence.faults:
        for host in fault.get("frozen_hosts", ()):
            freezes[host].append(fault)
    written: dict[tuple[str, int, int, int], list[Row]] = defaultdict(list)
    for row in evidence.attempts:
        written[row["job"], row["task"], row["attempt"], row["pid"]].append(row)
    found: dict[tuple[str, int], list[Process]] = defaultdict(list)
    for (job, task, attempt, pid), records in written.items():
        host = records[0]["host"]
        counted = [row["time"] for row in records if not just_woken(row["time"], freezes[host])]
        code = next((row["code"] for row in records if row["event"] == "end"), None)
        began = records[0]["time"]
        until = max(counted, default=began)
        found[job, task].append(Process(attempt, pid, host, began, until, code))
    for each in found.values():
        each.sort(key=lambda process: process.began)
    return found


def just_woken(time: float, freezes: list[Row]) -> bool:
    """Returns whether the host was stopped at that time, or has continued just before."""
    return any(fault["begin"] <= time <= fault["end"] + WAKES for fault in freezes)


def summary(evidence: Evidence) -> Summary:
    """Returns the run in numbers."""
    tasks = processes(evidence)
    recoveries = [
        later.began - earlier.ran_until
        for found in tasks.values()
        for earlier, later in itertools.pairwise(found)
        if earlier.code is None
    ]
    everything = [each for found in tasks.values() for each in found]
    return Summary(
        len(evidence.faults),
        len(accepted(evidence)),
        len(everything),
        sum(each.code is None for each in everything),
        max(recoveries, default=0.0),
    )


def main() -> None:
    evidence = read(Path(sys.argv[1]))
    found = violations(evidence)
    sys.stdout.writelines(f"{line}\n" for line in (*found, summary(evidence)))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
