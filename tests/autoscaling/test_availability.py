"""What the autoscaler learns from the outcomes of slices, and what stops requests from a group."""

from datetime import datetime, timedelta

import pytest

from iris.autoscaling.availability import Churn, churn, churn_eases, most_per_minute, next_token
from iris.autoscaling.failure_memory import learn, named, reconfigured
from iris.model.slice.provisioning import SliceFault
from iris.model.slice.scale_groups import Pace, ScaleGroup
from iris.model.slice.scaling import Availability, GroupMemory, Memory, ScalePlan
from iris.model.slice.status import SliceFacts, SliceState
from tests.builders import NOON, a_gang, at
from tests.scaling_world import A, B, a_group, a_slice_of, asked, asked_groups, decide, slices_of

S = SliceState
F = SliceFault
ZONES = (A, B)


def befalls(
    group: ScaleGroup | None,
    fault: SliceFault | None,
    memory: Memory | None = None,
    *,
    now: datetime = NOON,
    lived: float | None = None,
    before: SliceState | None = None,
    **changes: object,
) -> Memory:
    """Returns the memory after a slice has failed, or has become ready. `lived` is the time in
    seconds that it was ready.
    """
    state = S.FAILED if fault else S.READY
    ready = None if lived is None else now - timedelta(seconds=lived)
    settings = {
        "requested_at": now,
        "changed_at": now,
        "ready_at": ready,
        "fault": fault,
        "reason": "said so",
    } | changes
    after = a_slice_of(group or a_group(), state=state, **settings)
    was = before or (S.PROVISIONING if lived is None else S.READY)
    return learn(
        memory or Memory(),
        group,
        after,
        after.model_copy(update={"state": was, "fault": None}),
        now,
    )


def lives(*minutes: float) -> Memory:
    """A group whose slices have just died, each after so many minutes of being ready."""
    memory = Memory()
    for number, each in enumerate(minutes):
        # One after the other: those that die in one moment die of one thing.
        memory = befalls(
            a_group(),
            F.PREEMPTED,
            memory,
            lived=60 * each,
            now=NOON + timedelta(seconds=61 * (number - len(minutes) + 1)),
        )
    return memory


def standing(made: ScalePlan) -> Availability:
    return made.groups[0].availability


def in_all_ways(quota: bool, failing: bool, requested: bool, grown: bool, full: bool) -> ScalePlan:
    """A decision about a group of which these things hold."""
    group = a_group(max_slices=1 if full else 9)
    state = S.REQUESTED if requested else S.PROVISIONING
    slices = [a_slice_of(group, state=state, requested_at=at(-5))] if requested or full else []
    remembered = GroupMemory(
        quota_until=at(50) if quota else None,
        backoff_until=at(40) if failing else None,
        failures=int(failing),
        cooldown_until=at(20) if grown else None,
    )
    return decide(group, slices, (3, a_gang()), memory=Memory(groups={"tpu": remembered}))


@pytest.mark.parametrize("number", range(6))
def test_of_all_that_holds_the_first_is_what_the_group_stands_at(number: int) -> None:
    """One word, in a fixed order: who reads the status must not find another reason with each
    look.
    """
    order = [*Availability]
    holds = [number <= i for i in range(5)]

    assert standing(in_all_ways(*holds)) is order[number]


def test_a_used_up_quota_blocks_the_group_for_its_timeout_and_sends_demand_to_the_next() -> None:
    """The platform means the project: asking again each minute only fills the log."""
    first, second = a_group("first", priority=1), a_group("second", priority=2)
    memory = befalls(first, F.QUOTA)

    assert asked_groups(decide([first, second], (), a_gang(), memory=memory, now=at(299))) == {
        "second": 1
    }
    assert asked_groups(decide([first, second], (), a_gang(), memory=memory, now=at(300))) == {
        "first": 1
    }


def test_quota_and_backoff_are_kept_apart() -> None:
    """A quota is no failure: it must not grow the backoff, nor does the end of a backoff end it."""
    quota = befalls(a_group(), F.QUOTA).groups["tpu"]
    failed = befalls(a_group(), F.PLATFORM).groups["tpu"]

    assert (quota.failures, quota.backoff_until) == (0, None)
    assert failed.quota_until is None
    healed = befalls(a_group(), None, befalls(a_group(), F.QUOTA)).groups["tpu"]
    assert healed.quota_until == at(300)


@pytest.mark.parametrize(
    "fault", [F.PLATFORM, F.BOOT_TIMEOUT, F.PREEMPTED, F.HOST_LOST, F.VANISHED]
)
def test_each_failure_on_the_way_doubles_the_time_until_the_next_try_up_to_the_most(
    fault: SliceFault,
) -> None:
    """Five seconds, ten, twenty … five minutes."""
    memory, now, waits = Memory(), NOON, []
    for _ in range(9):
        memory = befalls(a_group(), fault, memory, now=now)
        until = memory.groups["tpu"].backoff_until
        assert until is not None
        waits.append((until - now).total_seconds())
        now = until

    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def silent(times: int) -> tuple[Memory, list[float]]:
    """The memory after so many slices in a row whose agents did not come, and the seconds until the
    next was tried.
    """
    memory, now, waits = Memory(), NOON, []
    for _ in range(times):
        failed = a_slice_of(
            a_group(),
            state=S.FAILED,
            fault=F.INIT_TIMEOUT,
            ready_at=None,
            requested_at=now,
            reason="0 of 4 agents have reported",
        )
        memory = learn(memory, a_group(), failed, None, now)
        until = memory.groups["tpu"].backoff_until
        assert until is not None
        waits.append((until - now).total_seconds())
        now = until
    return memory, waits


def test_a_group_whose_agents_never_come_is_stopped_after_five_slices() -> None:
    """A wrong image buys machines all night otherwise: each costs for as long as its agents are
    waited for.
    """
    memory, waits = silent(7)

    assert waits == [5, 10, 20, 40, 3600, 3600, 3600]
    verdict = decide(a_group(), (), a_gang(), memory=memory, now=at(75 + 2 * 3600 + 1)).groups[0]
    assert verdict.availability is Availability.BACKOFF
    assert verdict.why.startswith(
        "stopped after 7 slices in a row whose agents never reported, retried at 15:01:15 UTC or"
        " when"
    )
    assert "0 of 4 agents have reported" in verdict.why


def test_a_group_that_was_stopped_is_tried_once_when_the_configuration_is_told_again() -> None:
    """Its image may be another one now, or the way to the controller open; and if not, it is
    stopped again.
    """
    memory, _ = silent(5)
    failing = befalls(a_group("other"), F.PLATFORM, memory, now=at(75))
    told = reconfigured(failing, (a_group(),), (a_group(),))

    assert asked_groups(decide(a_group(), (), a_gang(), memory=told, now=at(76))) == {"tpu": 1}
    assert told.groups["other"] == failing.groups["other"]
    again = befalls(a_group(), F.INIT_TIMEOUT, told, now=at(90))
    assert again.groups["tpu"].stopped
    assert befalls(a_group(), None, again, now=at(95)).groups["tpu"].backoff_until is None


def test_slices_that_were_asked_for_together_and_fail_together_count_once() -> None:
    """Sixteen slices that meet one broken image are one mistake; counted each, the group would be
    gone for minutes at once.
    """
    memory = Memory()
    for second in (60, 60, 61, 75):
        memory = befalls(a_group(), F.BOOT_TIMEOUT, memory, now=at(second), requested_at=at(0))

    assert memory.groups["tpu"].failures == 1
    assert memory.groups["tpu"].backoff_until == at(65)
    again = befalls(a_group(), F.BOOT_TIMEOUT, memory, now=at(130), requested_at=at(70))
    assert again.groups["tpu"].failures == 2


def test_one_slice_that_becomes_ready_ends_the_backoff() -> None:
    """Success is the proof; what failed before says nothing any more."""
    failed = befalls(a_group(), F.PLATFORM, befalls(a_group(), F.PLATFORM), now=at(10))

    after = befalls(a_group(), None, failed, now=at(12))

    assert asked_groups(decide(a_group(), (), a_gang(), memory=failed, now=at(12))) == {}
    assert asked_groups(decide(a_group(), (), a_gang(), memory=after, now=at(12))) == {"tpu": 1}
    assert befalls(a_group(), F.PLATFORM, after, now=at(20)).groups["tpu"].backoff_until == at(25)


def test_a_failing_group_sends_demand_to_the_next_until_its_time_is_over() -> None:
    """Work that could run next door does not wait for a group that is being punished."""
    groups = [a_group("first", priority=1), a_group("second", priority=2)]
    memory = befalls(groups[0], F.PLATFORM)

    assert asked_groups(decide(groups, (), a_gang(), memory=memory, now=at(4))) == {"second": 1}
    assert asked_groups(decide(groups, (), a_gang(), memory=memory, now=at(5))) == {"first": 1}


def test_a_request_that_the_platform_cannot_read_is_retried_late_and_has_a_remedy() -> None:
    """No number of tries corrects a configuration."""
    memory = befalls(a_group(), F.BAD_CONFIG, reason="no such runtime: v2-alhpa")

    verdict = decide(a_group(), (), a_gang(), memory=memory).groups[0]

    assert verdict.until == at(300)
    assert (
        "no such runtime: v2-alhpa; correct scale group tpu in the configuration and reload it"
        in verdict.why
    )
    both = befalls(
        a_group(),
        F.BAD_CONFIG,
        befalls(a_group(), F.PLATFORM, requested_at=at(-2)),
        requested_at=at(-2),
    ).groups["tpu"]
    assert (both.failures, both.backoff_until) == (1, at(300))


def test_a_zone_without_stock_is_passed_over_and_the_group_is_not() -> None:
    """The next zone is asked at once, although the group has just grown: it has not."""
    group = a_group(zones=ZONES)
    grown = decide(group, (), a_gang()).memory
    memory = befalls(group, F.STOCK_OUT, grown, now=at(3), requested_at=at(0))

    assert asked(decide(group, (), a_gang(), memory=memory, now=at(3))) == {("tpu", B): 1}
    assert memory.groups["tpu"].failures == 0


def test_with_no_stock_in_any_zone_the_group_backs_off_until_the_first_may_have_some() -> None:
    """Then the demand goes to the next group, and comes back when a zone is worth a try."""
    groups = [
        a_group("first", zones=ZONES, priority=1),
        a_group("second", priority=2, zones=("us-east1-c",)),
    ]
    memory = befalls(groups[0], F.STOCK_OUT, befalls(groups[0], F.STOCK_OUT), now=at(10), zone=B)

    made = decide(groups, (), a_gang(), memory=memory, now=at(10))

    assert asked_groups(made) == {"second": 1}
    assert (made.groups[0].availability, made.groups[0].until) == (Availability.BACKOFF, at(30))
    assert asked(decide(groups, (), a_gang(), memory=memory, now=at(30))) == {("first", A): 1}


def test_a_stock_out_is_believed_twice_as_long_with_each_time_in_a_row_up_to_the_most() -> None:
    """Half a minute, a minute … ten minutes: a zone may be empty for an hour, and each try costs a
    call.
    """
    group, memory, now, waits = a_group(), Memory(), NOON, []
    for _ in range(7):
        memory = befalls(group, F.STOCK_OUT, memory, now=now)
        (out,) = memory.stocked_out
        waits.append((out.until - now).total_seconds())
        now = out.until

    assert waits == [30, 60, 120, 240, 480, 600, 600]
    much_later = now + timedelta(hours=1)
    assert befalls(group, F.STOCK_OUT, memory, now=much_later).stocked_out[
        0
    ].until == much_later + timedelta(seconds=30)


def test_stock_outs_of_slices_that_were_asked_for_together_count_once() -> None:
    """Ten refusals of one evaluation are one empty zone."""
    memory = Memory()
    for second in (2, 2, 3):
        memory = befalls(a_group(), F.STOCK_OUT, memory, now=at(second), requested_at=at(0))

    assert [(out.times, out.until) for out in memory.stocked_out] == [(1, at(32))]


def test_groups_that_want_the_same_machines_share_the_news_of_a_stock_out() -> None:
    """Asked for under another name the zone is just as empty; but for another tier, or another
    machine, it may have some.
    """
    memory = befalls(a_group("first"), F.STOCK_OUT)

    assert decide(a_group("same"), (), a_gang(), memory=memory).creates == ()
    assert asked_groups(decide(a_group("spot", preemptible=True), (), a_gang(), memory=memory)) == {
        "spot": 1
    }
    assert asked_groups(
        decide(a_group("v6e", accelerator_variant="v6e-16"), (), a_gang(), memory=memory)
    ) == {"v6e": 1}


def test_a_slice_that_becomes_ready_ends_the_stock_out_of_its_zone_and_kind() -> None:
    """There is stock again, for whoever wants the same."""
    memory = befalls(a_group(zones=ZONES), F.STOCK_OUT, befalls(a_group(), F.STOCK_OUT), zone=B)

    assert [out.zone for out in befalls(a_group("same"), None, memory).stocked_out] == [B]


def test_a_slice_that_dies_soon_after_it_was_ready_counts_as_churn_and_not_as_a_failure() -> None:
    """A zone that takes back everything within minutes is no zone to buy in; the next success ends
    a backoff, but not this.
    """
    remembered = lives(1).groups["tpu"]

    assert churn(remembered.lives, NOON) == Churn(short=1, of=1)
    assert (remembered.failures, remembered.backoff_until) == (0, None)


@pytest.mark.parametrize(
    ("minutes", "factor"),
    [
        ((1, 1), 1.0),  # two are no sample
        ((60, 60, 60, 60, 60, 1), 1.0),
        ((60, 60, 60, 60, 1), 0.5),
        ((60, 60, 1), 0.5),
        ((60, 1, 7, 7), 1.0),  # between five and ten minutes says nothing
        ((60, 1, 60, 1), 0.1),
        ((60, 1, 1, 1), 0.1),
        ((60, 1, 1, 1, 1), 0.0),
        ((1, 1, 1), 0.0),
    ],
)
def test_the_larger_the_share_of_short_lives_the_slower_a_group_grows(
    minutes: tuple[float, ...], factor: float
) -> None:
    """From a fifth half as fast, from a half a tenth, from four fifths not at all."""
    remembered = lives(*minutes).groups["tpu"]

    assert churn(remembered.lives, NOON).factor == factor
    group = a_group(max_slices=100)
    assert most_per_minute(group, remembered, NOON) == int(16 * factor)
    assert len(decide(group, (), (50, a_gang()), memory=lives(*minutes)).creates) == int(
        16 * factor
    )


def test_a_slow_group_still_grows() -> None:
    """A tenth of four a minute is one, not none: only a group that is given up grows by none."""
    remembered = lives(60, 1, 1).groups["tpu"]

    assert most_per_minute(a_group(pace=Pace(scale_ups_per_minute=4)), remembered, NOON) == 1
    assert most_per_minute(a_group(pace=Pace(scale_ups_per_minute=0)), remembered, NOON) == 0


def test_short_lives_are_forgotten_after_half_an_hour() -> None:
    """And the plan says when."""
    memory = lives(1, 1, 1)

    made = decide(a_group(), (), a_gang(), memory=memory, now=at(60))

    assert standing(made) is Availability.BACKOFF
    eases = at(1800 - 122)  # when the first of the three is forgotten
    assert (
        made.next_at
        == made.groups[0].until
        == churn_eases(memory.groups["tpu"].lives, at(60))
        == eases
    )
    assert asked_groups(decide(a_group(), (), a_gang(), memory=memory, now=eases)) == {"tpu": 1}


def test_a_slice_that_was_being_given_back_dies_of_nothing() -> None:
    """Its machines vanish because they were told to."""
    memory = befalls(a_group(), F.VANISHED, lived=60, before=S.DRAINING)

    assert memory.groups.get("tpu", GroupMemory()) == GroupMemory()


def test_failures_are_kept_as_actions_and_only_the_last_hundred() -> None:
    """What befell a slice is told with its name and the platform's words, and the memory stays
    small.
    """
    memory = befalls(a_group(), F.QUOTA, reason="quota TPUV5 exhausted")
    (action,) = memory.actions
    assert (action.what, action.slice_id, action.reason) == (
        "quota_exceeded",
        "s1",
        "QUOTA: quota TPUV5 exhausted",
    )

    for second in range(150):
        memory = befalls(a_group(), F.PREEMPTED, memory, now=at(second), lived=10)

    assert len(memory.actions) == 100
    assert {action.what for action in memory.actions} == {"lost"}
    assert len(memory.groups["tpu"].lives) <= 100


def test_what_was_asked_for_is_named_afterwards() -> None:
    """Ids are minted when the plan is carried out; the last actions get them, in their order."""
    memory = decide(
        a_group(),
        (),
        a_gang(),
        memory=named(decide(a_group(), (), a_gang()).memory, ["tpu-1"]),
        now=at(60),
    ).memory

    assert [action.slice_id for action in named(memory, ["tpu-2"]).actions] == ["tpu-1", "tpu-2"]


def test_a_change_that_is_told_twice_teaches_once() -> None:
    """Signals come at least once."""
    failed = a_slice_of(a_group(), state=S.FAILED, fault=F.PLATFORM, requested_at=NOON)

    assert learn(Memory(), a_group(), failed, failed, at(1)) == Memory()


def test_a_group_that_is_gone_learns_nothing_more() -> None:
    """But what befell its slice is told."""
    memory = befalls(None, F.PLATFORM)

    assert memory.groups == {}
    assert len(memory.actions) == 1


def test_a_request_without_an_answer_holds_up_the_next_only_for_so_long() -> None:
    """A call that hangs must not stop a group for ever."""
    group = a_group()

    def after(seconds: int) -> ScalePlan:
        return decide(
            group,
            slices_of(group, S.REQUESTED, requested_at=at(0), changed_at=at(0)),
            (2, a_gang()),
            now=at(seconds),
        )

    assert (standing(after(119)), asked_groups(after(119))) == (Availability.REQUESTING, {})
    assert after(119).next_at == at(120)
    assert (standing(after(120)), asked_groups(after(120))) == (Availability.AVAILABLE, {"tpu": 1})


def test_the_next_token_comes_a_minute_after_the_one_that_makes_room() -> None:
    """With three in the last minute and two allowed, two of them have to be forgotten before the
    next.
    """
    times = [at(0), at(10), at(20)]

    assert next_token(times, 2, at(30)) == at(70)
    assert next_token(times, 4, at(30)) is None
    assert next_token(times, 0, at(30)) is None


def test_facts_without_a_fault_are_a_failure_of_the_platform() -> None:
    """A slice may fail in a way that nobody has a word for; it counts all the same."""
    failed = SliceFacts.model_validate(
        a_slice_of(a_group(), state=S.FAILED).model_dump() | {"ready_at": None}
    )

    assert learn(Memory(), a_group(), failed, None, NOON).groups["tpu"].failures == 1


def test_a_group_that_was_configured_anew_is_tried_again_at_once() -> None:
    """Who has mended what the platform did not understand need not wait for the back-off; other
    groups' failures stand.
    """
    mended, other = a_group("mended"), a_group("other")
    failed = GroupMemory(
        failures=3,
        failed_at=at(0),
        backoff_until=at(300),
        backoff_reason="BAD_CONFIG: no such runtime",
    )
    memory = Memory(groups={"mended": failed, "other": failed})

    after = reconfigured(
        memory, (mended, other), (mended.model_copy(update={"max_slices": 9}), other)
    )

    assert (after.groups["mended"].failures, after.groups["mended"].backoff_until) == (0, None)
    assert after.groups["other"] == failed


def test_slices_that_die_in_one_moment_die_of_one_thing() -> None:
    """Sixty preemptions at once, or a power cut, say nothing about the machines: the group must not
    stand still.
    """
    memory = Memory()
    for number in range(60):
        memory = befalls(a_group(), F.PREEMPTED, memory, lived=60, now=at(number / 10))

    assert len(memory.groups["tpu"].lives) == 1
    assert asked_groups(decide(a_group(), (), a_gang(), memory=memory, now=at(10))) == {"tpu": 1}


def test_an_agent_that_was_stopped_says_nothing_about_its_machine() -> None:
    """Somebody restarts a laptop's cluster three times in ten minutes; the fourth start must not
    wait for half an hour.
    """
    memory = Memory()
    for minute in (0, 3, 6):
        memory = befalls(a_group(), F.HOST_LEFT, memory, lived=60, now=at(60 * minute))

    assert not memory.groups["tpu"].lives


def test_the_least_is_restored_slowly_where_slices_die_young() -> None:
    """One a minute: a group at rest is no use to anybody, and one that makes slices in vain costs
    money.
    """
    group = a_group(min_slices=3)
    memory = lives(1, 1, 1)

    first = decide(group, (), memory=memory, now=at(60))

    assert asked_groups(first) == {"tpu": 1}
    assert first.next_at == at(120)
    there = slices_of(group, S.PROVISIONING)
    assert asked_groups(decide(group, there, memory=first.memory, now=at(90))) == {}
    assert asked_groups(decide(group, there, memory=first.memory, now=at(121))) == {"tpu": 1}
