"""Implements `iris submit`."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from click.core import ParameterSource

from iris.cli.interrupts import created, nothing_yet, run
from iris.cli.parameters import TEXT, cluster_option, json_option
from iris.cli.run import iris_command, selected
from iris.cli.show.jobs import print_end
from iris.cli.show.messages import print_json, show_warnings
from iris.cli.submit.input_file import read_whole
from iris.cli.submit.job_from_options import plan_job
from iris.cli.submit.options import SPEC_OPTIONS, JobCommand, spec_options
from iris.cli.submit.prepare import (
    Flags,
    budget_warnings,
    check_secrets,
    estimate_in_time,
    print_warnings,
    show_forecasts,
    with_files,
)
from iris.client import operate
from iris.client.build.warnings import infeasible
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.model.errors import IrisError, Rejected
from iris.model.job.errors import JobCancelled, JobFailed
from iris.model.job.spec import JobSpec

if TYPE_CHECKING:
    from iris.client.build.draft import PlannedJob
    from iris.client.jobs.submit.start import Submitted
    from iris.usage.estimate import Estimate

#: How long the command waits, after the submission, to learn whether any host can run the job. If
#: it does not learn this in time, it prints no warning.
WARNING_TIMEOUT = timedelta(seconds=2)


@click.command(cls=JobCommand, context_settings={"ignore_unknown_options": False})
@spec_options
@click.option(
    "--local",
    "needs_no_cluster",
    is_flag=True,
    help="Run on this machine, in a temporary cluster that ends with the job.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help=(
        "Start nothing; show which hosts fit, and why others do not. Exits with 5 if none ever can."
    ),
)
@click.option(
    "--require-feasible", is_flag=True, help="Refuse a job that no host can ever run (exit code 5)."
)
@click.option("-d", "--detach", is_flag=True, help="Do not follow the job.")
@click.option(
    "-q", "--quiet", is_flag=True, help="Print only the job's id, and do not follow the job."
)
@click.option(
    "-f",
    "--job-file",
    type=click.File("rb"),
    metavar="FILE|-",
    help=(
        "Take the options and the command from a YAML file, a job in each document. Options given"
        " here override the file's."
    ),
)
@click.option(
    "--print-yaml", is_flag=True, help="Start nothing; print the job file of these options."
)
@click.option(
    "--batch",
    type=click.File("rb"),
    metavar="FILE|-",
    help=(
        "Submit a job for each line, which has the rest of its own `iris submit` command. Other"
        " options apply to every line."
    ),
)
@click.option(
    "--batch-key",
    default="",
    metavar="TEXT",
    help="Submit the lines of the batch again that were submitted with another key or without one.",
)
@json_option
@click.argument("command", nargs=-1, metavar="COMMAND...", type=TEXT)
@cluster_option
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    needs_no_cluster: bool,
    batch: BinaryIO | None,
    batch_key: str,
    job_file: BinaryIO | None,
    print_yaml: bool,
    dry_run: bool,
    require_feasible: bool,
    detach: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run COMMAND on the cluster.

    Follows its output until it ends, and exits with 0 if it succeeded, 125 if it failed, 126 if it
    was cancelled. Ctrl-C does not stop the job. With --json or -q the job is not followed.

    \b
    iris submit -- python train.py --lr 0.1
    iris submit -n train --tpu v5litepod-16 -- python train.py
    iris submit --cpu 4 --memory 8g --replicas 20 --priority batch -- python evaluate.py
    iris submit --pip numpy --extra tpu --setup 'make data' -- python train.py
    iris submit --dry-run --gpu H100x8 -- python train.py
    iris submit --local -- python -c 'print(1)'
    iris submit -f job.yaml --env LR=0.1
    iris submit --cpu 2 --batch jobs.txt    lines such as: -n small -- python train.py --lr 0.1
    """
    flags = Flags(dry_run, require_feasible, detach, quiet, as_json)
    if batch is not None:
        _check_batch(ctx)
        _submit_batch(ctx, read_whole(batch), batch_key, flags)
        return
    if batch_key:
        raise click.UsageError("--batch-key needs --batch")
    if job_file is not None or print_yaml:
        from iris.cli.submit import file, read_file  # with the reader of YAML

        documents = file.jobs_asked_for(ctx, job_file)
        if print_yaml:
            file.print_documents(documents)
            return
        if len(documents) > 1:
            run(file.submit_documents(selected(ctx), documents, flags, iris_command(ctx)))
            return
        options = read_file.job_options(documents[0])
    _submit_one(ctx, options, flags, needs_no_cluster=needs_no_cluster)


def _check_batch(ctx: click.Context) -> None:
    """Refuses options that do not go with `--batch`."""
    given = ctx.params
    if given["command"]:
        raise click.UsageError(
            "--batch and COMMAND exclude each other: each line of the batch has its command"
        )
    if given["needs_no_cluster"]:
        raise click.UsageError("--batch and --local exclude each other")
    if given["job_file"] is not None or given["print_yaml"]:
        raise click.UsageError(
            "--batch excludes -f and --print-yaml: it has lines of options, not a job file"
        )
    if given["name"] is not None:
        raise click.UsageError(
            "--batch and --name exclude each other: write the names into the lines"
        )


def _submit_batch(ctx: click.Context, content: bytes, batch_key: str, flags: Flags) -> None:
    from iris.cli.submit.batch import submit_batch

    given = {
        name: ctx.params[name]
        for name in SPEC_OPTIONS
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    run(submit_batch(selected(ctx), content, given, batch_key, flags))


def _submit_one(
    ctx: click.Context, options: Mapping[str, Any], flags: Flags, *, needs_no_cluster: bool
) -> None:
    """Submits one job, and follows it if the flags say so."""
    if not options["command"]:
        argument = next(param for param in ctx.command.params if param.name == "command")
        raise click.MissingParameter(ctx=ctx, param=argument)
    if needs_no_cluster and (flags.dry_run or flags.detach or flags.for_scripts):
        raise click.UsageError(
            "--local ends with the job and excludes -d, -q, --json and --dry-run"
        )
    cluster = None if needs_no_cluster else selected(ctx)
    if flags.dry_run:
        asyncio.run(_forecast(cluster, options, flags))
        return
    # With --local, the cluster must not outlive the command, so the error is raised after its end.
    error = run(_submit(cluster, options, flags, iris_command(ctx)))
    if error is not None:
        raise error


async def _forecast(cluster: ClusterRef | None, options: Mapping[str, Any], flags: Flags) -> None:
    client = await AsyncIrisClient.connect(cluster)
    spec = (await _planned(client, options)).spec
    await check_secrets(client, [spec])
    await show_forecasts(client, {"": spec}, as_json=flags.as_json)


async def _submit(
    cluster: ClusterRef | None, options: Mapping[str, Any], flags: Flags, iris: str
) -> IrisError | None:
    """Submits a job, and returns the error with which it ended.

    Args:
        cluster: None starts a cluster for the job.
        iris: the first words of commands for the cluster, as `iris_command` returns them.
    """
    async with contextlib.AsyncExitStack() as stack:
        if cluster is None:
            client = await stack.enter_async_context(_own_cluster())
        else:
            client = await AsyncIrisClient.connect(cluster)
        with nothing_yet("submitted"):
            spec, upload = await _ready(client, options, flags)
            estimate = None if flags.quiet else await estimate_in_time(client, spec)
        submission = created(
            client.jobs.submit(spec),
            announce=lambda submitted: _announce(submitted, estimate, flags),
            what=f"job {spec.id}",
            look=f"{iris} status {spec.id}",
            leave=lambda submitted, error: _print_return(
                submitted.id, None if cluster is None else iris, error
            ),
        )
        async with submission as submitted:
            return await _after_submit(client, spec, submitted, upload, flags, iris)
    return None


async def _planned(client: AsyncIrisClient, options: Mapping[str, Any]) -> "PlannedJob":
    within = await client.enclosing_job()
    return plan_job(options, shares_files=client.record.supervisor is not None, within=within)


async def _ready(
    client: AsyncIrisClient, options: Mapping[str, Any], flags: Flags
) -> tuple[JobSpec, timedelta]:
    """Returns the job with its files in the store, and how long the upload took."""
    planned = await _planned(client, options)
    if (
        flags.require_feasible
        and (refusal := await client.jobs.why_infeasible(planned.spec)) is not None
    ):
        raise Rejected(infeasible(refusal))
    print_warnings([planned.spec])
    await check_secrets(client, [planned.spec])
    began = time.monotonic()
    (spec,) = await with_files(client.record, [planned], quiet=flags.for_scripts)
    return spec, timedelta(seconds=time.monotonic() - began)


def _announce(submitted: "Submitted", estimate: "Estimate | None", flags: Flags) -> None:
    """Prints the id of a job as soon as the service has accepted it: what follows may be
    interrupted.
    """
    if flags.as_json:
        print_json({**submitted.model_dump(), "estimate": estimate and estimate.model_dump()})
    elif flags.quiet:
        click.echo(submitted.id)
    else:
        click.echo(f"submitted {submitted.id}", err=True)
        if page := submitted.dashboard or submitted.ui:
            click.echo(f"  {page}", err=True)
        if estimate is not None:
            click.echo(f"  {estimate}", err=True)


async def _after_submit(
    client: AsyncIrisClient,
    spec: JobSpec,
    submitted: "Submitted",
    upload: timedelta,
    flags: Flags,
    iris: str,
) -> IrisError | None:
    """Warns if no host can run the job or a budget is used up, and follows the job until its end if
    the flags say so.
    """
    warning = asyncio.create_task(_warning(client, spec))
    # A detached job without files needs no store, and does not import it for the budgets alone.
    if not flags.for_scripts and (not flags.detach or spec.bundle or spec.timeout):
        show_warnings(await budget_warnings(client, spec.user))
    if not (flags.detach or flags.for_scripts):
        return await _follow(client, spec, submitted, upload, warning)
    if text := await warning:
        click.echo(text, err=True)
    if flags.detach and not flags.for_scripts:
        _print_next(submitted.id, iris)
    return None


async def _warning(client: AsyncIrisClient, spec: JobSpec) -> str:
    """Returns a warning if no host can ever run the job. The job was accepted all the same, because
    hosts may be added.
    """
    refusal = None
    # The job is submitted, even if no control plane answers.
    with contextlib.suppress(TimeoutError, IrisError):
        refusal = await asyncio.wait_for(
            client.jobs.why_infeasible(spec), WARNING_TIMEOUT.total_seconds()
        )
    return "" if refusal is None else f"warning: {infeasible(refusal)}"


async def _follow(
    client: AsyncIrisClient,
    spec: JobSpec,
    submitted: "Submitted",
    upload: timedelta,
    warning: Awaitable[str],
) -> IrisError | None:
    from iris.cli.show.follow import follow_job  # a detached submit reads no logs

    status = await follow_job(
        client,
        submitted.id,
        submitted.run_id,
        prefixed=spec.replicas > 1,
        upload=upload,
        remark=warning,
    )
    try:
        print_end(status)
    except (JobFailed, JobCancelled) as error:
        return error
    return None


def _print_return(job: str, iris: str | None, error: BaseException) -> None:
    """Prints the commands for a job that goes on after this command.

    Args:
        iris: the first words of commands for the cluster, as `iris_command` returns them. None if
            the job ends with its cluster.
        error: the error that ends the command.
    """
    if iris is None:
        click.echo(f"\n{job} ends with its cluster, which this command stops", err=True)
        return
    unknown = isinstance(error, IrisError)  # for instance, the cluster was stopped
    click.echo(f"\nto come back to {job}:" if unknown else f"\ndetached; {job} continues", err=True)
    _print_next(job, iris)


def _print_next(job: str, iris: str) -> None:
    click.echo(f"  {iris} logs -f {job}\n  {iris} status {job}\n  {iris} cancel {job}", err=True)


@contextlib.asynccontextmanager
async def _own_cluster() -> AsyncIterator[AsyncIrisClient]:
    """Starts a cluster for one job, and stops it afterwards."""
    name = f"once-{secrets.token_hex(3)}"
    manager = operate.cluster_manager.temporary_cluster(name)
    click.echo("starting a cluster for this job …", err=True)
    starting = asyncio.ensure_future(asyncio.to_thread(manager.start))
    try:
        await asyncio.shield(starting)
        yield await AsyncIrisClient.connect(name)
    finally:
        # Wait even if the start is interrupted: the cluster must be up before it can be stopped.
        await asyncio.wait({starting})
        await asyncio.shield(asyncio.to_thread(manager.stop))
