"""The packed ledger: reading it gives the ledger that was written, whatever it contains."""

from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from iris.model import names
from iris.model.host.constraints import (
    SCALE_GROUP,
    TPU_NAME,
    TPU_WORKER_ID,
    ZONE,
    Constraint,
    Operator,
)
from iris.model.host.hosts import ClosedBy, Closure, Host
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job.requests import Placement, Request, Seat, request_for
from iris.model.job.spec import Band, Coscheduling
from iris.model.rules import Rules
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from tests.builders import NOON, a_host, a_request, a_spec, at, some
from tests.strategies import CHEAP, examples

#: Each is a book of its own, which takes longer to make than to read.
FEW = settings(CHEAP, max_examples=examples(40))

WORDS = st.sampled_from(["a", "b", "ü", "a@1", "a:1", 'q"', " "])
ATTRIBUTES = (
    WORDS
    | st.integers(-(10**17), 10**17)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
)
TIMES = st.integers(-(10**15), 10**15).map(lambda micros: NOON + timedelta(microseconds=micros))
#: As Temporal makes them, which begin with a time, and others.
RUNS = (
    st.integers(0, 2**48 - 1).map(lambda time: f"{time >> 16:08x}-{time & 0xFFFF:04x}-7000") | WORDS
)
RESOURCES = st.builds(
    Resources,
    cpu_millis=st.sampled_from([0, 500]),
    memory_bytes=st.sampled_from([0, 2**60]),
    device=st.none()
    | st.builds(Device, kind=st.sampled_from(DeviceKind), variant=WORDS, count=st.integers(1, 2)),
)
KEYS = st.sampled_from([ZONE, SCALE_GROUP, "spot"])
CONSTRAINTS = st.builds(
    Constraint, key=KEYS, op=st.just(Operator.EXISTS), preferred=st.booleans()
) | st.builds(
    Constraint,
    key=KEYS,
    op=st.sampled_from([Operator.EQ, Operator.NE]),
    values=st.tuples(ATTRIBUTES),
    preferred=st.booleans(),
)


@st.composite
def hosts(draw: st.DrawFn) -> list[Host]:
    """Hosts that share many or no values."""
    attributes = st.dictionaries(
        st.sampled_from([TPU_NAME, TPU_WORKER_ID, ZONE, SCALE_GROUP]), ATTRIBUTES, max_size=3
    )
    alike = draw(st.lists(st.tuples(RESOURCES, attributes, st.booleans()), min_size=1, max_size=3))
    return [
        a_host(
            f"h{number}",
            resources,
            attributes=draw(st.just(says) | attributes),
            accept_cpu_jobs=accepts,
            address=address,
        )
        for number, ((resources, says, accepts), address) in enumerate(
            draw(
                st.lists(
                    st.tuples(st.sampled_from(alike), st.sampled_from(["", "10.0.0.1"])), max_size=6
                )
            )
        )
    ]


@st.composite
def wanted(draw: st.DrawFn, prefix: str) -> list[Request]:
    """Requests as jobs make them, and requests with arbitrary ids."""
    alike = draw(
        st.lists(
            st.tuples(RESOURCES, st.lists(CONSTRAINTS, max_size=2).map(tuple)),
            min_size=1,
            max_size=3,
        )
    )
    found = []
    for number in range(draw(st.integers(0, 5))):
        resources, constraints = draw(st.sampled_from(alike))
        tasks, groups = draw(st.sampled_from([(1, 1), (2, 1), (4, 2)]))
        sharing = Coscheduling(group_by=ZONE, groups=groups, tasks_per_host=tasks // groups)
        spec = a_spec(
            user=draw(st.sampled_from(["ada", "bob"])),
            name=draw(st.sampled_from([prefix, f"{prefix}.b"])),
            replicas=tasks,
            coscheduling=draw(
                st.sampled_from([None, Coscheduling(group_by=TPU_NAME, groups=groups), sharing])
            ),
            constraints=constraints,
            resources=resources,
            band=draw(st.sampled_from(Band)),
        )
        task = names.task_id(spec.id, 0)
        owners = [
            names.job_workflow("c", spec.id),
            names.task_workflow("c", task),
            task,
            draw(WORDS),
        ]
        request = request_for(
            spec,
            index=0,
            attempt=number + 1,
            run_id=draw(RUNS),
            owner=draw(st.sampled_from(owners)),
            submitted_at=draw(TIMES),
        )
        odd = {"key": f"{draw(WORDS)}{prefix}{number}", "task": draw(WORDS)}
        found.append(request.model_copy(update=draw(st.sampled_from([{}, {}, odd]))))
    return found


@st.composite
def books(draw: st.DrawFn) -> Ledger:
    """A ledger with any contents, including placements on hosts that are gone."""
    ledger = Ledger()
    there = draw(hosts())
    ledger.hosts_up(there)
    seats = [Seat(host.id, host.slice_id, host.incarnation) for host in there] + [
        Seat("gone", "slice of the gone", "first")
    ]
    for request in draw(wanted("live")):
        placement = Placement(
            **request.model_dump(
                include={"key", "owner", "task", "user", "band", "tasks_per_host"}
            ),
            resources=request.resources,
            seats=[
                draw(st.sampled_from(seats))._replace(group=draw(st.integers(0, 1)))
                for _ in range(request.tasks)
            ],
            coordinator=draw(st.sampled_from(["", "10.0.0.1:30000"])),
            placed_at=draw(st.none() | TIMES),
        )
        ledger.adopt(placement)
    for request in draw(wanted("waiting")):
        ledger.ask(request)
    for request in draw(wanted("held")):
        ledger.ask(request)
        ledger.amend(request.key, request.band, held=True, changed_at=at(1))
    for host_id in draw(st.sets(st.sampled_from(["h0", "h1", "gone"]))):
        ledger.close(host_id, Closure(by=draw(st.sampled_from(ClosedBy)), reason=draw(WORDS)))
    for group in draw(st.sets(st.none() | WORDS, max_size=2)):
        ledger.pause(draw(WORDS), group)
    for key in draw(st.sets(WORDS)):
        ledger.forget(key, ["h0"])
    ledger.evicting.update(dict.fromkeys(list(ledger.live)[:2]))
    ledger.rules = Rules(preemption=draw(st.booleans()))
    return ledger


def read_again(ledger: Ledger) -> Ledger:
    return Ledger(LedgerState.model_validate_json(ledger.state().model_dump_json()))


@FEW
@given(books())
def test_a_book_that_is_written_down_and_read_again_is_the_same_book(ledger: Ledger) -> None:
    """The scheduler packs its ledger every few minutes, and lost or mixed values would not be
    noticed.
    """
    again = read_again(ledger)

    assert list(again.hosts.items()) == list(ledger.hosts.items())
    assert [
        type(value)
        for host in again.hosts.values()
        for value in sorted(host.attributes.values(), key=repr)
    ] == [
        type(value)
        for host in ledger.hosts.values()
        for value in sorted(host.attributes.values(), key=repr)
    ]
    assert list(again.live.items()) == list(ledger.live.items())
    assert {request.key: request for request in again.waiting} == {
        request.key: request for request in ledger.waiting
    }
    assert {request.key: request for request in again.held} == {
        request.key: request for request in ledger.held
    }
    for book in ("closed", "paused", "paused_groups", "evicting", "rules"):
        assert getattr(again, book) == getattr(ledger, book)
    assert again.demand() == ledger.demand()
    assert again.settle(at(3600)) == ledger.settle(at(3600))
    assert read_again(again).state() == again.state()
    assert again.wait_reasons().explain_all(
        [*again.held.keys(), "?"]
    ) == ledger.wait_reasons().explain_all([*again.held.keys(), "?"])


@FEW
@given(books(), st.data())
def test_a_book_that_was_read_again_goes_on_as_if_nothing_had_been(
    ledger: Ledger, data: st.DataObject
) -> None:
    """After any further messages, the queue, the released keys, strikes and overrides are
    the same.
    """
    again = read_again(ledger)
    keys = sorted({*ledger.live, *ledger.waiting.keys(), *ledger.held.keys(), "a", "b"})
    forgotten = data.draw(st.lists(st.sampled_from(keys), max_size=3))
    amended = data.draw(
        st.lists(
            st.tuples(st.sampled_from(keys), st.sampled_from(Band), st.booleans(), TIMES),
            max_size=3,
        )
    )
    asked = data.draw(wanted("waiting")) + [a_request(key) for key in keys]
    for book in (ledger, again):
        for key in forgotten:
            book.forget(key, ["h0"])
        for key, band, held, changed_at in amended:
            book.amend(key, band, held=held, changed_at=changed_at)
        for request in asked:
            book.ask(request)
        book.resume()

    assert again.settle(at(3600)) == ledger.settle(at(3600))
    assert set(again.held.keys()) == set(ledger.held.keys())
    assert again.demand() == ledger.demand()
    assert again.closed == ledger.closed
    for key in keys:
        assert again.explain(key) == ledger.explain(key)


def test_a_large_book_fits_into_one_payload() -> None:
    """The next run of the scheduler gets the ledger in one payload of 2 MiB: a waiting task takes a
    few dozen bytes.
    """
    ledger = Ledger()
    spec = a_spec(replicas=100, resources=some(cpu=4, memory=8, device="tpu:v5litepod-16:4"))
    for number in range(100):
        one = spec.model_copy(update={"name": f"job-{number}"})
        for index in range(100):
            owner = names.task_workflow("cluster", names.task_id(one.id, index))
            ledger.ask(
                request_for(
                    one,
                    index=index,
                    attempt=1,
                    run_id=f"{number:036}",
                    owner=owner,
                    submitted_at=at(number),
                )
            )

    assert len(ledger.state().model_dump_json()) < 40 * 10_000
    assert len(read_again(ledger).waiting) == 10_000


def test_the_time_of_a_placement_is_kept_to_the_microsecond() -> None:
    """The time decides which gangs may be evicted, and which first."""
    ledger = Ledger()
    ledger.hosts_up([a_host()])
    ledger.ask(a_request())
    now = datetime.fromisoformat("2026-01-01T12:00:00.123457+00:00")
    ledger.settle(now)

    assert read_again(ledger).live["k1"].placed_at == now


def test_one_and_true_and_one_point_nought_are_three_things_to_constraints_and_stay_so() -> None:
    """They are equal in Python, so hosts that differ only in them could be taken for alike."""
    ledger = Ledger()
    ledger.hosts_up(
        [
            a_host(f"h{number}", attributes={"rack": rack})
            for number, rack in enumerate((1, True, 1.0))
        ]
    )

    read = [host.attributes["rack"] for host in read_again(ledger).hosts.values()]

    assert [type(rack) for rack in read] == [int, bool, float]


def test_a_placement_does_not_spell_out_the_host_it_is_on() -> None:
    """A host is written once: its id, slice and incarnation are longer than the rest of a
    placement.
    """
    ledger = Ledger()
    ledger.hosts_up([a_host("h" * 60, some(cpu=200), slice_id="s" * 60, incarnation="i" * 36)])
    for index in range(200):
        owner = names.task_workflow("cluster", names.task_id("ada/train", index))
        spec = a_spec(replicas=200)
        ledger.ask(
            request_for(spec, index=index, attempt=1, run_id="run", owner=owner, submitted_at=NOON)
        )
    before = len(ledger.state().model_dump_json())

    assert len(ledger.settle(NOON).placed) == 200

    assert len(ledger.state().model_dump_json()) - before < 200 * 40
