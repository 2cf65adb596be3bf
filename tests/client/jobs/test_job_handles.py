"""Handles of jobs, before anything is asked: a client whose service cannot be reached makes
them.
"""

from pathlib import Path

import pytest
from temporalio.client import Client

from iris.client.build.options import job_spec
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.jobs.handle import AsyncJob
from iris.client.schedules.when import When
from iris.model.errors import InvalidValue
from iris.model.job.dependencies import Dependency
from iris.model.job.status import JobStatus
from iris.model.states import JobState
from tests.builders import NOON


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIrisClient:
    monkeypatch.setenv("IRIS_USER", "ada")
    record = ClusterRecord(
        name="lab", address="127.0.0.1:1", store=tmp_path.as_uri(), ui="http://ui"
    )
    return AsyncIrisClient(await Client.connect("127.0.0.1:1", lazy=True), record)


class KnownJob(AsyncJob[None]):
    """A job that was asked for its status before."""

    def sees(self, state: JobState, reason: str = "") -> None:
        self._seen = JobStatus(
            id=self.id, state=state, reason=reason, user="ada", submitted_at=NOON, tasks=()
        )


async def test_a_handle_shows_its_cluster_and_page_and_asks_nothing(
    client: AsyncIrisClient,
) -> None:
    """A notebook and a debugger call `repr` at any time, also while the service is away."""
    page = "http://ui/namespaces/default/workflows/lab%2Fjob%2Fada%2Ftrain"

    assert repr(client.job("train")) == f"<Job ada/train of cluster lab, {page}>"
    assert repr(client.job("bob/train#2")) == "<Job bob/train#2 of cluster lab>"


async def test_a_handle_shows_the_state_that_was_seen_last(client: AsyncIrisClient) -> None:
    """It says so of a state that may have changed since."""
    job = KnownJob(client, "ada/train", None)
    job.sees(JobState.RUNNING)
    running = repr(job)
    job.sees(JobState.FAILED, "exited with code 7")

    assert running == "<Job ada/train of cluster lab, last seen RUNNING>"
    assert repr(job) == "<Job ada/train of cluster lab, FAILED: exited with code 7>"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "train:3",
            (
                r"job: 'train:3' is a task; write job\('train'\), and task=3 in the calls of its"
                r" methods"
            ),
        ),
        ("train#2:3", r"is a task; write job\('train'\)"),
        ("train#0", "does not name a run; write NAME#NUMBER"),
        ("train#last", "does not name a run"),
    ],
)
async def test_what_a_handle_cannot_be_is_refused_with_what_to_write(
    client: AsyncIrisClient, text: str, problem: str
) -> None:
    """The command line takes tasks in this form; a method has a parameter for them."""
    with pytest.raises(InvalidValue, match=problem):
        client.job(text)


async def test_a_job_that_waits_for_a_numbered_run_waits_for_that_one(
    client: AsyncIrisClient,
) -> None:
    """Before the first question the handle knows only the number; the latest run would be another
    one.
    """
    spec = job_spec("ada", ("true",), name="next", after=[client.job("train#2")])

    assert spec.after == (Dependency(job="ada/train", number=2),)


async def test_a_schedule_needs_a_name_and_a_known_overlap(client: AsyncIrisClient) -> None:
    """Both are refused before anything is sent."""
    with pytest.raises(
        InvalidValue, match="name: '' is missing: a schedule needs a name; write name='nightly'"
    ):
        await client.schedule("true", when=When(cron="0 2 * * *"))
    with pytest.raises(
        InvalidValue, match="overlap: 'wait' is not known; write skip, queue, cancel"
    ):
        await client.schedule("true", when=When(every="6h"), overlap="wait", name="nightly")


def test_the_times_of_a_schedule_are_written_as_in_a_shell() -> None:
    """One expression is a text, not its letters."""
    assert str(When(cron="0 2 * * *")) == str(When(cron=("0 2 * * *",))) == "0 2 * * * UTC"
    assert str(When(every="6h")) == str(When(every=6 * 3600)) == "every 6h"
    for given, problem in (
        ({}, "is missing, and so is"),
        ({"cron": ""}, "is missing, and so is"),
        ({"cron": "0 2 * * *", "every": "6h"}, "cannot be combined with"),
    ):
        with pytest.raises(InvalidValue, match=f'{problem} "every"; give exactly one of them'):
            When(**given)
