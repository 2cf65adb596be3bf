"""What people see: tables and texts, without colours where nobody looks."""

import click
import pytest

from iris.cli import render
from iris.client.views import Explanation, JobRow
from iris.jobs import JobStatus
from iris.states import JobState, TaskState
from iris.workflows.messages import HostView
from tests.builders import a_host, a_task, at, some


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in click.unstyle(text).splitlines()]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Colours change no width."""
    assert plain(render.table(("ID", "STATE", "X"), [("a-long-id", "RUNNING", "1"), ("b", "FAILED", "")])) == [
        "ID         STATE    X",
        "a-long-id  RUNNING  1",
        "b          FAILED",
    ]


def test_a_list_of_jobs_shows_age_and_the_beginning_of_the_command() -> None:
    """A long command is cut where its row would not fit."""
    row = JobRow(id="ada/train", state=JobState.RUNNING, user="ada", submitted_at=at(0), command="x" * 100)
    (_, line) = plain(render.jobs_table([row], at(90)))
    assert line == f"ada/train  RUNNING  ada   1m 30s  {'x' * 59}…"


def test_a_status_says_what_why_and_how_long() -> None:
    """One line for the job, one for its times, a table of its tasks; a dash for what is not there."""
    status = JobStatus(
        id="ada/train",
        state=JobState.FAILED,
        reason="task 0: exited with code 3",
        user="ada",
        submitted_at=at(0),
        started_at=at(10),
        finished_at=at(70),
        tasks=(a_task(state=TaskState.FAILED, attempt=1, host="h1", exit_code=3, reason="exited with code 3"), a_task(index=1)),
    )
    assert plain(render.status_text(status, at(100))) == [
        "ada/train  FAILED  task 0: exited with code 3",
        "submitted 1m 40s ago, ran 1m",
        "",
        "TASK  STATE    HOST  ATTEMPT  EXIT  REASON",
        "0     FAILED   h1    1        3     exited with code 3",
        "1     PENDING  -     -        -",
    ]


def test_an_explanation_gives_both_numbers() -> None:
    """What is needed and what there is, in units people use."""
    waits = Explanation(
        id="ada/train", state=JobState.PENDING, code="BUSY", message="wait", needed={"cpu": 4000}, free={"cpu": 1500}
    )
    assert plain(render.explanation_text(waits)) == ["ada/train  PENDING  BUSY", "wait", "needed: 4 cpu", "there is: 1.5 cpu"]


def test_a_list_of_hosts_names_three_tasks_and_counts_the_others() -> None:
    """A host with a thousand tasks still has one line."""
    view = HostView(host=a_host(offers=some(cpu=8)), free=some(cpu=3).amounts(), running=tuple(f"ada/x:{i}" for i in range(5)))
    (_, line) = plain(render.hosts_table([view]))
    assert line == "h1  READY  slice-of-h1  8 cpu   3 cpu  ada/x:0, ada/x:1, ada/x:2 and 2 more"


@pytest.mark.parametrize(("shown", "words"), [(render.jobs_table([], at(0)), "no jobs"), (render.hosts_table([]), "no hosts")])
def test_an_empty_list_says_so(shown: str, words: str) -> None:
    """A bare header would look like an error."""
    assert shown == words
