"""`iris submit`"""

import asyncio
import contextlib
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from iris.cli.common import CPU, DEVICE, DISK, DURATION, KEY_VALUE, MEMORY, TEXT, cluster_option, json_option, print_json
from iris.cli.follow import follow_job, tell_end
from iris.client.client import IrisClient
from iris.client.identity import current_user
from iris.client.logs import LogReader
from iris.client.views import Submitted
from iris.errors import IrisError, Rejected
from iris.jobs import JobSpec
from iris.resources import Device, Resources
from iris.store import Store


@click.command(context_settings={"ignore_unknown_options": False})
@click.option("-n", "--name", help="The job's name; without it one is made up.")
@click.option("--cpu", type=CPU, default="1", show_default=True, help="Cores for each task, such as 4 or 0.5.")
@click.option("--memory", type=MEMORY, default="1g", show_default=True, help="Memory for each task, such as 8g.")
@click.option("--disk", type=DISK, default="0", help="Disk for each task, such as 50g.")
@click.option("--device", type=DEVICE, default="cpu", help="KIND[:VARIANT[:COUNT]], such as gpu:H100:8 or tpu:v5litepod-4:4.")
@click.option("--env", "-e", type=KEY_VALUE, multiple=True, metavar="KEY=VALUE", help="Set a variable for the program.")
@click.option("--workdir", help="Where on the host to start; on a local cluster the present directory, elsewhere a new one.")
@click.option("--replicas", type=int, default=1, show_default=True, help="How many tasks run the command.")
@click.option("--scheduling-timeout", type=DURATION, help="Give up when no host is found in this time, such as 10m.")
@click.option("--timeout", type=DURATION, help="The longest a task may run, such as 12h.")
@click.option("--max-retries", type=int, default=0, show_default=True, help="How often a failed task is tried again.")
@click.option(
    "--local", "needs_no_cluster", is_flag=True, help="Run on this machine, in a cluster of its own that ends with the job."
)
@click.option("-d", "--detach", is_flag=True, help="Do not follow the job.")
@click.option("-q", "--quiet", is_flag=True, help="Print the id and return.")
@json_option
@click.argument("command", nargs=-1, required=True, type=TEXT)
@cluster_option
@click.pass_context
def submit(ctx: click.Context, /, needs_no_cluster: bool, detach: bool, quiet: bool, as_json: bool, **options: Any) -> None:
    """Run COMMAND on the cluster.

    Follows its output until it ends and exits with 0 when it succeeded, 125 when it failed, 126 when it was cancelled. Ctrl-C
    leaves it running. With --json or -q nothing is followed.

    \b
    iris submit -- python train.py --lr 0.1
    iris submit -n train --cpu 4 --memory 8g --replicas 2 -- python train.py
    iris submit --local -- python -c 'print(1)'
    """
    if needs_no_cluster and (detach or quiet or as_json):
        raise click.UsageError("--local ends with the job, so it cannot be combined with -d, -q or --json")
    try:
        job = asyncio.run(_submit(ctx.find_root().obj["cluster"], needs_no_cluster, options, detach, quiet, as_json))
    except asyncio.CancelledError:  # by SIGTERM, see below
        raise KeyboardInterrupt from None
    if job is not None:
        raise job


async def _submit(
    cluster: str | None, needs_no_cluster: bool, options: dict[str, Any], detach: bool, quiet: bool, as_json: bool
) -> IrisError | None:
    async with contextlib.AsyncExitStack() as stack:
        if needs_no_cluster:
            task = asyncio.current_task()
            assert task is not None
            # The cluster must not outlive the command, however it is ended.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            client = await stack.enter_async_context(_own_cluster())
        else:
            client = await IrisClient.connect(cluster)
        spec = make_spec(options, shares_files=client.cluster.supervisor is not None)
        submitted = await client.submit(spec)
        if as_json:
            print_json(submitted.model_dump())
        elif quiet:
            click.echo(submitted.id)
        elif detach:
            _say_submitted(submitted)
            _say_next(submitted.id)
        else:
            _say_submitted(submitted)
            return await _follow(client, spec, submitted, stays=not needs_no_cluster)
    return None


async def _follow(client: IrisClient, spec: JobSpec, submitted: Submitted, *, stays: bool) -> IrisError | None:
    reader = LogReader(Store(client.cluster.store), spec.id, submitted.run_id)
    try:
        tell_end(await follow_job(client, reader, spec.id, submitted.run_id, prefixed=spec.replicas > 1))
    except IrisError as error:
        return error
    except asyncio.CancelledError:
        if stays:
            click.echo(f"\ndetached; {spec.id} goes on", err=True)
            _say_next(spec.id)
        raise
    return None


def make_spec(options: dict[str, Any], *, shares_files: bool) -> JobSpec:
    """The job that the options ask for.

    Raises:
        Rejected: it cannot be; the message has every problem.
    """
    device = options["device"]
    # Hosts of a local cluster see the same files as whoever submits.
    workdir = options["workdir"] or (str(Path.cwd()) if shares_files else None)
    try:
        return JobSpec(
            user=current_user(),
            name=options["name"] or f"job-{secrets.token_hex(4)}",
            command=options["command"],
            resources=Resources(
                cpu_millis=options["cpu"],
                memory_bytes=options["memory"],
                disk_bytes=options["disk"],
                device=device if isinstance(device, Device) else None,
            ),
            replicas=options["replicas"],
            env=dict(options["env"]),
            workdir=workdir,
            scheduling_timeout=options["scheduling_timeout"],
            timeout=options["timeout"],
            max_retries_failure=options["max_retries"],
        )
    except ValidationError as error:
        problems = [
            # Iris' own refusals name their field; pydantic's do not.
            str(problem.get("ctx", {}).get("error") or f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}")
            for problem in error.errors()
        ]
        raise Rejected("; ".join(problems)) from None


def _say_submitted(submitted: Submitted) -> None:
    click.echo(f"submitted {submitted.id}", err=True)
    if submitted.ui:
        click.echo(f"  {submitted.ui}", err=True)


def _say_next(job: str) -> None:
    click.echo(f"  iris logs -f {job}\n  iris status {job}\n  iris cancel {job}", err=True)


@contextlib.asynccontextmanager
async def _own_cluster() -> AsyncIterator[IrisClient]:
    """A cluster that is there for one job."""
    from iris.worker_agents.local_cluster import LocalClusterOptions
    from iris.worker_agents.local_launch import start_detached, stop_local

    options = LocalClusterOptions(name=f"once-{secrets.token_hex(3)}", ephemeral=True)
    click.echo("starting a cluster for this job …", err=True)
    starting = asyncio.ensure_future(asyncio.to_thread(start_detached, options))
    try:
        record = await asyncio.shield(starting)
        yield await IrisClient.connect(record.name)
    finally:
        # Interrupted while it starts, too: what is being started has to be there before it can be stopped.
        await asyncio.wait({starting})
        await asyncio.shield(asyncio.to_thread(stop_local, options.name))
