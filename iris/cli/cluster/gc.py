"""Implements `iris cluster gc`."""

import asyncio
from datetime import UTC, datetime, timedelta

import click

from iris.cli.command import Command
from iris.cli.parameters import DURATION, cluster_option, json_option
from iris.cli.run import selected
from iris.cli.show.messages import print_json
from iris.client.client import AsyncIrisClient
from iris.model.units import format_bytes, format_duration


@click.command(cls=Command)
@click.option(
    "--older-than",
    type=DURATION,
    default="30d",
    show_default=True,
    help="Only what is older than this.",
)
@click.option(
    "--no-dry-run", "really", is_flag=True, help="Delete the files.  [default: only show them]"
)
@json_option
@cluster_option
@click.pass_context
def gc(ctx: click.Context, older_than: timedelta, really: bool, as_json: bool) -> None:
    """Find and delete the files of ended jobs in the store: logs, outputs, checkpoints, workspaces,
    and files of pools; and published reports of simulations.

    Keeps all files of live jobs, of jobs in the same tree of child jobs as a live one, and the
    files from which schedules and waiting jobs start. Nothing else deletes these files.

    \b
    iris cluster gc
    iris cluster gc --older-than 7d --no-dry-run
    """

    async def work() -> None:
        client = await AsyncIrisClient.connect(selected(ctx))
        found = await client.cluster.find_unused(older_than)
        for each in () if as_json else found:
            age = format_duration(datetime.now(UTC) - each.modified)
            click.echo(
                f"{'deleting' if really else 'would delete'} {format_bytes(each.size):>10} "
                f" {each.folder}, {age} old"
            )
        if really:
            deleted = await client.cluster.delete_unused(found)
            for each in () if as_json else found:
                if each not in deleted:
                    click.echo(f"kept {each.folder}: it is used again", err=True)
            found = deleted
        size = sum(each.size for each in found)
        if as_json:
            left = [
                {"folder": each.folder, "files": len(each.paths), "size_bytes": each.size}
                for each in found
            ]
            print_json({"deleted": really, "size_bytes": size, "unused": left})
        elif not found:
            click.echo("there is nothing to delete")
        else:
            does = "deleted" if really else "nothing was deleted; to delete"
            click.echo(
                f"{does} {format_bytes(size)}{'' if really else ', add --no-dry-run'}", err=True
            )

    asyncio.run(work())
