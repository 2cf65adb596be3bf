"""The order of service: fair between users, by age for each user, and the same in the next run."""

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from iris.model.job.requests import Request, request_for
from iris.model.job.spec import Band, Coscheduling
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.usage import use_by_band
from tests.builders import (
    a_gang,
    a_gang_placement,
    a_host,
    a_placement,
    a_request,
    a_slice,
    a_spec,
    at,
    requests,
    some,
)
from tests.oracle import use_of, weight_of
from tests.strategies import CHEAP, Situation, situations


def served(
    waiting: Queue, band: Band = Band.INTERACTIVE, use: dict[str, int] | None = None
) -> list[str]:
    """Returns the keys in the order of the turns, if every request fits."""
    turns, keys = waiting.turns(band, use or {}), []
    for request in turns:
        keys.append(request.key)
        turns.served()
    return keys


def naive(queue: Sequence[Request], use: dict[str, int], fits: set[str]) -> list[tuple[str, bool]]:
    """Returns every turn and whether it was served, computed by comparing all users each time."""
    use, left, story = dict(use), list(queue), []
    while left:
        request = min(left, key=lambda each: (use.get(each.user, 0), each.submitted_at, each.key))
        if request.key in fits:
            left.remove(request)
            use[request.user] = use.get(request.user, 0) + weight_of(request)
        else:
            left = [each for each in left if each.shape != request.shape]
        story.append((request.key, request.key in fits))
    return story


def test_users_take_turns_however_much_each_has_submitted() -> None:
    """A user who submits a thousand jobs first must not make a colleague wait for the
    last of them.
    """
    many = [a_request(f"many-{i}", user="many", submitted_at=at(i)) for i in range(4)]
    few = [a_request(f"few-{i}", user="few", submitted_at=at(10 + i)) for i in range(2)]

    assert served(Queue([*many, *few])) == [
        "many-0",
        "few-0",
        "many-1",
        "few-1",
        "many-2",
        "many-3",
    ]


def test_whoever_holds_more_now_is_served_later() -> None:
    """The order depends on current use, not on past turns: a user with a running job comes after
    one without.
    """
    queue = [
        a_request("rich", user="rich", submitted_at=at(0)),
        a_request("poor", user="poor", submitted_at=at(1)),
    ]

    assert served(Queue(queue), use={"rich": 1}) == ["poor", "rich"]


def test_one_accelerator_counts_for_more_than_all_the_cores_of_a_machine() -> None:
    """By number of jobs, a user of a TPU and a user of a core would have had the same."""
    queue = [a_request("tpu", wants=some(device="tpu"), user="t", submitted_at=at(0))]
    queue += [a_request(f"core-{i}", user="c", submitted_at=at(i)) for i in range(1, 6)]
    queue += [a_request("tpu-2", user="t", submitted_at=at(0.5))]

    assert served(Queue(queue))[-1] == "tpu-2"


def test_use_counts_in_its_own_band_and_the_weaker_ones() -> None:
    """A night of batch work must not cost its owner the turns of an interactive session; the other
    way round it may.
    """
    host = a_host()
    live = [
        a_placement(host, some(cpu=2), "p", user="a", band=Band.PRODUCTION),
        a_placement(host, user="a", band=Band.BATCH),
    ]

    use = use_by_band(live)

    assert [use[band].get("a", 0) for band in Band] == [10, 10, 15]


def test_a_gang_weighs_as_much_as_its_tasks_together() -> None:
    """A gang over a slice counts more than one small job."""
    gang = a_gang_placement(a_slice("s", 4), some(cpu=1, device="tpu"), user="a")

    assert use_by_band([gang])[Band.INTERACTIVE] == {"a": 4 * 1005}


def test_a_shape_that_is_skipped_is_skipped_for_everybody() -> None:
    """Looking at each of a hundred thousand twins of a job that does not fit would take minutes."""
    waiting = Queue(requests(some(2), some(1), some(2), some(2), some(1)))
    turns, seen = waiting.turns(Band.INTERACTIVE, {}), []

    for request in turns:
        seen.append(request.key)
        if request.resources == some(2):
            turns.skip()
        else:
            turns.served()

    assert seen == ["k1", "k2", "k5"]


def test_asking_twice_is_waiting_once_and_going_twice_is_going_once() -> None:
    """Messages are repeated. A repeated one must not change the lines or the counts."""
    waiting = Queue(
        [a_request("k", submitted_at=at(1)), a_request("k", submitted_at=at(0)), a_request("other")]
    )

    assert len(waiting) == 2
    assert waiting.remove("k") == a_request("k", submitted_at=at(1))
    assert waiting.remove("k") is None
    assert (len(waiting), "k" in waiting, waiting.get("k"), served(waiting)) == (
        1,
        False,
        None,
        ["other"],
    )


def test_a_request_comes_back_from_the_line_as_it_went_in() -> None:
    """Lines keep only keys and times; task, owner and gang have to follow from them again, for
    jobs, tasks and gangs.
    """
    together = a_spec(replicas=4, coscheduling=Coscheduling(group_by="tpu-name", groups=2))
    asked = [
        request_for(
            a_spec(), index=0, attempt=1, run_id="r1", owner="dev/job/ada/train", submitted_at=at(1)
        ),
        request_for(
            a_spec(replicas=3),
            index=2,
            attempt=0,
            run_id="r2",
            owner="dev/task/ada/train:2",
            submitted_at=at(2),
        ),
        request_for(
            together,
            index=0,
            attempt=7,
            run_id="r3",
            owner="dev/job/ada/train",
            submitted_at=at(3),
            band=Band.BATCH,
        ),
        a_request("no@pattern", owner="", task="at all", submitted_at=at(-4)),
    ]

    waiting = Queue.unpack(json.loads(json.dumps(Queue(asked).pack())))

    assert [waiting.get(request.key) for request in asked] == asked


@CHEAP
@given(situations(), st.sampled_from(Band), st.sets(st.integers(0, 14)))
def test_turns_are_those_that_looking_at_everybody_gives(
    situation: Situation, band: Band, unlucky: set[int]
) -> None:
    """Lines and heaps give the same order as a comparison of all users and requests."""
    queue = [request for request in situation.queue if request.band is band]
    fits = {request.key for i, request in enumerate(queue) if i not in unlucky}
    use = use_by_band(situation.live)[band]
    turns, story = Queue(situation.queue).turns(band, use), []

    for request in turns:
        story.append((request.key, request.key in fits))
        if request.key in fits:
            turns.served()
        else:
            turns.skip()

    assert story == naive(queue, use, fits)


@CHEAP
@given(situations())
def test_ahead_of_a_request_are_those_whose_turns_come_first(situation: Situation) -> None:
    """The reported number agrees with the pass: all bands in their order, if every request fits."""
    waiting = Queue(situation.queue)
    order: list[str] = []
    for band in Band:
        use = {user: use_of(user, band.rank, situation.live) for user in "abc"}
        for request in situation.queue:
            if request.band.rank < band.rank:
                use[request.user] += weight_of(request)
        order += served(waiting, band, use)

    ahead = {r.key: waiting.ahead(r, use_by_band(situation.live)[r.band]) for r in situation.queue}

    assert ahead == {key: place for place, key in enumerate(order)}


@CHEAP
@given(situations(), st.lists(st.integers(0, 14), max_size=10), st.booleans())
def test_what_is_carried_to_the_next_run_is_the_same_line(
    situation: Situation, gone: list[int], again: bool
) -> None:
    """Every query of the queue has the same answer after it was packed."""
    waiting = Queue(situation.queue)
    for i in gone:
        waiting.remove(f"k{i:02}")
        if again and i < len(situation.queue):
            waiting.add(situation.queue[i])
    left = sorted(waiting, key=lambda each: each.key)

    carried = Queue.unpack(json.loads(json.dumps(waiting.pack())))

    assert sorted(carried, key=lambda each: each.key) == left
    assert (len(carried), sorted(carried.keys())) == (len(left), [each.key for each in left])
    assert carried.demand() == waiting.demand()
    for band in Band:
        assert served(carried, band) == served(waiting, band)
        assert carried.shapes(band) == waiting.shapes(band)
    for request in left:
        assert carried.ahead(request, {"a": 3}) == waiting.ahead(request, {"a": 3})
    for request in left:
        carried.remove(request.key)
    assert (len(carried), list(carried), carried.demand(), served(carried)) == (0, [], {}, [])


@CHEAP
@given(situations(), st.integers(0, 15))
def test_shapes_are_counted_dated_and_found_right(situation: Situation, most: int) -> None:
    """Counts create machines, dates decide for which shape hosts are reserved, and the first
    request is the one explained.
    """
    waiting = Queue(situation.queue)
    shapes = {request.shape for request in situation.queue}

    def alike(band: Band | None = None) -> dict[object, list[Request]]:
        of = {
            shape: [r for r in situation.queue if r.shape == shape and band in (None, r.band)]
            for shape in shapes
        }
        return {shape: members for shape, members in of.items() if members}

    assert waiting.demand() == {shape: len(members) for shape, members in alike().items()}
    for band in Band:
        assert waiting.shapes(band) == {
            shape: min(r.submitted_at for r in members) for shape, members in alike(band).items()
        }
    firsts = waiting.firsts()
    assert firsts.keys() == alike().keys()
    for shape in shapes:
        first = min(alike()[shape], key=lambda each: (each.band.rank, each.submitted_at, each.key))
        assert firsts[shape] == first
        assert waiting.firsts({shape}) == {shape: first}
        some_of = waiting.of_shape(shape, most)
        assert len({each.key for each in some_of}) == len(some_of) == min(most, len(alike()[shape]))
        assert all(each in alike()[shape] for each in some_of)
    assert waiting.firsts({a_gang(tasks=99).shape}) == {}
