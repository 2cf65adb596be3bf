"""What a job may demand of its hosts, and how large what the scheduler says about it gets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.messages.scheduler import Outlooks, SchedulerStart, SnapshotPage
from iris.model.errors import InvalidValue
from iris.model.host.constraints import Constraint, Operator
from iris.model.host.resources import Device, DeviceKind
from iris.model.job.demand_limits import (
    BATCH_BYTES,
    CONSTRAINTS,
    check_demands,
    cut,
    fitting,
    size_of,
)
from iris.model.job.spec import Band, Coscheduling
from iris.model.slice.scaling import MOST_OUTLOOKS, Outlook
from iris.planners.demand import DEMANDS_BYTES, wanted_of
from iris.planners.ledger_messages import OUTLOOKS_BYTES, enter
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.reason_changes import reason_changes
from iris.scheduling.ledger.size import LedgerSize
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.reasons.forecast import MOST_FITS
from iris.workflows.scheduler.scheduler_views import owners_of, snapshot_of
from iris.workflows.scheduler.unsent_signals import pack, unpack
from tests.builders import NOON, a_host, a_placement, a_request, a_spec, at, some
from tests.strategies import CHEAP


def one_of(count: int, letters: int = 10, key: str = "zone") -> Constraint:
    """Returns the constraint that the zone is one of so many."""
    return Constraint(
        key=key, op=Operator.IN, values=tuple(f"{number:0{letters}}z" for number in range(count))
    )


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"constraints": (one_of(100),)}, r"^constraint: .* has 1,3\d\d bytes; use at most 1,024"),
        (
            {"constraints": (one_of(1, key="k" * 1_100),)},
            r"^constraint: .* has 1,1\d\d bytes; use at most 1,024",
        ),
        (
            {"constraints": (one_of(1),) * (CONSTRAINTS + 1)},
            r"^constraint: '33 constraints' are too many; give at most 32",
        ),
        (
            {"constraints": (one_of(60),) * 6},
            r"^constraint: '\d,\d{3} bytes' make the request .*; use at most 4,096",
        ),
        (
            {"coscheduling": Coscheduling(group_by="r" * 5_000)},
            "^coscheduling: .*; use at most 4,096",
        ),
        (
            {"resources": some(device=Device(kind=DeviceKind.GPU, variant="v" * 5_000))},
            "^device: .*; use at most 4,096",
        ),
    ],
)
def test_a_job_that_demands_more_than_the_scheduler_keeps_is_refused_with_the_field_and_the_limit(
    asked: dict[str, Any], problem: str
) -> None:
    """All jobs of a cluster share one book; what goes into it is bounded before it is sent."""
    with pytest.raises(InvalidValue, match=problem):
        check_demands(a_spec(**asked))


def test_a_job_with_as_many_constraints_as_people_write_is_not_refused() -> None:
    """Fifty zones are more than any provider has in a region."""
    check_demands(
        a_spec(constraints=(one_of(50), *(one_of(2, key=f"key-{number}") for number in range(9))))
    )


HUGE = st.sampled_from(["x" * 60_000, "ü\n" * 20_000, "z"])


@CHEAP
@given(
    texts=st.lists(HUGE, min_size=1, max_size=20),
    attribute=HUGE,
    variant=HUGE,
    pause=st.none() | HUGE,
)
def test_no_reason_is_long_whatever_users_hosts_and_operators_say(
    texts: list[str], attribute: str, variant: str, pause: str | None
) -> None:
    """A reason goes to every task of a job in one answer, and each of them repeats it in its
    history.
    """
    constraints = tuple(
        Constraint(key="zone", op=Operator.NE if text == "z" else Operator.EQ, values=(text,))
        for text in texts
    )
    wants = (
        some(device=Device(kind=DeviceKind.GPU, variant=variant)) if variant != "z" else some(cpu=1)
    )
    ledger = Ledger()
    ledger.hosts_up(
        [a_host("h1", attributes={"zone": attribute}), a_host("h2", attributes={"zone": "z"})]
    )
    if pause is not None:
        ledger.pause(pause)
    request = a_request(wants=wants, constraints=constraints)
    ledger.ask(request)
    ledger.settle(NOON)

    assert size_of(ledger.explain(request.key)) < 12_000
    assert all(len(fit.why) < 1_000 for fit in ledger.forecast(request, NOON).fits)


def test_the_autoscaler_gets_the_demands_that_fit_in_one_answer_the_first_served_first() -> None:
    """The rest follows when these demands are served. A query whose answer is too large fails for
    ever.
    """
    ledger = Ledger()
    for number in range(100):
        constraint = one_of(1, letters=20_000 + number)
        ledger.ask(a_request(f"k{number}", constraints=(constraint,), submitted_at=at(number)))
    wanted = wanted_of(ledger, NOON)

    assert 0 < len(wanted.demands) < 100
    assert size_of(wanted) < DEMANDS_BYTES + 1_000
    assert [each.example.submitted_at for each in wanted.demands] == [
        at(number) for number in range(len(wanted.demands))
    ]


def test_the_pages_of_a_snapshot_are_bounded_and_together_have_every_host() -> None:
    """Hosts choose the size of their own attributes. The next page begins after the last host of
    this one.
    """
    ledger = Ledger()
    ledger.hosts_up(
        [a_host(f"h{number}", attributes={"label": "x" * 50_000}) for number in range(30)]
    )
    seen: list[str] = []
    while len(seen) < 30:
        page = snapshot_of(ledger, SnapshotPage(offset=len(seen)))
        assert size_of(page) < BATCH_BYTES + 1_000
        seen += [view.host.id for view in page.hosts]

    assert seen == list(ledger.hosts)


def test_the_pages_of_owners_are_bounded_and_together_have_every_owner() -> None:
    """Each program that starts a workflow chooses its id."""
    ledger = Ledger()
    for number in range(300):
        ledger.ask(a_request(f"k{number}", owner=f"{number}/{'x' * 4_000}"))
    seen: list[str] = []
    while len(seen) < 300:
        page = owners_of(ledger, SnapshotPage(offset=len(seen)))
        assert size_of(page) < BATCH_BYTES + 1_000
        seen += [owner.key for owner in page.owners]

    assert seen == ledger.waiting.keys()


def test_reported_reasons_are_stored_in_little_space_whatever_the_shapes_are() -> None:
    """They travel with the ledger, whose size they would double."""
    ledger = Ledger()
    for number in range(40):
        ledger.ask(a_request(f"k{number}", constraints=(one_of(40, key=f"key-{number}"),)))
    ledger.settle(NOON)
    changes, reported = reason_changes(ledger, {})

    assert len(changes) == len(reported) == 40
    assert max(map(len, reported)) == 16
    assert reason_changes(ledger, reported) == ([], reported)


def test_outlooks_are_stored_up_to_a_number_of_bytes() -> None:
    """The autoscaler sends one for each shape, and each repeats the shape's constraints."""
    ledger = Ledger()
    outlooks = tuple(
        Outlook(
            example=a_request(f"k{number}", constraints=(one_of(1, letters=4_000 + number),)),
            message="no capacity",
        )
        for number in range(MOST_OUTLOOKS)
    )
    enter(ledger, Outlooks(outlooks=outlooks), whole=True, size=LedgerSize())

    assert 0 < len(ledger.outlooks) < MOST_OUTLOOKS
    assert ledger.outlooks == outlooks[: len(ledger.outlooks)]
    assert sum(map(size_of, ledger.outlooks)) <= OUTLOOKS_BYTES


def test_signals_that_owners_have_not_received_travel_as_keys() -> None:
    """There may be as many as placements. Those that the ledger no longer has, or has otherwise,
    travel in full.
    """
    ledger = Ledger()
    host = a_host(offers=some(cpu=1_000))
    ledger.hosts_up([host])
    for number in range(100):
        ledger.adopt(a_placement(host, some(cpu=1), f"k{number}", owner=f"job of k{number}"))
    lost = a_placement(host, some(cpu=1), "lost")
    notices = dict(ledger.live) | {
        "lost": lost,
        "k7": ledger.live["k7"].model_copy(update={"band": Band.BATCH}),
    }
    evictions = {
        key: Eviction(key=key, owner=f"job of {key}", reason="drained")
        for key in (*ledger.live, "gone")
    }
    # Its machine is gone: the ledger does not have that.
    dead = "k1"
    evictions[dead] = evictions[dead].model_copy(update={"gone": (("h1", "first"),)})
    unsent = pack(ledger, notices, evictions)
    start = SchedulerStart(cluster="c", ledger=ledger.state(), **unsent._asdict())
    again = SchedulerStart.model_validate_json(start.model_dump_json())

    assert sorted(each.key for each in unsent.notices) == ["k7", "lost"]
    assert sorted(each.key for each in unsent.evictions) == ["gone", dead]
    assert unpack(Ledger(again.ledger), again) == (notices, evictions)


def test_a_forecast_has_a_bounded_number_of_entries() -> None:
    """On a busy cluster every host has another number of free cores."""
    ledger = Ledger()
    ledger.hosts_up(
        [
            a_host(f"h{number}", offers=some(cpu=1 + number / 1000))
            for number in range(MOST_FITS + 50)
        ]
    )

    assert len(ledger.forecast(a_request(wants=some(cpu=5_000)), NOON).fits) == MOST_FITS


@CHEAP
@given(st.lists(st.integers(0, 2 * BATCH_BYTES), max_size=20), st.integers(1, 10))
def test_what_is_sent_together_is_bounded_and_nothing_is_left_behind(
    sizes: list[int], most: int
) -> None:
    """Part by part everything goes, in its order; only what is too large alone goes alone."""
    left, parts = list(enumerate(sizes)), []
    while left:
        part = fitting(((entry, entry[1]) for entry in left), most)
        parts.append(part)
        left = left[len(part) :]

    assert [entry for part in parts for entry in part] == list(enumerate(sizes))
    assert all(len(part) == 1 or sum(size for _, size in part) <= BATCH_BYTES for part in parts)
    assert all(1 <= len(part) <= most for part in parts)


@CHEAP
@given(st.text(max_size=300), st.integers(20, 200))
def test_a_text_that_is_cut_keeps_its_beginning_and_its_end(text: str, most: int) -> None:
    """The beginning names the key, the end the last value: enough to find it again in what was
    typed.
    """
    shown = cut(text, most)

    assert len(shown) <= most
    assert shown == text or (
        text[: most // 2] == shown[: most // 2] and text[-(most // 4) :] == shown[-(most // 4) :]
    )
