"""Implements `iris submit -f` and `--print-yaml`."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from iris.cli import render
from iris.cli.common import print_json, raise_first
from iris.cli.given_file import name_of, read_whole
from iris.cli.job_file import JobDocument, job_options, keys_given, overridden, read_jobs
from iris.cli.spec import make_spec
from iris.cli.workspace import files_options, with_files
from iris.client.advice import infeasible, job_warnings
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.dependencies import among, bound_to
from iris.client.views import Submitted
from iris.model.bounds import check_demands
from iris.model.errors import InvalidJob, IrisError, Rejected
from iris.model.jobs import JobSpec

if TYPE_CHECKING:
    from iris.client.parent import EnclosingJob


class CheckedJob(NamedTuple):
    """A job of a file, with its options for its files."""

    where: str
    spec: JobSpec
    options: dict[str, Any]


def jobs_asked_for(ctx: click.Context, file: BinaryIO | None) -> list[JobDocument]:
    """Returns the jobs of a file with the options of the command line, or the job of the command line alone.

    Raises:
        InvalidJob: the file is wrong.
        click.UsageError: the command line has a name, or is `--local`, and the file has several jobs.
    """
    given = keys_given(ctx)
    if file is None:
        return [JobDocument("the command line", given)]
    documents = read_jobs(read_whole(file), name_of(file), os.environ)
    for param, option in (("name", "--name"), ("needs_no_cluster", "--local")):
        if len(documents) > 1 and ctx.params.get(param):
            raise click.UsageError(f"{option} is for one job, and {name_of(file)} has {len(documents)}")
    return [overridden(document, given) for document in documents]


async def submit_documents(cluster: ClusterRef, documents: Sequence[JobDocument], options: Mapping[str, Any]) -> None:
    """Submits the jobs of a file in their order, after a check of all of them. Follows none.

    Args:
        options: those of the command itself: `dry_run`, `require_feasible`, `quiet`, `as_json`.

    Raises:
        InvalidJob: a job is wrong; nothing was submitted.
        Rejected: no host can ever run a job, with `require_feasible` or `dry_run`, and nothing was
            submitted; or a live job has a job's name.
        IrisError: a job could not be submitted. Standard error has those that were.
    """
    client = await AsyncIrisClient.connect(cluster)
    within = await client.enclosing_job()
    jobs = checked_jobs(documents, shares_files=client.record.supervisor is not None, within=within)
    if options["dry_run"]:
        await _forecast(client, jobs, options)
        return
    for job in jobs:
        if options["require_feasible"] and (refusal := await client.jobs.why_infeasible(job.spec)) is not None:
            raise Rejected(f"{job.where}: {infeasible(refusal)}; nothing was submitted")
    for warning in dict.fromkeys(warning for job in jobs for warning in job_warnings(job.spec)):
        click.echo(f"warning: {warning}", err=True)
    quiet = options["quiet"] or options["as_json"]
    specs = await with_files(client.record, [(job.spec, job.options) for job in jobs], quiet=quiet)
    submitted: list[Submitted] = []
    try:
        for spec in specs:
            submitted.append(await client.jobs.submit(bound_to(spec, {each.id: each.run_id for each in submitted})))
            if options["quiet"]:
                click.echo(submitted[-1].id)
            elif not options["as_json"]:
                click.echo(f"submitted {submitted[-1].id}", err=True)
    except IrisError:
        click.echo(f"{len(submitted)} of {len(specs)} jobs were submitted; {jobs[len(submitted)].where} was not:", err=True)
        raise
    finally:
        if options["as_json"]:
            print_json([each.model_dump() for each in submitted])


def checked_jobs(
    documents: Sequence[JobDocument], *, shares_files: bool, within: "EnclosingJob | None" = None
) -> list[CheckedJob]:
    """Returns the jobs of a file, without their files.

    Args:
        shares_files, within: as for `make_spec`.

    Raises:
        InvalidJob: jobs are wrong; the message has every problem.
    """
    jobs: list[CheckedJob] = []
    problems = []
    names: dict[str, str] = {}
    for document in documents:
        try:
            options = job_options(document)
            spec = make_spec(options, shares_files=shares_files, within=within)
            check_demands(spec)
        except click.UsageError as error:
            problems.append(f"{document.where}: {error.format_message()}")
            continue
        except IrisError as error:
            problems.append(str(error) if str(error).startswith(document.where) else f"{document.where}: {error}")
            continue
        if spec.name in names:
            problems.append(f"{document.where}: {spec.name!r} is the name of {names[spec.name]}; give each job its own")
        names[spec.name] = document.where
        jobs.append(CheckedJob(document.where, spec, files_options(options, within)))
    specs, late = among([(job.where, job.spec) for job in jobs])
    if problems or late:
        raise InvalidJob("\n".join(["the jobs are not valid:", *problems, *late]))
    return [job._replace(spec=spec) for job, spec in zip(jobs, specs, strict=True)]


async def _forecast(client: AsyncIrisClient, jobs: Sequence[CheckedJob], options: Mapping[str, Any]) -> None:
    found = [await client.jobs.forecast(job.spec) for job in jobs]
    if options["as_json"]:
        print_json([render.forecast_json(each) for each in found])
    else:
        for job, each in zip(jobs, found, strict=True):
            click.echo(f"{job.where}: {job.spec.name}\n{render.forecast_text(job.spec, each)}\n")
    never = [(job, each.infeasible) for job, each in zip(jobs, found, strict=True)]
    raise_first([Rejected(f"{job.where}: {infeasible(each)}") for job, each in never if each])
