"""When a silent host counts as lost."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.autoscaling.liveness import (
    AWAY,
    OBSERVE_INTERVAL,
    PING_AFTER,
    PING_TIMEOUT,
    REPORT_INTERVAL,
    SECOND_OBSERVATION_DELAY,
    SHORTEST_OBSERVATION_DELAY,
    SILENCE,
    Silent,
    age_of_new_report,
    lost_hosts,
    must_be_pinged,
    next_observation,
    silent_hosts,
)
from iris.model.rules import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, Rules
from tests.builders import a_silent
from tests.strategies import CHEAP

ASKED_AT = PING_AFTER.total_seconds()


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
def test_a_host_is_silent_when_this_incarnation_has_not_reported(
    ages: Mapping[tuple[str, str], float], silent: bool
) -> None:
    """The reports of its successor, or of another host, say nothing about it."""
    assert bool(silent_hosts([a_silent("h1", "first")], ages)) is silent


def test_the_reason_tells_how_long_the_silence_has_lasted() -> None:
    """It becomes the reason of every task that was lost with the host."""
    (known,) = silent_hosts([a_silent("h1")], {("h1", "first"): 31.4})
    (unknown,) = silent_hosts([a_silent("h1")], {})

    assert known.reason == "host h1 has not reported for 31 s"
    assert unknown.reason == "host h1 no longer reports to the server"
    assert (
        known.model_copy(update={"unanswered": True}).reason
        == "host h1 has not reported for 31 s and does not answer"
    )


@pytest.mark.parametrize(
    ("age_by_its_clock", "since_last_observation", "age"),
    [
        (6.0, 15.0, 6.0),
        (0.0, 15.0, 0.0),
        (15.1, 15.0, 0.0),  # its clock is slow: the last look would have seen the report
        (-3.0, 15.0, 0.0),  # its clock is fast
        (6.0, None, 0.0),  # the control plane has just started
    ],
)
def test_a_report_came_when_its_hosts_clock_says_so_if_that_can_be(
    age_by_its_clock: float, since_last_observation: float | None, age: float
) -> None:
    """A clock that says what cannot be delays a verdict: a host whose clock is a minute slow is not
    lost for that.
    """
    assert age_of_new_report(age_by_its_clock, since_last_observation) == age


@pytest.mark.parametrize(
    ("age", "asked"),
    [(14.1, False), (ASKED_AT - 0.1, False), (ASKED_AT, True), (300.0, True), (None, True)],
)
def test_a_host_is_asked_when_its_report_is_so_old_that_it_would_be_lost(
    age: float | None, asked: bool
) -> None:
    """Before, its agent may be on its way back; a question to each suspect at each look would cost
    more than it tells.
    """
    assert must_be_pinged(a_silent(age=age)) is asked


@pytest.mark.parametrize(
    ("suspect_before", "unanswered", "lost"),
    [
        (False, False, False),
        (
            False,
            True,
            False,
        ),  # after an outage of the service all are silent, and some have not connected yet
        (True, False, False),  # not asked yet
        (True, True, True),
    ],
)
def test_a_host_is_lost_when_it_was_a_suspect_before_and_does_not_answer(
    suspect_before: bool, unanswered: bool, lost: bool
) -> None:
    """Neither one look nor silence alone is enough; a host that is not lost is a suspect for the
    next look.
    """
    host = a_silent("h1", age=50, unanswered=unanswered)
    suspects, found = lost_hosts([a_silent("h1", age=35)] if suspect_before else [], [host])

    assert (suspects, found) == (([], [host]) if lost else ([host], []))


@pytest.mark.parametrize("seen", [[], [a_silent("h1", "second", unanswered=True)]])
def test_a_suspect_that_reports_or_comes_back_is_cleared(seen: list[Silent]) -> None:
    """Suspicion does not add up over looks that were fine between, nor pass on to a new
    incarnation.
    """
    suspects, lost = lost_hosts([a_silent("h1", "first")], seen)

    assert seen == suspects
    assert lost == []


@CHEAP
@given(
    looks=st.lists(
        st.dictionaries(st.sampled_from(["h1", "h2", "h3"]), st.sampled_from([False, True])),
        max_size=12,
    )
)
def test_a_host_is_lost_exactly_when_it_is_silent_twice_in_a_row_and_unanswered(
    looks: list[dict[str, bool]],
) -> None:
    """Over any history of looks: never earlier, never later, and told once per pair of looks."""
    suspects: list[Silent] = []
    before: set[str] = set()
    for look in looks:
        suspects, lost = lost_hosts(
            suspects,
            [a_silent(host, unanswered=unanswered) for host, unanswered in sorted(look.items())],
        )
        lost_now = {host.host_id for host in lost}

        assert lost_now == before & {host for host, unanswered in look.items() if unanswered}
        before = look.keys() - lost_now


@CHEAP
@given(
    last_report=st.floats(0, REPORT_INTERVAL.total_seconds()),
    first_look=st.floats(0, OBSERVE_INTERVAL.total_seconds()),
    away=st.floats(0, 300),
)
def test_an_agent_away_for_less_than_the_limit_is_never_lost_and_a_dead_one_always_in_time(
    last_report: float, first_look: float, away: float
) -> None:
    """Over any moments of the last report and of the looks: both promises of the documentation, by
    the rules themselves.

    The agent goes away at 0, `last_report` after its last report, and answers from `away` on; there
    is a look `first_look` later.
    """
    suspects: list[Silent] = []
    now, lost_at = first_look, None
    while now < away and lost_at is None:
        silent = silent_hosts([a_silent("h1")], {("h1", "first"): now + last_report})
        asked = [must_be_pinged(host) for host in silent]
        now += PING_TIMEOUT.total_seconds() if any(asked) else 0
        if any(asked) and now >= away:
            return
        suspects, lost = lost_hosts(
            suspects, [host.model_copy(update={"unanswered": any(asked)}) for host in silent]
        )
        lost_at = now if lost else None
        now += next_observation(suspects, OBSERVE_INTERVAL).total_seconds()

    if lost_at is not None:
        assert AWAY.total_seconds() <= lost_at + 1e-6
        assert lost_at <= (AWAY + REPORT_INTERVAL + SHORTEST_OBSERVATION_DELAY).total_seconds()
    assert (
        lost_at is not None
        or away < (AWAY + REPORT_INTERVAL + SHORTEST_OBSERVATION_DELAY).total_seconds()
    )


def test_a_dead_host_is_out_of_the_book_before_its_jobs_try_again() -> None:
    """Else they would be sent to the dead host once more; and no agent is given up while its
    programs may run on.
    """
    latest = PING_AFTER + PING_TIMEOUT + SHORTEST_OBSERVATION_DELAY

    assert latest < HEARTBEAT_TIMEOUT - HEARTBEAT_INTERVAL
    assert Rules().lease - timedelta(seconds=5) <= AWAY <= Rules().lease


def test_between_two_looks_after_an_outage_every_host_that_lives_reports() -> None:
    """After an outage of the service all hosts are silent at the first look; the second must not
    take them for dead.
    """
    suspects, lost = lost_hosts([], [a_silent("h1", age=90, unanswered=True)])

    assert lost == []
    assert (
        next_observation(suspects, OBSERVE_INTERVAL) == SECOND_OBSERVATION_DELAY > REPORT_INTERVAL
    )


@pytest.mark.parametrize(
    ("ages", "wait"),
    [
        ([], OBSERVE_INTERVAL),
        ([20.0], OBSERVE_INTERVAL),
        ([43.0], timedelta(seconds=7)),
        ([20.0, 43.0], timedelta(seconds=7)),
        ([49.9], SHORTEST_OBSERVATION_DELAY),
    ],
)
def test_the_next_look_is_when_a_suspect_is_to_be_asked(ages: list[float], wait: timedelta) -> None:
    """A look at a later time would leave dead hosts in the book when their jobs try again."""
    assert (
        next_observation(
            [a_silent(f"h{age}", age=age, unanswered=False) for age in ages], OBSERVE_INTERVAL
        )
        == wait
    )
