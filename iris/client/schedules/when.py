"""The times of a schedule, and what happens when a run has not ended at the next time."""

import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from temporalio.client import (
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleRange,
    ScheduleSpec,
)

from iris.client.build.options import Duration, duration_of
from iris.model.cron import (
    Excluded,
    excluded,
    is_in_whole_hours,
    is_interval,
    names_several_seconds,
    parse_cron,
    zone_of,
)
from iris.model.errors import InvalidValue
from iris.model.units import format_duration

#: The shortest interval between two runs. A job takes seconds to start, so a program that has to
#: run more often needs its own loop.
SHORTEST = timedelta(seconds=10)
SHORTEST_TEXT = format_duration(SHORTEST)


class Overlap(StrEnum):
    """What a schedule does when a start is due and the earlier job has not ended."""

    #: The schedule skips each start that becomes due before the earlier job has ended.
    SKIP = "skip"
    #: The schedule starts one job after the earlier job has ended. It skips all further starts that
    #: become due in the meantime.
    QUEUE = "queue"
    #: The schedule cancels the earlier job, and starts the new job after the earlier job has ended.
    CANCEL = "cancel"


def parse_overlap(name: str) -> Overlap:
    """Returns the overlap of this name.

    Raises:
        InvalidValue: there is no such overlap.
    """
    if name not in list(Overlap):
        raise InvalidValue("overlap", name, "is not known", f"write {', '.join(Overlap)}")
    return Overlap(name)


@dataclass(frozen=True)
class When:
    """The times at which a schedule starts its job: cron expressions in a time zone, or an
    interval.

    When the zone's clock is set forward, a skipped time has no run. When it is set back, a time
    that comes twice has one run.

    Raises:
        InvalidValue: neither or both of `cron` and `every` are given, the interval is too short,
            the time zone is unknown, or a cron expression never matches a time.
    """

    #: One or several cron expressions; empty if `every` is set. Each has the fields minute, hour,
    #: day, month, weekday.
    cron: str | Sequence[str] = ()
    #: The interval between two starts; None if `cron` is set. A number is in seconds.
    every: Duration | None = None
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        if bool(self.cron) == (self.interval is not None):
            given = ", ".join(self.expressions)
            problem = (
                'cannot be combined with "every"' if given else 'is missing, and so is "every"'
            )
            remedy = 'give exactly one of them, such as cron="0 2 * * *" or every="6h"'
            raise InvalidValue("cron", given or None, problem, remedy)
        if self.interval is not None and self.interval < SHORTEST:
            raise InvalidValue(
                "every",
                format_duration(self.interval),
                "is too short",
                f"write {SHORTEST_TEXT} or more",
            )
        known = zoneinfo.available_timezones()
        if known and self.time_zone not in known:
            raise InvalidValue(
                "time-zone",
                self.time_zone,
                "is not a time zone",
                "write UTC, or a name such as Europe/Berlin",
            )
        for expression in self.expressions:
            if is_interval(expression):
                raise InvalidValue(
                    "cron",
                    expression,
                    "is an interval",
                    f'use "every" instead of "cron", with {SHORTEST_TEXT} or more',
                )
            if names_several_seconds(expression):
                raise InvalidValue(
                    "cron",
                    expression,
                    "names several seconds of a minute",
                    'write 0 as the seconds, or use "every" instead of'
                    f' "cron", with {SHORTEST_TEXT} or more',
                )
            if (parsed := parse_cron(expression)) is not None and not parsed.is_possible:
                problem = "never comes: no year has such a day"
                raise InvalidValue(
                    "cron",
                    expression,
                    problem,
                    'write a day that its months have, such as "0 2 28 2 *"',
                )

    @property
    def expressions(self) -> tuple[str, ...]:
        """The cron expressions."""
        return (self.cron,) if isinstance(self.cron, str) and self.cron else tuple(self.cron)

    @property
    def interval(self) -> timedelta | None:
        """The time between two runs. None if cron expressions give the times."""
        return duration_of(self.every, "every")

    def __str__(self) -> str:
        if self.interval is not None:
            return f"every {format_duration(self.interval)}"
        return f"{'; '.join(self.expressions)} {self.time_zone}"


def service_times(when: When, now: datetime) -> ScheduleSpec:
    """Returns the times as the Temporal service needs them.

    The service treats changes of the clock differently in each time zone. So expressions that match
    every hour are given in UTC, whose clock never changes, and times that no expression matches are
    excluded.
    """
    if when.interval is not None:
        return ScheduleSpec(intervals=[ScheduleIntervalSpec(every=when.interval)])
    times = ScheduleSpec(cron_expressions=list(when.expressions), time_zone_name=when.time_zone)
    crons, zone = [parse_cron(each) for each in when.expressions], zone_of(when.time_zone)
    known = [each for each in crons if each is not None]
    if zone is None or len(known) < len(crons):
        return times
    if all(each.is_of_every_hour for each in known) and is_in_whole_hours(zone, now):
        return replace(times, time_zone_name="UTC")
    return replace(times, skip=[_calendar(each) for each in excluded(known)])


def _calendar(times: Excluded) -> ScheduleCalendarSpec:
    return ScheduleCalendarSpec(
        second=[ScheduleRange(0, 59)],
        minute=[ScheduleRange(minute) for minute in times.minutes],
        hour=[ScheduleRange(hour) for hour in times.hours],
    )
