"""The list of the waiting requests agrees with the place that each of them is told."""

from hypothesis import given
from hypothesis import strategies as st

from iris.model.job.requests import Request
from iris.model.job.spec import Band
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.usage import Usage
from iris.scheduling.reasons.queue_position import in_order, turns_of_users
from tests.builders import a_host, a_placement, a_request, at, some
from tests.strategies import CHEAP, Situation, situations


def keys(requests: list[Request]) -> list[str]:
    return [request.key for request in requests]


@CHEAP
@given(situations())
def test_a_request_stands_behind_as_many_as_are_ahead_of_it(situation: Situation) -> None:
    """`iris explain` and the page of the queue must not contradict each other."""
    waiting, usage = Queue(situation.queue), Usage.of(situation.live)
    ahead = {
        request.key: waiting.ahead(request, usage.held[request.band], usage.recent[request.band])
        for request in situation.queue
    }

    listed = keys(in_order(waiting, usage, 0, 100))

    assert ahead == {key: place for place, key in enumerate(listed)}


@CHEAP
@given(situations(), st.integers(0, 16), st.integers(1, 6))
def test_pages_are_parts_of_the_whole_list(situation: Situation, offset: int, limit: int) -> None:
    """A page that begins in the middle passes by the same requests as the whole list."""
    waiting, usage = Queue(situation.queue), Usage.of(situation.live)
    whole = keys(in_order(waiting, usage, 0, 100))

    assert keys(in_order(waiting, usage, offset, limit)) == whole[offset : offset + limit]


@CHEAP
@given(situations(), st.sampled_from(Band), st.integers(0, 5))
def test_the_list_of_a_band_is_a_part_of_the_whole_list(
    situation: Situation, band: Band, offset: int
) -> None:
    """The requests of higher bands count as served before it, as they do in the whole list."""
    waiting, usage = Queue(situation.queue), Usage.of(situation.live)
    whole = [each.key for each in in_order(waiting, usage, 0, 100) if each.band is band]

    assert keys(in_order(waiting, usage, offset, 3, band)) == whole[offset : offset + 3]


def test_the_user_who_holds_less_has_the_next_turn() -> None:
    """The page shows why: what each user holds, and how many of the user's requests wait."""
    queue = Queue(
        [
            a_request("k1", user="ada", submitted_at=at(0)),
            a_request("k2", user="ada", submitted_at=at(1)),
            a_request("k3", user="bob", submitted_at=at(2)),
        ]
    )
    usage = Usage.of([a_placement(a_host(), some(cpu=2), user="ada")])

    turns = turns_of_users(queue, usage, Band.INTERACTIVE)

    assert [(turn.user, turn.waiting, turn.held) for turn in turns] == [
        ("bob", 1, 0),
        ("ada", 2, 10),
    ]
    assert turns_of_users(queue, usage, Band.BATCH) == []


def test_held_requests_are_listed_by_age() -> None:
    """No turn decides between them, because none is served."""
    queue = Queue(a_request(f"k{i}", user=f"u{i % 2}", submitted_at=at(9 - i)) for i in range(5))

    assert keys(queue.oldest(1, 3)) == ["k3", "k2", "k1"]
