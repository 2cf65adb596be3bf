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
from iris.cli.submit.prepare import Flags, check_secrets, print_warnings, with_files
from iris.client.build.warnings import infeasible
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.jobs.submit.dependencies import bound_to
from iris.client.jobs.submit.start import BatchResult
from iris.model.errors import IrisError, Rejected
from iris.model.job.spec import JobSpec
from iris.scheduling.placement.refusals import Refusal

#: The maximum number of jobs that are submitted at the same time.
CONCURRENT = 16
#: The time limit for all checks that may print a warning after the submission.
WARNING_TIMEOUT = timedelta(seconds=2)
#: The fields of a job that do not change which hosts can run it.
_WITHOUT_EFFECT_ON_HOSTS = {"name", "command", "env", "secrets", "bundle", "workdir", "environment"}


async def submit_batch(
    cluster: ClusterRef, content: bytes, given: Mapping[str, Any], batch_key: str, flags: Flags
) -> None:
    """Submits the jobs of a batch in the order of their lines. Checks all lines before the first is
    submitted.

    Args:
        given: the options that apply to every line.
        batch_key: as for `jobs_of`.

    Raises:
        click.UsageError: lines are wrong. Nothing was submitted.
        Rejected: no host can ever run a job, with `require_feasible` or `dry_run`, and nothing was
            submitted; or a job that has not ended has the name of a line.
        IrisError: a job could not be submitted. Standard error has the lines that were submitted.
    """
    client = await AsyncIrisClient.connect(cluster)
    shares_files = client.record.supervisor is not None
    within = await client.enclosing_job()
    text = decoded(content)
    jobs = jobs_of(text, given, batch_key=batch_key, shares_files=shares_files, within=within)
    specs = [job.spec for job in jobs]
    if flags.require_feasible or flags.dry_run:
        await _check_feasible(client, jobs)
    print_warnings(specs)
    await check_secrets(client, specs)
    if flags.dry_run:
        click.echo(f"{_jobs(len(jobs))} can be submitted; nothing was submitted")
        return
    with nothing_yet("submitted"):
        specs = await with_files(
            client.record, [job.planned for job in jobs], quiet=flags.for_scripts
        )
    await _submit_all(client, jobs, specs, flags)
    if not flags.as_json:
        # The jobs are submitted, even if no control plane answers.
        with contextlib.suppress(TimeoutError, IrisError):
            await asyncio.wait_for(_warn(client, jobs), WARNING_TIMEOUT.total_seconds())


async def _submit_all(
    client: AsyncIrisClient,
    jobs: Sequence[BatchJob],
    specs: Sequence[JobSpec],
    flags: Flags,
) -> None:
    """Starts the jobs, some at the same time, and prints their ids in the order of the lines. After
    a failure, no more jobs are started.

    A job that depends on a job of an earlier line is started after that job. Ctrl-C starts no more
    jobs, and waits for the answers about the jobs that were sent.
    """
    starts = _Starts(client, jobs, specs)
    results: list[tuple[BatchJob, BatchResult]] = []
    try:
        async for job, result in starts.in_order():
            results.append((job, result))
            _report(result, flags)
    except asyncio.CancelledError:
        try:
            await starts.stop()
        finally:
            for job, result in starts.answered()[len(results) :]:
                results.append((job, result))
                _report(result, flags)
            _report_as_json(results, flags)
            _report_part(
                [job.line for job, _ in results], len(jobs), "" if starts.done else "at least "
            )
        raise
    _report_as_json(results, flags)
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
    """Starts the jobs of a batch in the background."""

    def __init__(
        self, client: AsyncIrisClient, jobs: Sequence[BatchJob], specs: Sequence[JobSpec]
    ) -> None:
        self._client, self._jobs = client, jobs
        self._places = {spec.id: place for place, spec in enumerate(specs)}
        self._free = asyncio.Semaphore(CONCURRENT)
        self._stopped = False
        #: The errors of the jobs that could not be started, by the number of the job's line.
        self.failed: dict[int, Exception] = {}
        pairs = zip(jobs, specs, strict=True)
        self._tasks = [
            asyncio.create_task(self._start(place, *each)) for place, each in enumerate(pairs)
        ]

    @property
    def done(self) -> bool:
        """Whether all answers have arrived."""
        return all(task.done() for task in self._tasks)

    async def in_order(self) -> AsyncIterator[tuple[BatchJob, BatchResult]]:
        """Yields the jobs that were started, in the order of their lines."""
        for job, task in zip(self._jobs, self._tasks, strict=True):
            if (result := await asyncio.shield(task)) is not None:
                yield job, result

    def answered(self) -> list[tuple[BatchJob, BatchResult]]:
        """Returns the jobs that were started according to the answers so far."""
        known = [
            (job, task.result())
            for job, task in zip(self._jobs, self._tasks, strict=True)
            if task.done() and not task.cancelled()
        ]
        return [(job, result) for job, result in known if result is not None]

    async def stop(self) -> None:
        """Starts no more jobs, and waits for the answers about the jobs that were sent."""
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
            except Exception as error:  # raised later, when it is known which lines were submitted
                self.failed[job.line] = error
                return None


def _report_as_json(results: Sequence[tuple[BatchJob, BatchResult]], flags: Flags) -> None:
    if flags.as_json:
        print_json(
            [
                {"line": job.line, **result.job.model_dump(), "before": result.before}
                for job, result in results
            ]
        )


def _report(result: BatchResult, flags: Flags) -> None:
    if flags.quiet:
        click.echo(result.job.id)
    elif not flags.as_json:
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
    """Returns the lines of jobs that no host can ever run, and the reasons. Asks once about jobs
    that differ only in fields without effect on hosts.
    """
    alike: dict[str, list[BatchJob]] = {}
    for job in jobs:
        alike.setdefault(job.spec.model_dump_json(exclude=_WITHOUT_EFFECT_ON_HOSTS), []).append(job)
    found = []
    for group in alike.values():
        if (refusal := await client.jobs.why_infeasible(group[0].spec)) is not None:
            found.append(([job.line for job in group], refusal))
    return found


def _jobs(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"
