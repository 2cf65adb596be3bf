"""Implements `iris host list | show | cordon | uncordon | drain`."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import click

from iris.cli import fleet
from iris.cli.command import Command
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import DURATION, cluster_option, json_option, reason_option
from iris.cli.run import for_each, with_client
from iris.cli.show.hosts import HOSTS, host_text
from iris.cli.show.messages import print_json
from iris.client.client import AsyncIrisClient


@click.command("list", cls=Command)
@json_option
@cluster_option
@click.pass_context
def list_hosts(ctx: click.Context, as_json: bool) -> None:
    """List hosts: their resources, free resources and tasks, and why some take no new tasks."""
    views = with_client(
        ctx,
        lambda client: client.hosts.list(),
        known=lambda client: fleet.without_control_plane.known_hosts(client),
        as_json=as_json,
    )
    HOSTS.show(views, as_json=as_json)


@click.command(cls=Command)
@click.argument("host", shell_complete=names_of(Kind.HOSTS))
@json_option
@cluster_option
@click.pass_context
def show(ctx: click.Context, host: str, as_json: bool) -> None:
    """Show HOST: its resources, attributes and tasks, and why it takes no new tasks."""
    view = with_client(
        ctx,
        lambda client: client.hosts.show(host),
        known=lambda client: fleet.without_control_plane.known_hosts(client, host),
        as_json=as_json,
    )
    if as_json:
        print_json(HOSTS.json(view))
    else:
        click.echo(host_text(view))


_hosts = click.argument("host", nargs=-1, required=True, shell_complete=names_of(Kind.HOSTS))
_reason = reason_option("by `iris host list`")


@click.command(cls=Command)
@_hosts
@_reason
@cluster_option
@click.pass_context
def cordon(ctx: click.Context, host: tuple[str, ...], reason: str) -> None:
    """Place no new tasks on each HOST. Its running tasks continue."""
    _each(ctx, host, lambda client, name: client.hosts.cordon(name, reason), "is cordoned")


@click.command(cls=Command)
@_hosts
@cluster_option
@click.pass_context
def uncordon(ctx: click.Context, host: tuple[str, ...]) -> None:
    """Place new tasks on each HOST again, also after a drain or a quarantine."""
    _each(ctx, host, lambda client, name: client.hosts.uncordon(name), "takes new tasks")


@click.command(cls=Command)
@_hosts
@click.option(
    "--deadline",
    type=DURATION,
    help="Let running tasks continue for this time, such as 30m, and then stop them.",
)
@_reason
@cluster_option
@click.pass_context
def drain(
    ctx: click.Context, host: tuple[str, ...], deadline: timedelta | None, reason: str
) -> None:
    """Place no new tasks on each HOST and evict its tasks. Programs get their grace period, and
    their jobs wait for other hosts.

    With a deadline, running tasks may continue until then. If Iris created the host's slice, the
    whole slice is deleted.
    """
    for_each(ctx, host, lambda client, name: client.hosts.drain(name, reason, deadline))


def _each(
    ctx: click.Context,
    hosts: Sequence[str],
    work: Callable[[AsyncIrisClient, str], Awaitable[None]],
    done: str,
) -> None:
    """Runs the work for each host, and prints that the host is `done`."""

    async def one(client: AsyncIrisClient, name: str) -> str:
        await work(client, name)
        return f"host {name} {done}"

    for_each(ctx, hosts, one)
