"""The steps of a submission before its jobs start: checks, warnings, a dry run, and the files."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from iris.cli.show.explanation import forecast_json, forecast_text
from iris.cli.show.messages import print_json, show_warnings
from iris.cli.show.progress import transfer
from iris.client import build, secrets, workspace
from iris.client.build.draft import PlannedJob
from iris.client.build.files import JobFiles
from iris.client.build.warnings import infeasible, job_warnings
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.model.errors import IrisError, Rejected
from iris.model.job.bundles import Bundle
from iris.model.job.spec import JobSpec
from iris.model.units import format_bytes

if TYPE_CHECKING:
    from iris.storage.object_store import Store
    from iris.usage.budgets import BudgetUse
    from iris.usage.estimate import Estimate

#: How long a submission waits for the estimate of the job's cost and for the use of the budgets
#: that cover the job.
ESTIMATE_TIMEOUT = timedelta(seconds=2)


class Flags(NamedTuple):
    """The options of `iris submit` that do not describe a job."""

    dry_run: bool = False
    require_feasible: bool = False
    detach: bool = False
    #: True if only the ids of jobs are printed.
    quiet: bool = False
    as_json: bool = False

    @property
    def for_scripts(self) -> bool:
        """Whether the output is read by a program, so that progress is not shown."""
        return self.quiet or self.as_json


def print_warnings(specs: Iterable[JobSpec]) -> None:
    """Prints what may be wrong with valid jobs, each warning once."""
    show_warnings(each for spec in specs for each in job_warnings(spec))


async def check_secrets(client: AsyncIrisClient, specs: Sequence[JobSpec]) -> None:
    """Checks that the jobs can be given the secrets of their submitter, before anything is sent,
    and prints warnings.
    """
    asking = [spec for spec in specs if spec.secrets]
    if not asking:
        return
    show_warnings(
        [
            each
            for spec in asking
            for each in await secrets.sealing.check_secrets(client.record, spec)
        ]
    )


async def with_files(
    cluster: ClusterRecord, jobs: Sequence[PlannedJob], *, quiet: bool
) -> list[JobSpec]:
    """Uploads the files of the jobs, and returns the jobs with them. Reports on standard error,
    with a bar on a terminal.

    Raises:
        IrisError: packing or uploading failed, or a project cannot be installed from its files.
    """
    if not any(job.files.are_sent or job.table is not None for job in jobs):
        return [job.spec for job in jobs]

    async def packed_upload(store: "Store", files: JobFiles) -> Bundle:
        return await upload_workspace(store, files, quiet=quiet)

    return await build.send.send(cluster, jobs, packed_upload)


async def upload_workspace(store: "Store", files: JobFiles, *, quiet: bool) -> Bundle:
    """Packs the files of a job and uploads them to the store. The first line is printed before the
    files are read.

    Raises:
        IrisError: packing or uploading failed.
    """
    what = _described(files)

    def say(count: int) -> None:
        if not quiet:
            click.echo(what.format(f"{count:,} file{'s' * (count != 1)}"), err=True)

    with await asyncio.to_thread(workspace.pack.pack, files.directory, files.extra, say) as packed:
        with transfer("workspace", shown=not quiet) as progress:
            bundle = await workspace.upload.upload(store, packed, progress)
        if not quiet:
            result = progress.summary("uploaded") if progress.called else "unchanged, nothing sent"
            click.echo(f"workspace: {format_bytes(bundle.size)}, {result}", err=True)
        return bundle


def _described(files: JobFiles) -> str:
    """Returns what is sent and why, with `{}` for the number of files."""
    if files.directory is None:
        return "sends {}"
    if files.is_named:
        return f"sends {_escaped(files.directory)}: {{}}"
    return f"sends the project at {_escaped(files.directory)}: {{}}; --no-workspace sends none"


def _escaped(directory: Path) -> str:
    return str(directory.resolve()).replace("{", "{{").replace("}", "}}")


async def show_forecasts(
    client: AsyncIrisClient, jobs: Mapping[str, JobSpec], *, as_json: bool
) -> None:
    """Prints which hosts fit each job, why others do not, and what it costs at most.

    Args:
        jobs: the jobs by the places that describe them. A single job is shown without its place.

    Raises:
        Rejected: no host can ever run one of the jobs.
    """
    found = {place: await client.jobs.forecast(spec) for place, spec in jobs.items()}
    costs = {place: await _estimate(client, spec) for place, spec in jobs.items()}
    several = len(jobs) > 1
    if as_json:
        shown = [forecast_json(each, costs[place]) for place, each in found.items()]
        print_json(shown if several else shown[0])
    else:
        for place, spec in jobs.items():
            text = forecast_text(spec, found[place], costs[place])
            click.echo(f"{place}: {spec.name}\n{text}\n" if several else text)
    users = dict.fromkeys(spec.user for spec in jobs.values())
    show_warnings([each for user in users for each in await budget_warnings(client, user)])
    refusals = [
        f"{place}: {infeasible(each.infeasible)}" if several else infeasible(each.infeasible)
        for place, each in found.items()
        if each.infeasible is not None
    ]
    if refusals:
        raise Rejected("\n".join(refusals))


async def estimate_in_time(client: AsyncIrisClient, spec: JobSpec) -> "Estimate | None":
    """Returns what the job costs at most. Returns None if that is not known, or not soon: a
    submission does not wait for it.
    """
    try:
        return await asyncio.wait_for(_estimate(client, spec), ESTIMATE_TIMEOUT.total_seconds())
    except TimeoutError:
        return None


async def _estimate(client: AsyncIrisClient, spec: JobSpec) -> "Estimate | None":
    with contextlib.suppress(IrisError):  # the control plane or the store does not answer
        return await client.jobs.estimate(spec)
    return None


async def budget_warnings(client: AsyncIrisClient, user: str) -> list[str]:
    """Returns a warning for each budget that the user has used up. Returns none if that is not
    known soon: a submission does not wait for it.
    """
    found: Sequence[BudgetUse] = ()
    with contextlib.suppress(TimeoutError, IrisError):
        found = await asyncio.wait_for(client.jobs.budgets(user), ESTIMATE_TIMEOUT.total_seconds())
    return [
        f"budget {use.budget} is used up: {use}"
        + ("; the job is held until then" if use.action == "hold" else "")
        for use in found
        if use.exceeded_at is not None
    ]
