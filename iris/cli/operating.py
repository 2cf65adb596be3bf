"""What the commands about scale groups and slices share."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click

from iris.cli.common import raise_first
from iris.client.scaling import FleetClient
from iris.errors import IrisError

T = TypeVar("T")


def with_fleet(ctx: click.Context, work: Callable[[FleetClient], Awaitable[T]]) -> T:
    """Connect to the cluster that is meant, as its operator, and do the work."""

    async def run() -> T:
        return await work(await FleetClient.connect(ctx.find_root().obj["cluster"]))

    return asyncio.run(run())


def for_each_slice(ctx: click.Context, named: Sequence[str], work: Callable[[FleetClient, str], Awaitable[str]]) -> None:
    """Do it to every one, whatever becomes of the others, and print what was done.

    Raises:
        IrisError: the first that went wrong; the others are printed.
    """

    async def all_of_them(client: FleetClient) -> list[IrisError]:
        errors = []
        for each in named:
            try:
                click.echo(await work(client, each))
            except IrisError as error:
                errors.append(error)
        return errors

    raise_first(with_fleet(ctx, all_of_them))


def running_on(views: Sequence[tuple[str, Sequence[str]]]) -> dict[str, list[str]]:
    """Which tasks run on each slice, from its hosts' slices and tasks."""
    found: dict[str, list[str]] = {}
    for slice_id, tasks in views:
        found.setdefault(slice_id, []).extend(tasks)
    return found
