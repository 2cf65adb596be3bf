"""`iris logs`"""

import click

from iris.cli.common import cluster_option, with_client
from iris.cli.follow import LinePrinter, follow_logs
from iris.client.client import IrisClient
from iris.client.identity import full_job_id
from iris.client.logs import LogReader
from iris.errors import InvalidValue, NotFound
from iris.store import Store


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines there are now.")
@click.option("--task", type=click.IntRange(min=0), help="Only this task's.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only this attempt's.")
@cluster_option
@click.pass_context
def logs(ctx: click.Context, job: str, follow: bool, tail: int | None, task: int | None, attempt: int | None) -> None:
    """Show what JOB (NAME, USER/NAME, or one task of it: NAME:3) prints. Works when host and control plane are gone."""
    name, colon, number = job.partition(":")
    if colon:
        if not number.isdecimal():
            raise InvalidValue("job", job, "does not name a task", "write NAME:NUMBER, such as train:3")
        task = int(number)
    job_id = full_job_id(name)

    async def work(client: IrisClient) -> None:
        source = await client.log_source(job_id)
        if task is not None and task >= source.tasks:
            raise NotFound(f"job {job_id} has no task {task}; its tasks are 0 to {source.tasks - 1}")
        reader = LogReader(Store(client.cluster.store), job_id, source.run_id, task, attempt)
        printer = LinePrinter(prefixed=task is None and source.tasks > 1)
        if tail is not None:
            printer.print(await reader.tail(tail))
        if follow:
            await follow_logs(client, reader, printer, job_id, source.run_id)
        elif tail is None:
            async for lines in reader.new_lines():
                printer.print(lines)
        printer.finish()

    with_client(ctx, work)
