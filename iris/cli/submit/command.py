"""Implements `iris submit`."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from click.core import ParameterSource

from iris.cli.interrupts import created, nothing_yet, run
from iris.cli.parameters import TEXT, cluster_option, json_option
from iris.cli.run import iris_command, selected
from iris.cli.show.explanation import forecast_json, forecast_text
from iris.cli.show.jobs import print_end
from iris.cli.show.messages import print_json
from iris.cli.submit.options import SPEC_OPTIONS, JobCommand, make_spec, spec_options
from iris.cli.submit.read_file import read_whole
from iris.cli.submit.workspace import files_options, warn_of_secrets, with_files
from iris.client.build.warnings import infeasible, job_warnings
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.views import Submitted
from iris.model.errors import IrisError, JobCancelled, JobFailed, Rejected
from iris.model.job.spec import JobSpec

if TYPE_CHECKING:
    from iris.cli.submit.read_file import JobDocument

#: How long a submit waits for the check that may print a warning.
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
    dry_run: bool,
    batch: BinaryIO | None,
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
    if batch is not None:
        from iris.cli.submit.batch import submit_batch

        _check_batch(ctx, needs_no_cluster, options)
        lines = read_whole(batch)
        run(submit_batch(selected(ctx), lines, _given(ctx), {**options, "dry_run": dry_run}))
        return
    if options["batch_key"]:
        raise click.UsageError("--batch-key needs --batch")
    job_file, print_yaml = options.pop("job_file"), options.pop("print_yaml")
    if job_file is not None or print_yaml:
        from iris.cli.submit.file import jobs_asked_for, submit_documents
        from iris.cli.submit.read_file import job_options

        documents = jobs_asked_for(ctx, job_file)
        if print_yaml:
            _print_yaml(documents)
            return
        if len(documents) > 1:
            given = {**options, "dry_run": dry_run}
            run(submit_documents(selected(ctx), documents, given, iris_command(ctx)))
            return
        options.update(job_options(documents[0]))
    if not options["command"]:
        argument = next(param for param in ctx.command.params if param.name == "command")
        raise click.MissingParameter(ctx=ctx, param=argument)
    if needs_no_cluster and (
        dry_run or any(options[name] for name in ("detach", "quiet", "as_json"))
    ):
        raise click.UsageError(
            "--local ends with the job and excludes -d, -q, --json and --dry-run"
        )
    cluster = None if needs_no_cluster else selected(ctx)
    if dry_run:
        asyncio.run(_forecast(cluster, options))
        return
    # With --local, the cluster must not outlive the command, however that ends.
    job = run(_submit(cluster, needs_no_cluster, options, iris_command(ctx)))
    if job is not None:
        raise job


def _check_batch(ctx: click.Context, needs_no_cluster: bool, options: dict[str, Any]) -> None:
    if options["command"]:
        raise click.UsageError(
            "--batch and COMMAND exclude each other: each line of the batch has its command"
        )
    if needs_no_cluster:
        raise click.UsageError("--batch and --local exclude each other")
    if options.pop("job_file") is not None or options.pop("print_yaml"):
        raise click.UsageError(
            "--batch excludes -f and --print-yaml: it has lines of options, not a job file"
        )
    if options["name"] is not None:
        raise click.UsageError(
            "--batch and --name exclude each other: write the names into the lines"
        )


def _print_yaml(documents: Sequence["JobDocument"]) -> None:
    from iris.cli.submit.read_file import job_options
    from iris.cli.submit.write_file import dump_jobs

    for document in documents:
        job_options(document)  # raises if it is wrong
    click.echo(dump_jobs(documents), nl=False)


def _given(ctx: click.Context) -> dict[str, Any]:
    """Returns the options of the command line that describe a job."""
    return {
        name: ctx.params[name]
        for name in SPEC_OPTIONS
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


async def _forecast(cluster: ClusterRef | None, options: dict[str, Any]) -> None:
    client = await AsyncIrisClient.connect(cluster)
    spec = make_spec(
        options,
        shares_files=client.record.supervisor is not None,
        within=await client.enclosing_job(),
    )
    await warn_of_secrets(client, [spec])
    found = await client.jobs.forecast(spec)
    if options["as_json"]:
        print_json(forecast_json(found))
    else:
        click.echo(forecast_text(spec, found))
    if found.infeasible is not None:
        raise Rejected(infeasible(found.infeasible))


async def _submit(
    cluster: ClusterRef | None,
    needs_no_cluster: bool,
    options: dict[str, Any],
    iris: str,
) -> IrisError | None:
    async with contextlib.AsyncExitStack() as stack:
        if needs_no_cluster:
            client = await stack.enter_async_context(_own_cluster())
        else:
            client = await AsyncIrisClient.connect(cluster)
        with nothing_yet("submitted"):
            spec, upload = await _prepared(client, options)
        submission = created(
            client.jobs.submit(spec),
            announce=lambda submitted: _announce(submitted, options),
            what=f"job {spec.id}",
            look=f"{iris} status {spec.id}",
            leave=lambda submitted, error: _print_return(
                submitted.id, None if needs_no_cluster else iris, error
            ),
        )
        async with submission as submitted:
            return await _after_submit(client, spec, submitted, upload, options, iris)
    return None


async def _prepared(client: AsyncIrisClient, options: dict[str, Any]) -> tuple[JobSpec, timedelta]:
    """Returns the job with its files in the store, and how long they took.

    Raises:
        Rejected: no host can ever run the job, with `--require-feasible`.
    """
    within = await client.enclosing_job()
    spec = make_spec(options, shares_files=client.record.supervisor is not None, within=within)
    if (
        options["require_feasible"]
        and (refusal := await client.jobs.why_infeasible(spec)) is not None
    ):
        raise Rejected(infeasible(refusal))
    for warning in job_warnings(spec):
        click.echo(f"warning: {warning}", err=True)
    await warn_of_secrets(client, [spec])
    files, began = files_options(options, within), time.monotonic()
    (spec,) = await with_files(
        client.record, [(spec, files)], quiet=options["quiet"] or options["as_json"]
    )
    return spec, timedelta(seconds=time.monotonic() - began)


def _announce(submitted: Submitted, options: Mapping[str, Any]) -> None:
    """Prints the id of a job as soon as the service has accepted it: what follows may be
    interrupted.
    """
    if options["as_json"]:
        print_json(submitted.model_dump())
    elif options["quiet"]:
        click.echo(submitted.id)
    else:
        click.echo(f"submitted {submitted.id}", err=True)
        if submitted.ui:
            click.echo(f"  {submitted.ui}", err=True)


async def _after_submit(
    client: AsyncIrisClient,
    spec: JobSpec,
    submitted: Submitted,
    upload: timedelta,
    options: Mapping[str, Any],
    iris: str,
) -> IrisError | None:
    """Warns if no host can run the job, and follows it until its end, if the options want it."""
    warning = asyncio.create_task(_warning(client, spec))
    if not any(options[name] for name in ("as_json", "quiet", "detach")):
        return await _follow(client, spec, submitted, upload, warning)
    if text := await warning:
        click.echo(text, err=True)
    if options["detach"] and not (options["as_json"] or options["quiet"]):
        _print_next(submitted.id, iris)
    return None


async def _warning(client: AsyncIrisClient, spec: JobSpec) -> str:
    """Returns a warning if no host can ever run the job. It was accepted all the same, because
    hosts may be added.
    """
    refusal = None
    with contextlib.suppress(
        TimeoutError, IrisError
    ):  # the job is submitted, even if no control plane answers
        refusal = await asyncio.wait_for(
            client.jobs.why_infeasible(spec), WARNING_TIMEOUT.total_seconds()
        )
    return "" if refusal is None else f"warning: {infeasible(refusal)}"


async def _follow(
    client: AsyncIrisClient,
    spec: JobSpec,
    submitted: Submitted,
    upload: timedelta,
    warning: Awaitable[str],
) -> IrisError | None:
    from iris.cli.show.follow import follow_job  # a detached submit does not read logs
    from iris.client.logs.stored import LogReader
    from iris.storage.object_store import Store

    reader = LogReader(Store(client.record.store), submitted.id, submitted.run_id)
    prefixed = spec.replicas > 1
    status = await follow_job(
        client,
        reader,
        submitted.id,
        submitted.run_id,
        prefixed=prefixed,
        upload=upload,
        remark=warning,
    )
    try:
        print_end(status)
    except (JobFailed, JobCancelled) as error:
        return error
    return None


def _print_return(job: str, iris: str | None, error: BaseException) -> None:
    """Prints how to come back to a job whose command ends before it.

    Args:
        iris: as of `iris_command`; None: the job ends with its cluster.
        error: what ends the command.
    """
    if iris is None:
        click.echo(f"\n{job} ends with its cluster, which this command stops", err=True)
        return
    unknown = isinstance(error, IrisError)  # such as: the cluster was stopped
    click.echo(f"\nto come back to {job}:" if unknown else f"\ndetached; {job} continues", err=True)
    _print_next(job, iris)


def _print_next(job: str, iris: str) -> None:
    click.echo(f"  {iris} logs -f {job}\n  {iris} status {job}\n  {iris} cancel {job}", err=True)


@contextlib.asynccontextmanager
async def _own_cluster() -> AsyncIterator[AsyncIrisClient]:
    """Starts a cluster for one job, and stops it afterwards."""
    from iris.client.operate.cluster_manager import ClusterManager
    from iris.config import local_config

    own = local_config(f"once-{secrets.token_hex(3)}")
    manager = ClusterManager(own, ephemeral=True, owned=True)
    click.echo("starting a cluster for this job …", err=True)
    starting = asyncio.ensure_future(asyncio.to_thread(manager.start))
    try:
        await asyncio.shield(starting)
        yield await AsyncIrisClient.connect(own.name)
    finally:
        # Also if the start is interrupted: the cluster must be up before it can be stopped.
        await asyncio.wait({starting})
        await asyncio.shield(asyncio.to_thread(manager.stop))
