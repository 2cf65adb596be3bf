"""What the first page names as a problem."""

from datetime import timedelta

from iris.dashboard import problems
from iris.dashboard.capacity import by_kind
from iris.dashboard.pages.queue import amount_of, use_of
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.fleet_views import Amounts, GroupHoldings
from iris.messages.scheduler import Snapshot, Totals, WaitingGangs
from iris.model.job.spec import Band
from iris.model.slice.scaling import Availability, GroupStatus
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import at


def a_snapshot(**changes: object) -> Snapshot:
    settings = {"hosts": (), "total_hosts": 0, "waiting": 0, "running": 0}
    return Snapshot.model_validate(settings | changes)


def a_group_status(**changes: object) -> GroupStatus:
    settings = {"group": "tpus", "availability": Availability.QUOTA_EXCEEDED, "why": "no quota"}
    return GroupStatus.model_validate(settings | changes)


def test_a_pause_is_no_fault_and_comes_after_faults() -> None:
    """Somebody has decided it, and the reason tells who."""
    snapshot = a_snapshot(paused="upgrade, by ada", quarantined={"h1": "3 attempts failed"})
    found = problems.in_order(problems.of_scheduler(snapshot))

    assert [problem.is_bad for problem in found] == [True, False]
    assert found[0].link == "/hosts/h1"
    assert "upgrade, by ada" in found[1].text


def test_many_quarantined_hosts_are_one_problem() -> None:
    """A broken rack must not hide the other problems."""
    quarantined = {f"h{number}": "fan" for number in range(50)}
    (found,) = problems.of_scheduler(a_snapshot(quarantined=quarantined))

    assert found.link == "/fleet?state=QUARANTINED"
    assert found.text.startswith("50 hosts")


def test_gangs_that_can_never_start_are_a_problem_and_others_that_wait_are_none() -> None:
    """A full cluster is in order."""
    waiting = (
        WaitingGangs(band=Band.BATCH, reason=RefusalCode.BUSY, gangs=9),
        WaitingGangs(band=Band.BATCH, reason=None, gangs=9),
        WaitingGangs(band=Band.BATCH, reason=RefusalCode.TOO_BIG, gangs=2),
    )
    (found,) = problems.of_queue(Totals(waiting=waiting))

    assert found.link == "/queue?band=batch"
    assert "2 gangs" in found.text
    assert "TOO_BIG" in found.text


def test_an_almost_full_ledger_is_a_problem() -> None:
    """It refuses requests when it is full."""
    full = Totals(ledger_bytes=95, full_ledger_bytes=100)
    half = Totals(ledger_bytes=50, full_ledger_bytes=100)

    assert "95 %" in next(problems.of_queue(full)).text
    assert list(problems.of_queue(half)) == []


def test_a_group_without_quota_is_broken_only_if_it_needs_slices() -> None:
    """Otherwise nobody waits for it."""
    needed = AutoscalerStatus(groups=(a_group_status(demand=3, until=at(60)),))
    unneeded = AutoscalerStatus(groups=(a_group_status(),))
    healthy = AutoscalerStatus(groups=(a_group_status(availability=Availability.AT_MAX),))

    (found,) = problems.of_autoscaler(needed, at(0))
    assert (found.is_bad, found.until, found.link) == (True, at(60), "/autoscaler#group-tpus")
    assert [each.is_bad for each in problems.of_autoscaler(unneeded, at(0))] == [False]
    assert list(problems.of_autoscaler(healthy, at(0))) == []


def test_an_autoscaler_that_misses_its_next_evaluation_is_a_problem() -> None:
    """It answers questions, but decides nothing."""
    late = AutoscalerStatus(next_at=at(0))
    allowed = at(0) + problems.LATE

    assert list(problems.of_autoscaler(late, allowed)) == []
    (found,) = problems.of_autoscaler(late, allowed + timedelta(seconds=1))
    assert found.since == at(0)


def test_kinds_of_machines_are_summed_over_groups_and_closed_hosts_are_not_free() -> None:
    """Two groups of the same accelerator compete for the same jobs."""
    one = GroupHoldings(
        group="a",
        device="tpu:v4",
        hosts=2,
        busy=1,
        offers=Amounts(devices=8),
        used=Amounts(devices=4),
    )
    other = one.model_copy(update={"group": "b", "closed": 1, "closed_off": Amounts(devices=4)})
    cpus = GroupHoldings(group="c", hosts=1, offers=Amounts(cpu_millis=4500))
    tpu, cpu = by_kind([cpus, one, other])

    assert (tpu.device, tpu.hosts, tpu.busy, tpu.closed, tpu.free_hosts) == ("tpu:v4", 4, 2, 1, 1)
    assert tpu.main.text == "8 of 16 chips used, 4 free, 4 closed"
    assert (cpu.main.text, cpu.device) == ("0 of 4.5 cores used, 4.5 free", "")


def test_weights_are_shown_as_what_they_stand_for() -> None:
    """A user compares accelerators and cores, not weights."""
    assert [amount_of(weight) for weight in (0, 5, 12, 1000, 16_040)] == [
        "nothing",
        "1 core",
        "2.4 cores",
        "1 accelerator",
        "16 accelerators",
    ]
    assert [use_of(3600 * weight) for weight in (0, 5, 1000)] == [
        "nothing",
        "1 core-hour",
        "1 accelerator-hour",
    ]
