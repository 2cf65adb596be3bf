"""Which endpoints of a job are there, by what the job knows of its tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.errors import InvalidValue
from iris.model.job.endpoints import MAX_METADATA, MOST, Endpoint, changed, visible
from iris.model.states import ENDED, LIVE, TaskState
from tests.builders import a_task


def endpoint(
    name: str = "model",
    task: int = 0,
    attempt: int = 1,
    address: str = "10.0.0.1:80",
    **more: dict[str, str],
) -> Endpoint:
    return Endpoint(name=name, address=address, job="ada/serve", task=task, attempt=attempt, **more)


ENDPOINTS = st.builds(
    endpoint,
    st.sampled_from(["a", "b/c"]),
    st.integers(-2, 3),
    st.integers(1, 4),
    st.sampled_from(["", "h:1", "h:2", "none"]),
)


@given(
    st.lists(ENDPOINTS, max_size=30),
    st.lists(st.tuples(st.sampled_from(TaskState), st.integers(0, 4)), max_size=3),
)
def test_an_endpoint_is_there_only_while_its_attempt_can_run_and_once_for_each_task(
    messages: list[Endpoint], states: list[tuple[TaskState, int]]
) -> None:
    """A client that finds one connects to it: it must not be one of an ended task, an earlier
    attempt, or a task that is not.
    """
    tasks = [
        a_task(index=index, state=state, attempt=attempt)
        for index, (state, attempt) in enumerate(states)
    ]
    known: tuple[Endpoint, ...] = ()
    for message in messages:
        known = changed(known, message, tasks)
    there = visible(known, tasks)

    assert len({(each.task, each.name) for each in there}) == len(there)
    for each in there:
        task = tasks[each.task]
        assert task.state not in ENDED
        assert each.attempt > task.attempt or (each.attempt == task.attempt and task.state in LIVE)
    for task in tasks:
        attempt = max(
            [
                task.attempt,
                *(
                    each.attempt
                    for each in messages
                    if each.task == task.index and each.address != "none"
                ),
            ]
        )
        its = [
            each
            for each in messages
            if (each.task, each.attempt) == (task.index, attempt) and each.address != "none"
        ]
        last = {each.name: each for each in its}
        runs = task.state not in ENDED and (attempt > task.attempt or task.state in LIVE)
        assert {each.name: each for each in there if each.task == task.index} == {
            name: each for name, each in last.items() if runs and each.address
        }


def test_a_late_message_of_an_attempt_that_is_over_changes_nothing() -> None:
    """The host of a preempted attempt may report after the next attempt has begun elsewhere."""
    tasks = [a_task(state=TaskState.RUNNING, attempt=2)]
    known = changed((), endpoint(attempt=2), tasks)

    for late in (endpoint(address="10.0.0.9:80"), endpoint(address="")):
        assert changed(known, late, tasks) == known
    assert changed(known, endpoint(task=-1, attempt=3), tasks) == known


def test_a_later_attempt_hides_the_endpoints_of_the_earlier_one_before_the_job_knows_of_it() -> (
    None
):
    """A job of independent tasks learns of an attempt later than the attempt can register."""
    tasks = [a_task(state=TaskState.RUNNING, attempt=1)]
    known = changed((endpoint("old"),), endpoint("new", attempt=2), tasks)

    assert [each.name for each in visible(known, tasks)] == ["new"]


def test_a_task_replaces_and_withdraws_its_own_endpoint_only() -> None:
    """Several tasks may serve the same name."""
    tasks = [a_task(index=index, state=TaskState.RUNNING, attempt=1) for index in range(2)]
    known: tuple[Endpoint, ...] = ()
    for each in (
        endpoint(),
        endpoint(task=1),
        endpoint(address="10.0.0.2:81"),
        endpoint(task=1, address=""),
    ):
        known = changed(known, each, tasks)

    assert visible(known, tasks) == (endpoint(address="10.0.0.2:81"),)


def test_the_number_of_a_jobs_endpoints_is_limited() -> None:
    """They are in the memory of a workflow."""
    tasks = [a_task(state=TaskState.RUNNING, attempt=1)]
    known: tuple[Endpoint, ...] = tuple(endpoint(f"n{number}") for number in range(MOST))

    assert changed(known, endpoint("more"), tasks) == known


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (endpoint(name=""), "endpoint"),
        (endpoint(name="-a"), "endpoint"),
        (endpoint(name="a" * 121), "endpoint"),
        (endpoint(address="host"), "write HOST:PORT"),
        (endpoint(address="host:0"), "write HOST:PORT"),
        (endpoint(address="host:65536"), "write HOST:PORT"),
        (endpoint(address="a b:80"), "write HOST:PORT"),
        (endpoint(metadata={"a": "x" * MAX_METADATA}), "metadata"),
    ],
)
def test_an_invalid_endpoint_is_refused_with_its_field(wrong: Endpoint, message: str) -> None:
    """Also in the workflow, where the client's word does not count."""
    with pytest.raises(InvalidValue, match=message):
        wrong.check()
    assert changed((), wrong, [a_task(state=TaskState.RUNNING, attempt=1)]) == ()


@pytest.mark.parametrize(
    "address", ["host:80", "10.0.0.1:65535", "[fe80::1]:80", "a.b-c.internal:1"]
)
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    """By name, or by number of either kind."""
    endpoint(address=address).check()
