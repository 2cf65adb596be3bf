"""The first page: is anything wrong, what is used, what waits and why."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from iris.client.jobs.lists import JobFilter
from iris.client.operate.worker_reports import AgentReport
from iris.dashboard import capacity, problems, scaling
from iris.dashboard.content import Address, Content
from iris.dashboard.pages.usage import Use, by_key, measure_of
from iris.dashboard.problems import Problem
from iris.dashboard.reader import USAGE_SHARED_FOR, Part, Reader, part
from iris.dashboard.words import words_of
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import HostView, Snapshot, Totals, WaitingGangs
from iris.model.job.spec import Band
from iris.model.states import JobState
from iris.usage.report import UsageReport

#: The states of jobs that the page lists as failures.
FAILED = (JobState.FAILED, JobState.WORKER_FAILED, JobState.UNSCHEDULABLE)
#: The limit on failed jobs that the page shows.
MOST_FAILURES = 8
#: The limit on slices that the page shows.
MOST_SLICES = 8
#: The limit on users that the page shows.
MOST_USERS = 8
WEEK = timedelta(days=7)


class Waiting(NamedTuple):
    """The number of gangs of one band that wait for the same reason."""

    band: Band
    #: The code of the reason why the gangs wait.
    code: str
    #: The reason why the gangs wait, in a few words.
    words: str
    gangs: int


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. Each of its parts has its own source, and shows if that does not answer."""
    now = datetime.now(UTC)
    (snapshot, totals, holdings, hosts), (scaler, failures, reports, week) = await asyncio.gather(
        asyncio.gather(
            part(reader.snapshot()),
            part(reader.totals()),
            part(reader.holdings()),
            part(reader.hosts()),
        ),
        asyncio.gather(
            part(reader.autoscaler()),
            part(reader.jobs(JobFilter(states=FAILED), MOST_FAILURES)),
            part(reader.reports()),
            part(reader.shared("week", lambda: last_week(reader), USAGE_SHARED_FOR)),
        ),
    )
    found = find_problems(snapshot, totals, scaler, now)
    found += of_reports(hosts, reports, now)
    held, status = holdings.value, scaler.value
    return Content(
        "Overview",
        {
            "problems": problems.in_order(found),
            "snapshot": snapshot,
            "totals": totals,
            "waiting": waiting(totals.value.waiting) if totals.value else [],
            "holdings": holdings,
            "kinds": capacity.by_kind(held.groups) if held else [],
            "groups": capacity.by_group(held.groups) if held else [],
            "devices_of": capacity.devices_of,
            "most": {"slices": MOST_SLICES, "users": MOST_USERS},
            "scaling": scaler,
            "existing": scaling.existing(status) if status else [],
            "coming": scaling.coming(status) if status else [],
            "returns": scaling.returns(status, held.idle) if status and held else [],
            "failures": failures,
            "week": week,
        },
    )


class Week(NamedTuple):
    """The use of the cluster in the last week."""

    #: The report of the week with its totals. Its rows, one for each user, are left out, because
    #: `uses` has the users that the page shows.
    report: UsageReport
    #: The users with the highest use, the highest first.
    uses: Sequence[Use]


async def last_week(reader: Reader) -> Week:
    """Returns who used the cluster in the last week, and what it cost."""
    report = await reader.usage(("user",), WEEK)
    measure = measure_of(report)
    uses = by_key(report, "user", measure)[:MOST_USERS]
    return Week(report.model_copy(update={"rows": ()}), uses)


def find_problems(
    snapshot: Part[Snapshot],
    totals: Part[Totals],
    scaler: Part[AutoscalerStatus],
    now: datetime,
) -> list[Problem]:
    """Returns the problems of the control plane, of the queue and of the slices."""
    found: list[Problem] = []
    if snapshot.value is None:
        found.append(problems.silence("scheduler", snapshot.problem))
    else:
        found += problems.of_scheduler(snapshot.value)
    if totals.value is not None:
        found += problems.of_queue(totals.value)
    if scaler.value is None:
        found.append(problems.silence("autoscaler", scaler.problem))
    else:
        found += problems.of_autoscaler(scaler.value, now)
    return found


def of_reports(
    hosts: Part[list[HostView]],
    reports: Part[dict[tuple[str, str], AgentReport]],
    now: datetime,
) -> list[Problem]:
    """Returns the problem of silent hosts. Without reports, the autoscaler still finds lost
    ones.
    """
    if hosts.value is None or reports.value is None:
        return []
    return list(problems.of_silence(problems.silent_hosts(hosts.value, reports.value, now)))


def waiting(counts: Iterable[WaitingGangs]) -> list[Waiting]:
    """Returns the waiting gangs by band and reason, in the order of the bands."""
    sums: Counter[tuple[Band, str]] = Counter()
    for each in counts:
        sums[each.band, each.reason or ""] += each.gangs
    return [
        Waiting(band, code, words_of(code), gangs)
        for (band, code), gangs in sorted(
            sums.items(), key=lambda entry: (entry[0][0].rank, -entry[1])
        )
    ]
