"""A trace of the records of use: the workload of a cluster's own past."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.host.constraints import SCALE_GROUP, TPU_NAME
from iris.model.host.resources import Resources
from iris.model.job.spec import Band
from iris.model.slice.provisioning import SliceFault
from iris.simulation.past import trace_of
from iris.simulation.trace import GangTrace, Run, SliceTrace, Trace, from_lines, to_lines
from iris.usage.records import Asked, AttemptUse, Use, UseEnd
from tests.builders import some
from tests.usage.made_uses import at, attempt, slice_use

HOUR = 3600.0
E = UseEnd


def tried(
    begin: float, end: float, number: int = 1, gang: str = "ada/train", /, **fields: Any
) -> AttemptUse:
    """An attempt from and to these hours, of a gang that asked at the hour 0."""
    values = {"id": f"{gang}@{number}/run", "job": gang.partition(":")[0], "asked": Asked(at=at(0))}
    return attempt(begin, end, **{**values, **fields})


def past(*uses: Use, since: float = 0, until: float = 100, names: bool = False) -> Trace:
    return trace_of(uses, at(since), at(until), names=names)


def the_gang(*uses: Use, **changes: Any) -> GangTrace:
    (gang,) = past(*uses, **changes).gangs
    return gang


def test_a_gang_arrives_when_it_could_ask_and_runs_as_long_as_it_ran() -> None:
    """The wait until the placement, the set-up and the run are three different things."""
    use = tried(2, 5, asked=Asked(at=at(1)), started_at=at(3))
    gang = the_gang(use, since=0.5)
    assert (gang.at, gang.waited, gang.queued_at) == (0.5 * HOUR, HOUR, None)
    assert gang.runs == (Run(set_up=HOUR, seconds=2 * HOUR),)


def test_a_trace_has_the_shape_of_the_request() -> None:
    """The simulation asks for the same hosts."""
    each = some(cpu=4, memory=8, disk=16, device="tpu:v5litepod-16:4")
    asked = Asked(
        at=at(0),
        queued_at=at(-1),
        constraints=("zone = europe-west4-a", "?fast = true"),
        group_by=TPU_NAME,
        groups=2,
        scheduling_timeout=timedelta(hours=1),
    )
    use = tried(
        1,
        2,
        band=Band.PRODUCTION,
        hosts=8,
        tpu_chips=8 * 4,
        cpu_millis=8 * each.cpu_millis,
        memory_bytes=8 * each.memory_bytes,
        disk_bytes=8 * each.disk_bytes,
        variant="v5litepod-16",
        tasks_per_host=2,
        asked=asked,
    )
    assert the_gang(use, since=-1) == GangTrace(
        id="job-1",
        user="user-1",
        band=Band.PRODUCTION,
        at=HOUR,
        queued_at=0,
        resources=each,
        constraints=("zone = europe-west4-a", "?fast = true"),
        tasks=8,
        tasks_per_host=2,
        group_by=TPU_NAME,
        groups=2,
        runs=(Run(seconds=HOUR),),
        patience=HOUR,
        waited=HOUR,
    )


def test_the_attempts_of_a_gang_are_runs_in_their_order_and_preemptions_are_left_out() -> None:
    """The simulation has preemptions of its own. The arrival is that of the first attempt."""
    gang = the_gang(
        tried(11, 14, 10),
        tried(1, 2, 1, end=E.PREEMPTED),
        tried(3, 4, 2, end=E.FAILED),
        tried(5, 6, 3, end=E.NEVER_STARTED),
        tried(7, 9, 9, end=E.SET_UP_FAILED),
    )
    assert (gang.at, gang.waited) == (0, HOUR)
    assert gang.runs == (
        Run(seconds=HOUR, end=E.FAILED),
        Run(set_up=2 * HOUR, seconds=0, end=E.SET_UP_FAILED),
        Run(seconds=3 * HOUR),
    )


def test_a_gang_whose_last_attempts_were_preempted_runs_as_long_as_the_longest() -> None:
    """How long it would have run, nobody knows; without it, the trace would lack its load."""
    gang = the_gang(
        tried(0, 1, 1, end=E.FAILED),
        tried(1, 4, 2, end=E.PREEMPTED, started_at=at(2)),
        tried(4, 5, 3, end=E.PREEMPTED, started_at=at(4)),
    )
    assert gang.runs == (
        Run(seconds=HOUR, end=E.FAILED),
        Run(set_up=HOUR, seconds=2 * HOUR, end=E.CANCELLED),
    )


def test_a_placement_that_lost_its_hosts_before_the_gang_knew_of_it_is_left_out() -> None:
    """Its record has the key of the attempt and a time (`EndedUses.placed_again`)."""
    lost = tried(1, 2, id=f"ada/train@1/run/{at(2).isoformat()}", end=E.UNKNOWN, asked=None)
    gang = the_gang(lost, tried(3, 4))
    assert gang.runs == (Run(seconds=HOUR),)
    assert gang.waited == HOUR


def test_what_still_runs_at_the_end_is_cut_off() -> None:
    """An open use has no end, and one that ended later is not known in full either."""
    running = tried(1, 6, end=E.OPEN, asked=None)
    failed_later = tried(1, 9, 1, "bob/eval", end=E.FAILED)
    trace = past(running, failed_later, until=4)
    assert [gang.runs for gang in trace.gangs] == [(Run(seconds=3 * HOUR),)] * 2
    assert trace.seconds == 4 * HOUR


def test_what_ran_or_waited_at_the_begin_arrives_then_with_the_rest() -> None:
    """Its place in the queue is the old one, and its wait cannot be compared."""
    ran = tried(-3, 5, started_at=at(-2))
    waited = tried(2, 3, 1, "bob/eval", asked=Asked(at=at(-1)))
    ended = tried(-3, -2, 1, "eve/old")
    one, other = past(ran, waited, ended).gangs
    assert (one.at, one.runs, one.waited) == (0, (Run(seconds=5 * HOUR),), None)
    assert (other.at, other.queued_at, other.waited) == (0, -HOUR, None)


def test_a_terminated_job_gets_what_its_record_tells() -> None:
    """Its workflow has told nothing, so it arrives when it was placed."""
    cpu = the_gang(tried(1, 2, end=E.UNKNOWN, asked=None))
    assert (cpu.at, cpu.waited, cpu.resources) == (HOUR, None, Resources(cpu_millis=8000))
    assert cpu.runs == (Run(seconds=HOUR, end=E.CANCELLED),)


@pytest.mark.parametrize(
    ("devices", "group_by", "groups"),
    [({"tpu_chips": 32}, TPU_NAME, 2), ({"gpus": 32}, SCALE_GROUP, 1)],
)
def test_a_terminated_gang_is_placed_together(
    devices: dict[str, int], group_by: str, groups: int
) -> None:
    """What its hosts had to share follows from its devices: chips are on slices."""
    gang = the_gang(tried(1, 2, hosts=8, slices=("s1", "s2"), asked=None, **devices))
    assert (gang.group_by, gang.groups, gang.tasks) == (group_by, groups, 8)


def test_names_are_replaced_by_numbers_in_the_order_of_arrival() -> None:
    """A trace may be given to others. Tasks of one job stay together, and so do users."""
    uses = [
        tried(3, 4, 1, "eve/b", user="eve", asked=Asked(at=at(3))),
        tried(1, 2, 1, "bob/a:0", user="bob", asked=Asked(at=at(1))),
        tried(2, 3, 1, "bob/a:1", user="bob", asked=Asked(at=at(2))),
        tried(5, 6, 1, "eve/b", id="eve/b@1/again", user="eve", asked=Asked(at=at(5))),
    ]
    assert [(gang.user, gang.job, gang.id) for gang in past(*uses).gangs] == [
        ("user-1", "job-1", "job-1:0"),
        ("user-1", "job-1", "job-1:1"),
        ("user-2", "", "job-2"),
        ("user-2", "", "job-3"),
    ]
    assert [(gang.user, gang.job, gang.id) for gang in past(*uses, names=True).gangs] == [
        ("bob", "bob/a", "bob/a:0"),
        ("bob", "bob/a", "bob/a:1"),
        ("eve", "", "eve/b"),
        ("eve", "", "eve/b#2"),
    ]


def test_an_exported_trace_has_no_names_tags_or_machines() -> None:
    """Also constraints can contain them: on a host, a slice, or an attribute of one's own."""
    constraints = (
        "host-id != iris-lab-cpu-00c0ffee-0",
        "tpu-name = iris-lab-tpu-00c0ffee",
        "for-user = ada",
        "reserved-for in (train, eval)",
        "?ada exists",
        "rack = 7",
        "zone = train",  # a zone has a name of its own, whatever jobs are called
    )
    asked = Asked(at=at(0), constraints=constraints)
    uses: list[Use] = [
        tried(1, 2, asked=asked, tags={"team": "speech"}, slices=("iris-lab-cpu-00c0ffee",)),
        slice_use(0, 1, 3, id="iris-lab-cpu-00c0ffee", reason="a job of ada is done"),
    ]
    trace = past(*uses)
    assert trace.gangs[0].constraints == ("rack = 7", "zone = train")
    text = "".join(
        to_lines(trace._replace(gangs=(trace.gangs[0].model_copy(update={"constraints": ()}),)))
    )
    for name in ("ada", "train", "speech", "c0ffee", "lab"):
        assert name not in text


def test_slices_have_their_times_and_faults() -> None:
    """Boot times, preemptions and stock-outs are measured from them."""
    trace = past(
        slice_use(-1, 1, 3, id="a", fault=SliceFault.PREEMPTED),
        slice_use(2, None, 3, id="b", zone="z", fault=SliceFault.STOCK_OUT),
        slice_use(3, 5, 9, id="c", fault=SliceFault.PREEMPTED),
        slice_use(3.5, 3.6, 3.9, id="d", open=True),
        slice_use(1, 2, 3, id="joined", group="", zone=""),
        until=4,
        names=True,
    )
    assert trace.slices == (
        SliceTrace(
            id="a",
            group="cpu",
            zone="europe-west4-a",
            requested=-HOUR,
            ready=HOUR,
            gone=3 * HOUR,
            fault=SliceFault.PREEMPTED,
        ),
        SliceTrace(
            id="b",
            group="cpu",
            zone="z",
            requested=2 * HOUR,
            gone=3 * HOUR,
            fault=SliceFault.STOCK_OUT,
        ),
        SliceTrace(
            id="c",
            group="cpu",
            zone="europe-west4-a",
            requested=3 * HOUR,
            gone=4 * HOUR,
            open=True,
        ),
        SliceTrace(
            id="d",
            group="cpu",
            zone="europe-west4-a",
            requested=3.5 * HOUR,
            ready=3.6 * HOUR,
            gone=3.9 * HOUR,
            open=True,
        ),
    )


def test_a_trace_of_the_past_is_read_as_it_was_written() -> None:
    """The file is all that a simulation elsewhere has."""
    trace = past(
        tried(1, 2, asked=Asked(at=at(0.123), constraints=("?a = 1",))), slice_use(0, 1, 2)
    )
    assert from_lines(to_lines(trace), "trace.jsonl") == trace


HOURS = st.integers(-40, 140).map(lambda tenth: tenth / 10)


@st.composite
def uses(draw: st.DrawFn) -> list[Use]:
    """Attempts of three gangs and slices around the hours 0 to 10, in no order."""
    found: list[Use] = []
    for number in range(draw(st.integers(0, 8))):
        begin, end = sorted((draw(HOURS), draw(HOURS)))
        if draw(st.booleans()):
            ready = draw(st.sampled_from((None, begin, end)))
            fault = draw(st.sampled_from((None, *SliceFault)))
            found.append(slice_use(begin, ready, end, id=f"s{number}", fault=fault))
            continue
        started = draw(st.sampled_from((None, at(begin), at(end))))
        asked = draw(st.sampled_from((None, Asked(at=at(-5)), Asked(at=at(begin)))))
        gang = draw(st.sampled_from(("ada/a:0", "ada/a:1", "bob/b")))
        end_of = draw(st.sampled_from(UseEnd))
        found.append(tried(begin, end, number, gang, started_at=started, asked=asked, end=end_of))
    return draw(st.permutations(found))


@given(uses())
def test_a_trace_has_only_what_was_within_its_time(uses: list[Use]) -> None:
    """Its runs are at most as long as the attempts were then, and can be read again."""
    trace = past(*uses, until=10)
    assert from_lines(to_lines(trace), "trace") == trace
    held = 0.0
    for gang in trace.gangs:
        held += sum(run.set_up + run.seconds for run in gang.runs)
        assert 0 <= gang.at < trace.seconds
        assert gang.queued_at is None or gang.queued_at <= gang.at
        assert gang.waited is None or 0 <= gang.waited <= trace.seconds
    for each in trace.slices:
        assert each.requested < trace.seconds
        assert 0 < each.gone <= trace.seconds
    attempts = [use for use in uses if isinstance(use, AttemptUse)]
    clipped = (min(use.ended_at, at(10)) - max(use.placed_at, at(0)) for use in attempts)
    assert held <= sum(max(0.0, each.total_seconds()) for each in clipped) + 1e-6
