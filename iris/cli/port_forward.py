"""Implements `iris port-forward`."""

import asyncio
import re
import signal
from typing import NamedTuple

import click

from iris.cli.common import Command, cluster_option, job_and_run, job_and_task, utf8, with_client
from iris.client.client import AsyncIrisClient
from iris.client.exec import TaskLocation, new_session
from iris.client.port_forward import ADDRESS, PortForward, forward_ports
from iris.messages.port_forward import ForwardRequest
from iris.model.errors import InvalidValue, IrisError

MAX_PORT = 65_535


class Forwarded(NamedTuple):
    """A port of this machine (0: any free one; None: that of the task, if possible), and a port of the task."""

    local: int | None
    port: str


@click.command(cls=Command, name="port-forward")
@cluster_option
@click.argument("job", metavar="JOB[:TASK]")
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]PORT...")
@click.pass_context
def port_forward(ctx: click.Context, job: str, ports: tuple[str, ...]) -> int:
    """Forward ports of this machine to ports on the host of a running task. Ctrl-C ends it.

    PORT is a number, or a name given with `iris submit --port`. LOCAL is a port of 127.0.0.1; 0 means any free one. Without it,
    the number is the same, or any free one if that is in use. The program can listen on any address of its host.

    \b
    iris port-forward notebook 8888
    iris port-forward train:3 6007:6006
    iris port-forward train 0:http
    """
    wanted = [_forwarded(text) for text in ports]
    named, number = job_and_run(job)
    job_id, task = job_and_task(named)

    async def work(client: AsyncIrisClient) -> int:
        where = await client.exec.locate(job_id, task, await client.jobs.run(job_id, number))
        asked = tuple(each.port for each in wanted)
        request = ForwardRequest(session=new_session(), job=where.job, index=where.task, ports=asked)
        with _Signals() as signals:
            try:
                async with forward_ports(client.exec, where, request, _tell) as forward:
                    return await _forward(forward, where, wanted)
            except asyncio.CancelledError:
                if signals.received is None:
                    raise
                return 128 + signals.received

    return with_client(ctx, work)


async def _forward(forward: PortForward, where: TaskLocation, wanted: list[Forwarded]) -> int:
    ready = await forward.ready()
    for each, port in zip(wanted, ready.ports, strict=True):
        local = await forward.listen(each.local, port)
        name = "" if each.port == str(port) else f" ({each.port})"
        click.echo(f"{ADDRESS}:{local} -> {where} port {port}{name} on host {where.host}")
    raise IrisError(f"{await forward.end()}; nothing is forwarded any more: `iris status {where.job}` shows the task")


def _tell(reason: str) -> None:
    click.echo(f"warning: a connection was closed: {reason}", err=True)


def _forwarded(text: str) -> Forwarded:
    """Returns the ports in `[LOCAL:]PORT`."""
    local, colon, port = utf8(text).rpartition(":")
    if re.fullmatch("[a-zA-Z][a-zA-Z0-9_-]*", port) is None and not _is_port(port):
        raise InvalidValue("port", text, "is not a port", f"write [LOCAL:]PORT: numbers up to {MAX_PORT}, or PORT by its name")
    if colon and local and local != "0" and not _is_port(local):
        raise InvalidValue("port", text, f"has no port of this machine: {local!r}", f"LOCAL is a number up to {MAX_PORT}")
    return Forwarded(int(local or 0) if colon else None, port)


def _is_port(text: str) -> bool:
    return re.fullmatch("[1-9][0-9]{0,4}", text) is not None and int(text) <= MAX_PORT


class _Signals:
    """Cancels the current task at SIGTERM and SIGHUP, as `asyncio.run` does at SIGINT, so that nothing is left on the host."""

    def __init__(self) -> None:
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
