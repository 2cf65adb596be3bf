"""The lives of tasks and jobs."""

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.errors import IllegalMove
from iris.model.states import JobState, TaskState, move_task, roll_up
from tests.strategies import CHEAP

S = TaskState
ENDS = {S.SUCCEEDED, S.FAILED, S.KILLED, S.CANCELLED, S.WORKER_FAILED, S.PREEMPTED}

#: Written down a second time, from the design: the two must agree.
LEGAL = {
    *((S.PENDING, to) for to in (S.ASSIGNED, S.KILLED, S.CANCELLED, S.UNSCHEDULABLE)),
    *((S.ASSIGNED, to) for to in (S.BUILDING, S.RUNNING, S.PENDING, *ENDS)),
    *((S.BUILDING, to) for to in (S.RUNNING, *ENDS)),
    *((S.RUNNING, to) for to in ENDS),
    (S.FAILED, S.PENDING),
    (S.WORKER_FAILED, S.PENDING),
    (S.PREEMPTED, S.PENDING),
}


def test_a_task_makes_the_moves_of_the_design() -> None:
    """A move that is missing wedges a task for ever."""
    for now, to in LEGAL:
        assert to is move_task(now, to)


def test_a_task_makes_no_other_move() -> None:
    """A late report must not revive a finished task: the result of a finished task stays."""
    for now, to in set(product(S, S)) - LEGAL:
        with pytest.raises(IllegalMove):
            move_task(now, to)


def test_from_every_state_a_task_can_come_to_an_end() -> None:
    """A task in a state without an exit would never end."""
    final = {
        S.SUCCEEDED,
        S.KILLED,
        S.CANCELLED,
        S.UNSCHEDULABLE,
        S.FAILED,
        S.WORKER_FAILED,
        S.PREEMPTED,
    }
    reaches = set(final)
    for _ in S:
        reaches |= {now for now, to in LEGAL if to in reaches and move_task(now, to)}

    assert reaches == set(S)


@pytest.mark.parametrize(
    ("tasks", "limit", "state"),
    [
        # All succeeded.
        ([S.SUCCEEDED, S.SUCCEEDED], 0, JobState.SUCCEEDED),
        # More failures than it puts up with: at once, whatever the others do.
        ([S.FAILED, S.RUNNING], 0, JobState.FAILED),
        ([S.FAILED, S.KILLED], 0, JobState.FAILED),
        ([S.FAILED, S.UNSCHEDULABLE], 0, JobState.FAILED),
        ([S.FAILED, S.RUNNING], 1, JobState.RUNNING),
        ([S.FAILED, S.SUCCEEDED], 1, JobState.SUCCEEDED),
        ([S.FAILED, S.FAILED, S.SUCCEEDED], 1, JobState.FAILED),
        # One task found no host, then one was killed, while another still runs.
        ([S.UNSCHEDULABLE, S.KILLED, S.RUNNING], 0, JobState.UNSCHEDULABLE),
        ([S.KILLED, S.RUNNING], 0, JobState.KILLED),
        # Those that a user cancelled alone count neither way, unless there are no others.
        ([S.CANCELLED, S.RUNNING], 0, JobState.RUNNING),
        ([S.CANCELLED, S.PENDING], 0, JobState.PENDING),
        ([S.CANCELLED, S.SUCCEEDED], 0, JobState.SUCCEEDED),
        ([S.CANCELLED, S.FAILED, S.SUCCEEDED], 0, JobState.FAILED),
        ([S.CANCELLED, S.FAILED, S.SUCCEEDED], 1, JobState.SUCCEEDED),
        ([S.CANCELLED, S.KILLED, S.SUCCEEDED], 0, JobState.KILLED),
        ([S.CANCELLED, S.CANCELLED], 0, JobState.KILLED),
        # Something is on a host.
        ([S.PENDING, S.ASSIGNED], 0, JobState.RUNNING),
        ([S.ASSIGNED, S.BUILDING], 0, JobState.BUILDING),
        ([S.PENDING, S.BUILDING], 0, JobState.BUILDING),
        ([S.BUILDING, S.RUNNING], 0, JobState.RUNNING),
        ([S.SUCCEEDED, S.RUNNING], 0, JobState.RUNNING),
        ([S.WORKER_FAILED, S.RUNNING], 0, JobState.RUNNING),
        # All ended, and machines are to blame.
        ([S.WORKER_FAILED, S.SUCCEEDED], 0, JobState.WORKER_FAILED),
        ([S.PREEMPTED, S.SUCCEEDED], 0, JobState.WORKER_FAILED),
        ([S.WORKER_FAILED, S.FAILED], 1, JobState.WORKER_FAILED),
        # Nothing is on a host, not all ended.
        ([S.PENDING, S.PENDING], 0, JobState.PENDING),
        ([S.PENDING, S.SUCCEEDED], 0, JobState.PENDING),
    ],
)
def test_a_job_is_what_its_tasks_are(tasks: list[TaskState], limit: int, state: JobState) -> None:
    """The roll-up of the design, rule by rule: the first that holds."""
    assert state is roll_up(tasks, max_task_failures=limit)


@pytest.mark.parametrize(
    ("tasks", "state"),
    [
        ([S.PENDING], JobState.HELD),
        ([S.PENDING, S.PENDING], JobState.HELD),  # between two attempts
        ([S.PENDING, S.SUCCEEDED], JobState.HELD),
        ([S.PENDING, S.RUNNING], JobState.RUNNING),  # what runs runs on
        ([S.SUCCEEDED], JobState.SUCCEEDED),
        ([S.FAILED], JobState.FAILED),
        ([S.KILLED, S.PENDING], JobState.KILLED),
        ([S.PREEMPTED], JobState.WORKER_FAILED),
        ([S.UNSCHEDULABLE], JobState.UNSCHEDULABLE),
    ],
)
def test_a_hold_shows_when_nothing_of_the_job_runs(tasks: list[TaskState], state: JobState) -> None:
    """A hold stops what would start. It hides neither what runs nor an end."""
    assert state is roll_up(tasks, held=True)


@CHEAP
@given(st.lists(st.sampled_from(S), min_size=1, max_size=8), st.integers(0, 3))
def test_a_hold_changes_nothing_of_what_runs_or_has_ended(
    tasks: list[TaskState], limit: int
) -> None:
    """It is a wish about the future: only a job that would be shown as waiting shows it."""
    held = roll_up(tasks, max_task_failures=limit, held=True)
    free = roll_up(tasks, max_task_failures=limit)

    assert (held is JobState.HELD) or held is free
    if held is JobState.HELD:
        assert S.PENDING in tasks
        assert not {S.ASSIGNED, S.BUILDING, S.RUNNING} & set(tasks)
        assert not held.ended


@CHEAP
@given(
    st.lists(st.sampled_from(S), min_size=1, max_size=8),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_a_roll_up_keeps_its_promises_for_every_mix_of_tasks(
    tasks: list[TaskState], limit: int, random: Random
) -> None:
    """Whatever the mix: task order does not matter, success is never claimed wrongly, and in a
    RUNNING job a task has a host.
    """
    state = roll_up(tasks, max_task_failures=limit)
    shuffled = list(tasks)
    random.shuffle(shuffled)

    assert state is roll_up(shuffled, max_task_failures=limit)
    if state is JobState.RUNNING:
        assert {S.ASSIGNED, S.RUNNING} & set(tasks)
    if state is JobState.BUILDING:
        assert S.BUILDING in tasks
        assert S.RUNNING not in tasks
    if state is JobState.SUCCEEDED:
        assert set(tasks) <= {S.SUCCEEDED, S.FAILED, S.CANCELLED}
        assert set(tasks) != {S.CANCELLED}, (
            "a job of which nothing ran to its end has not succeeded"
        )
        assert tasks.count(S.FAILED) <= limit
    if all(task in {*ENDS, S.UNSCHEDULABLE} for task in tasks):
        assert state.ended
