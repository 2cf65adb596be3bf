"""Jobs that belong to other jobs: they end with an unsuccessful parent, and a retried parent finds
them again.
"""

import uuid

import pytest

from iris.messages.job import ChildRef, JobInput
from iris.model.errors import Rejected
from iris.model.job.demand_limits import size_of
from iris.model.states import JobState
from iris.workflows.jobs.child_jobs import Children
from tests.builders import a_spec
from tests.harness import Cluster, Held, by_job, child, fails, succeeds


async def runs(cluster: Cluster, job: str) -> bool:
    return (
        bool((await cluster.status(job)).started_at)
        or (await cluster.status(job)).tasks[0].host is not None
    )


async def test_the_children_of_a_failed_job_and_theirs_are_cancelled(cluster: Cluster) -> None:
    """Their results are of no use any more, and they would keep hosts for ever."""
    top, below = Held(then=fails), Held()
    await cluster.join(program=by_job({"top": top}, below))
    parent = await cluster.submit("top")
    middle = await child(cluster, parent, "middle")
    lowest = await child(cluster, middle, "lowest")
    for job in (parent, middle, lowest):
        await cluster.until(lambda job=job: runs(cluster, job))
    top.let_go()

    assert (middle, lowest) == ("ada/top/middle", "ada/top/middle/lowest")
    assert (await cluster.end(parent)).state is JobState.FAILED
    ends = [await cluster.end(job) for job in (middle, lowest)]
    assert [end.state for end in ends] == [JobState.KILLED] * 2
    assert [end.reason for end in ends] == [
        "its parent ada/top ended FAILED",
        "its parent ada/top/middle was cancelled",
    ]
    assert await cluster.nothing_held()


async def test_a_cancelled_parent_cancels_its_children_also_one_that_waits(
    cluster: Cluster,
) -> None:
    """A user who cancels an experiment cancels all of it."""
    await cluster.join(program=Held())
    parent = await cluster.submit("top")
    children = [await child(cluster, parent, f"child{number}") for number in range(5)]
    await cluster.waits(children[-1])
    await cluster.cancel(parent)

    assert (await cluster.end(parent)).state is JobState.KILLED
    assert {(await cluster.end(job)).state for job in children} == {JobState.KILLED}
    assert await cluster.nothing_held()


async def test_the_children_of_a_successful_job_live_on(cluster: Cluster) -> None:
    """A launcher may start jobs and end."""
    launcher, trains = Held(), Held()
    await cluster.join(program=by_job({"top": launcher}, trains))
    parent = await cluster.submit("top")
    left = await child(cluster, parent)
    await cluster.until(lambda: runs(cluster, left))
    launcher.let_go()

    assert (await cluster.end(parent)).state is JobState.SUCCEEDED
    trains.let_go()
    assert (await cluster.end(left)).state is JobState.SUCCEEDED


async def test_a_child_that_starts_when_its_parent_has_ended_reaches_no_host(
    cluster: Cluster,
) -> None:
    """As one whose submission was under way at the parent's end: nothing is left that would cancel
    it.
    """
    host = await cluster.join(program=by_job({"top": fails}, succeeds))
    parent = await cluster.submit("top")
    await cluster.end(parent)
    late = await child(cluster, parent)
    end = await cluster.end(late)

    assert end.state is JobState.KILLED
    assert end.reason == "job ada/top, to which it belongs, had ended before it started"
    assert [task.job for task in host.taken] == ["ada/top"]


async def test_a_child_that_starts_when_its_parent_has_succeeded_runs(cluster: Cluster) -> None:
    """A launcher submits and ends, sometimes before the control plane has begun with what it
    submitted.
    """
    await cluster.join(program=succeeds)
    parent = await cluster.submit("top")
    await cluster.end(parent)
    late = await child(cluster, parent)

    assert (await cluster.end(late)).state is JobState.SUCCEEDED


async def test_a_child_registers_with_a_parent_that_has_continued_as_new_meanwhile(
    cluster: Cluster,
) -> None:
    """The run in which the child was submitted is closed, and accepts no signal. The parent itself
    still runs, so the child must start.
    """
    top = Held(then=fails)
    await cluster.join(program=by_job({"top": top}, Held()))
    parent = await cluster.submit("top")
    left = await child(cluster, parent, current_run=str(uuid.uuid4()))
    await cluster.until(lambda: runs(cluster, left))
    top.let_go()

    assert (await cluster.end(parent)).state is JobState.FAILED
    assert (await cluster.end(left)).state is JobState.KILLED


async def test_a_child_of_a_parent_with_a_long_history_runs_without_a_signal_to_it(
    cluster: Cluster,
) -> None:
    """The signals of a workflow are limited. A parent with 50,000 children must still hear of an
    eviction.
    """
    top = Held()
    await cluster.join(program=by_job({"top": top}, succeeds))
    parent = await cluster.submit("top")
    quiet = await child(cluster, parent, registers=False)
    assert (await cluster.end(quiet)).state is JobState.SUCCEEDED
    top.let_go()
    await cluster.end(parent)
    late = await child(cluster, parent, "late", registers=False)
    assert (await cluster.end(late)).state is JobState.SUCCEEDED

    history = await cluster.job(parent).fetch_history()
    signals = [
        each.workflow_execution_signaled_event_attributes.signal_name for each in history.events
    ]
    assert "child_started" not in signals


def test_a_parent_passes_a_limited_number_of_children_to_its_next_run() -> None:
    """Its input has a limit of 2 MiB, and a launcher may run for weeks."""
    children = Children("ada/top")
    for number in range(5_000):
        children.add(ChildRef(job=f"ada/top/child-{number}", run_id=str(uuid.UUID(int=number))))

    assert children.carried == children.known[-len(children.carried) :]
    assert size_of(JobInput(cluster="trial", spec=a_spec(), children=children.carried)) < 64 * 1024
    assert Children("ada/top", children.known[:3]).carried == children.known[:3]


async def test_a_retried_parent_finds_its_children_instead_of_doubling_them(
    cluster: Cluster,
) -> None:
    """Live or successful: what was computed once is not computed again. A failed child is tried
    again, as its parent is.
    """
    top, slow = Held(), Held()
    host = await cluster.join(program=by_job({"top": top, "slow": slow, "bad": fails}, succeeds))
    parent = await cluster.submit("top")
    first = {name: await child(cluster, parent, name) for name in ("slow", "quick", "bad")}
    for name in ("quick", "bad"):
        await cluster.end(first[name])
    assert {name: await child(cluster, parent, name, attempt=2) for name in first} == first
    await cluster.end(first["bad"])
    slow.let_go()

    assert (await cluster.end(first["slow"])).state is JobState.SUCCEEDED
    top.let_go()
    await cluster.end(parent)
    assert sorted(task.job for task in host.taken) == [
        "ada/top", "ada/top/bad", "ada/top/bad", "ada/top/quick", "ada/top/slow"
    ]  # fmt: skip


async def test_unnamed_children_of_one_attempt_are_several_and_other_work_is_not_taken_for_the_same(
    cluster: Cluster,
) -> None:
    """A loop means several jobs; a name that is in use for something else is a mistake that must
    not go unnoticed.
    """
    await cluster.join(program=Held())
    parent = await cluster.submit("top")
    unnamed = [await child(cluster, parent, "eval", named=False) for _ in range(3)]
    again = [await child(cluster, parent, "eval", named=False, attempt=2)]

    assert unnamed == ["ada/top/eval", "ada/top/eval-2", "ada/top/eval-3"]
    assert again == unnamed[:1]
    assert await child(cluster, parent, "eval-2", named=False, attempt=2, number=2) == unnamed[1]
    assert await child(cluster, parent, "eval-2", named=False, number=2) == "ada/top/eval-4"
    await child(cluster, parent, "named")
    with pytest.raises(Rejected, match=r"ada/top/named already exists and has not ended; show it"):
        await child(cluster, parent, "named")
    with pytest.raises(
        Rejected,
        match=r"already exists for other work that task 0 submitted in attempt 1 and has not ended",
    ):
        await child(cluster, parent, "named", attempt=2, work="other")
    await cluster.cancel(parent)
    await cluster.end(parent)
