"""The numbers of a simulation."""

import pytest

from iris.model.host.resources import Resources, parse_device
from iris.model.job.spec import Band
from iris.model.slice.provisioning import SliceFault
from iris.scheduling.placement.refusals import RefusalCode
from iris.simulation.report.answers import WORST, Waits, answers_of
from iris.simulation.report.quantiles import quantile
from iris.simulation.report.shapes import shape_of
from iris.usage.accounting import Accounting
from iris.usage.records import UseEnd
from tests.simulation.report.made_histories import (
    MONEY,
    a_day,
    answers,
    gang,
    held,
    history,
    refused,
)
from tests.usage.made_uses import slice_use

HOUR = 3600.0


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 5), (0.9, 9), (0.99, 10), (0.07, 1), (0.7, 7), (1.0, 10)]
)
def test_a_quantile_is_the_smallest_value_that_covers_its_share(
    share: float, expected: int
) -> None:
    """By nearest rank, so it is a wait that a gang really had; 0.7 x 10 is not 8 by rounding."""
    assert quantile(range(1, 11), share) == expected


def test_waits_count_to_the_first_hosts_or_to_the_end_of_a_gang_that_got_none() -> None:
    """A gang that gives up after two hours has waited two hours."""
    assert answers().all.waits == Waits(
        p50=2 * HOUR, p90=4 * HOUR, p99=4 * HOUR, mean=2.25 * HOUR, longest=4 * HOUR
    )


def test_a_gang_that_still_waits_has_waited_until_the_end() -> None:
    """Otherwise a configuration that never places it would seem fast."""
    found = answers_of(history([gang(1, 4, None, None)], stopped=24), Accounting())
    assert found.all.waits.longest == 20 * HOUR
    assert found.all.unended == 1


def test_all_is_done_when_the_last_gang_has_ended() -> None:
    """Not at the end of the recorded time, when a faster cluster has long been idle."""
    done = answers_of(history([gang(1, 0, 1, 2), gang(2, 1, 2, 4)], stopped=24), Accounting())
    assert done.makespan == 4 * HOUR
    never = answers_of(history([gang(1, 4, None, None)], stopped=24), Accounting())
    assert never.makespan == 24 * HOUR


def test_gangs_are_counted_by_band_user_team_and_shape() -> None:
    """The questions are about those who wait."""
    found = answers()
    assert (found.all.gangs, found.all.unschedulable, found.all.failed) == (4, 1, 1)
    assert (found.all.evictions, found.all.losses) == (1, 1)
    assert {key: part.gangs for key, part in found.bands.items()} == {
        Band.PRODUCTION: 1,
        Band.BATCH: 3,
    }
    assert {key: part.gangs for key, part in found.users.items()} == {
        "ada": 2,
        "bob": 1,
        "<b>bob</b>": 1,
    }
    assert {key: part.gangs for key, part in found.teams.items()} == {"nlp": 2, "": 2}
    assert {key: part.gangs for key, part in found.shapes.items()} == {"8 cpu, 32 GiB": 4}


def test_hours_and_money_of_a_part_are_those_of_its_attempts() -> None:
    """By the code of `iris usage`: a dollar for a host's hour."""
    found = answers()
    hours = {key: (part.host_hours, part.cost) for key, part in found.users.items()}
    assert hours == {"ada": (6.0, 6.0), "bob": (4.0, 4.0), "<b>bob</b>": (0.0, None)}
    (shape,) = found.shapes.values()
    assert (shape.host_hours, shape.cost) == (10.0, 10.0)
    assert found.all.cost == 10.0


def test_slices_have_hours_and_the_part_that_gangs_held() -> None:
    """Thirteen ready host-hours, of which gangs held eight on known slices and two more."""
    (cpu,) = answers().groups.values()
    assert (cpu.made, cpu.ready_host_hours, cpu.idle_host_hours) == (2, 13.0, 3.0)
    assert cpu.held == pytest.approx(10 / 13)
    assert cpu.boot_host_hours == 4.0
    assert cpu.cost == 17.0
    assert answers().slices == cpu


def test_a_failed_request_is_not_a_lost_slice() -> None:
    """The first costs time, the second costs work."""
    (cpu,) = answers().groups.values()
    assert cpu.refused == {"STOCK_OUT": 1}
    assert cpu.lost == {"PREEMPTED": 1}
    assert cpu.failed_requests == 1


def test_a_group_has_only_its_own_slices_and_faults() -> None:
    """Two groups are compared by their own numbers."""
    ours = gang(1, 0, 0, 2)
    found = answers_of(
        history(
            [ours],
            [slice_use(0, 0, 4), slice_use(0, 1, 2, id="t1", group="tpu"), held(1, ours)],
            [refused(1, "t9", SliceFault.QUOTA, "tpu")],
            groups=("tpu", "cpu", "never"),
        ),
        MONEY,
    )
    assert list(found.groups) == ["tpu", "cpu", "never"]
    assert (found.groups["cpu"].held, found.groups["tpu"].held) == (0.5, 0.0)
    assert (found.groups["cpu"].refused, found.groups["tpu"].refused) == ({}, {"QUOTA": 1})
    assert found.groups["never"].ready_host_hours == 0.0
    assert found.slices.ready_host_hours == 5.0


def test_waste_is_that_of_the_usage_report() -> None:
    """One definition of waste."""
    failed = gang(1, 0, 0, 2)
    uses = [slice_use(0, 0, 4), held(1, failed, end=UseEnd.FAILED)]
    waste = answers_of(history([failed], uses), MONEY).waste
    hours = {kind: (each.host_hours, each.cost) for kind, each in waste.items()}
    assert hours == {"idle": (2.0, 2.0), "failed": (2.0, 2.0)}


def test_without_prices_there_is_no_money() -> None:
    """None is not zero."""
    found = answers_of(a_day(), Accounting())
    assert (found.currency, found.all.cost, found.slices.cost) == ("", None, None)
    assert found.teams == {}


def test_the_longest_waits_have_their_reasons_over_time() -> None:
    """Why the worst ones waited is the question that a number does not answer."""
    worst = answers().worst
    assert [each.id for each in worst] == ["g4", "g2", "g3", "g1"]
    assert [(each.after, each.code) for each in worst[0].reasons] == [
        (0.5 * HOUR, RefusalCode.BUSY),
        (1.0 * HOUR, RefusalCode.SCALING),
    ]


def test_gangs_that_did_not_wait_are_no_long_waits_and_few_are_named() -> None:
    """Ten are read, a thousand are not."""
    gangs = [gang(number, 0, number % 3, 4) for number in range(1, 40)]
    worst = answers_of(history(gangs), Accounting()).worst
    assert len(worst) == WORST
    assert answers_of(history([gang(1, 2, 2, 3)]), Accounting()).worst == ()


def test_a_simulation_without_gangs_has_zeros() -> None:
    """An empty hour of the past is no error."""
    found = answers_of(history([]), MONEY)
    assert (found.all.gangs, found.all.waits.longest, found.worst) == (0, 0.0, ())


@pytest.mark.parametrize(
    ("wants", "tasks", "expected"),
    [
        (Resources(cpu_millis=8000), 1, "8 cpu"),
        (Resources(cpu_millis=0), 1, "nothing"),
        (Resources(device=parse_device("tpu:v5litepod-16:4")), 4, "4 x tpu:v5litepod-16"),
        (Resources(device=parse_device("gpu:H100:8")), 1, "gpu:H100:8"),
        (Resources(device=parse_device("gpu:H100:8")), 1200, "1,200 x gpu:H100:8"),
    ],
)
def test_a_shape_is_short(wants: Resources, tasks: int, expected: str) -> None:
    """It is a row of a table."""
    assert shape_of(gang(1, 0, 0, 1, wants=wants, tasks=tasks).trace) == expected
