"""When a silent host counts as lost."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.liveness import LOOK_AGAIN, LOOK_EVERY, REPORT_EVERY, SILENCE, Silent, judge, silent_hosts
from tests.builders import a_silent
from tests.strategies import CHEAP


@pytest.mark.parametrize(
    ("ages", "silent"),
    [
        ({("h1", "first"): 0.0}, False),
        ({("h1", "first"): SILENCE.total_seconds()}, False),
        ({("h1", "first"): SILENCE.total_seconds() + 0.1}, True),
        ({}, True),
        ({("h1", "second"): 1.0}, True),
        ({("h2", "first"): 1.0}, True),
    ],
)
def test_a_host_is_silent_when_this_incarnation_has_not_reported(ages: Mapping[tuple[str, str], float], silent: bool) -> None:
    """The reports of its successor, or of another host, say nothing about it."""
    assert bool(silent_hosts([a_silent("h1", "first")], ages)) is silent


def test_the_reason_tells_how_long_the_silence_has_lasted() -> None:
    """It becomes the reason of every task that was lost with the host."""
    (known,) = silent_hosts([a_silent("h1")], {("h1", "first"): 31.4})
    (unknown,) = silent_hosts([a_silent("h1")], {})

    assert known.reason == "host h1 has not reported for 31 s"
    assert unknown.reason == "host h1 no longer reports to the server"


def test_one_look_is_never_enough() -> None:
    """The server's list is empty for some seconds after its restart: a fleet must not be lost to that."""
    suspects, lost = judge([], [a_silent("h1"), a_silent("h2")])

    assert [a_silent("h1"), a_silent("h2")] == suspects
    assert lost == []


def test_two_looks_in_a_row_are() -> None:
    """A dead host's work has to be repeated elsewhere some time; its age at the second look is what is told."""
    suspects, lost = judge([a_silent("h1", age=31)], [a_silent("h1", age=36), a_silent("h2", age=31)])

    assert [a_silent("h2", age=31)] == suspects
    assert [a_silent("h1", age=36)] == lost


@pytest.mark.parametrize("seen", [[], [a_silent("h1", "second")]])
def test_a_suspect_that_reports_or_comes_back_is_cleared(seen: list[Silent]) -> None:
    """Suspicion does not add up over looks that were fine between, nor pass on to a new incarnation."""
    suspects, lost = judge([a_silent("h1", "first")], seen)

    assert seen == suspects
    assert lost == []


@CHEAP
@given(looks=st.lists(st.sets(st.sampled_from(["h1", "h2", "h3"])), max_size=12))
def test_a_host_is_lost_exactly_when_two_looks_in_a_row_agree(looks: list[set[str]]) -> None:
    """Over any history of looks: never earlier, never later, and told once per pair of looks."""
    suspects: list[Silent] = []
    before: set[str] = set()
    for look in looks:
        suspects, lost = judge(suspects, [a_silent(host) for host in sorted(look)])
        lost_now = {host.host_id for host in lost}

        assert lost_now == before & look
        before = look - lost_now


def test_a_dead_host_is_lost_within_a_minute_and_a_live_one_may_miss_a_report() -> None:
    """What the documentation promises of the four times together."""
    latest = SILENCE + LOOK_EVERY + LOOK_AGAIN

    assert latest < timedelta(minutes=1)
    assert SILENCE + LOOK_AGAIN > 2 * REPORT_EVERY


def test_between_two_looks_every_host_that_lives_reports() -> None:
    """After an outage of the service all hosts are silent at the first look; the second must not take them for dead."""
    assert LOOK_AGAIN > REPORT_EVERY
