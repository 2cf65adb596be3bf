"""When the service starts the runs of a schedule, above all where the clock is changed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import ScheduleBackfill, ScheduleOverlapPolicy

from iris.client.schedules.when import When
from iris.messages.scheduled_job import LEFT_OUT
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.states import JobState
from tests.builders import a_spec
from tests.harness import Cluster, dev_server_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """On a real server: the time-skipping one has no schedules."""
    async with dev_server_cluster() as cluster:
        yield cluster


#: A time zone, an expression, and the clock's times and offsets, in hours, at which a run starts on
#: the day of the change.
SPRING = [
    ("Europe/Berlin", "30 2 * * *", ""),
    ("Europe/Berlin", "0 2 * * *", ""),
    ("Europe/Berlin", "30 1 * * *", "01:30+1"),
    ("Europe/Berlin", "0 3 * * *", "03:00+2"),
    ("Europe/Berlin", "0 1-4 * * *", "01:00+1 03:00+2"),
    ("America/New_York", "30 2 * * *", ""),
    ("America/New_York", "0 3 * * *", "03:00-4"),
    ("Australia/Lord_Howe", "15 2 * * *", ""),
    ("Australia/Lord_Howe", "45 2 * * *", "02:45+11"),
]
AUTUMN = [
    ("Europe/Berlin", "30 2 * * *", "02:30+1"),
    ("Europe/Berlin", "30 1 * * *", "01:30+2"),
    ("Europe/Berlin", "0 3 * * *", "03:00+1"),
    ("Europe/Berlin", "0 1-3 * * *", "01:00+2 02:00+2 03:00+1"),
    ("Europe/Berlin", "*/30 1-2 * * *", "01:00+2 01:30+2 02:00+2 02:30+1"),
    ("Europe/London", "30 1 * * *", "01:30+0"),
    ("Australia/Lord_Howe", "45 1 * * *", "01:45+10"),
    # The workflow leaves out the first of two runs.
    ("America/New_York", "30 1 * * *", "01:30-4 01:30-5"),
    ("America/New_York", "30 0,2 * * *", "00:30-4 02:30-5"),
    # Expressions of every hour keep their distance.
    ("Europe/Berlin", "0 * * * *", "00:00+2 01:00+2 02:00+2 02:00+1 03:00+1"),
    ("America/New_York", "0 * * * *", "00:00-4 01:00-4 01:00-5 02:00-5 03:00-5"),
]
CHANGES = {
    "Europe/Berlin": (date(2027, 3, 28), date(2027, 10, 31)),
    "Europe/London": (date(2027, 3, 28), date(2027, 10, 31)),
    "Australia/Lord_Howe": (date(2027, 10, 3), date(2027, 4, 4)),
    "America/New_York": (date(2027, 3, 14), date(2027, 11, 7)),
}


async def started(cluster: Cluster, name: str, when: When, day: date) -> str:
    """The clock's times at which runs start in the first hours of a day, with their offsets from
    UTC.
    """
    await cluster.users.schedules.create(a_spec(name=name), when, paused=True)
    zone = ZoneInfo(when.time_zone)
    request = ListScheduleMatchingTimesRequest(
        namespace=cluster.client.namespace,
        schedule_id=names.schedule_id(cluster.name, f"ada/{name}"),
    )
    midnight = datetime.combine(day, time(), zone).astimezone(UTC)
    request.start_time.FromDatetime(midnight - timedelta(seconds=1))
    request.end_time.FromDatetime(midnight + timedelta(hours=5))
    found = (await cluster.client.workflow_service.list_schedule_matching_times(request)).start_time
    local = [each.ToDatetime(UTC).astimezone(zone) for each in found]
    return " ".join(
        f"{each:%H:%M}{(each.utcoffset() or timedelta()) // timedelta(hours=1):+}"
        for each in local
        if each.hour < 4
    )


@pytest.mark.long
async def test_a_change_of_the_clock_starts_each_run_once_and_skips_missing_times(
    cluster: Cluster,
) -> None:
    """The page says so. The service alone would start a run for 01:30 at 02:30, and none for two
    hours in an hourly schedule.
    """
    cases = [(0, *case) for case in SPRING] + [(1, *case) for case in AUTUMN]
    found = await asyncio.gather(
        *(
            started(cluster, f"s{number}", When(cron, time_zone=zone), CHANGES[zone][change])
            for number, (change, zone, cron, _) in enumerate(cases)
        )
    )
    assert [
        (zone, cron, times) for (_, zone, cron, _), times in zip(cases, found, strict=True)
    ] == [(zone, cron, times) for _, zone, cron, times in cases]
    assert (
        await cluster.users.schedules.show(f"ada/s{len(cases) - 1}")
    ).row.time_zone == "America/New_York", "as the user wrote it"


@pytest.mark.long
async def test_the_first_of_two_runs_at_the_same_time_of_the_clock_is_left_out(
    cluster: Cluster,
) -> None:
    """In New York, the service starts the second one, too."""
    host = await cluster.join()
    when = When("30 1 * * *", time_zone="America/New_York")
    await cluster.users.schedules.create(a_spec(name="nightly"), when, paused=True)
    handle = cluster.client.get_schedule_handle(names.schedule_id(cluster.name, "ada/nightly"))
    day = datetime(2025, 11, 2, 4, tzinfo=UTC)
    await handle.backfill(
        ScheduleBackfill(day, day + timedelta(hours=4), ScheduleOverlapPolicy.BUFFER_ALL)
    )

    async def both_ended() -> bool:
        runs = (await cluster.users.schedules.show("ada/nightly")).runs
        return [run.state for run in runs if run.state not in (None, "RUNNING")] == [
            JobState.SUCCEEDED,
            LEFT_OUT,
        ]

    await cluster.until(both_ended)
    second, first = (await cluster.users.schedules.show("ada/nightly")).runs
    assert (
        first.reason
        == "the clock is set back and shows this time twice; the job starts the second time"
    )
    assert (second.scheduled_at - first.scheduled_at) == timedelta(hours=1)
    assert len(host.taken) == 1


@pytest.mark.long
@pytest.mark.parametrize("cron", ["0 0 1 1 * 2020", "30 2 28 3 * 2027"])
async def test_times_that_have_passed_or_that_the_clock_skips_are_refused(
    cluster: Cluster, cron: str
) -> None:
    """The schedule would wait for ever, and look as if all was well. None is left behind."""
    with pytest.raises(
        InvalidValue,
        match="matches no time from now on, on the clock of Europe/Berlin; write a time",
    ):
        await cluster.users.schedules.create(
            a_spec(name="never"), When(cron, time_zone="Europe/Berlin")
        )

    assert await cluster.users.schedules.list() == []
