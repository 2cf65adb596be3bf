"""The result of a dry run: a reason for each host, the same as the next pass finds."""

from collections.abc import Mapping, Sequence

from hypothesis import given

from iris.model.job.requests import Placement, Request, Shape
from iris.model.job.spec import Band
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.place import place
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.refusals import RefusalCode
from iris.scheduling.reasons.forecast import NAMED, Fit, Forecast, forecast
from tests.builders import (
    CHIPS,
    a_fleet,
    a_gang,
    a_host,
    a_placement,
    a_request,
    a_slice,
    demands,
    some,
)
from tests.oracle import fits, takes
from tests.scheduling.placement.test_placement_properties import HASTY, SOON
from tests.strategies import CHEAP, PATIENT, Situation, situations


def told(
    fleet: HostIndex,
    request: Request,
    live: Sequence[Placement] = (),
    reserved: Mapping[int, Shape] | None = None,
) -> Forecast:
    return forecast(fleet, live, request, hosts=(), refusal=None, reserved=reserved or {})


def reasons(
    fleet: HostIndex,
    request: Request,
    live: Sequence[Placement] = (),
    reserved: Mapping[int, Shape] | None = None,
) -> list[str]:
    return [f"{each.hosts} {each.why}" for each in told(fleet, request, live, reserved).fits]


def test_each_host_has_the_reason_that_comes_first() -> None:
    """A dry run answers for every host why the task does not fit there."""
    hosts = {
        "gpu": a_host("gpu", some(8, device="gpu:H100:8")),
        "small": a_host("small", some(1)),
        "far": a_host("far", some(8), attributes={"zone": "b"}),
        "shut": a_host("shut", some(8), attributes={"zone": "a"}),
        "full": a_host("full", some(8), attributes={"zone": "a"}),
        "free": a_host("free", some(8), attributes={"zone": "a"}),
    }
    fleet = a_fleet(*hosts.values(), cordoned=["shut"])
    request = a_request(wants=some(4), constraints=demands("zone = a"))

    answer = told(fleet, request, [a_placement(hosts["full"], some(6))])

    assert {each.named: (each.fits, each.why) for each in answer.fits} == {
        ("free",): (True, "fits now"),
        ("far",): (False, "excluded by zone = a: its zone is b"),
        ("full",): (False, "busy: 2 of 4 cpu free"),
        ("gpu",): (False, "accepts only tasks that request its gpu:H100:8"),
        ("shut",): (False, "cordoned"),
        ("small",): (False, "too small: has 1 of 4 cpu"),
    }
    assert answer.fits[0].fits
    assert answer.infeasible is None


def test_of_many_alike_the_first_are_named_and_the_others_counted() -> None:
    """A thousand hosts of two scale groups are two entries."""
    hosts = [
        a_host(f"{group}-{i}", attributes={"scale-group": group})
        for group in ("a", "b")
        for i in range(NAMED + 2)
    ]

    assert told(a_fleet(*hosts), a_request()).fits == tuple(
        Fit(
            group=group,
            fits=True,
            why="fits now",
            hosts=NAMED + 2,
            named=tuple(f"{group}-{i}" for i in range(NAMED)),
        )
        for group in ("a", "b")
    )


def test_a_free_host_in_a_group_that_is_not_free_enough_is_no_fit() -> None:
    """A gang needs the other hosts of the group, too."""
    hosts = a_slice("large", 4) + a_slice("small", 2)
    busy = [a_placement(hosts[0], CHIPS)]

    assert reasons(a_fleet(*hosts), a_gang(tasks=4), busy) == [
        "1 busy: 0 of 4 devices free",
        "2 its slice has fewer than 4 suitable hosts",
        "3 only 3 of the 4 hosts needed in its slice are free",
    ]
    assert reasons(a_fleet(a_host("alone", hosts[0].resources)), a_gang()) == ["1 has no tpu-name"]


def test_a_reserved_host_says_so() -> None:
    """Otherwise the forecast would contradict the empty list of tasks on the host."""
    assert reasons(a_fleet(a_host()), a_request(), reserved={0: a_gang().shape}) == [
        "1 reserved for a gang ahead in the queue"
    ]
    assert reasons(a_fleet(a_host()), a_request(), reserved={0: a_request().shape}) == [
        "1 fits now"
    ]


def test_what_could_never_run_is_told_apart_from_what_has_to_wait() -> None:
    """The first needs another machine or another job, the second only patience."""
    host = a_host(offers=some(4))

    impossible = told(a_fleet(host), a_request(wants=some(8))).infeasible
    assert impossible is not None
    assert impossible.code is RefusalCode.TOO_BIG
    assert (
        told(a_fleet(host), a_request(wants=some(4)), [a_placement(host, some(4))]).infeasible
        is None
    )


@CHEAP
@given(situations())
def test_every_host_is_counted_once_and_rightly(situation: Situation) -> None:
    """A host fits exactly when a task of the request could go there, and, of a gang, enough others
    with it.
    """
    fleet, live = situation.fleet, situation.live
    for request in situation.queue[:4]:
        answer = told(fleet, request, live)

        assert sum(each.hosts for each in answer.fits) == len(fleet.hosts)
        assert all(
            each.named and len(set(each.named)) == min(each.hosts, NAMED) for each in answer.fits
        )
        free = {host.id for host in fleet.hosts if takes(fleet, host, request, live)}
        each_group = request.tasks // request.groups
        of_group = {host.id: str(host.attributes.get("tpu-name", "")) for host in fleet.hosts}
        enough = {
            host_id
            for host_id in free
            if request.group_by is None
            or sum(of_group[each] == of_group[host_id] for each in free) >= each_group
        }
        assert sum(each.hosts for each in answer.fits if each.fits) == len(enough)
        for verdict in answer.fits:
            assert (
                (set(verdict.named) <= enough) if verdict.fits else not set(verdict.named) & enough
            )


@CHEAP
@given(situations())
def test_what_the_pass_places_goes_where_the_forecast_says_it_fits(situation: Situation) -> None:
    """Forecast and pass are two readings of one cluster: alone in the queue, a gang is placed
    exactly when and where it fits.
    """
    fleet, live = situation.fleet, situation.live
    for request in situation.queue[:4]:
        fitting = {
            name for each in told(fleet, request, live).fits if each.fits for name in each.named
        }

        placed = place(fleet, live, Queue([request]), SOON, PATIENT).placed

        assert bool(placed) == fits(fleet, request, live)
        counted = sum(each.hosts for each in told(fleet, request, live).fits if each.fits)
        if counted == len(fitting):
            assert {seat.host_id for each in placed for seat in each.seats} <= fitting


@CHEAP
@given(situations())
def test_reserved_hosts_fit_only_the_shape_that_they_are_reserved_for(situation: Situation) -> None:
    """After a pass, the forecast of those who wait names no host that was reserved for another
    shape.
    """
    done = place(situation.fleet, situation.live, Queue(situation.queue), SOON, HASTY)
    live, hosts = [*situation.live, *done.placed], situation.fleet.hosts
    request = a_request(wants=some(0.5), band=Band.BATCH)

    for verdict in told(situation.fleet, request, live, done.capacity.reserved).fits:
        reserved = {
            hosts[number].id
            for number, shape in done.capacity.reserved.items()
            if shape != request.shape
        }
        assert not (verdict.fits and set(verdict.named) & reserved)
