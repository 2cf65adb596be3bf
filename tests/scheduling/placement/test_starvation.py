"""No request waits for ever: simulations of clusters in which small jobs are submitted
without end.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from iris.model.host.hosts import Host
from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.place import place
from iris.scheduling.placement.queue import Queue
from tests.builders import CHIPS, a_gang, a_host, a_placement, a_request, a_slice, at, some
from tests.oracle import fits, use_of
from tests.strategies import CHEAP, examples

SOME = settings(CHEAP, max_examples=examples(30))

RULES = Rules(
    patience=timedelta(seconds=30),
    owed_after=timedelta(seconds=60),
    min_run_time=timedelta(seconds=5),
)

seeds = st.integers(0, 2**32).map(Random)


class Cluster:
    """A cluster in which each second tasks end, requests are submitted, and a pass runs."""

    def __init__(
        self, hosts: list[Host], random: Random, stream: Callable[[str], Request], backlog: int = 6
    ) -> None:
        self.fleet, self.random, self.stream, self.backlog = (
            HostIndex(hosts),
            random,
            stream,
            backlog,
        )
        self.live: dict[str, Placement] = {}
        #: What never ends.
        self.forever: dict[str, Placement] = {}
        self.waiting = Queue()
        self.started: set[str] = set()
        self.seconds = 0
        self.submitted = 0

    def submit(self, request: Request) -> None:
        self.waiting.add(request.model_copy(update={"submitted_at": at(self.seconds)}))

    def step(self) -> list[Placement]:
        """Simulates one second: a task ends, requests are added so that some always wait, and a
        pass runs.
        """
        self.seconds += 1
        if self.live:
            del self.live[self.random.choice(list(self.live))]
        while len(self.waiting) < self.backlog:
            self.submitted += 1
            self.submit(self.stream(f"small-{self.submitted}"))
        held = [*self.live.values(), *self.forever.values()]
        placed = place(self.fleet, held, self.waiting, at(self.seconds), RULES).placed
        for placement in placed:
            self.waiting.remove(placement.key)
            self.live[placement.key] = placement
            self.started.add(placement.key)
        return placed

    def until(self, key: str, most: int) -> int:
        """Returns after how many ends the request has its hosts; fails beyond the limit."""
        for completions in range(most):
            if key in self.started:
                return completions
            self.step()
        assert key in self.started, (
            f"{key} still waits after {most} completions; {len(self.live)} run"
        )
        return most


def small(
    random: Random, users: str = "abc", band: Band = Band.INTERACTIVE
) -> Callable[[str], Request]:
    def stream(key: str) -> Request:
        return a_request(
            key, some(random.choice([0.5, 1, 2])), user=random.choice(users), band=band
        )

    return stream


def enough_ends(hosts: int, each: int) -> int:
    """A bound for a random order of ends: by then every task that ran when patience was over has
    ended, all but surely.
    """
    return int(RULES.patience.total_seconds()) + 40 * hosts * each


@SOME
@given(seeds, st.integers(1, 4), st.sampled_from([Band.INTERACTIVE, Band.BATCH]))
def test_a_job_that_needs_a_whole_host_gets_one_though_small_ones_never_stop_coming(
    random: Random, hosts: int, band: Band
) -> None:
    """Small jobs fill every gap until patience is over and a host is reserved."""
    cluster = Cluster(
        [a_host(f"h{i}", some(4)) for i in range(hosts)], random, small(random, band=band)
    )
    for _ in range(10):
        cluster.step()

    cluster.submit(a_request("big", some(4), user="big", band=band))

    assert cluster.until("big", enough_ends(hosts, 8)) > 0


@SOME
@given(seeds, st.integers(1, 3), st.integers(1, 2))
def test_a_gang_gets_its_slices_though_single_tasks_never_stop_coming(
    random: Random, others: int, groups: int
) -> None:
    """All hosts of a group are reserved together. Reserved one by one, groups would block each
    other.
    """
    hosts = [
        host for i in range(groups + others) for host in a_slice(f"s{i}", 3, accept_cpu_jobs=True)
    ]

    def stream(key: str) -> Request:
        return a_request(
            key,
            random.choice([CHIPS, some(8), some(device="tpu:auto:2")]),
            user=random.choice("abc"),
        )

    cluster = Cluster(hosts, random, stream, backlog=20)
    for _ in range(20):
        cluster.step()

    cluster.submit(a_gang("gang", 3 * groups, groups=groups, user="gang"))

    cluster.until("gang", enough_ends(len(hosts), 4))


@SOME
@given(seeds, st.integers(1, 3))
def test_a_user_whose_other_job_runs_for_a_week_gets_his_turn_too(
    random: Random, hosts: int
) -> None:
    """Users with less use come first, and new ones never stop coming. Once the user is overdue, the
    running job does not count.
    """
    gpus = a_host("gpus", some(cpu=8, device="gpu:H100:8"))
    cluster = Cluster(
        [a_host(f"h{i}", some(4)) for i in range(hosts)] + [gpus], random, small(random)
    )
    cluster.forever["week"] = a_placement(
        gpus, some(cpu=1, device="gpu:H100:8"), "week", user="big"
    )
    for _ in range(10):
        cluster.step()

    cluster.submit(a_request("big", some(4), user="big"))

    assert cluster.until("big", int(RULES.owed_after.total_seconds()) + enough_ends(hosts, 8)) > 0


@SOME
@given(seeds, st.integers(1, 3))
def test_several_large_jobs_of_different_shapes_all_get_their_turn(
    random: Random, hosts: int
) -> None:
    """They do not block the hosts of one another for ever."""
    cluster = Cluster(
        [a_host(f"h{i}", some(4, memory=8)) for i in range(hosts)],
        random,
        small(random),
        backlog=10,
    )
    for _ in range(10):
        cluster.step()
    shapes = [some(4), some(4, memory=4), some(3.5, memory=8)]

    for i, wants in enumerate(shapes):
        cluster.submit(a_request(f"big-{i}", wants, user=f"user-{i}"))

    for i in range(3):
        cluster.until(f"big-{i}", enough_ends(hosts, 8))


@SOME
@given(seeds, st.integers(1, 3))
def test_the_host_that_is_kept_is_lost_to_nobody_of_the_band_or_a_weaker_one(
    random: Random, hosts: int
) -> None:
    """After patience is over, each end on that host brings the large job nearer."""
    cluster = Cluster([a_host(f"h{i}", some(4)) for i in range(hosts)], random, small(random))
    for _ in range(10):
        cluster.step()
    # The first of all, so that nobody's turn is before it.
    cluster.waiting.add(a_request("big", some(4), user="big", submitted_at=at(0)))
    while "big" in cluster.waiting and cluster.seconds <= 10 + RULES.patience.total_seconds():
        cluster.step()

    def freest() -> float:
        free = {host.id: host.resources.cpu_millis for host in cluster.fleet.hosts}
        for placement in cluster.live.values():
            free[placement.seats[0].host_id] -= placement.resources.cpu_millis
        return max(free.values())

    before = freest()
    for _ in range(enough_ends(hosts, 8)):
        if "big" not in cluster.waiting:
            break
        cluster.step()
        if "big" in cluster.waiting:
            assert freest() >= before
            before = freest()
    assert "big" not in cluster.waiting


@SOME
@given(seeds, st.integers(1, 3))
def test_nobody_with_less_use_is_passed_over_while_he_fits(random: Random, hosts: int) -> None:
    """At no decision does a request fit whose user has less use in the band."""
    cluster = Cluster(
        [a_host(f"h{i}", some(4)) for i in range(hosts)],
        random,
        small(random, users="abcd"),
        backlog=8,
    )

    for _ in range(25):
        queue = {request.key: request for request in cluster.waiting}
        known = dict(cluster.live)
        placed = cluster.step()
        known = {key: placement for key, placement in known.items() if key in cluster.live}
        queue |= {request.key: request for request in cluster.waiting}
        for placement in placed:
            queue.pop(placement.key, None)
            mine = use_of(placement.user, placement.band.rank, known.values())
            for other in queue.values():
                less = use_of(other.user, other.band.rank, known.values()) < mine
                assert not less or not fits(cluster.fleet, other, list(known.values()))
            known[placement.key] = placement


@SOME
@given(seeds, st.integers(2, 4))
def test_users_share_evenly_however_much_each_submits(random: Random, users: int) -> None:
    """One user floods the queue, the others always have one waiting job. In the long run all have
    equal shares.
    """
    cluster = Cluster(
        [a_host("h", some(3 * users))], random, lambda key: a_request(key, user="flood"), backlog=20
    )
    for _ in range(5):
        cluster.step()

    held = dict.fromkeys(range(users - 1), 0)
    for second in range(60):
        for user in held:
            if not any(request.user == f"u{user}" for request in cluster.waiting):
                cluster.submit(a_request(f"u{user}-{second}", user=f"u{user}"))
        cluster.step()
        for user in held:
            held[user] += sum(placement.user == f"u{user}" for placement in cluster.live.values())

    # Of a share of three; each has to build it up, one end at a time.
    assert min(held.values()) > 60
