"""Implements `iris submit -f` and `--print-yaml`."""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from iris.cli.interrupts import created, nothing_yet
from iris.cli.show.explanation import forecast_json, forecast_text
from iris.cli.show.messages import print_json
from iris.cli.submit.options import make_spec
from iris.cli.submit.read_file import (
    JobDocument,
    Problem,
    job_options,
    key_problems,
    keys_given,
    name_of,
    overridden,
    read_jobs,
    read_whole,
    refused,
    without,
)
from iris.cli.submit.workspace import files_options, warn_of_secrets, with_files
from iris.client.build.warnings import infeasible, job_warnings
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.jobs.dependencies import among, bound_to
from iris.client.views import Submitted
from iris.model.errors import InvalidJob, IrisError, Rejected
from iris.model.job.demand_limits import check_demands
from iris.model.job.spec import JobSpec

if TYPE_CHECKING:
    from iris.client.jobs.parent import EnclosingJob


#: An option in a message.
_OPTION = re.compile(r"--([a-z][a-z-]*)")
#: The keys of a job file by the fields of a job that have other names.
_KEYS = {
    "device": ("tpu", "gpu", "device"),
    "retries": ("max_retries",),
    "coscheduling": ("gang_by", "slices"),
    "project": ("workspace",),
    "band": ("priority",),
    "requirements": ("pip",),
}


class CheckedJob(NamedTuple):
    """A job of a file, with its options for its files."""

    where: str
    spec: JobSpec
    options: dict[str, Any]


def jobs_asked_for(ctx: click.Context, file: BinaryIO | None) -> list[JobDocument]:
    """Returns the jobs of a file with the options of the command line, or the job of the command
    line alone.

    Raises:
        InvalidJob: the file is wrong. click.UsageError: the command line has a name, or is
        `--local`, and the file has several jobs.
    """
    given = keys_given(ctx)
    if file is None:
        return [JobDocument("the command line", given)]
    documents = read_jobs(read_whole(file), name_of(file), os.environ)
    for param, option in (("name", "--name"), ("needs_no_cluster", "--local")):
        if len(documents) > 1 and ctx.params.get(param):
            raise click.UsageError(
                f"{option} is for one job, and {name_of(file)} has {len(documents)}"
            )
    documents = [overridden(document, given) for document in documents]
    if error := refused([(document, key_problems(document)) for document in documents]):
        raise error
    return documents


async def submit_documents(
    cluster: ClusterRef,
    documents: Sequence[JobDocument],
    options: Mapping[str, Any],
    iris: str,
) -> None:
    """Submits the jobs of a file in their order, after a check of all of them. Follows none.

    Args:
        options: those of the command itself: `dry_run`, `require_feasible`, `quiet`, `as_json`.
        iris: as of `iris_command`.

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
        await warn_of_secrets(client, [job.spec for job in jobs])
        await _forecast(client, jobs, options)
        return
    for job in jobs:
        if (
            options["require_feasible"]
            and (refusal := await client.jobs.why_infeasible(job.spec)) is not None
        ):
            raise Rejected(f"{job.where}: {infeasible(refusal)}; nothing was submitted")
    for warning in dict.fromkeys(warning for job in jobs for warning in job_warnings(job.spec)):
        click.echo(f"warning: {warning}", err=True)
    await warn_of_secrets(client, [job.spec for job in jobs])
    quiet = options["quiet"] or options["as_json"]
    with nothing_yet("submitted"):
        specs = await with_files(
            client.record, [(job.spec, job.options) for job in jobs], quiet=quiet
        )
    submitted: list[Submitted] = []

    def announce(job: Submitted) -> None:
        submitted.append(job)
        if options["quiet"]:
            click.echo(job.id)
        elif not options["as_json"]:
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
    return [job._replace(spec=spec) for job, spec in zip(jobs, specs, strict=True)]


def _checked(
    document: JobDocument, *, shares_files: bool, within: "EnclosingJob | None"
) -> tuple[CheckedJob | None, list[Problem]]:
    """Returns the job of a document, or its problems.

    A key that is wrong is left out, so that those of the others are found, too.
    """
    problems = key_problems(document)
    usable, wrong = document, {each.key for each in problems}
    while True:
        if problems:
            usable = without(usable, wrong)
        try:
            options = job_options(usable)
            spec = make_spec(options, shares_files=shares_files, within=within)
            check_demands(spec)
            break
        except click.UsageError as error:
            if not problems:  # otherwise it may only miss a key that was left out
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
    return CheckedJob(document.where, spec, files_options(options, within)), problems


def _placed(document: JobDocument, text: str) -> Problem:
    """Returns a problem of a job with the key that its text names, as a field or as an option."""
    field = text.partition(":")[0].partition(" ")[0].partition(".")[0]
    options = [option.replace("-", "_") for option in _OPTION.findall(text)]
    for name in (field, field.removesuffix("s"), *_KEYS.get(field, ()), *options):
        if name in document.keys:
            shown = f"{name}{text.removeprefix(field)}" if text.startswith(f"{field}:") else text
            return Problem(shown, document.keys[name].line, name)
    return Problem(text)


async def _forecast(
    client: AsyncIrisClient, jobs: Sequence[CheckedJob], options: Mapping[str, Any]
) -> None:
    found = [await client.jobs.forecast(job.spec) for job in jobs]
    if options["as_json"]:
        print_json([forecast_json(each) for each in found])
    else:
        for job, each in zip(jobs, found, strict=True):
            click.echo(f"{job.where}: {job.spec.name}\n{forecast_text(job.spec, each)}\n")
    never = [(job, each.infeasible) for job, each in zip(jobs, found, strict=True)]
    if refusals := [f"{job.where}: {infeasible(each)}" for job, each in never if each]:
        raise Rejected("\n".join(refusals))
