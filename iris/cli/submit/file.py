"""Implements `iris submit -f` and `--print-yaml`."""

import asyncio
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from iris.cli.interrupts import created, nothing_yet
from iris.cli.show.messages import print_json
from iris.cli.submit.input_file import name_of, read_whole
from iris.cli.submit.job_from_options import plan_job
from iris.cli.submit.prepare import Flags, check_secrets, print_warnings, show_forecasts, with_files
from iris.cli.submit.read_file import (
    JobDocument,
    Problem,
    job_options,
    key_problems,
    keys_given,
    overridden,
    read_jobs,
    refused,
    without,
)
from iris.cli.submit.write_file import dump_jobs
from iris.client.build.draft import PlannedJob
from iris.client.build.warnings import infeasible
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.jobs.submit.dependencies import among, bound_to
from iris.client.jobs.submit.start import Submitted
from iris.model.errors import InvalidJob, IrisError, Rejected
from iris.model.job.spec import JobSpec

if TYPE_CHECKING:
    from iris.client.build.parent import EnclosingJob

#: The pattern of an option's name in an error message.
_OPTION = re.compile(r"--([a-z][a-z-]*)")
#: The keys of a job file for each field of a job, if their names differ from the field's name.
_KEYS = {
    "device": ("tpu", "gpu", "device"),
    "retries": ("max_retries",),
    "coscheduling": ("gang_by", "slices"),
    "project": ("workspace",),
    "band": ("priority",),
    "requirements": ("pip",),
}


class FileJob(NamedTuple):
    """The job that one document of a job file describes."""

    #: The path of the file, and the number of the document if the file has several.
    where: str
    planned: PlannedJob

    @property
    def spec(self) -> JobSpec:
        return self.planned.spec


def jobs_asked_for(ctx: click.Context, file: BinaryIO | None) -> list[JobDocument]:
    """Returns the jobs of a file with the options of the command line, or the job of the command
    line alone.

    Raises:
        InvalidJob: the file is wrong.
        click.UsageError: the command line has `--name` or `--local`, and the file has several jobs.
    """
    given = keys_given(ctx)
    if file is None:
        return [JobDocument("the command line", given)]
    documents = read_jobs(read_whole(file), name_of(file), os.environ)
    for param, option in (("name", "--name"), ("needs_no_cluster", "--local")):
        if len(documents) > 1 and ctx.params.get(param):
            raise click.UsageError(
                f"{option} is for one job, and {name_of(file)} has {len(documents)} jobs"
            )
    documents = [overridden(document, given) for document in documents]
    if error := refused([(document, key_problems(document)) for document in documents]):
        raise error
    return documents


def print_documents(documents: Sequence[JobDocument]) -> None:
    """Prints the job file of valid documents.

    Raises:
        InvalidJob: a document has a wrong option.
    """
    for document in documents:
        job_options(document)
    click.echo(dump_jobs(documents), nl=False)


async def submit_documents(
    cluster: ClusterRef, documents: Sequence[JobDocument], flags: Flags, iris: str
) -> None:
    """Submits the jobs of a file in their order, after a check of all of them. Follows no job.

    Args:
        iris: the first words of commands for the cluster, as `iris_command` returns them.

    Raises:
        InvalidJob: a job is wrong; nothing was submitted.
        Rejected: no host can ever run a job, with `require_feasible` or `dry_run`, and nothing was
            submitted; or a job that has not ended has the name of one.
        IrisError: a job could not be submitted. Standard error has the jobs that were submitted.
    """
    client = await AsyncIrisClient.connect(cluster)
    within = await client.enclosing_job()
    jobs = checked_jobs(documents, shares_files=client.record.supervisor is not None, within=within)
    specs = [job.spec for job in jobs]
    if flags.dry_run:
        await check_secrets(client, specs)
        forecasts = {job.where: job.spec for job in jobs}
        await show_forecasts(client, forecasts, as_json=flags.as_json)
        return
    if flags.require_feasible:
        await _check_feasible(client, jobs)
    print_warnings(specs)
    await check_secrets(client, specs)
    with nothing_yet("submitted"):
        specs = await with_files(
            client.record, [job.planned for job in jobs], quiet=flags.for_scripts
        )
    await _submit_all(client, jobs, specs, flags, iris)


async def _check_feasible(client: AsyncIrisClient, jobs: Sequence[FileJob]) -> None:
    for job in jobs:
        if (refusal := await client.jobs.why_infeasible(job.spec)) is not None:
            raise Rejected(f"{job.where}: {infeasible(refusal)}; nothing was submitted")


async def _submit_all(
    client: AsyncIrisClient,
    jobs: Sequence[FileJob],
    specs: Sequence[JobSpec],
    flags: Flags,
    iris: str,
) -> None:
    """Starts the jobs one after the other. After a failure, no more jobs are started."""
    submitted: list[Submitted] = []

    def announce(job: Submitted) -> None:
        submitted.append(job)
        if flags.quiet:
            click.echo(job.id)
        elif not flags.as_json:
            click.echo(f"submitted {job.id}", err=True)

    requests: list[asyncio.Task[Submitted]] = []
    try:
        for spec in specs:
            bound = bound_to(spec, {each.id: each.run_id for each in submitted})
            request = asyncio.create_task(client.jobs.submit(bound))
            requests.append(request)
            look = f"{iris} status {spec.id}"
            async with created(request, announce=announce, what=f"job {spec.id}", look=look):
                pass
    except IrisError:
        missing = f"{jobs[len(submitted)].where} was not:"
        click.echo(f"{len(submitted)} of {len(specs)} jobs were submitted; {missing}", err=True)
        raise
    except asyncio.CancelledError:
        unknown = any(not each.done() or each.cancelled() for each in requests)
        click.echo(
            f"{'at least ' * unknown}{len(submitted)} of {len(specs)} jobs were submitted", err=True
        )
        raise
    finally:
        if flags.as_json:
            print_json([each.model_dump() for each in submitted])


def checked_jobs(
    documents: Sequence[JobDocument], *, shares_files: bool, within: "EnclosingJob | None" = None
) -> list[FileJob]:
    """Returns the jobs of a file. Nothing is uploaded.

    Args:
        shares_files, within: as for `plan`.

    Raises:
        InvalidJob: jobs are wrong; the message has every problem.
    """
    jobs: list[FileJob] = []
    problems: dict[str, list[Problem]] = {}
    names: dict[str, str] = {}
    for document in documents:
        job, found = _checked(document, shares_files=shares_files, within=within)
        problems[document.where] = found
        if name := document.keys.get("name"):
            text = name.values[-1]
            if text in names:
                problem = f"{text!r} is the name of {names[text]}; give each job its own"
                found.append(Problem(problem, name.line, "name"))
            names.setdefault(text, document.where)
        if job is not None:
            jobs.append(job)
    specs, late = among([(job.where, job.spec) for job in jobs])
    for document in documents:
        found = problems[document.where]
        begin = f"{document.where}: "
        found += [
            _placed(document, each.removeprefix(begin)) for each in late if each.startswith(begin)
        ]
    if error := refused([(each, problems[each.where]) for each in documents]):
        raise error
    return [
        job._replace(planned=job.planned.with_spec(spec))
        for job, spec in zip(jobs, specs, strict=True)
    ]


def _checked(
    document: JobDocument, *, shares_files: bool, within: "EnclosingJob | None"
) -> tuple[FileJob | None, list[Problem]]:
    """Returns the job of a document, or its problems.

    Leaves out each wrong key and checks the others again, so that all problems are found.
    """
    problems = key_problems(document)
    usable, wrong = document, {each.key for each in problems}
    while True:
        if problems:
            usable = without(usable, wrong)
        try:
            planned = plan_job(job_options(usable), shares_files=shares_files, within=within)
            break
        except click.UsageError as error:
            if not problems:  # otherwise it may only lack a key that was left out
                problems.append(_placed(document, error.format_message()))
            break
        except IrisError as error:
            texts = (
                error.problems if isinstance(error, InvalidJob) and error.problems else [str(error)]
            )
            new = [_placed(document, text) for text in texts]
            problems += new
            wrong = {each.key for each in new} & {*usable.keys}
            if not wrong:
                break
    if problems:
        return None, problems
    return FileJob(document.where, planned), problems


def _placed(document: JobDocument, text: str) -> Problem:
    """Returns a problem of a job with the key that its text names, as a field or an option."""
    field = text.partition(":")[0].partition(" ")[0].partition(".")[0]
    options = [option.replace("-", "_") for option in _OPTION.findall(text)]
    for name in (field, field.removesuffix("s"), *_KEYS.get(field, ()), *options):
        if name in document.keys:
            shown = f"{name}{text.removeprefix(field)}" if text.startswith(f"{field}:") else text
            return Problem(shown, document.keys[name].line, name)
    return Problem(text)
