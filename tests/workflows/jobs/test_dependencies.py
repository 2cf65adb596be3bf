"""Jobs that wait for other jobs: when they start, when they can never start, and that they ask for
no host before.
"""

from datetime import timedelta

import pytest

from iris.model.errors import NotFound
from iris.model.job.arrays import PART_TASKS, Array
from iris.model.job.dependencies import Condition, Dependency
from iris.model.job.spec import Band
from iris.model.states import JobState, TaskState
from iris.workflows import policies
from iris.workflows.jobs.dependencies import MOST_CARRIED, Dependents
from tests.builders import a_spec, some
from tests.harness import Cluster, Held, by_job, dev_server_cluster, fails, succeeds

HOUR = timedelta(hours=1)


def after(*jobs: str, on: Condition = Condition.OK) -> tuple[Dependency, ...]:
    """The latest runs of these jobs."""
    return tuple(Dependency(job=job, on=on) for job in jobs)


async def waits_for(cluster: Cluster, job: str, reason: str) -> None:
    """Return once the job shows what it waits for."""
    await cluster.until(lambda: _shows(cluster, job, reason))


async def _shows(cluster: Cluster, job: str, reason: str) -> bool:
    return (await cluster.status(job)).reason == reason


async def test_a_job_asks_for_hosts_when_the_jobs_that_it_waits_for_have_succeeded(
    cluster: Cluster,
) -> None:
    """Until then it holds nothing and says what it waits for, also of jobs that wait themselves."""
    first = Held()
    host = await cluster.join(offers=some(cpu=1), program=by_job({"a": first}))
    a = await cluster.submit("a")
    b = await cluster.submit("b", after=after(a))
    c = await cluster.submit("c", after=after(a, b), replicas=2)
    await waits_for(cluster, b, "waits for ada/a to succeed")
    await waits_for(cluster, c, "waits for ada/a to succeed and ada/b to succeed")
    status = await cluster.status(c)

    assert [task.reason for task in status.tasks] == [status.reason] * 2
    reason = (await cluster.status(b)).reason
    assert (await cluster.users.jobs.explain(b)).message == reason
    assert reason in await cluster.page(cluster.job(b))
    assert (await cluster.snapshot()).waiting == 0
    first.let_go()
    ends = [await cluster.end(job) for job in (a, b, c)]
    assert [end.state for end in ends] == [JobState.SUCCEEDED] * 3
    assert [task.job for task in host.taken] == [a, b, c, c]


@pytest.mark.parametrize(
    ("program", "starts", "ends"),
    [
        (
            succeeds,
            {Condition.OK, Condition.ANY},
            "it starts only if ada/a fails, and that ended SUCCEEDED",
        ),
        (
            fails,
            {Condition.FAIL, Condition.ANY},
            "it starts only if ada/a succeeds, and that ended FAILED",
        ),
    ],
)
async def test_a_job_that_can_no_longer_start_ends_with_the_reason(
    cluster: Cluster, program: object, starts: set[Condition], ends: str
) -> None:
    """It would wait for ever. An alert after a failure is not needed after a success."""
    first = Held(then=program)  # type: ignore[arg-type]
    host = await cluster.join(program=by_job({"a": first}))
    a = await cluster.submit("a")
    others = {on: await cluster.submit(on.value, after=after(a, on=on)) for on in Condition}
    for job in others.values():
        await cluster.until(lambda job=job: cluster.status(job))
    first.let_go()
    found = {on: await cluster.end(job) for on, job in others.items()}

    assert {on for on, end in found.items() if end.state is JobState.SUCCEEDED} == starts
    (other,) = (end for on, end in found.items() if on not in starts)
    assert (other.state, other.reason) == (JobState.KILLED, ends)
    assert (await cluster.failure(other.id)).type == JobState.KILLED
    assert len(host.taken) == 3


async def test_a_job_of_which_one_dependency_failed_does_not_wait_for_the_others(
    cluster: Cluster,
) -> None:
    """Its user knows at once that the pipeline is broken; and so do all jobs behind it."""
    await cluster.join(program=by_job({"bad": fails}, Held()))
    bad, long = await cluster.submit("bad"), await cluster.submit("long")
    next_one = await cluster.submit("next", after=after(long, bad))
    last = await cluster.submit("last", after=after(next_one))

    for job, cause, end in ((next_one, bad, "FAILED"), (last, next_one, "KILLED")):
        reason = (await cluster.end(job)).reason
        assert cause in reason
        assert reason.endswith(end)
    await cluster.cancel(long)
    await cluster.end(long)


async def test_a_dependency_is_a_run_and_not_a_name(cluster: Cluster) -> None:
    """The name may be used again before the job looks."""
    host = await cluster.join(program=fails)
    await cluster.end(await cluster.submit("a"))
    first_run = (await cluster.job("ada/a").describe()).run_id
    host.program = succeeds
    await cluster.end(await cluster.submit("a"))
    failed = Dependency(job="ada/a", run_id=first_run or "")
    forgotten = Dependency(job="ada/a", run_id="01a20ab7-0000-7000-8000-000000000000")

    ends = [
        await cluster.end(await cluster.submit(f"x{i}", after=(each,)))
        for i, each in enumerate((failed, forgotten))
    ]
    assert {end.state for end in ends} == {JobState.KILLED}
    assert [end.reason.endswith("FAILED") for end in ends] == [True, False]
    assert (
        await cluster.end(await cluster.submit("latest", after=after("ada/a")))
    ).state is JobState.SUCCEEDED


@pytest.mark.long
async def test_what_submit_and_lists_know_of_the_jobs_to_wait_for() -> None:
    """A misspelt name would be an endless wait, and a list of fifty jobs has to say what each waits
    for.
    """
    async with dev_server_cluster() as cluster:
        host = await cluster.join(program=fails)
        await cluster.end(await cluster.submit("train"))
        host.program = Held()
        train = await cluster.submit("train")
        with pytest.raises(NotFound, match=r"did you mean ada/train\?"):
            await cluster.submit("x", after=after("ada/trian"))
        await cluster.until(lambda: _is_listed(cluster, "#1", JobState.FAILED))
        with pytest.raises(NotFound, match="job ada/train has no run 3; its runs are 1 to 2"):
            await cluster.submit("x", after=(Dependency(job=train, number=3),))
        first = await cluster.submit("first", after=(Dependency(job=train, number=1),))
        latest = await cluster.submit("latest", after=after(train))

        assert "ada/train#1" in (await cluster.end(first)).reason
        await cluster.until(
            lambda: _is_listed(cluster, latest, JobState.PENDING, "after ada/train")
        )


@pytest.mark.long
async def test_a_batch_that_is_repeated_finds_its_job_although_the_job_before_it_is_forgotten() -> (
    None
):
    """A batch is repeated because its first answer was lost, perhaps days ago. Each of its jobs is
    on the cluster already.
    """
    spec = a_spec(name="second")
    async with dev_server_cluster() as cluster:
        started = await cluster.users.jobs.submit_once(spec, "key")
        again = await cluster.users.jobs.submit_once(
            spec.model_copy(update={"after": after("ada/forgotten")}), "key"
        )

    assert again.before
    assert again.job.run_id == started.job.run_id


async def _is_listed(
    cluster: Cluster, job: str, state: JobState, reason: str | None = None
) -> bool:
    rows = await cluster.users.jobs.list()
    found = [row for row in rows if job in (row.id, f"#{row.run}")]
    return any(row.state is state and reason in (None, row.reason) for row in found)


async def test_the_end_of_a_cancelled_job_reaches_the_jobs_that_wait_for_it(
    cluster: Cluster,
) -> None:
    """One that waits itself is cancelled at once, and has asked for nothing."""
    a = await cluster.submit("a")
    b = await cluster.submit("b", after=after(a))
    cleanup = await cluster.submit("cleanup", after=after(b, on=Condition.FAIL))
    await waits_for(cluster, cleanup, "waits for ada/b to fail")
    await waits_for(cluster, b, "waits for ada/a to succeed")
    await cluster.cancel(b, "not needed")
    end = await cluster.end(b)
    await cluster.waits(cleanup)

    assert (end.state, end.reason) == (JobState.KILLED, "not needed")
    assert await cluster.shown_end(cluster.job(b)) == "CANCELED"
    assert (await cluster.snapshot()).waiting == 2, "a and the clean-up"


async def test_a_job_that_is_terminated_signals_nothing_and_is_found_ended_all_the_same(
    cluster: Cluster,
) -> None:
    """As by an operator in Temporal's Web UI. Nothing may wait for it for ever."""
    a = await cluster.submit("a")
    b = await cluster.submit("b", after=after(a))
    await waits_for(cluster, b, "waits for ada/a to succeed")
    await cluster.waits(a)
    await cluster.job(a).terminate()

    end = await cluster.end(b, within=policies.DEPENDENCY_CHECK)
    assert end.state is JobState.KILLED
    assert end.reason.endswith("KILLED")


def test_a_job_carries_a_limited_number_of_dependents_to_its_next_run() -> None:
    """The input of a workflow is limited, and names are free to submit. Those left out see the end
    when they look themselves.
    """
    dependents = Dependents(tuple(f"ada/early-{number}" for number in range(MOST_CARRIED)))
    dependents.add("ada/late")

    assert len(dependents.carried) == MOST_CARRIED
    assert dependents.carried[-2:] == (f"ada/early-{MOST_CARRIED - 1}", "ada/late")
    assert len(dependents.known) == MOST_CARRIED + 1


async def test_the_scheduling_timeout_counts_from_the_end_of_the_dependencies(
    cluster: Cluster,
) -> None:
    """It is the patience for hosts; how long other jobs take is another matter, and so is a hold
    before.
    """
    a = await cluster.submit("a")
    one = await cluster.submit("one", after=after(a, on=Condition.ANY), scheduling_timeout=HOUR)
    many = await cluster.submit(
        "many", after=after(a, on=Condition.ANY), scheduling_timeout=HOUR, replicas=2
    )
    for job in (one, many):
        await waits_for(cluster, job, "waits for ada/a to end")
    await cluster.later(3 * HOUR)
    await cluster.cancel(a)
    await cluster.end(a)
    for job in (one, many):
        await cluster.waits(job)
    await cluster.later(HOUR / 2)

    assert {(await cluster.status(job)).state for job in (one, many)} == {JobState.PENDING}
    ends = [await cluster.end(job, within=HOUR / 2) for job in (one, many)]
    assert {end.state for end in ends} == {JobState.UNSCHEDULABLE}


async def test_a_job_that_waits_can_be_held_released_and_moved_to_another_band(
    cluster: Cluster,
) -> None:
    """As any job that waits. A hold outlasts the dependencies."""
    first = Held()
    await cluster.join(program=by_job({"a": first}))
    a = await cluster.submit("a")
    b = await cluster.submit("b", after=after(a))
    await waits_for(cluster, b, "waits for ada/a to succeed")
    jobs = cluster.users.jobs
    await jobs.hold(b, "look at a first")
    await waits_for(cluster, b, (held := str((await cluster.status(b)).reason)))
    assert held.endswith("look at a first")
    assert (await cluster.status(b)).state is JobState.HELD
    await jobs.release(b)
    await waits_for(cluster, b, "waits for ada/a to succeed")
    await jobs.hold(b)
    await jobs.set_priority(b, Band.BATCH)
    first.let_go()
    await cluster.end(a)
    await cluster.until(lambda: _is_ready(cluster, b))
    await jobs.release(b)

    assert (await cluster.end(b)).state is JobState.SUCCEEDED


async def _is_ready(cluster: Cluster, job: str) -> bool:
    """Whether its dependencies are met, and only the hold keeps it from asking for hosts."""
    task = (await cluster.status(job)).tasks[0]
    return task.key is not None and task.state is TaskState.PENDING


@pytest.mark.parametrize("part", [PART_TASKS, 1])
async def test_a_task_that_is_cancelled_while_its_job_waits_has_ended_at_once(
    cluster: Cluster, part: int
) -> None:
    """Nothing of it runs. It stays CANCELLED whatever becomes of the job, and the other tasks end
    with the job.
    """
    held = Held(then=fails)
    await cluster.join(program=held)
    a = await cluster.submit("a")
    array = Array(indices="0-2", size=3, part=part)
    b = await cluster.submit("b", after=after(a), array=array, replicas=3)
    await waits_for(cluster, b, "waits for ada/a to succeed")
    await cluster.users.jobs.cancel_task(b, 1, "not this one")
    await cluster.until(
        lambda: _states_are(cluster, b, TaskState.PENDING, TaskState.CANCELLED, TaskState.PENDING)
    )
    held.let_go()
    end = await cluster.end(b)

    assert end.state is JobState.KILLED
    assert end.reason.endswith("FAILED")
    assert [task.state for task in end.tasks] == [
        TaskState.KILLED,
        TaskState.CANCELLED,
        TaskState.KILLED,
    ]
    assert end.tasks[1].reason == "not this one"


@pytest.mark.parametrize("part", [PART_TASKS, 1])
async def test_a_job_of_which_all_tasks_are_cancelled_waits_no_longer(
    cluster: Cluster, part: int
) -> None:
    """It has nothing to start; and one that lacks some tasks starts the others."""
    held = Held()
    host = await cluster.join(offers=some(cpu=8), program=by_job({"a": held}))
    a = await cluster.submit("a")
    array = {"array": Array(indices="0-1", size=2, part=part), "replicas": 2}
    none, some_left = [
        await cluster.submit(name, after=after(a), **array) for name in ("none", "some")
    ]
    for job, index in ((none, 0), (none, 1), (some_left, 0)):
        await waits_for(cluster, job, "waits for ada/a to succeed")
        await cluster.users.jobs.cancel_task(job, index, "changed my mind")
    end = await cluster.end(none)
    held.let_go()
    other = await cluster.end(some_left)

    assert (end.state, end.reason) == (JobState.KILLED, "changed my mind")
    assert (other.state, [task.index for task in host.taken if task.job == some_left]) == (
        JobState.SUCCEEDED,
        [1],
    )


@pytest.mark.long
@pytest.mark.parametrize("part", [PART_TASKS, 1])
async def test_a_cancelled_task_of_a_job_that_waits_stays_cancelled_when_the_job_continues_as_new(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may wait for days, and its history is shortened meanwhile."""
    monkeypatch.setattr(policies, "DEPENDENCY_CHECK", timedelta(seconds=1))
    async with dev_server_cluster("limit.historyCount.suggestContinueAsNew=20") as cluster:
        held = Held()
        host = await cluster.join(offers=some(cpu=8), program=by_job({"a": held}))
        a = await cluster.submit("a")
        b = await cluster.submit(
            "b", after=after(a), array=Array(indices="0-2", size=3, part=part), replicas=3
        )
        await waits_for(cluster, b, "waits for ada/a to succeed")
        first = (await cluster.job(b).describe()).run_id
        await cluster.users.jobs.cancel_task(b, 1, "not this one")
        await cluster.until(lambda: _other_run_after_a_wish(cluster, b, first))
        held.let_go()
        end = await cluster.end(b)

    assert [task.state for task in end.tasks] == [
        TaskState.SUCCEEDED,
        TaskState.CANCELLED,
        TaskState.SUCCEEDED,
    ]
    assert {task.index for task in host.taken if task.job == b} == {0, 2}


async def _other_run_after_a_wish(cluster: Cluster, job: str, first: str | None) -> bool:
    """Whether the job has continued as new; each wish makes its history longer."""
    await cluster.users.jobs.set_priority(job, Band.BATCH)
    return (await cluster.job(job).describe()).run_id != first


async def _states_are(cluster: Cluster, job: str, *states: TaskState) -> bool:
    return tuple(task.state for task in (await cluster.status(job)).tasks) == states
