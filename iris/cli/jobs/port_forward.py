"""Implements `iris port-forward`."""

import asyncio
import signal

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task, named_job
from iris.cli.parameters import cluster_option, task_argument, utf8
from iris.cli.run import with_client
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import job_and_run
from iris.client.jobs.exec.port_forward import (
    ADDRESS,
    ForwardedPort,
    PortForward,
    forward_ports,
    parse_port,
)
from iris.client.jobs.exec.session import TaskLocation
from iris.model.errors import IrisError


@click.command(cls=Command, name="port-forward")
@cluster_option
@task_argument
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]PORT...")
@click.pass_context
def port_forward(ctx: click.Context, job: str, ports: tuple[str, ...]) -> int:
    """Forward ports of this machine to ports on the host of a running task. Ctrl-C ends it.

    PORT is a number, or a name given with `iris submit --port`. LOCAL is a port of 127.0.0.1; 0
    means any free one. Without it, the number is the same, or any free one if that is in use. The
    program can listen on any address of its host.

    \b
    iris port-forward notebook 8888
    iris port-forward train:3 6007:6006
    iris port-forward train 0:http
    """
    wanted = [parse_port(utf8(text)) for text in ports]
    named, number = job_and_run(job)
    _, task = job_and_task(named)

    async def work(client: AsyncIrisClient) -> int:
        job_id = await named_job(client, job)
        where = await client.exec.locate(job_id, task, await client.jobs.run(job_id, number))
        with _Signals() as signals:
            try:
                async with forward_ports(client.exec, where, wanted, _tell) as forward:
                    return await _forward(forward, where, wanted)
            except asyncio.CancelledError:
                if signals.received is None:
                    raise
                return 128 + signals.received

    return with_client(ctx, work)


async def _forward(forward: PortForward, where: TaskLocation, wanted: list[ForwardedPort]) -> int:
    """Listens on the local ports until the forwarding ends, which is an error."""
    ready = await forward.ready()
    for each, port in zip(wanted, ready.ports, strict=True):
        local = await forward.listen(each.local, port)
        name = "" if each.port == str(port) else f" ({each.port})"
        click.echo(f"{ADDRESS}:{local} -> {where} port {port}{name} on host {where.host}")
    raise IrisError(
        f"{await forward.end()}; nothing is forwarded any more: `iris status {where.job}` shows the"
        " task"
    )


def _tell(reason: str) -> None:
    click.echo(f"warning: a connection was closed: {reason}", err=True)


class _Signals:
    """Cancels the current asyncio task at SIGTERM and SIGHUP, as `asyncio.run` does at SIGINT.

    So the command cleans up on the host before it ends.
    """

    def __init__(self) -> None:
        #: The number of the signal that ended the command; None while no signal has arrived.
        self.received: int | None = None

    def __enter__(self) -> "_Signals":
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            self.received = number
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, end, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
