"""Properties of every scheduling pass, for any hosts, placements and queue. An oracle computes them
independently.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.host.constraints import avoiding
from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.placement.place import Pass, place
from iris.scheduling.placement.queue import Queue
from tests.builders import a_request, at, some
from tests.oracle import amounts, could_serve, fits, free_on, groups_of, left_of, takes, use_of
from tests.strategies import CHEAP, PATIENT, Situation, situations

#: Of two requests submitted at the seconds 0 to 5, here some have waited for too long and some have
#: not.
SOON, HASTY = at(6), Rules(patience=timedelta(seconds=3))


def after(
    situation: Situation,
    rules: Rules = PATIENT,
    queue: Sequence[Request] | None = None,
    most: int | None = None,
) -> Pass:
    """Runs a pass over the situation, or over another queue."""
    return place(
        situation.fleet,
        situation.live,
        Queue(situation.queue if queue is None else queue),
        SOON,
        rules,
        most,
    )


def turn(request: Request, placed: Sequence[Placement]) -> tuple[int, int, datetime, str]:
    """Returns the sort key of a turn by the design: band, use of the user, submission, key."""
    rank = request.band.rank
    return (rank, use_of(request.user, rank, placed), request.submitted_at, request.key)


@CHEAP
@given(situations(), st.sampled_from([PATIENT, HASTY]))
def test_no_host_is_given_away_twice(situation: Situation, rules: Rules) -> None:
    """No resource of a host is given beyond its amount, also if the host has less than its tasks
    were promised.
    """
    placed = after(situation, rules).placed

    for host in situation.fleet.hosts:
        before = free_on(host, situation.live)
        for name, amount in free_on(host, [*situation.live, *placed]).items():
            assert amount >= 0 or amount == before[name]


@CHEAP
@given(situations(), st.sampled_from([PATIENT, HASTY]))
def test_a_gang_is_placed_whole_on_hosts_that_suit_it_or_not_at_all(
    situation: Situation, rules: Rules
) -> None:
    """It gets as many hosts as tasks. All are different, live, open, of the right kind, and meet
    every required constraint. They form equal groups, in the order of the workers.
    """
    asked = {request.key: request for request in situation.queue}
    there = {(host.id, host.incarnation, host.slice_id): host for host in situation.fleet.hosts}

    placed = after(situation, rules).placed

    assert len({placement.key for placement in placed}) == len(placed)
    for placement in placed:
        request = asked[placement.key]
        assert (placement.owner, placement.task, placement.user) == (
            request.owner,
            request.task,
            request.user,
        )
        assert (placement.resources, placement.band, placement.placed_at) == (
            request.resources,
            request.band,
            SOON,
        )
        hosts = [there[seat.host_id, seat.incarnation, seat.slice_id] for seat in placement.seats]
        assert len({host.id for host in hosts}) == len(hosts) == request.tasks
        assert all(
            could_serve(host, request) and situation.fleet.closed(host) is None for host in hosts
        )
        if request.group_by is not None:
            each = request.tasks // request.groups
            assert [seat.group for seat in placement.seats] == [
                group for group in range(request.groups) for _ in range(each)
            ]
            groups = groups_of(hosts, request)
            assert [len(members) for members in groups.values()] == [each] * request.groups
            assert [host for members in groups.values() for host in members] == hosts


@CHEAP
@given(
    situations(), st.lists(st.sampled_from(["h0", "h1", "h2", "s0-0", "s0-1", "s1-0"]), max_size=4)
)
def test_a_job_avoids_hosts_but_never_waits_because_of_them(
    situation: Situation, avoided: list[str]
) -> None:
    """Hosts that spoilt its attempts come last. If no other host can take it, it runs there all the
    same.
    """
    for request in situation.queue:
        anywhere = after(situation, queue=[request]).placed
        # Not a copy, which would have the shape that the line above has cached.
        wary = Request.model_validate(
            {**request.model_dump(), "constraints": (*request.constraints, *map(avoiding, avoided))}
        )
        placed = after(situation, queue=[wary]).placed

        assert len(placed) == len(anywhere)
        if placed and request.tasks == 1 and not request.constraints:
            host_id = placed[0].seats[0].host_id
            for host in situation.fleet.hosts:
                if takes(situation.fleet, host, wary, situation.live):
                    assert avoided.count(host_id) <= avoided.count(host.id)


@CHEAP
@given(situations())
def test_nobody_is_left_waiting_who_fits(situation: Situation) -> None:
    """After a pass no waiting request fits, so no later event is needed to place it."""
    placed = after(situation).placed

    for request in left_of(situation.queue, placed):
        assert not fits(situation.fleet, request, [*situation.live, *placed])


@CHEAP
@given(situations())
def test_whoever_fits_but_waits_does_so_for_a_gang_that_has_waited_too_long(
    situation: Situation,
) -> None:
    """Hosts are reserved only for a gang that has waited longer than patience allows and could run
    there. No higher band waits for a lower one.
    """
    done = after(situation, HASTY)
    left = left_of(situation.queue, done.placed)
    hosts = situation.fleet.hosts
    overdue = [request for request in left if SOON - request.submitted_at > HASTY.patience]

    for number, shape in done.capacity.reserved.items():
        assert any(
            request.shape == shape and could_serve(hosts[number], request) for request in overdue
        )
    for request in left:
        mine = [
            each
            for each in overdue
            if each.band.rank <= request.band.rank and each.shape != request.shape
        ]
        shapes = {each.shape for each in mine}
        kept = {
            hosts[number].id for number, shape in done.capacity.reserved.items() if shape in shapes
        }
        assert not fits(situation.fleet, request, [*situation.live, *done.placed], without=kept)


@CHEAP
@given(situations(), st.sampled_from([PATIENT, HASTY]))
def test_among_equals_the_first_to_come_is_the_first_served(
    situation: Situation, rules: Rules
) -> None:
    """Of requests with the same shape, band and user, the oldest are placed."""
    placed = {placement.key for placement in after(situation, rules).placed}

    def kind(request: Request) -> str:
        return f"{request.band} {request.user} {request.shape!r}"

    for _, equals in groupby(sorted(situation.queue, key=kind), key=kind):
        served = [
            request.key in placed
            for request in sorted(equals, key=lambda each: (each.submitted_at, each.key))
        ]
        assert served == sorted(served, reverse=True)


@CHEAP
@given(situations())
def test_nobody_whose_turn_it_is_is_passed_over_while_he_fits(situation: Situation) -> None:
    """At each decision, no request fits whose user has less use, that is older, or that is of a
    higher band.
    """
    known, left = list(situation.live), {request.key: request for request in situation.queue}

    for placement in after(situation).placed:
        chosen = turn(left.pop(placement.key), known)
        for other in left.values():
            assert turn(other, known) > chosen or not fits(situation.fleet, other, known)
        known.append(placement)


@CHEAP
@given(situations(), st.integers(0, 5), st.sampled_from([PATIENT, HASTY]))
def test_a_request_that_can_never_fit_blocks_nobody(
    situation: Situation, second: int, rules: Rules
) -> None:
    """Others are placed as if it did not exist, however old it is and whatever its band."""
    giant = a_request(
        "giant", wants=some(cpu=1000), band=Band.PRODUCTION, submitted_at=at(second - 5)
    )

    assert (
        after(situation, rules, [giant, *situation.queue]).placed == after(situation, rules).placed
    )


@CHEAP
@given(situations(), st.data(), st.sampled_from([PATIENT, HASTY]))
def test_the_same_facts_give_the_same_placements_in_whatever_order_they_are_told(
    situation: Situation, data: st.DataObject, rules: Rules
) -> None:
    """A workflow is replayed. A pass with another result would make a restart of the scheduler
    impossible.
    """
    once = after(situation, rules).placed

    assert once == after(situation, rules).placed
    live, queue = (
        data.draw(st.permutations(situation.live)),
        data.draw(st.permutations(situation.queue)),
    )
    assert once == after(Situation(situation.fleet, live, queue), rules).placed


@CHEAP
@given(situations(), st.integers(1, 4), st.sampled_from([PATIENT, HASTY]))
def test_a_pass_in_pieces_is_the_same_pass(situation: Situation, most: int, rules: Rules) -> None:
    """A pass stops at its limit so that a workflow task stays short. The next pass must continue
    with the same result.
    """
    whole = after(situation, rules).placed
    pieces: list[Placement] = []

    for _ in range(len(situation.queue) + 1):
        rest = Situation(
            situation.fleet, [*situation.live, *pieces], left_of(situation.queue, pieces)
        )
        piece = after(rest, rules, most=most)
        assert len(piece.placed) <= most
        pieces += piece.placed
        if not piece.stopped:
            break

    assert pieces == whole


@CHEAP
@given(situations())
def test_each_decision_is_the_best_at_its_moment(situation: Situation) -> None:
    """Preferred constraints count first. Tasks with devices go where the fewest devices are left,
    others where the largest share of cores is free, on plain hosts first. A gang goes to the groups
    with the fewest hosts that have capacity.
    """
    known, asked = list(situation.live), {request.key: request for request in situation.queue}
    by_id = {host.id: host for host in situation.fleet.hosts}

    for placement in after(situation).placed:
        request = asked[placement.key]
        roomy = [
            host for host in situation.fleet.hosts if takes(situation.fleet, host, request, known)
        ]
        chosen = [by_id[seat.host_id] for seat in placement.seats]

        def dislikes(host_id: str, request: Request = request) -> int:
            preferred = [each for each in request.constraints if each.preferred]
            return sum(not each.holds(by_id[host_id].facts) for each in preferred)

        if request.group_by is not None:
            each = request.tasks // request.groups
            groups = {
                name: members
                for name, members in groups_of(roomy, request).items()
                if len(members) >= each
            }
            ranks = {
                n: (sum(dislikes(host.id) for host in m[:each]), len(m)) for n, m in groups.items()
            }
            assert (
                sorted(ranks[name] for name in groups_of(chosen, request))
                == sorted(ranks.values())[: request.groups]
            )
        elif request.resources.device is not None:
            left = {host.id: (dislikes(host.id), free_on(host, known)["device"]) for host in roomy}
            assert left[chosen[0].id] == min(left.values())
        else:
            mark = {
                host.id: (dislikes(host.id), host.resources.device is not None) for host in roomy
            }
            best = [host for host in roomy if mark[host.id] == min(mark.values())]
            assert chosen[0] in best
            share = {
                host.id: free_on(host, known)["cpu"] / max(1, amounts(host.resources)["cpu"])
                for host in best
            }
            assert share[chosen[0].id] == pytest.approx(max(share.values()))
        known.append(placement)
