"""What quotas and named limits allow in a pass, and what gangs are told that they stop."""

from datetime import datetime, timedelta

import pytest

from iris.messages.scheduler import Ask
from iris.model.job.requests import Claim
from iris.model.job.spec import Band
from iris.planners.demand import wanted_of
from iris.planners.ledger_messages import serve
from iris.scheduling.ledger import victim_search
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.size import LedgerSize
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import a_request, at, some
from tests.scheduling.quotas.world import a_ledger, a_quota, ask, quotas, running


def test_a_quota_stops_what_exceeds_it_and_says_who_holds_it() -> None:
    """The user has to learn that hosts are free, and that a colleague has the rest."""
    ledger = a_ledger(quotas(a_quota("vision", {"cpus": 3000})))
    ask(ledger, "a", "ada", cpu=2)
    ask(ledger, "b", "ben", cpu=1, seconds=1)
    stopped = ask(ledger, "c", "ada", cpu=2, seconds=2)
    ask(ledger, "free", "cy", cpu=2, seconds=3)

    ledger.settle(at(10))

    assert running(ledger) == ["ada/a", "ben/b", "cy/free"]
    refusal = ledger.explain(stopped.key)
    assert refusal.code is RefusalCode.QUOTA
    (stop,) = refusal.quotas
    assert (stop.quota, stop.holder, stop.resource) == ("vision", "team vision", "cpus")
    assert (stop.needed, stop.left, stop.used, stop.nominal) == (2000, 0, 3000, 3000)
    assert stop.users == {"ada": 2000, "ben": 1000}
    assert "quotas.vision.cpus" in refusal.remedy


def test_a_shape_that_a_quota_stops_for_one_user_starts_for_another() -> None:
    """All requests have one shape, and the first one in the queue is stopped."""
    ledger = a_ledger(quotas(a_quota("ada", {"hosts": 1}, user="ada")))
    for number in range(3):
        ask(ledger, f"a{number}", "ada", seconds=number)
    ask(ledger, "b", "ben", seconds=10)

    ledger.settle(at(20))

    assert running(ledger) == ["ada/a0", "ben/b"]


def test_a_quota_of_each_user_counts_each_alone() -> None:
    ledger = a_ledger(quotas(a_quota("each", {"hosts": 2}, user="*")))
    for user in ("ada", "ben"):
        for number in range(3):
            ask(ledger, f"j{number}", user, seconds=number)

    ledger.settle(at(10))

    assert running(ledger) == ["ada/j0", "ada/j1", "ben/j0", "ben/j1"]


def test_a_quota_of_a_tag_counts_the_jobs_that_have_it() -> None:
    ledger = a_ledger(quotas(a_quota("sweeps", {"hosts": 1}, tag="kind=sweep")))
    ask(ledger, "a", tags=("kind=sweep", "lr=1"))
    ask(ledger, "b", tags=("kind=sweep", "lr=2"), seconds=1)
    ask(ledger, "c", tags=("kind=train", "lr=1"), seconds=2)

    ledger.settle(at(10))

    assert running(ledger) == ["ada/a", "ada/c"]
    assert ledger.waiting.lines == 1


def test_tags_without_a_quota_do_not_divide_the_lines_of_the_queue() -> None:
    """A sweep tags each job with its parameters, and a line takes memory."""
    ledger = a_ledger(quotas())
    for number in range(5):
        ask(ledger, f"a{number}", tags=(f"lr={number}",))

    assert ledger.waiting.lines == 1


def test_a_quota_for_bands_lets_others_pass() -> None:
    ledger = a_ledger(quotas(a_quota("vision", {"hosts": 1}, bands=(Band.BATCH,))))
    for number in range(2):
        ask(ledger, f"b{number}", band=Band.BATCH, seconds=number)
        ask(ledger, f"i{number}", seconds=number)

    ledger.settle(at(10))

    assert running(ledger) == ["ada/b0", "ada/i0", "ada/i1"]


def test_a_named_limit_is_shared_by_all_users() -> None:
    ledger = a_ledger(quotas(licence=3))
    first = ask(ledger, "a", "ada", licence=2)
    stopped = ask(ledger, "b", "ben", licence=2, seconds=1)
    ask(ledger, "c", "cy", licence=1, seconds=2)

    ledger.settle(at(10))
    assert running(ledger) == ["ada/a", "cy/c"]
    (stop,) = ledger.explain(stopped.key).quotas
    assert (stop.quota, stop.resource, stop.users) == ("", "limits.licence", {"ada": 2, "cy": 1})

    ledger.forget(first.key)
    ledger.settle(at(20))
    assert running(ledger) == ["ben/b", "cy/c"]


@pytest.mark.parametrize(
    ("limits", "told"),
    [({"license": 1}, "no limit license"), ({"licence": 4}, "at most 3")],
)
def test_a_gang_that_needs_more_than_there_ever_is_can_never_start(
    limits: dict[str, int], told: str
) -> None:
    """`--require-feasible` and `--dry-run` refuse it. A misspelt limit must not be none."""
    ledger = a_ledger(quotas(licence=3))
    request = a_request(user="ada", claim=Claim((), tuple(limits.items())))

    never = ledger.wait_reasons().infeasible(request)

    assert never is not None
    assert never.code is RefusalCode.QUOTA
    assert told in never.message
    found = ledger.forecast(request, at(0))
    assert (found.infeasible, found.hosts) == (never, ())


def test_a_limit_that_a_cluster_without_limits_does_not_have_stops_its_gang() -> None:
    ledger = Ledger(a_ledger(quotas()).state())
    unknown = ask(ledger, "a", licence=1)
    ask(ledger, "b")

    ledger.settle(at(10))

    assert running(ledger) == ["ada/b"]
    assert ledger.explain(unknown.key).code is RefusalCode.QUOTA


def test_no_slice_is_bought_for_what_a_quota_stops() -> None:
    """Two more fit in the quota, and no host has place for them."""
    ledger = a_ledger(quotas(a_quota("vision", {"cpus": 10_000})), cpu=8)
    for number in range(20):
        ask(ledger, f"j{number}", cpu=1, seconds=number)
    ledger.settle(at(30))

    assert len(ledger.live) == 8
    (demand,) = wanted_of(ledger, at(30)).demands
    assert demand.count == 2


def test_the_demand_has_an_example_that_may_start() -> None:
    """The oldest gang of the shape is stopped. Its user must not count as the one who waits."""
    ledger = a_ledger(quotas(a_quota("ada", {"hosts": 0}, user="ada")), cpu=1)
    ask(ledger, "run", "cy")
    ledger.settle(at(0))
    ask(ledger, "a", "ada", seconds=1)
    ask(ledger, "b", "ben", seconds=2)
    ledger.settle(at(10))

    (demand,) = wanted_of(ledger, at(10)).demands
    assert (demand.count, demand.example.task) == (1, "ben/b")


def test_other_quotas_hold_at_once() -> None:
    ledger = a_ledger(quotas(a_quota("vision", {"hosts": 1})))
    ask(ledger, "a")
    ask(ledger, "b", seconds=1)
    ledger.settle(at(10))
    assert running(ledger) == ["ada/a"]

    ledger.set_quotas(quotas(a_quota("vision", {"hosts": 2})))
    ledger.settle(at(20))
    assert running(ledger) == ["ada/a", "ada/b"]

    ledger.set_quotas(quotas(a_quota("vision", {"hosts": 1})))
    assert ledger.settle(at(30)).evicted == []


def test_teams_have_turns_before_users() -> None:
    """A team of two users must not get twice as much as a team of one."""
    ledger = a_ledger(
        quotas(a_quota("vision", {"hosts": 9}), a_quota("speech", {"hosts": 9})), cpu=4
    )
    for number in range(4):
        for user in ("ada", "ben", "cy"):
            ask(ledger, f"j{number}", user, seconds=number)

    ledger.settle(at(10))

    assert running(ledger) == ["ada/j0", "ben/j0", "cy/j0", "cy/j1"]


def test_teams_without_a_quota_do_not_change_the_turns() -> None:
    """Teams were there for `iris usage` before."""
    ledger = a_ledger(quotas(licence=1), cpu=4)
    for number in range(4):
        for user in ("ada", "ben", "cy"):
            ask(ledger, f"j{number}", user, seconds=number)

    ledger.settle(at(10))

    assert sorted(task[:3] for task in running(ledger)) == ["ada", "ada", "ben", "cy/"]


def test_jobs_above_the_bound_of_waiting_ones_are_asked_for_again_later() -> None:
    """The first job fills the only host. Another gang of a job that waits is no further job."""
    ledger = a_ledger(quotas(a_quota("each", user="*", waiting=2)), cpu=1)
    names = ("run", "a", "b:0", "b:1", "c")
    codes = []
    for name in names:
        key = f"ada/{name}@1/run"
        message = Ask(request=a_request(key, some(cpu=1), user="ada", submitted_at=at(0)))
        served = serve(ledger, [message], at(1), size=LedgerSize(), whole=True)
        refusal = served.answers[0].refusal
        codes.append(refusal.code if refusal is not None else None)

    busy = RefusalCode.BUSY
    assert codes == [None, busy, busy, busy, RefusalCode.WAITING_QUOTA]


def test_a_gang_of_its_own_higher_band_takes_the_place_of_a_lower_one_in_a_full_quota() -> None:
    """Hosts are free. Without a quota, production would never wait for batch, either."""
    ledger = a_ledger(quotas(a_quota("vision", {"cpus": 2000})))
    ask(ledger, "batch", "ben", cpu=2, band=Band.BATCH)
    ask(ledger, "others", "cy", cpu=2, band=Band.BATCH)
    ledger.settle(at(0))
    ask(ledger, "prod", "ada", cpu=1, band=Band.PRODUCTION, seconds=5)

    settled = ledger.settle(at(10))
    assert [each.key for each in settled.evicted] == ["ben/batch@1/run"]

    ledger.forget("ben/batch@1/run")
    ledger.settle(at(20))
    assert running(ledger) == ["ada/prod", "cy/others"]


def test_nobody_is_evicted_for_a_gang_that_a_quota_stops() -> None:
    ledger = a_ledger(quotas(a_quota("ada", {"hosts": 0}, user="ada")), cpu=1)
    ask(ledger, "batch", "cy", band=Band.BATCH)
    ledger.settle(at(0))
    ask(ledger, "prod", "ada", band=Band.PRODUCTION)

    assert ledger.settle(at(10)).evicted == []


def test_a_gang_that_runs_too_short_a_time_keeps_what_it_borrowed_for_a_while() -> None:
    cohort = {"cohort": "lab"}
    rules = quotas(
        a_quota("vision", {"cpus": 1000}, **cohort), a_quota("speech", {"cpus": 1000}, **cohort)
    )
    ledger = a_ledger(rules, cpu=2, min_run_time=timedelta(seconds=60))
    for name in ("a", "b"):
        ask(ledger, name, "ada")
    ledger.settle(at(0))
    ask(ledger, "c", "cy", seconds=1)

    settled = ledger.settle(at(10))
    assert (settled.evicted, settled.again_at) == ([], at(60))
    assert [each.key for each in ledger.settle(at(60)).evicted] == ["ada/b@1/run"]


def test_what_was_borrowed_is_searched_for_at_most_once_a_second() -> None:
    """A search goes over all placements and lines, and under load there are many passes."""
    rules = quotas(
        a_quota("vision", {"cpus": 1000}, cohort="lab"),
        a_quota("speech", {"cpus": 1000}, cohort="lab"),
    )
    ledger = a_ledger(rules, cpu=2)
    for number, name in enumerate(("a", "b", "waits")):
        ask(ledger, name, "ada", seconds=number)
    ledger.settle(at(5))
    ledger.settle(at(10))
    ask(ledger, "c", "cy", seconds=10.5)

    settled = ledger.settle(at(10.5))
    assert (settled.evicted, settled.again_at) == ([], at(11))
    assert [each.key for each in ledger.settle(at(11)).evicted] == ["ada/b@1/run"]


def test_after_much_work_the_search_for_what_was_borrowed_has_the_next_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes turns with the search for higher bands, so neither waits for longer than one
    pass.
    """
    ledger = a_ledger(
        quotas(
            a_quota("vision", {"cpus": 1000}, cohort="lab"),
            a_quota("speech", {"cpus": 1000}, cohort="lab"),
        ),
        cpu=3,
    )
    for user, name in (("ada", "a"), ("ada", "b"), ("eve", "low")):
        ask(ledger, name, user, band=Band.BATCH)
    ledger.settle(at(0))
    monkeypatch.setattr(victim_search, "MOST_LOOKS", 0)
    ask(ledger, "c", "cy", band=Band.BATCH, seconds=6)

    settled = ledger.settle(at(10))
    assert (settled.evicted, settled.again_at) == ([], at(11))
    ask(ledger, "high", "eve", cpu=3, band=Band.PRODUCTION, seconds=10)
    assert [each.key for each in ledger.settle(at(11)).evicted] == ["ada/b@1/run"]
    evicted = [each.key for each in ledger.settle(at(12)).evicted]
    assert sorted(evicted) == ["ada/a@1/run", "eve/low@1/run"]


def test_searches_that_take_turns_end_when_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass takes most of a second of a core, so a large cluster whose gangs only wait must not
    have one each second.
    """
    monkeypatch.setattr(victim_search, "MOST_LOOKS", 0)
    ledger = a_ledger(quotas(a_quota("vision", {"cpus": 1000}, cohort="lab")), cpu=2)
    for number, name in enumerate(("a", "b", "waits")):
        ask(ledger, name, "eve", seconds=number, band=Band.BATCH)
    ask(ledger, "high", cpu=2, band=Band.PRODUCTION)  # more than its quota

    again_at: list[datetime | None] = [ledger.settle(at(10)).again_at]
    while again_at[-1] is not None and len(again_at) < 5:
        again_at.append(ledger.settle(again_at[-1]).again_at)
    assert again_at == [at(11), None]

    ask(ledger, "other", "eve", seconds=11, band=Band.BATCH)
    assert ledger.settle(at(12)).again_at == at(13)
    ask(ledger, "meanwhile", "eve", seconds=12, band=Band.PRODUCTION)
    assert ledger.settle(at(13)).again_at == at(14)
    assert len(ledger.settle(at(14)).evicted) == 1


def test_the_first_in_the_queue_is_the_first_of_the_team_with_the_least_use() -> None:
    """`iris explain` must not promise a turn that another team has."""
    ledger = a_ledger(
        quotas(a_quota("vision", {"hosts": 9}), a_quota("speech", {"hosts": 9})), cpu=2
    )
    for user in ("ada", "ben"):
        ask(ledger, "runs", user)
    ledger.settle(at(0))
    mine = ask(ledger, "mine", "ada", seconds=1)
    ask(ledger, "other", "cy", seconds=2)
    ledger.settle(at(10))

    refusal = ledger.explain(mine.key)
    assert (refusal.code, refusal.ahead, refusal.ahead_first) == (
        RefusalCode.BUSY,
        1,
        ("cy/other",),
    )
    assert "cy comes first" in refusal.message or "team speech comes first" in refusal.message
    order = ledger.wait_reasons().in_order(0, 9)
    assert [request.task for request in order] == ["cy/other", "ada/mine"]
