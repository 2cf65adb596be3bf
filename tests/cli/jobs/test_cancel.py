"""Cancelling many jobs: what was shown is what is cancelled. The service is replaced: no test waits
for 10,000 jobs.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iris.cli.jobs.cancel import MAX_JOBS, cancel
from iris.client.jobs.client import CancelAnswer
from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.model.job.spec import DEFAULT_GRACE
from iris.model.states import JobState
from tests.cli.show.test_live import T0


class Service:
    """Its live jobs, newest first, and what was cancelled: the name and the run."""

    def __init__(self, rows: list[JobRow]) -> None:
        self._rows = rows
        self.cancelled: list[tuple[str, str | None]] = []

    async def list(self, wanted: JobFilter, *, limit: int) -> list[JobRow]:
        return [
            row
            for row in self._rows
            if row.id.startswith(wanted.prefix) and wanted.takes(tags=row.tags)
        ][:limit]

    async def run(self, job: str, number: int | None) -> None:
        """The latest run has no number."""

    async def log_source(self, job: str, run_id: str) -> SimpleNamespace:
        return SimpleNamespace(run_id=f"first of {run_id}")

    async def cancel(self, job: str, reason: str, run_id: str | None) -> CancelAnswer:
        self.cancelled.append((job, run_id))
        return CancelAnswer(None, DEFAULT_GRACE)

    @property
    def child_jobs(self) -> SimpleNamespace:
        return SimpleNamespace(live_below=lambda job: asyncio.sleep(0, 0))


def run(service: Service, monkeypatch: pytest.MonkeyPatch, *args: str) -> Result:
    def with_client(ctx: Any, work: Any) -> Any:
        return asyncio.run(work(SimpleNamespace(jobs=service)))

    monkeypatch.setattr("iris.cli.jobs.cancel.with_client", with_client)
    monkeypatch.setattr("iris.cli.run.with_client", with_client)
    return CliRunner().invoke(cancel, args)


def row(job: str, run_id: str, **tags: str) -> JobRow:
    return JobRow(
        id=job,
        state=JobState.RUNNING,
        user="ada",
        submitted_at=T0,
        command="x",
        run_id=run_id,
        tags=tags,
    )


def test_many_jobs_are_cancelled_by_the_runs_that_were_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the user reads the question, a job may end and another one take its name. Nobody has
    agreed to end that one.
    """
    service = Service([row("ada/sweep-2", "r2"), row("ada/sweep-1", "r1"), row("ada/other", "r0")])
    result = run(service, monkeypatch, "--prefix", "ada/sweep", "--yes")

    assert (
        result.output
        == "cancelling ada/sweep-2 (grace period 30s)\ncancelling ada/sweep-1 (grace period 30s)\n"
    )
    assert service.cancelled == [("ada/sweep-2", "first of r2"), ("ada/sweep-1", "first of r1")]


def test_a_tag_selects_among_the_users_own_jobs_or_those_of_a_prefix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tag of somebody else's sweep is the same text."""
    monkeypatch.setenv("IRIS_USER", "ada")
    rows = [
        row("ada/b", "r3", sweep="lr"),
        row("ada/a", "r2", sweep="wd"),
        row("bob/a", "r1", sweep="lr"),
    ]
    service = Service(rows)

    assert (
        run(service, monkeypatch, "--tag", "sweep=lr", "--yes").output
        == "cancelling ada/b (grace period 30s)\n"
    )
    assert (
        run(service, monkeypatch, "--tag", "sweep", "--prefix", "bob/a", "--yes").output
        == "cancelling bob/a (grace period 30s)\n"
    )
    nothing = run(service, monkeypatch, "--tag", "sweep", "--tag", "other=1", "--yes")
    assert nothing.output == "no live job's id begins with ada/ and has the tags sweep, other=1\n"
    assert service.cancelled == [("ada/b", "first of r3"), ("bob/a", "first of r1")]


@pytest.mark.parametrize("beyond", [0, 1])
def test_more_jobs_than_one_command_cancels_are_announced(
    beyond: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others seemed to be cancelled too. Jobs with other names do not count."""
    rows = [row(f"ada/other-{number}", "r") for number in range(5)]
    rows += [row(f"ada/sweep-{number}", "r") for number in range(MAX_JOBS + beyond)]
    result = run(Service(rows), monkeypatch, "--prefix", "ada/sweep", "--dry-run")

    assert result.output.count("ada/sweep-") == MAX_JOBS
    assert (
        "the newest of more than 10,000 jobs; run the command again for the others" in result.output
    ) is bool(beyond)
