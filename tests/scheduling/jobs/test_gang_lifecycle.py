"""The lifecycle of a gang: scenarios as transcripts in `tests/transcripts/gang/`.

The workflow of a gang does in each state what the line `next` shows. Commands:

    gang [tasks=2] [timeout=60s] [failures=1] [preemptions=1]
                                 a submitted gang
    wait 30s                     time passes
    begin / unheld / ask         the workflow begins an attempt, goes on after a hold, or sends its
                                 request
    refused TEXT / placed HOST … / unknown
                                 the answer of the scheduler
    offered HOST … / explained TEXT / evicted TEXT / gone HOST TEXT
                                 a signal of the scheduler
    takes                        the workflow takes the offered hosts
    timeout                      the scheduling timeout is over
    progress TASK STATE [TEXT]   a host's report, and what it does
    ended STATE [TEXT] | …       the outcome of each task; `ended evicted …`: an eviction ended them
    hold TEXT / release / band BAND / sent
                                 the user's overrides, and that the scheduler has them
    released                     the scheduler has the release
    cancel TEXT / cancelled      the user cancels the workflow, and it interrupts what the workflow
                                 does
    next run                     the workflow continues as new
"""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from iris.model.errors import IllegalMove
from iris.model.host.constraints import TPU_NAME
from iris.model.job.attempts import TaskOutcome
from iris.model.job.gangs import Gang, GangState
from iris.model.job.requests import Placement, Request, request_for
from iris.model.job.spec import Band, Coscheduling, Hold, Overrides
from iris.model.job.status import TaskStatus
from iris.model.states import TaskState
from iris.model.units import format_duration, parse_duration
from iris.scheduling.jobs import retries
from iris.scheduling.jobs.gang_lifecycle import GangLifecycle
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from tests.builders import NOON, a_gang_placement, a_host, a_spec, an_outcome
from tests.transcript import check, transcripts


def _refusal(message: str) -> Refusal:
    return Refusal(code=RefusalCode.QUEUED, message=message)


class Scenario:
    """A gang and its clock, driven by the commands of a transcript."""

    def __init__(self) -> None:
        self.now = NOON
        self.cancelled: str | None = None
        self.gang = GangLifecycle(Gang(cluster="c", spec=a_spec()))

    def execute(self, line: str) -> str:
        command, _, rest = line.partition(" ")
        try:
            self._do(command, rest)
        except IllegalMove as error:
            return f"illegal: {error}"
        return "" if command in ("gang", "wait", "cancel") else self._shown()

    def _do(self, command: str, rest: str) -> None:
        gang, hosts = self.gang, rest.split()
        match command:
            case "gang":
                self._submit(dict(each.split("=") for each in hosts))
            case "wait":
                self.now += parse_duration(rest)
            case "begin":
                self.gang = gang.begin(self._request().key)
            case "unheld" | "timeout" | "unknown":
                self.gang = {
                    "unheld": gang.unheld,
                    "timeout": gang.timed_out,
                    "unknown": gang.forget,
                }[command]()
            case "ask":
                self.gang = gang.requested(self._request())
            case "refused":
                self.gang = gang.refused(
                    _refusal(rest), "" if gang.repeated else gang.gang.first.reason
                )
            case "placed":
                self.gang = gang.placed(self._placement(hosts), self.now)
            case "offered":
                self.gang = gang.offered(self._placement(hosts))
            case "takes":
                assert gang.offer is not None
                self.gang = gang.placed(gang.offer, self.now)
            case "explained":
                self.gang = gang.explained(gang.gang.first.key or "", _refusal(rest))
            case "evicted":
                self.gang = gang.evicted(gang.gang.first.key or "", rest)
            case "gone":
                notice = gang.gang.first.key or "", [(hosts[0], "first")], " ".join(hosts[1:])
                self.gang = gang.hosts_gone(*notice)
            case "progress":
                key = gang.member_key(gang.gang.tasks[int(hosts[0])])
                prepared, doing = hosts[1] == "prepared", " ".join(hosts[2:])
                state = TaskState.BUILDING if prepared else TaskState(hosts[1])
                self.gang = gang.progressed(key, state, self.now, doing, prepared=prepared)
            case "ended":
                outcomes = [
                    self._outcome(each.strip()) for each in rest.removeprefix("evicted").split("|")
                ]
                self.gang = gang.finished(
                    outcomes, gang.eviction if rest.startswith("evicted") else ""
                )
            case "hold" | "release" | "band":
                change = {
                    "hold": {"hold": Hold(by="ada", reason=rest)},
                    "release": {"hold": None},
                    "band": {"band": rest},
                }[command]
                changed = gang.gang.overrides.model_dump() | change
                self.gang = gang.overridden(Overrides.model_validate(changed), self.now)
            case "sent":
                self.gang = replace(gang, amended=False)
            case "released":
                refusal = _refusal("no host is free") if not gang.outcomes else None
                self.gang = gang.released(refusal, self.cancelled, self.now)
            case "cancel":
                self.cancelled = rest
            case "cancelled":
                self.gang = gang.cancelled(self.cancelled or "", self.now)
            case "next":
                carried = Gang.model_validate_json(gang.carried(self.now).model_dump_json())
                self.gang = GangLifecycle(
                    carried, held_since=self.now if carried.overrides.hold else None
                )
            case _:
                raise AssertionError(f"unknown command {command}")

    def _submit(self, options: dict[str, str]) -> None:
        self.cancelled, tasks = None, int(options.get("tasks", "1"))
        spec = a_spec(
            replicas=tasks,
            coscheduling=Coscheduling(group_by=TPU_NAME) if tasks > 1 else None,
            scheduling_timeout=parse_duration(options["timeout"]) if "timeout" in options else None,
            max_retries_failure=int(options.get("failures", "0")),
            max_retries_preemption=int(options.get("preemptions", "100")),
        )
        statuses = tuple(TaskStatus(index=index) for index in range(tasks))
        self.gang = GangLifecycle(
            Gang(cluster="c", spec=spec, run_id="run", submitted_at=self.now, tasks=statuses)
        )

    def _request(self) -> Request:
        gang = self.gang.gang
        return request_for(
            gang.spec,
            index=0,
            attempt=gang.first.attempt + 1,
            run_id="run",
            owner="job",
            submitted_at=gang.submission,
            band=gang.band,
            avoid=gang.avoided,
        )

    def _placement(self, hosts: list[str]) -> Placement:
        return a_gang_placement(
            [a_host(host) for host in hosts], key=self.gang.gang.first.key or ""
        )

    def _outcome(self, text: str) -> TaskOutcome:
        state, _, reason = text.partition(" ")
        is_set_up = reason.startswith("set-up failed")
        started_at = None if "never started" in reason or is_set_up else self.now
        fault = "network" if is_set_up else ""
        return an_outcome(
            TaskState(state),
            reason=reason,
            started_at=started_at,
            finished_at=self.now,
            fault=fault,
        )

    def _shown(self) -> str:
        tasks = dict.fromkeys(
            f"{task.state}{f' ({task.reason})' if task.reason else ''}"
            for task in self.gang.gang.tasks
        )
        return f"{self.gang.state}: {', '.join(tasks)}; next: {self._next()}"

    def _next(self) -> str:
        gang = self.gang
        number = gang.gang.first.attempt
        match gang.state:
            case GangState.BACKOFF:
                return (
                    "attempt"
                    f" {number + 1}{f' after {format_duration(gang.delay)}' if gang.delay else ''}"
                )
            case GangState.HELD:
                return "wait for the end of the hold"
            case GangState.WAITING if gang.request is None:
                return f"send request {gang.gang.first.key}"
            case GangState.WAITING if gang.offer is not None:
                return "take the hosts"
            case GangState.WAITING if gang.amended:
                return (
                    "send overrides:"
                    f" {gang.gang.band}{', held' if gang.gang.overrides.hold else ''}"
                )
            case GangState.WAITING:
                left = gang.time_left(self.now)
                return (
                    "wait for hosts,"
                    f" {format_duration(left) if left is not None else 'without limit'}"
                )
            case GangState.RUNNING:
                if gang.eviction:
                    return f"end attempt {number}: {gang.eviction}"
                overrides = (
                    "; send overrides:"
                    f" {gang.gang.band}{', held' if gang.gang.overrides.hold else ''}"
                )
                if gang.gone:
                    dead = ", ".join(f"{host}: {why}" for (host, _), why in gang.gone.items())
                    return f"run attempt {number} without {dead}"
                return f"run attempt {number} on {self._hosts()}{overrides if gang.amended else ''}"
            case GangState.RELEASING:
                after = retries.hosts_after(gang.placement, gang.outcomes)
                spoilt = f", spoilt by {', '.join(after.spoilt_by)}" if after.spoilt_by else ""
                return f"release {gang.gang.first.key}{spoilt}"
            case _:
                paid = [f"{record.number} {record.account}" for record in gang.gang.attempts]
                return f"nothing; attempts: {', '.join(paid) or 'none'}"

    def _hosts(self) -> str:
        return ", ".join(task.host or "" for task in self.gang.gang.tasks)


@pytest.mark.parametrize("path", transcripts("gang"), ids=lambda path: path.stem)
def test_a_gang_gets_from_its_submission_to_its_end(path: Path) -> None:
    """Every scenario is a text that a person can review."""
    check(path, Scenario().execute)


def test_an_illegal_event_changes_nothing() -> None:
    """A gang that has ended stays as it is."""
    ended = Gang(cluster="c", spec=a_spec(), tasks=(TaskStatus(index=0),))
    gang = GangLifecycle(ended, state=GangState.ENDED)

    with pytest.raises(IllegalMove):
        gang.placed(a_gang_placement([a_host()]), NOON)

    assert gang == GangLifecycle(ended, state=GangState.ENDED)


def test_the_time_of_a_hold_does_not_count_for_the_scheduling_timeout() -> None:
    """It counts neither in the workflow's run in which the hold began, nor in the next run."""
    minute = timedelta(minutes=1)
    spec = a_spec(scheduling_timeout=2 * minute)
    begun = GangLifecycle(
        Gang(cluster="c", spec=spec, submitted_at=NOON, tasks=(TaskStatus(index=0),))
    )
    held = begun.overridden(Overrides(hold=Hold(by="ada"), band=Band.BATCH), NOON + minute)
    renewed = GangLifecycle(held.carried(NOON + 3 * minute), held_since=NOON + 3 * minute)
    released = renewed.overridden(Overrides(), NOON + 4 * minute)

    assert held.time_left(NOON + 3 * minute) is None
    assert released.time_left(NOON + 4 * minute) == minute
