"""Implements `iris submit --batch`: submits the jobs of many lines with one connection."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from iris.cli.interrupts import answers_of, nothing_yet
from iris.cli.show.messages import print_json
from iris.cli.submit.batch_lines import BatchJob, decoded, jobs_of, line_ranges
from iris.cli.submit.workspace import warn_of_secrets, with_files
from iris.client.build.warnings import infeasible, job_warnings
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.jobs.dependencies import bound_to
from iris.client.jobs.submit import BatchResult
from iris.model.errors import IrisError, Rejected
from iris.model.job.spec import JobSpec
from iris.scheduling.placement.refusals import Refusal

#: How many submissions wait for the service at a time.
CONCURRENT = 16
#: How long all checks that may print a warning take together.
WARNING_TIMEOUT = timedelta(seconds=2)
#: Fields of a job that do not change which hosts can run it.
_EVERYWHERE_ALIKE = {"name", "command", "env", "secrets", "bundle", "workdir", "environment"}


async def submit_batch(
    cluster: ClusterRef, content: bytes, given: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Submits the jobs of a batch in the order of their lines. Checks all lines before the first is
    submitted.

    Args:
        given: the options that apply to every line.
        options: the other options: `batch_key`, `dry_run`, `require_feasible`, `quiet`, `as_json`.

    Raises:
        click.UsageError: lines are wrong. Nothing was submitted.
        Rejected: no host can ever run a job, with `require_feasible` or `dry_run`, and nothing was
            submitted; or a live job has a line's name.
        IrisError: a job could not be submitted. Standard error has the lines that were.
    """
    client = await AsyncIrisClient.connect(cluster)
    shares_files = client.record.supervisor is not None
    within = await client.enclosing_job()
    jobs = jobs_of(
        decoded(content),
        given,
        batch_key=options["batch_key"],
        shares_files=shares_files,
        within=within,
    )
    if options["require_feasible"] or options["dry_run"]:
        await _check_feasible(client, jobs)
    for warning in dict.fromkeys(warning for job in jobs for warning in job_warnings(job.spec)):
        click.echo(f"warning: {warning}", err=True)
    await warn_of_secrets(client, [job.spec for job in jobs])
    if options["dry_run"]:
        click.echo(f"{_jobs(len(jobs))} can be submitted; nothing was submitted")
        return
    quiet = options["quiet"] or options["as_json"]
    with nothing_yet("submitted"):
        specs = await with_files(
            client.record, [(job.spec, job.options) for job in jobs], quiet=quiet
        )
    await _submit_all(client, jobs, specs, options)
    if not options["as_json"]:
        with contextlib.suppress(
            TimeoutError, IrisError
        ):  # the jobs are submitted, even if no control plane answers
            await asyncio.wait_for(_warn(client, jobs), WARNING_TIMEOUT.total_seconds())


async def _submit_all(
    client: AsyncIrisClient,
    jobs: Sequence[BatchJob],
    specs: Sequence[JobSpec],
    options: Mapping[str, Any],
) -> None:
    """Starts the jobs, some at a time, and prints their ids in the order of the lines. After a
    failure, no more are started.

    A job that depends on one of an earlier line is started after that one. Ctrl-C starts no more,
    and waits for the answers about those that were sent.
    """
    starts = _Starts(client, jobs, specs)
    results: list[tuple[BatchJob, BatchResult]] = []
    try:
        async for job, result in starts.in_order():
            results.append((job, result))
            _report(result, options)
    except asyncio.CancelledError:
        try:
            await starts.stop()
        finally:
            for job, result in starts.answered()[len(results) :]:
                results.append((job, result))
                _report(result, options)
            _report_as_json(results, options)
            _report_part(
                [job.line for job, _ in results], len(jobs), "" if starts.done else "at least "
            )
        raise
    _report_as_json(results, options)
    if starts.failed:
        line = min(starts.failed)
        _report_part([job.line for job, _ in results], len(jobs))
        click.echo(f"line {line} was not submitted:", err=True)
        raise starts.failed[line]
    before = sum(result.before for _, result in results)
    if before:
        text = (
            f"{before} of {_jobs(len(jobs))} had been submitted before; to submit them again, give"
            " a new --batch-key"
        )
        click.echo(text, err=True)


class _Starts:
    """The starts of a batch's jobs, in the background."""

    def __init__(
        self, client: AsyncIrisClient, jobs: Sequence[BatchJob], specs: Sequence[JobSpec]
    ) -> None:
        self._client, self._jobs = client, jobs
        self._places = {spec.id: place for place, spec in enumerate(specs)}
        self._free = asyncio.Semaphore(CONCURRENT)
        self._stopped = False
        #: The errors, by the lines of their jobs.
        self.failed: dict[int, Exception] = {}
        pairs = zip(jobs, specs, strict=True)
        self._tasks = [
            asyncio.create_task(self._start(place, *each)) for place, each in enumerate(pairs)
        ]

    @property
    def done(self) -> bool:
        """Whether no answer is missing."""
        return all(task.done() for task in self._tasks)

    async def in_order(self) -> AsyncIterator[tuple[BatchJob, BatchResult]]:
        """Yields the jobs that were started, in the order of their lines."""
        for job, task in zip(self._jobs, self._tasks, strict=True):
            if (result := await asyncio.shield(task)) is not None:
                yield job, result

    def answered(self) -> list[tuple[BatchJob, BatchResult]]:
        """Returns the jobs of which it is known by now that they were started."""
        known = [
            (job, task.result())
            for job, task in zip(self._jobs, self._tasks, strict=True)
            if task.done() and not task.cancelled()
        ]
        return [(job, result) for job, result in known if result is not None]

    async def stop(self) -> None:
        """Starts no more jobs, and waits for the answers about those that were sent."""
        self._stopped = True
        await answers_of(self._tasks)

    async def _start(self, place: int, job: BatchJob, spec: JobSpec) -> BatchResult | None:
        runs = {}
        for other in {each.job for each in spec.after if each.number is None}:
            at = self._places.get(other, place)
            if at < place and (earlier := await self._tasks[at]) is not None:
                runs[other] = earlier.job.run_id
        async with self._free:
            if self.failed or self._stopped:
                return None
            try:
                return await self._client.jobs.submit_once(bound_to(spec, runs), job.key)
            except (
                Exception
            ) as error:  # raised later, after the lines that were submitted are known
                self.failed[job.line] = error
                return None


def _report_as_json(
    results: Sequence[tuple[BatchJob, BatchResult]], options: Mapping[str, Any]
) -> None:
    if options["as_json"]:
        print_json(
            [
                {"line": job.line, **result.job.model_dump(), "before": result.before}
                for job, result in results
            ]
        )


def _report(result: BatchResult, options: Mapping[str, Any]) -> None:
    if options["quiet"]:
        click.echo(result.job.id)
    elif not options["as_json"]:
        click.echo(f"submitted {result.job.id}{' before' * result.before}", err=True)


def _report_part(lines: Sequence[int], total: int, at_least: str = "") -> None:
    """Prints which lines of an interrupted batch were submitted."""
    which = f": {line_ranges(lines)}" if lines else ""
    click.echo(f"{at_least}{len(lines)} of {_jobs(total)} were submitted{which}", err=True)
    click.echo("the same command again submits only the others", err=True)


async def _check_feasible(client: AsyncIrisClient, jobs: Sequence[BatchJob]) -> None:
    if never := await _refusals(client, jobs):
        raise Rejected(
            "\n".join(
                f"{line_ranges(lines)}: {infeasible(why)}; nothing was submitted"
                for lines, why in never
            )
        )


async def _warn(client: AsyncIrisClient, jobs: Sequence[BatchJob]) -> None:
    for lines, refusal in await _refusals(client, jobs):
        click.echo(f"warning: {line_ranges(lines)}: {infeasible(refusal)}", err=True)


async def _refusals(
    client: AsyncIrisClient, jobs: Sequence[BatchJob]
) -> list[tuple[list[int], Refusal]]:
    """Returns the lines of jobs that no host can ever run. Asks once about jobs that differ only in
    their programs.
    """
    alike: dict[str, list[BatchJob]] = {}
    for job in jobs:
        alike.setdefault(job.spec.model_dump_json(exclude=_EVERYWHERE_ALIKE), []).append(job)
    found = []
    for group in alike.values():
        if (refusal := await client.jobs.why_infeasible(group[0].spec)) is not None:
            found.append(([job.line for job in group], refusal))
    return found


def _jobs(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"
