"""Implements `iris host list | cordon | uncordon | drain`."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import click

from iris.cli import render
from iris.cli.common import DURATION, cluster_option, for_each, json_option, with_client
from iris.client.client import IrisClient
from iris.client.operate import scheduling
from iris.client.operate.draining import DrainClient


@click.group()
def host() -> None:
    """Look at the machines, close and open them."""


@host.command("list")
@json_option
@cluster_option
@click.pass_context
def list_hosts(ctx: click.Context, as_json: bool) -> None:
    """List hosts: what they offer, what is free, what they run, and why some take no new tasks."""
    views = with_client(ctx, lambda client: client.hosts())
    render.HOSTS.show(views, as_json=as_json)


_hosts = click.argument("host", nargs=-1, required=True)
_reason = click.option("--reason", default="", help="Why, for whoever looks at the host later.")


@host.command()
@_hosts
@_reason
@cluster_option
@click.pass_context
def cordon(ctx: click.Context, host: tuple[str, ...], reason: str) -> None:
    """Place nothing new on each HOST. Its running tasks continue."""
    _each(ctx, host, lambda client, name: scheduling.cordon(client, name, reason), "is cordoned")


@host.command()
@_hosts
@cluster_option
@click.pass_context
def uncordon(ctx: click.Context, host: tuple[str, ...]) -> None:
    """Let each HOST take work again, whatever closed it."""
    _each(ctx, host, lambda client, name: DrainClient.of(client).uncordon(name), "takes work")


@host.command()
@_hosts
@click.option("--deadline", type=DURATION, help="Let what runs end; stop what still runs after this time, such as 30m.")
@_reason
@cluster_option
@click.pass_context
def drain(ctx: click.Context, host: tuple[str, ...], deadline: timedelta | None, reason: str) -> None:
    """Place nothing new on each HOST and evict its tasks. Programs get their grace period, and their jobs wait for other hosts.

    With a deadline, running tasks may end until then, and a host whose slice Iris created is deleted with the whole slice.
    """
    for_each(ctx, host, lambda client, name: DrainClient.of(client).drain(name, reason, deadline))


def _each(ctx: click.Context, hosts: Sequence[str], work: Callable[[IrisClient, str], Awaitable[None]], done: str) -> None:
    async def one(client: IrisClient, name: str) -> str:
        await work(client, name)
        return f"host {name} {done}"

    for_each(ctx, hosts, one)
