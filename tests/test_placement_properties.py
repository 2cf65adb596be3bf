"""What the scheduling pass never does, whatever hosts, work and queue it is given. Capacity is worked out anew here, by hand."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.gangs import Placement, Request
from iris.hosts import Host
from iris.placement import place
from iris.refusals import Refusal, RefusalCode, explain
from iris.resources import Device, Resources
from tests.builders import a_request, at, some
from tests.strategies import CHEAP, fleets, queues

SOME = settings(CHEAP, max_examples=120)

Amounts = dict[str, int]


def turn(request: Request) -> tuple[int, datetime, str]:
    """Who comes before whom, as the design says: band, then submission, then the key."""
    return (["production", "interactive", "batch"].index(request.band), request.submitted_at, request.key)


def amounts(resources: Resources) -> Amounts:
    return {
        "cpu": resources.cpu_millis,
        "memory": resources.memory_bytes,
        "disk": resources.disk_bytes,
        "device": resources.device.count if resources.device else 0,
    }


def free_on(host: Host, placements: Iterable[Placement]) -> Amounts:
    """What the placements of this life of the host leave of it."""
    free = amounts(host.resources)
    for placement in placements:
        if (placement.host_id, placement.incarnation) == (host.id, host.incarnation):
            free = {name: free[name] - amount for name, amount in amounts(placement.resources).items()}
    return free


def matches(wanted: Device, offered: Device | None) -> bool:
    variants = wanted.variant.lower().split(",")
    return offered is not None and offered.kind is wanted.kind and (variants == ["auto"] or offered.variant.lower() in variants)


def right_kind(host: Host, wanted: Resources) -> bool:
    if wanted.device is None:
        return host.resources.device is None or host.accept_cpu_jobs
    return matches(wanted.device, host.resources.device)


def lacking(wanted: Resources, free: Amounts) -> set[str]:
    """The dimensions of which more is wanted than there is."""
    return {name for name, amount in amounts(wanted).items() if amount > free[name]}


def takes(host: Host, wanted: Resources, placements: Iterable[Placement]) -> bool:
    return right_kind(host, wanted) and not lacking(wanted, free_on(host, placements))


def left_of(queue: Sequence[Request], placed: Sequence[Placement]) -> list[Request]:
    keys = {placement.key for placement in placed}
    return [request for request in queue if request.key not in keys]


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Host], list[Placement], list[Request]]:
    """Hosts, what runs on them (some of it in lives that are over), and who waits."""
    hosts = draw(fleets())
    live = [
        placement if draw(st.booleans()) else placement.model_copy(update={"incarnation": "an earlier one"})
        for placement in place(hosts, [], draw(queues(prefix="held")))
    ]
    return hosts, live, draw(queues())


@CHEAP
@given(situations())
def test_no_host_is_given_away_twice(situation: tuple[list[Host], list[Placement], list[Request]]) -> None:
    """On no host and in no dimension is more held than there is."""
    hosts, live, queue = situation

    placed = place(hosts, live, queue)

    for host in hosts:
        assert min(free_on(host, [*live, *placed]).values()) >= 0


@CHEAP
@given(situations())
def test_every_placement_is_of_a_waiting_request_on_a_host_of_its_kind(
    situation: tuple[list[Host], list[Placement], list[Request]],
) -> None:
    """Each at most once, with what it asked for, on a host that is there, in its present life."""
    hosts, live, queue = situation
    asked = {request.key: request for request in queue}
    there = {(host.id, host.incarnation, host.slice_id): host for host in hosts}

    placed = place(hosts, live, queue)

    assert len({placement.key for placement in placed}) == len(placed)
    for placement in placed:
        request = asked[placement.key]
        assert (placement.owner, placement.task, placement.resources) == (request.owner, request.task, request.resources)
        assert right_kind(there[placement.host_id, placement.incarnation, placement.slice_id], request.resources)


@CHEAP
@given(situations())
def test_nobody_is_left_waiting_who_fits_somewhere(situation: tuple[list[Host], list[Placement], list[Request]]) -> None:
    """A pass is complete: after it there is no host with room for anyone left, so no wake-up is ever missed."""
    hosts, live, queue = situation

    placed = place(hosts, live, queue)

    for request in left_of(queue, placed):
        assert not any(takes(host, request.resources, [*live, *placed]) for host in hosts)


@CHEAP
@given(situations())
def test_among_equals_the_first_to_come_is_the_first_served(
    situation: tuple[list[Host], list[Placement], list[Request]],
) -> None:
    """Of one shape and band, those placed are exactly the ones that came first; nobody is overtaken by their twin."""
    hosts, live, queue = situation

    placed = {placement.key for placement in place(hosts, live, queue)}

    def kind(request: Request) -> str:
        return f"{request.band} {request.resources!r}"

    for _, equals in groupby(sorted(queue, key=kind), key=kind):
        served = [request.key in placed for request in sorted(equals, key=turn)]
        assert served == sorted(served, reverse=True)


@SOME
@given(situations(), st.integers(0, 15))
def test_whoever_comes_later_changes_nothing_for_those_before(
    situation: tuple[list[Host], list[Placement], list[Request]], cut: int
) -> None:
    """Bands and arrival decide: lower bands and later submissions get what is left over, never a place that was somebody's."""
    hosts, live, queue = situation
    first = sorted(queue, key=turn)[:cut]

    together = place(hosts, live, queue)

    alone = place(hosts, live, first)
    assert alone == together[: len(alone)]
    assert not {request.key for request in left_of(first, alone)} & {placement.key for placement in together}


@SOME
@given(situations(), st.integers(0, 5))
def test_a_request_that_does_not_fit_blocks_nobody(
    situation: tuple[list[Host], list[Placement], list[Request]], second: int
) -> None:
    """However early and important it is, the others are placed as if it were not there."""
    hosts, live, queue = situation
    giant = a_request("giant", wants=some(cpu=1000), band="production", submitted_at=at(second - 5))

    assert place(hosts, live, [giant, *queue]) == place(hosts, live, queue)


@SOME
@given(situations(), st.data())
def test_the_same_facts_give_the_same_placements_in_whatever_order_they_are_told(
    situation: tuple[list[Host], list[Placement], list[Request]], data: st.DataObject
) -> None:
    """A workflow is replayed: a pass that could turn out otherwise would be a scheduler that cannot be restarted."""
    hosts, live, queue = situation

    once = place(hosts, live, queue)

    assert once == place(hosts, live, queue)
    assert once == place(hosts, data.draw(st.permutations(live)), data.draw(st.permutations(queue)))


@SOME
@given(situations())
def test_each_decision_is_the_best_at_its_moment(situation: tuple[list[Host], list[Placement], list[Request]]) -> None:
    """Tasks with devices go where the fewest are left, the others where the largest share of the cores is, plain hosts first."""
    hosts, live, queue = situation
    known = list(live)

    for placement in place(hosts, live, queue):
        options = {host.id: free_on(host, known) for host in hosts if takes(host, placement.resources, known)}
        chosen = options[placement.host_id]
        by_id = {host.id: host for host in hosts}
        if placement.resources.device is not None:
            assert chosen["device"] == min(free["device"] for free in options.values())
        else:
            plain = [each for each in options if by_id[each].resources.device is None]
            candidates = plain or list(options)
            assert placement.host_id in candidates
            share = {each: options[each]["cpu"] / by_id[each].resources.cpu_millis for each in candidates}
            assert share[placement.host_id] == pytest.approx(max(share.values()))
        known.append(placement)


def check_refusal(refusal: Refusal, request: Request, hosts: Sequence[Host], live: Sequence[Placement]) -> None:
    """Every word and number of the refusal against the facts."""
    wanted = request.resources
    suited = [host for host in hosts if right_kind(host, wanted)]
    large = [host for host in suited if not lacking(wanted, amounts(host.resources))]
    match refusal.code:
        case RefusalCode.NO_HOSTS:
            assert not hosts
        case RefusalCode.NO_DEVICE:
            assert hosts
            assert not suited
        case RefusalCode.TOO_BIG:
            assert suited
            assert not large
            check_numbers(refusal, wanted, {host.id: amounts(host.resources) for host in suited})
        case RefusalCode.BUSY:
            assert large
            assert not any(takes(host, wanted, live) for host in large)
            check_numbers(refusal, wanted, {host.id: free_on(host, live) for host in large})
        case RefusalCode.QUEUED:
            assert any(takes(host, wanted, live) for host in hosts)
        case other:
            pytest.fail(f"a pass does not answer {other}")


def check_numbers(refusal: Refusal, wanted: Resources, available: dict[str, Amounts]) -> None:
    """The numbers are those of one real host, and no other host lacks fewer things."""
    short = {host: lacking(wanted, free) for host, free in available.items()}
    fewest = min(len(each) for each in short.values())
    assert refusal.hosts == len(available)
    assert refusal.needed == {name: amounts(wanted)[name] for name in refusal.needed}
    assert any(
        short[host] == set(refusal.needed)
        and len(short[host]) == fewest
        and refusal.free == {name: free[name] for name in short[host]}
        for host, free in available.items()
    )


@CHEAP
@given(situations())
def test_whoever_is_left_is_told_the_truth(situation: tuple[list[Host], list[Placement], list[Request]]) -> None:
    """Each refusal after a pass, number by number: no false BUSY, TOO_BIG or NO_DEVICE, and nobody is told that there is room."""
    hosts, live, queue = situation
    placed = place(hosts, live, queue)
    left = left_of(queue, placed)

    for request in left:
        refusal = explain(hosts, [*live, *placed], left, request)

        assert refusal.code is not RefusalCode.QUEUED
        assert refusal.ahead == sum(turn(other) < turn(request) for other in left)
        check_refusal(refusal, request, hosts, [*live, *placed])


@SOME
@given(situations())
def test_whoever_asks_before_the_pass_is_told_the_truth(
    situation: tuple[list[Host], list[Placement], list[Request]],
) -> None:
    """A query may come at any moment: room that there is must not be called busy, nor the other way round."""
    hosts, live, queue = situation

    for request in queue:
        check_refusal(explain(hosts, live, queue, request), request, hosts, live)
