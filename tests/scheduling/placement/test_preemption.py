"""Which gangs are evicted for higher bands, by example and for any cluster: as few as possible,
whole gangs, and never in vain.
"""

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from iris.model.host.hosts import Host
from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.place import place
from iris.scheduling.placement.preemption import Eviction, Evictions, evictions
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import (
    CHIPS,
    a_fleet,
    a_gang,
    a_gang_placement,
    a_host,
    a_placement,
    a_request,
    a_slice,
    at,
    some,
)
from tests.oracle import fits, left_of
from tests.strategies import CHEAP, PATIENT, Situation, situations

HOST = a_host(offers=some(cpu=4))


def told(
    hosts: Sequence[Host],
    live: Sequence[Placement],
    *waiting: Request,
    evicting: Sequence[str] = (),
    rules: Rules | None = None,
    cordoned: Sequence[str] = (),
    now: float = 0,
) -> list[str]:
    """Returns the keys of the evicted gangs."""
    return [
        each.key
        for each in asked(
            hosts, live, *waiting, evicting=evicting, rules=rules, cordoned=cordoned, now=now
        ).victims
    ]


def asked(
    hosts: Sequence[Host],
    live: Sequence[Placement],
    *waiting: Request,
    evicting: Sequence[str] = (),
    rules: Rules | None = None,
    cordoned: Sequence[str] = (),
    now: float = 0,
) -> Evictions:
    return evictions(
        a_fleet(*hosts, cordoned=cordoned),
        live,
        Queue(waiting),
        evicting,
        at(now),
        rules or Rules(),
    )


def held(
    key: str, band: Band = Band.BATCH, cpu: float = 4, since: float = -1000, host: Host = HOST
) -> Placement:
    return a_placement(
        host, some(cpu=cpu), key, band=band, placed_at=at(since), owner=f"job of {key}"
    )


def wanted(band: Band, cpu: float = 4, key: str = "k1") -> Request:
    return a_request(key, some(cpu=cpu), band=band, task=f"ada/{key}:0")


def test_a_stronger_band_makes_a_weaker_one_go() -> None:
    """Production must not wait two days for the end of a batch job. The reason names the gang of
    the higher band.
    """
    [victim] = asked([HOST], [held("batch")], wanted(Band.PRODUCTION)).victims

    assert (victim.key, victim.owner) == ("batch", "job of batch")
    assert victim.reason == "evicted: ada/k1:0 of band production needs its place"


def test_nobody_goes_for_the_same_band_or_a_weaker_one() -> None:
    """Two users of one band would evict each other for ever."""
    for rank, band in enumerate(Band):
        for stronger in list(Band)[: rank + 1]:
            assert told([HOST], [held("runs", stronger)], wanted(band)) == []


def test_nobody_goes_when_the_switch_is_off() -> None:
    """Some clusters run jobs that must not be stopped."""
    assert (
        told([HOST], [held("batch")], wanted(Band.PRODUCTION), rules=Rules(preemption=False)) == []
    )


def test_nobody_goes_for_a_gang_that_has_room_or_will_have_it() -> None:
    """An eviction loses work, and the hosts of gangs that are being evicted become free soon."""
    two = [HOST, a_host("h2", some(cpu=4))]

    assert told(two, [held("batch")], wanted(Band.PRODUCTION)) == []
    live = [held("going"), held("other", host=two[1])]
    assert told(two, live, wanted(Band.PRODUCTION), evicting=["going"]) == []
    assert told(
        two, live, wanted(Band.PRODUCTION), wanted(Band.PRODUCTION, key="k2"), evicting=["going"]
    ) == ["other"]


def test_nobody_goes_in_vain() -> None:
    """No gang is evicted for a task that is too large, of another kind than the host, or for a
    closed host.
    """
    production = held("strong", Band.PRODUCTION, cpu=1)

    assert told([HOST], [held("batch", cpu=3), production], wanted(Band.PRODUCTION, cpu=4)) == []
    assert (
        told([HOST], [held("batch")], a_request(wants=some(device="tpu"), band=Band.PRODUCTION))
        == []
    )
    assert told([HOST], [held("batch")], wanted(Band.PRODUCTION), cordoned=["h1"]) == []


def test_the_weakest_go_first_then_the_lightest_then_the_youngest() -> None:
    """The least work is lost: batch before interactive, one core before four, a minute before a
    day.
    """
    hosts = [a_host(f"h{i}", some(cpu=4)) for i in range(2)]

    def loser(one: Placement, other: Placement) -> list[str]:
        return told(hosts, [one, other], wanted(Band.PRODUCTION, cpu=2))

    batch, interactive = (
        held("batch", host=hosts[0]),
        held("interactive", Band.INTERACTIVE, cpu=3, host=hosts[1]),
    )
    heavy, light = held("heavy", host=hosts[0]), held("light", cpu=3, host=hosts[1])
    old, young = held("old", since=-5000, host=hosts[0]), held("young", since=-500, host=hosts[1])
    assert (loser(batch, interactive), loser(heavy, light), loser(old, young)) == (
        ["batch"],
        ["light"],
        ["young"],
    )


def test_of_several_on_a_host_only_those_go_that_have_to() -> None:
    """The small gang alone frees too little. Once the large one is evicted, the small one
    can stay.
    """
    live = [held("light", cpu=1), held("heavy", cpu=3)]

    assert told([HOST], live, wanted(Band.PRODUCTION, cpu=3)) == ["heavy"]
    assert told([HOST], live, wanted(Band.PRODUCTION, cpu=1)) == ["light"]
    assert sorted(told([HOST], live, wanted(Band.PRODUCTION, cpu=4))) == ["heavy", "light"]


def test_a_gang_goes_whole_and_counts_whole() -> None:
    """The eviction of one task ends its gang. The gang is evicted once and costs more than a single
    task of its size.
    """
    hosts = a_slice("s", 3)
    gang = a_gang_placement(hosts[:2], CHIPS, "gang", band=Band.BATCH)
    single = a_placement(hosts[2], CHIPS, "single", band=Band.BATCH)

    assert told(hosts, [gang, single], a_request(wants=CHIPS, band=Band.PRODUCTION)) == ["single"]
    assert sorted(told(hosts, [gang, single], a_gang(tasks=3, band=Band.PRODUCTION))) == [
        "gang",
        "single",
    ]


def test_no_gang_goes_for_hosts_that_another_victim_frees_anyway() -> None:
    """A gang frees all its hosts. A victim that was chosen before for one of these hosts
    can stay.
    """
    hosts = a_slice("s", 3)
    gang = a_gang_placement(
        [hosts[0], hosts[2]], some(device="tpu:v5litepod-16:3"), "gang", band=Band.BATCH
    )
    single = a_placement(hosts[1], CHIPS, "single", band=Band.BATCH)
    strong = a_placement(
        hosts[2], some(device="tpu:v5litepod-16:1"), "strong", band=Band.PRODUCTION
    )
    three_chips = some(device="tpu:v5litepod-16:3")

    assert told(
        hosts, [gang, single, strong], a_gang(tasks=2, wants=three_chips, band=Band.PRODUCTION)
    ) == ["gang"]


def test_two_stronger_gangs_do_not_count_on_the_same_victims() -> None:
    """The second needs victims of its own. If they are too few, none is evicted for it."""
    hosts = [HOST, a_host("h2", some(cpu=4))]
    live = [held("one"), held("two", host=hosts[1])]
    three = [wanted(Band.PRODUCTION, key=f"k{i}") for i in range(3)]

    assert sorted(told(hosts, live, *three)) == ["one", "two"]
    assert len(told(hosts, live, three[0])) == 1


def test_whoever_has_just_started_is_spared_until_its_time_has_come() -> None:
    """A victim must make progress between two evictions. The result says when to search again."""
    rules = Rules(min_run_time=timedelta(seconds=60))
    young = [held("young", since=0)]

    early, late = (
        asked([HOST], young, wanted(Band.PRODUCTION), rules=rules, now=now) for now in (59, 60)
    )

    assert (early.victims, early.again_at) == ([], at(60))
    assert ([each.key for each in late.victims], late.again_at) == (["young"], None)


def test_the_next_look_is_when_the_first_of_them_may_go() -> None:
    """Two bands wait for two victims. The next search must be at the time of the earlier one."""
    hosts = [HOST, a_host("h2", some(cpu=4))]
    live = [held("soon", Band.INTERACTIVE, since=0), held("later", since=50, host=hosts[1])]
    waiting = [wanted(Band.PRODUCTION), wanted(Band.INTERACTIVE, cpu=3, key="k2")]

    assert asked(
        hosts, live, *waiting, now=100, rules=Rules(min_run_time=timedelta(seconds=300))
    ).again_at == at(300)


def test_hopeless_requests_do_not_use_up_the_looks_of_others() -> None:
    """However many requests can never fit, a request that could is examined."""
    hopeless = [wanted(Band.PRODUCTION, cpu=100 + i, key=f"a{i}") for i in range(50)]

    assert told([HOST], [held("batch")], *hopeless, wanted(Band.PRODUCTION, key="z")) == ["batch"]


def test_room_that_is_being_made_is_not_given_away_piece_by_piece() -> None:
    """Victims stop one by one. If the first victim got its hosts back meanwhile, it would be
    evicted again.
    """
    book = Ledger(LedgerState(rules=Rules(min_run_time=timedelta(0))))
    book.hosts_up([HOST])
    for key in ("one", "two"):
        book.ask(a_request(key, some(cpu=2), band=Band.BATCH))
    book.settle(at(0))
    book.ask(wanted(Band.PRODUCTION))
    assert sorted(victim.key for victim in book.settle(at(10)).evicted) == ["one", "two"]

    book.forget("one")
    book.ask(a_request("one again", some(cpu=2), band=Band.BATCH))
    meanwhile = book.settle(at(11))
    refusal = book.explain("one again")
    book.forget("two")

    assert (meanwhile.placed, meanwhile.evicted, refusal.code) == ([], [], RefusalCode.KEPT)
    assert [placement.key for placement in book.settle(at(12)).placed] == ["k1"]


@CHEAP
@given(situations(), st.integers(0, 3))
def test_victims_are_weaker_ripe_and_told_once(situation: Situation, going: int) -> None:
    """A victim has hosts, is of a lower band than a waiting gang that is not batch, and has run
    long enough.
    """
    evicting = [placement.key for placement in situation.live][:going]
    placed = place(situation.fleet, situation.live, Queue(situation.queue), at(6), PATIENT).placed
    live, left = [*situation.live, *placed], left_of(situation.queue, placed)

    victims = evictions(situation.fleet, live, Queue(left), evicting, at(6), PATIENT).victims

    by_key = {placement.key: placement for placement in live}
    assert len({victim.key for victim in victims}) == len(victims)
    assert not {victim.key for victim in victims} & set(evicting)
    strongest = min(
        (request.band.rank for request in left if request.band is not Band.BATCH), default=len(Band)
    )
    for victim in victims:
        placement = by_key[victim.key]
        assert victim.owner == placement.owner
        assert placement.band.rank > strongest
        assert placement.placed_at
        assert at(6) - placement.placed_at >= PATIENT.min_run_time


@CHEAP
@given(situations(), st.integers(0, 3))
def test_those_for_whom_others_went_have_room_when_they_are_gone(
    situation: Situation, going: int
) -> None:
    """In the highest band that evicts, the next pass first places every gang that a
    reason names.
    """
    evicting = [placement.key for placement in situation.live if placement.band is Band.BATCH][
        :going
    ]
    placed = place(situation.fleet, situation.live, Queue(situation.queue), at(6), PATIENT).placed
    live, left = [*situation.live, *placed], left_of(situation.queue, placed)
    victims = evictions(situation.fleet, live, Queue(left), evicting, at(6), PATIENT).victims

    gone = {*evicting, *(victim.key for victim in victims)}
    later = place(
        situation.fleet,
        [each for each in live if each.key not in gone],
        Queue(left),
        at(7),
        PATIENT,
    ).placed

    named = {victim.reason.split()[1] for victim in victims}
    bands = [request.band for request in left if request.task in named]
    strongest = min(bands, key=lambda band: band.rank, default=None)
    for request in left:
        if request.task in named and request.band is strongest:
            assert not fits(situation.fleet, request, live)
            assert request.key in {placement.key for placement in later}


@CHEAP
@given(situations(queue=0), st.sampled_from([Band.PRODUCTION, Band.INTERACTIVE]), situations())
def test_for_one_gang_nobody_goes_who_could_stay_and_somebody_goes_if_that_helps(
    situation: Situation, band: Band, other: Situation
) -> None:
    """Without any one of the victims the gang would not fit. Victims are found if the gang fits
    once all gangs are gone that may be evicted.
    """
    fleet, live = situation.fleet, situation.live
    for asked_first in other.queue[:1]:
        request = asked_first.model_copy(update={"band": band})

        victims = evictions(fleet, live, Queue([request]), [], at(6), PATIENT).victims

        gone = {victim.key for victim in victims}
        weaker = {
            each.key
            for each in live
            if each.band.rank > band.rank and each.placed_at and each.placed_at <= at(-114)
        }
        best = fits(fleet, request, [each for each in live if each.key not in weaker])
        assert bool(gone) == (best and not fits(fleet, request, live))
        for key in gone:
            assert not fits(fleet, request, [each for each in live if each.key not in gone - {key}])


def test_two_notices_that_wait_to_be_sent_to_a_gang_become_one_with_all_that_is_gone() -> None:
    """The slices of a gang may be deleted one right after the other. An eviction is no reason to
    wait for a machine that is gone, and a machine that is gone does not end the tasks elsewhere.
    """
    evicted = Eviction(key="k1", owner="job", reason="evicted")
    first, second = (
        Eviction(key="k1", owner="job", gone=((name, "first"),), why_gone=f"{name} preempted")
        for name in ("h1", "h2")
    )
    both = second.model_copy(update={"gone": (*first.gone, *second.gone)})
    all_three = first.model_copy(update={"reason": "evicted"})

    assert second.after(first) == both
    assert second.after(both) == both
    assert [first.after(evicted), evicted.after(first)] == [all_three] * 2
    assert [first.after(None), evicted.after(evicted)] == [first, evicted]
