"""The steps of a submission before its jobs start: checks, warnings, and a dry run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import click

from iris.cli.show.explanation import forecast_json, forecast_text
from iris.cli.show.messages import print_json, show_warnings
from iris.client.build.draft import PlannedJob
from iris.client.build.warnings import infeasible, job_warnings
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.model.errors import Rejected
from iris.model.job.spec import JobSpec


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
    from iris.client.secrets import sealing  # most jobs have no secrets

    show_warnings(
        [each for spec in asking for each in await sealing.check_secrets(client.record, spec)]
    )


async def with_files(
    cluster: ClusterRecord, jobs: Sequence[PlannedJob], *, quiet: bool
) -> list[JobSpec]:
    """Uploads the files of the jobs, and returns the jobs with them.

    Raises:
        IrisError: packing or uploading failed, or a project cannot be installed from its files.
    """
    if not any(job.files.are_sent or job.table is not None for job in jobs):
        return [job.spec for job in jobs]
    from iris.cli.submit.workspace import send_files  # many jobs send nothing

    return await send_files(cluster, jobs, quiet=quiet)


async def show_forecasts(
    client: AsyncIrisClient, jobs: Mapping[str, JobSpec], *, as_json: bool
) -> None:
    """Prints which hosts fit each job, and why others do not.

    Args:
        jobs: the jobs by the places that describe them. A single job is shown without its place.

    Raises:
        Rejected: no host can ever run one of the jobs.
    """
    found = {place: await client.jobs.forecast(spec) for place, spec in jobs.items()}
    several = len(jobs) > 1
    if as_json:
        shown = [forecast_json(each) for each in found.values()]
        print_json(shown if several else shown[0])
    else:
        for place, spec in jobs.items():
            text = forecast_text(spec, found[place])
            click.echo(f"{place}: {spec.name}\n{text}\n" if several else text)
    refusals = [
        f"{place}: {infeasible(each.infeasible)}" if several else infeasible(each.infeasible)
        for place, each in found.items()
        if each.infeasible is not None
    ]
    if refusals:
        raise Rejected("\n".join(refusals))
