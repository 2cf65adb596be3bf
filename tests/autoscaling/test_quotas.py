"""A used-up quota: in which zones it stops requests, and until when."""

import pytest

from iris.autoscaling.failure_memory import learn
from iris.autoscaling.quotas import family_of
from iris.model.slice.provisioning import ANYWHERE, SliceFault
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Availability, Memory
from iris.model.slice.status import SliceState
from tests.builders import NOON, a_gang, at
from tests.scaling_world import (
    A,
    B,
    C,
    a_cpu_group,
    a_group,
    a_slice_of,
    asked,
    asked_groups,
    decide,
)

S = SliceState
F = SliceFault
NAME = "TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI"
REASON = (
    f"quota {NAME} is used up in {A}: Quota '{NAME}' exhausted. Limit 16 in region europe-west4"
)
GROUP = a_group(zones=(A, B, C))


def refused(
    scope: str,
    group: ScaleGroup = GROUP,
    memory: Memory | None = None,
    asked_at: float = 0,
    now: float = 0,
) -> Memory:
    """The memory after a slice in zone A was refused, which was asked for and heard of at these
    seconds.
    """
    facts = a_slice_of(
        group,
        state=S.FAILED,
        fault=F.QUOTA,
        quota_scope=scope,
        ready_at=None,
        requested_at=at(asked_at),
        changed_at=at(now),
        reason=REASON,
    )
    return learn(memory or Memory(), group, facts, None, at(now))


def deleted(
    memory: Memory,
    group: ScaleGroup,
    now: float,
    zone: str = A,
    fault: SliceFault | None = F.PREEMPTED,
) -> Memory:
    """The memory after the last of a slice's machines is gone."""
    ready = None if fault in (F.QUOTA, F.STOCK_OUT) else NOON
    gone = a_slice_of(
        group, "gone", S.DELETED, zone=zone, fault=fault, ready_at=ready, changed_at=at(now)
    )
    return learn(memory, group, gone, gone.model_copy(update={"state": S.DELETING}), at(now))


@pytest.mark.parametrize(("scope", "next_zone"), [(A, B), ("europe-west4", C), (ANYWHERE, None)])
def test_a_quota_keeps_the_autoscaler_away_from_where_it_counts_and_from_nowhere_else(
    scope: str, next_zone: str | None
) -> None:
    """One of a zone leaves the next zone, one of a region the next region; with one of the project
    nothing is left.
    """
    made = decide(GROUP, (), a_gang(), memory=refused(scope))

    assert asked(made) == ({("tpu", next_zone): 1} if next_zone else {})
    assert (made.groups[0].availability is Availability.QUOTA_EXCEEDED) is (next_zone is None)
    assert NAME in made.groups[0].why
    assert asked(decide(GROUP, (), a_gang(), memory=refused(scope), now=at(300))) == {("tpu", A): 1}


def test_where_no_zone_is_left_those_who_wait_are_told_the_name_of_the_quota() -> None:
    """They have to ask somebody for more of it. What is told is short, and the name is long."""
    made = decide(a_group(zones=(A, B), max_slices=4), (), a_gang(), memory=refused("europe-west4"))

    assert NAME in made.outlooks[0].message
    assert made.next_at == at(300)


def test_a_quota_here_and_no_stock_there_are_told_both() -> None:
    """Each is over at its own time, and for its own reason."""
    group = a_group(zones=(A, B))
    empty = a_slice_of(
        group, state=S.FAILED, zone=B, fault=F.STOCK_OUT, ready_at=None, requested_at=NOON
    )
    made = decide(group, (), a_gang(), memory=learn(refused(A), group, empty, None, NOON))

    assert (made.creates, made.groups[0].availability) == ((), Availability.BACKOFF)
    assert f"out of stock in {B}" in made.groups[0].why
    assert f"quota used up in {A}" in made.groups[0].why


@pytest.mark.parametrize("by", ["the same kind", "a larger slice of the family"])
def test_as_soon_as_machines_are_gone_that_counted_against_it_a_quota_is_tried_again(
    by: str,
) -> None:
    """What is preempted counts until it is deleted; to wait for the quota's own time would leave
    the room unused.
    """
    other = GROUP if by == "the same kind" else a_group("large", accelerator_variant="v5litepod-32")
    memory = refused("europe-west4", memory=Memory())

    assert asked(decide(GROUP, (), a_gang(), memory=memory, now=at(10))) == {("tpu", C): 1}
    assert asked(
        decide(GROUP, (), a_gang(), memory=deleted(memory, other, 10, zone=B), now=at(10))
    ) == {("tpu", A): 1}


@pytest.mark.parametrize(
    "what", ["refused itself", "elsewhere", "another family", "another tier", "before"]
)
def test_what_gave_it_no_room_does_not_end_a_quota(what: str) -> None:
    """A slice that was refused is deleted, too: taken for room, it would be asked for again and
    again.
    """
    memory = refused("europe-west4", asked_at=5, now=6)
    after = {
        "refused itself": lambda: deleted(memory, GROUP, 10, fault=F.QUOTA),
        "elsewhere": lambda: deleted(memory, GROUP, 10, zone=C),
        "another family": lambda: deleted(memory, a_cpu_group(zones=(A,)), 10),
        "another tier": lambda: deleted(memory, a_group("spot", preemptible=True), 10),
        "before": lambda: deleted(memory, GROUP, 4),
    }[what]()

    assert asked(decide(GROUP, (), a_gang(), memory=after, now=at(11))) == {("tpu", C): 1}


def test_machines_that_were_gone_before_the_refusal_was_heard_of_made_room_all_the_same() -> None:
    """The slice was asked for while the dead one still counted; both ends come in any order."""
    memory = refused("europe-west4", memory=deleted(Memory(), GROUP, 3), asked_at=0, now=4)

    assert asked(decide(GROUP, (), a_gang(), memory=memory, now=at(4))) == {("tpu", A): 1}
    again = refused("europe-west4", memory=memory, asked_at=4, now=5)
    assert asked(decide(GROUP, (), a_gang(), memory=again, now=at(5))) == {("tpu", C): 1}


def test_a_refusal_by_quota_is_no_growth_and_no_failure() -> None:
    """The next zone is asked at once, and the backoff is for slices that come to nothing on the
    way.
    """
    grown = decide(GROUP, (), a_gang()).memory
    memory = refused(A, memory=grown, now=3)

    assert asked(decide(GROUP, (), a_gang(), memory=memory, now=at(3))) == {("tpu", B): 1}
    assert memory.groups["tpu"].failures == 0


def test_groups_that_want_the_same_share_the_news_and_others_do_not() -> None:
    """Another tier has a quota of its own; so have small slices, whatever their family."""
    memory = refused(ANYWHERE, a_group("first"))
    others = [
        a_group("same"),
        a_group("spot", preemptible=True),
        a_group("small", accelerator_variant="v5litepod-4", hosts=1),
    ]

    assert decide(others[0], (), a_gang(), memory=memory).creates == ()
    assert asked_groups(decide(others[1], (), a_gang(), memory=memory)) == {"spot": 1}
    assert memory.used_up[0].kind == "tpu_vm:v5litepod-16:on-demand"


def test_what_is_remembered_of_quotas_is_forgotten() -> None:
    """The autoscaler's memory is handed on for as long as the cluster lives."""
    memory = deleted(refused(A), GROUP, 1)

    after = decide(GROUP, (), memory=memory, now=at(4000)).memory
    assert (after.used_up, after.freed) == ((), ())


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("tpu_vm:v5litepod-16:preemptible", "tpu_vm:v5litepod:preemptible"),
        ("gce_vm:n2-standard-8:on-demand", "gce_vm:n2:on-demand"),
        ("local_vm::on-demand", "local_vm::on-demand"),
    ],
)
def test_quotas_are_of_families_and_tiers(kind: str, family: str) -> None:
    """Chips of one family are counted together, whatever the slices they are in."""
    assert family_of(kind) == family
