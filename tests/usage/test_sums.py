"""The sums of use: hours and money by key, and what was not used. Pure."""

from datetime import timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.job.spec import Band
from iris.usage.prices import Rate
from iris.usage.records import AttemptUse, SliceUse, UseEnd
from iris.usage.report import UsageReport, WasteKind
from tests.usage.made_uses import DAY, DOLLAR, T, at, attempt, slice_use, summed


def waste(report: UsageReport) -> dict[WasteKind, tuple[float, float | None]]:
    """The host-hours and the cost of each kind of waste that has some."""
    return {each.kind: (each.host_hours, each.cost) for each in report.waste if each.host_hours}


def rows(report: UsageReport) -> dict[tuple[str, ...], float | None]:
    return {tuple(row.by.values()): row.cost for row in report.rows}


def test_an_attempt_costs_its_part_of_its_hosts_for_its_time() -> None:
    """Half a host for four hours at a dollar an hour is two dollars, and four core-hours each."""
    report = summed(
        slice_use(0, 0, 10), attempt(1, 5, host_share=0.5, cpu_millis=1000, tpu_chips=2, gpus=3)
    )
    (row,) = report.rows
    assert (row.host_hours, row.cost, row.core_hours) == (2.0, 2.0, 4.0)
    assert (row.tpu_chip_hours, row.gpu_hours, row.attempts) == (8.0, 12.0, 1)
    assert report.total.cost == 2.0
    assert report.currency == "USD"


def test_what_no_attempt_held_is_idle_boot_or_never_ready() -> None:
    """Operators pay for the machines, not for the attempts."""
    report = summed(
        slice_use(0, 1, 10), slice_use(2, None, 5, id="s2"), attempt(1, 3), attempt(4, 5)
    )
    assert waste(report) == {
        WasteKind.IDLE: (6.0, 6.0),
        WasteKind.BOOT: (1.0, 1.0),
        WasteKind.NEVER_READY: (3.0, 3.0),
    }
    assert report.slices is not None
    assert (report.slices.attempts, report.slices.cost) == (2, 13.0)


def test_uses_are_clipped_to_the_time_of_the_question() -> None:
    """A long job counts only with the hours of this week."""
    report = summed(
        slice_use(-48, -47, 400),
        attempt(-24, 2),
        attempt(160, 300),
        attempt(-9, -3),
        until=at(164),
    )
    assert (report.total.attempts, report.total.host_hours) == (2, 6.0)
    assert report.slices is not None
    assert report.slices.host_hours == 164.0


def test_days_divide_an_attempt_at_midnight_utc() -> None:
    """Each day has its own hours, and the total counts the attempt once."""
    report = summed(slice_use(0, 0, 60), attempt(20, 50), by=("day",))
    assert {row.by["day"]: row.host_hours for row in report.rows} == {
        "2026-11-02": 4.0,
        "2026-11-03": 24.0,
        "2026-11-04": 2.0,
    }
    assert [row.attempts for row in report.rows] == [1, 1, 1]
    assert report.total.attempts == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("user", "ada"),
        ("team", "vision"),
        ("job", "ada/train"),
        ("group", "cpu"),
        ("band", "batch"),
        ("tag:project", "p1"),
        ("tag:other", ""),
    ],
)
def test_uses_are_grouped_by_each_key(key: str, value: str) -> None:
    """An unknown value is an empty one, so that the rows still have the whole."""
    use = attempt(0, 1, tags={"project": "p1"})
    other = attempt(
        0, 2, id="b", user="bob", job="bob/x", group="g", band=Band.PRODUCTION, tags={"other": "o"}
    )
    report = summed(use, other, by=(key,), team_of={"ada": "vision"})
    assert {tuple(row.by.items()) for row in report.rows} >= {((key, value),)}
    assert sum(row.host_hours for row in report.rows) == 3.0


def test_several_keys_make_a_row_for_each_combination() -> None:
    """The question of a team lead: who in which project."""
    uses = [
        attempt(0, hours, id=f"{user}{project}", user=user, tags={"project": project})
        for hours, (user, project) in enumerate((("ada", "p"), ("ada", "q"), ("bob", "p")), start=1)
    ]
    report = summed(slice_use(0, 0, 9), *uses, by=("user", "tag:project"))
    assert rows(report) == {("bob", "p"): 3.0, ("ada", "q"): 2.0, ("ada", "p"): 1.0}


def test_the_largest_row_is_first() -> None:
    """The question is who used most."""
    small, large = attempt(0, 1), attempt(0, 5, id="b", user="bob")
    report = summed(slice_use(0, 0, 9), small, large)
    assert [row.by["user"] for row in report.rows] == ["bob", "ada"]
    without = summed(slice_use(0, 0, 9), small, large, rates=())
    assert [row.by["user"] for row in without.rows] == ["bob", "ada"]
    by_day = summed(attempt(0, 1), attempt(30, 35, id="b"), by=("day", "user"))
    assert [row.by["day"] for row in by_day.rows] == ["2026-11-02", "2026-11-03"]


def test_set_up_and_lost_work_are_told_apart() -> None:
    """Each hour of an attempt is in one line at most."""
    report = summed(
        attempt(0, 5, started_at=at(1)),
        attempt(0, 7, id="failed", started_at=at(2), end=UseEnd.FAILED),
        attempt(0, 9, id="taken", started_at=at(3), end=UseEnd.PREEMPTED),
        attempt(0, 11, id="set-up", end=UseEnd.SET_UP_FAILED),
        attempt(0, 13, id="never", end=UseEnd.NEVER_STARTED),
        attempt(0, 17, id="cancelled", end=UseEnd.CANCELLED),
    )
    assert {kind: hours for kind, (hours, _) in waste(report).items()} == {
        WasteKind.SET_UP: 1 + 2 + 3 + 13,
        WasteKind.FAILED: 5,
        WasteKind.PREEMPTED: 6,
        WasteKind.FAILED_SET_UP: 11,
    }


def test_a_start_by_another_clock_stays_within_the_attempt() -> None:
    """Hosts and the scheduler have clocks of their own; no time may be negative."""
    early, late = attempt(2, 4, started_at=at(1)), attempt(2, 4, id="b", started_at=at(5))
    report = summed(early, late)
    assert report.total.host_hours == 4.0
    assert waste(report) == {WasteKind.SET_UP: (2.0, None)}


def test_a_question_about_a_user_leaves_out_the_others() -> None:
    """Idle machines are nobody's, so they are not shown for one user."""
    report = summed(
        slice_use(0, 1, 9),
        attempt(1, 3),
        attempt(1, 4, id="b", user="bob", end=UseEnd.FAILED),
        user="ada",
    )
    assert rows(report) == {("ada",): 2.0}
    assert report.total.cost == 2.0
    assert report.slices is None
    assert waste(report) == {}


def test_a_question_about_a_group_has_its_slices_only() -> None:
    """An operator asks which group is idle."""
    report = summed(
        slice_use(0, 0, 9),
        slice_use(0, 0, 5, id="s2", group="other"),
        attempt(0, 1),
        attempt(0, 1, id="b", group="other", slices=("s2",)),
        group="other",
    )
    assert report.total.attempts == 1
    assert waste(report) == {WasteKind.IDLE: (4.0, 4.0)}


def test_an_attempt_over_several_slices_has_the_price_of_each() -> None:
    """A gang over a spot slice and one on demand costs half of each."""
    report = summed(
        slice_use(0, 0, 4),
        slice_use(0, 0, 4, id="s2", preemptible=True),
        attempt(0, 4, hosts=2, host_share=2.0, slices=("s1", "s2")),
        rates=(*DOLLAR, Rate(machine="n2-standard-8", spot=True, machine_hour=0.25)),
    )
    assert report.total.cost == 4 * 1.0 + 4 * 0.25
    assert waste(report) == {}


def test_machines_without_a_price_are_named_and_cost_nothing() -> None:
    """A sum that silently takes 0 for an unknown price is wrong."""
    report = summed(
        slice_use(0, 0, 4),
        slice_use(0, 0, 6, id="s2", machine="v5litepod-16", preemptible=True),
        attempt(0, 4),
        attempt(0, 5, id="b", slices=("s2",)),
        attempt(0, 3, id="c", user="bob", slices=("gone",)),
    )
    ada, bob = report.rows
    assert (ada.cost, ada.host_hours, ada.unpriced_host_hours) == (4.0, 9.0, 5.0)
    assert (bob.cost, bob.unpriced_host_hours) == (None, 3.0)
    assert report.unpriced == {
        "v5litepod-16 (spot, europe-west4-a)": 6.0,
        "hosts whose slice has no record": 3.0,
    }


def test_without_prices_there_are_hours_only() -> None:
    """Prices are optional; nothing is named as missing then."""
    report = summed(slice_use(0, 0, 4), attempt(0, 2), rates=())
    assert (report.currency, report.unpriced) == ("", {})
    assert (report.total.cost, report.total.host_hours) == (None, 2.0)
    assert waste(report) == {WasteKind.IDLE: (2.0, None)}


def test_old_use_keeps_its_old_price() -> None:
    """A new price list must not change the bill of last month."""
    report = summed(
        slice_use(0, 0, 48),
        attempt(20, 28),
        rates=(*DOLLAR, Rate(machine="n2-standard-8", machine_hour=3.0, since=T + DAY)),
    )
    assert report.total.cost == 4 * 1.0 + 4 * 3.0
    assert report.slices is not None
    assert report.slices.cost == 24 * 1.0 + 24 * 3.0


def test_the_order_of_records_does_not_matter() -> None:
    """A slice ends after its attempts, so its record may come last."""
    uses = (
        slice_use(0, 1, 30),
        slice_use(0, 0, 40, id="s2"),
        attempt(2, 30, slices=("s1", "s2"), host_share=2.0),
    )
    rates = (*DOLLAR, Rate(machine="n2-standard-8", machine_hour=3.0, since=T + DAY))
    reports = [summed(*order, by=("day",), rates=rates) for order in permutations(uses)]
    assert all(report == reports[0] for report in reports)


hours = st.integers(-40, 240)


@st.composite
def slices(draw: st.DrawFn) -> list[SliceUse]:
    made = []
    for number in range(draw(st.integers(1, 4))):
        begin, ready, end = sorted(draw(st.tuples(hours, hours, hours)))
        machine = draw(st.sampled_from(["n2-standard-8", "v5litepod-16", "free"]))
        made.append(
            slice_use(
                begin,
                draw(st.sampled_from([ready, None])),
                end,
                id=f"s{number}",
                machine=machine,
                hosts=draw(st.integers(1, 4)),
                tpu_chips=16 if machine == "v5litepod-16" else 0,
                preemptible=draw(st.booleans()),
            )
        )
    return made


@st.composite
def fleets(draw: st.DrawFn) -> list[AttemptUse | SliceUse]:
    """Slices, and attempts that hold a part of some while they are ready."""
    made: list[AttemptUse | SliceUse] = []
    for each in draw(slices()):
        made.append(each)
        if each.ready_at is None:
            continue
        for number in range(draw(st.integers(0, 3))):
            length = each.gone_at - each.ready_at
            begin, start, end = sorted(draw(st.tuples(*[st.floats(0, 1)] * 3)))
            made.append(
                attempt(
                    0,
                    0,
                    id=f"{each.id}-{number}",
                    user=draw(st.sampled_from(["ada", "bob"])),
                    slices=(each.id,),
                    host_share=draw(st.floats(0, each.hosts / 3)),
                    placed_at=each.ready_at + begin * length,
                    started_at=draw(st.sampled_from([None, each.ready_at + start * length])),
                    ended_at=each.ready_at + end * length,
                    end=draw(st.sampled_from(UseEnd)),
                )
            )
    return draw(st.permutations(made))


@given(fleets(), st.sampled_from([(), ("user",), ("day", "user"), ("job",)]))
def test_attempts_idle_time_and_boot_are_together_the_slices(
    uses: list[AttemptUse | SliceUse], by: tuple[str, ...]
) -> None:
    """Every dollar of the bill is in exactly one row or one line of waste."""
    rates = (
        Rate(machine="n2-standard-8", machine_hour=1.5),
        Rate(machine="n2-standard-8", machine_hour=0.5, spot=True),
        Rate(machine="n2-standard-8", machine_hour=2.5, since=T + 2 * DAY),
        Rate(machine="v5litepod", chip_hour=0.25),
        Rate(machine="v5litepod", chip_hour=0.125, spot=True, since=T + timedelta(hours=30)),
    )
    report = summed(*uses, by=by, rates=rates)
    assert report.slices is not None
    not_held = (WasteKind.IDLE, WasteKind.BOOT, WasteKind.NEVER_READY)
    unused = [each for each in report.waste if each.kind in not_held]
    costs = [row.cost or 0.0 for row in report.rows] + [each.cost or 0.0 for each in unused]
    assert sum(costs) == pytest.approx(report.slices.cost or 0.0)
    hosts = [row.host_hours for row in report.rows] + [each.host_hours for each in unused]
    assert sum(hosts) == pytest.approx(report.slices.host_hours)
    assert sum(row.host_hours for row in report.rows) == pytest.approx(report.total.host_hours)
    assert all(each.host_hours > -1e-6 for each in report.waste)
    of_attempts = sum(each.host_hours for each in report.waste if each.kind not in not_held)
    assert of_attempts <= report.total.host_hours + 1e-6


def test_a_slice_that_joined_twice_has_its_attempts() -> None:
    """The record of a slice that joined by itself also names the run, which attempts do not."""
    lives = [slice_use(n, n, n + 4, id=f"s1/run{n}", group="", machine="") for n in (0, 10)]
    report = summed(*lives, attempt(1, 2), attempt(11, 13, id="b"))
    assert waste(report) == {WasteKind.IDLE: (5.0, None)}
    assert report.unpriced == {"machines that joined by themselves (europe-west4-a)": 8.0}
