"""What a cron expression names, and which runs of a schedule are left out where the clock is set
back.
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from iris.client.schedules.when import When
from iris.model.cron import Cron, comes_again, excluded, is_in_whole_hours, parse_cron
from iris.model.errors import InvalidValue


def parsed(text: str) -> Cron:
    found = parse_cron(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "0 0 30 2 *",
        "0 0 31 apr,JUN,9,11 *",
        "0 0 30-31 FEB *",
        "0 2 30/1 2 *",
        "0 0 30 2 * 2030",
        "0 0 29 2 * 2030",
    ],
)
def test_an_expression_that_never_comes_is_refused(text: str) -> None:
    """The error occurs before anything is sent. Otherwise the user would find out weeks later that
    nothing has run. An expression that matches does not excuse another one that never does.
    """
    for cron in (text, ("0 2 * * *", text)):
        with pytest.raises(
            InvalidValue,
            match=rf"cron: '{text}' never comes: no year has such a day".replace("*", r"\*"),
        ):
            When(cron)


@pytest.mark.parametrize(
    "text",
    [
        "0 0 29 2 *",
        "0 0 29 2 1",
        "0 0 31 * *",
        "0 0 13 * FRI",
        "0 0 * * 7",
        "@yearly",
        "0 0 0 1 1 * 2030",
        "*/5 * * * *",
        "0 0 1 1 * # 1",
    ],
)
def test_an_expression_that_comes_some_day_is_taken(text: str) -> None:
    """A leap day that is a Monday comes in 2044."""
    assert parsed(text).is_possible
    assert When(text).expressions == (text,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("@every 1s", 'is an interval; use "every" instead of "cron", with 10s or more'),
        (" @every 6h", 'is an interval; use "every" instead of "cron", with 10s or more'),
        ("* * * * * * *", "names several seconds of a minute; write 0 as the seconds, or "),
        ("*/5 0 2 * * * *", "names several seconds of a minute; write 0 as the seconds, or "),
        ("0,30 0 2 * * * 2030", "names several seconds of a minute; write 0 as the seconds, or "),
    ],
)
def test_an_expression_does_not_evade_the_shortest_interval(text: str, problem: str) -> None:
    """A schedule that starts a job each second would fill the cluster; `every` has a minimum."""
    for cron in (text, ("0 2 * * *", text)):
        with pytest.raises(InvalidValue, match=rf"^cron: .* {problem}"):
            When(cron)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "a b c d e",
        "0 25 * * *",
        "5-1 * * * *",
        "*/0 * * * *",
        "@every 2h",
        "0 0 L * *",
        "CRON_TZ=UTC 0 0 30 2 *",
    ],
)
def test_what_is_no_expression_is_left_to_the_service(text: str) -> None:
    """It says what is wrong with it, and is the only one to know what it takes."""
    assert parse_cron(text) is None


def test_the_fields_of_an_expression_are_read_as_the_service_reads_them() -> None:
    """Words by their beginnings, steps to the end of a range, and Sunday as 0 or 7."""
    found = parsed("5,50/4 1-5/2 */10 jan-MAR,December sat-7 2030-2032")

    assert (sorted(found.minutes), sorted(found.hours), sorted(found.days)) == (
        [5, 50, 54, 58],
        [1, 3, 5],
        [1, 11, 21, 31],
    )
    assert (sorted(found.months), sorted(found.weekdays), sorted(found.years)) == (
        [1, 2, 3, 12],
        [0, 6],
        [2030, 2031, 2032],
    )
    assert parsed("0 30 1 * * * *") == parsed("30 1 * * * *") == parsed("30 1 * * *")


def test_the_times_at_which_no_expression_comes_are_excluded() -> None:
    """Each minute of the day is either named by an expression or excluded."""
    crons = [parsed("30 1 * * *"), parsed("0,15 1-2 * * 1")]
    out = {
        (hour, minute) for each in excluded(crons) for hour in each.hours for minute in each.minutes
    }

    assert {(hour, minute) for hour in range(24) for minute in range(60)} - out == {
        (1, 0),
        (1, 15),
        (1, 30),
        (2, 0),
        (2, 15),
    }


@pytest.mark.parametrize(
    ("zone", "time", "again"),
    [
        ("America/New_York", (2027, 11, 7, 5, 30), True),  # 01:30, daylight saving time
        ("America/New_York", (2027, 11, 7, 6, 30), False),  # 01:30 once more
        ("America/New_York", (2027, 11, 7, 7, 30), False),
        ("America/New_York", (2027, 3, 14, 7, 30), False),
        (
            "Europe/Berlin",
            (2027, 10, 31, 0, 30),
            False,
        ),  # 02:30 comes again, and the service starts one run
        ("UTC", (2027, 10, 31, 0, 30), False),
    ],
)
def test_a_time_comes_again_where_the_service_starts_two_runs(
    zone: str, time: tuple[int, ...], again: bool
) -> None:
    """The run in the first of the two hours is left out: the second one is not to cancel it, or to
    find it running.
    """
    year, month, day, hour, minute = time
    assert (
        comes_again(datetime(year, month, day, hour, minute, tzinfo=UTC), ZoneInfo(zone)) is again
    )


def test_a_zone_that_differs_by_half_an_hour_in_one_half_of_the_year_is_not_in_whole_hours() -> (
    None
):
    """The minutes of such an expression would not be those of its clock."""
    whole = {
        zone: is_in_whole_hours(ZoneInfo(zone), datetime(2027, 1, 1, tzinfo=UTC))
        for zone in ("Europe/Berlin", "America/New_York", "UTC")
    }

    assert all(whole.values())
    for zone in ("Australia/Lord_Howe", "Asia/Kolkata"):
        assert not is_in_whole_hours(ZoneInfo(zone), datetime(2027, 1, 1, tzinfo=UTC))
