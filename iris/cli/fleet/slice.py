"""Implements `iris slice list | show | drain | delete`."""

from datetime import UTC, datetime, timedelta

import click

from iris.cli import fleet
from iris.cli.command import CommandGroup
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import (
    DURATION,
    cluster_option,
    group_option,
    json_option,
    reason_option,
    yes_option,
)
from iris.cli.run import for_each, with_client
from iris.cli.show.columns import several
from iris.cli.show.messages import confirm, print_json
from iris.cli.show.slices import slice_json, slice_listing, slice_text, tasks_on
from iris.client.client import AsyncIrisClient
from iris.client.fleet.slices import SliceRow
from iris.messages.scheduler import HostView
from iris.model.errors import NotFound
from iris.model.slice.status import SliceState, SliceStatus
from iris.model.units import format_duration


@click.group("slice", cls=CommandGroup)
def slice_() -> None:
    """List, show, drain and delete slices."""


@slice_.command("list")
@group_option("Only slices of this scale group.")
@click.option(
    "--state",
    type=click.Choice([state.value for state in SliceState], case_sensitive=False),
    help="Only slices in this state.",
)
@json_option
@cluster_option
@click.pass_context
def list_slices(ctx: click.Context, group: str | None, state: str | None, as_json: bool) -> None:
    """List slices: their zones, states and reasons, and their tasks."""

    async def work(client: AsyncIrisClient) -> tuple[list[SliceRow], list[HostView]]:
        rows = await client.slices.list()
        if group is not None:
            settings = (await client.autoscaler.status()).settings
            known = {each.name for each in settings.groups} if settings is not None else set()
            known |= {row.group for row in rows if row.made}
            if group not in known:
                raise NotFound(
                    f"there is no scale group {group}; the groups are:"
                    f" {', '.join(sorted(known)) or 'none'}"
                )
        return rows, await client.hosts.list()

    def wanted(row: SliceRow) -> bool:
        return group in (None, row.group) and state in (None, row.state)

    rows, hosts = with_client(
        ctx,
        work,
        known=lambda client: fleet.without_control_plane.known_slices(client, wanted),
        as_json=as_json,
    )
    slice_listing(hosts).show([row for row in rows if wanted(row)], as_json=as_json)


@slice_.command()
@click.argument("slice_id", metavar="SLICE", shell_complete=names_of(Kind.SLICES))
@json_option
@cluster_option
@click.pass_context
def show(ctx: click.Context, slice_id: str, as_json: bool) -> None:
    """Show SLICE (its id, or the beginning of it): its hosts, their tasks, and its history."""

    async def work(client: AsyncIrisClient) -> tuple[SliceStatus, list[HostView]]:
        return await client.slices.show(slice_id), await client.hosts.list()

    def wanted(row: SliceRow) -> bool:
        return row.id.startswith(slice_id)

    status, hosts = with_client(
        ctx,
        work,
        known=lambda client: fleet.without_control_plane.known_slices(client, wanted, one=True),
        as_json=as_json,
    )
    if as_json:
        print_json(slice_json(status, hosts))
    else:
        click.echo(slice_text(status, hosts, datetime.now(UTC)))


_slices = click.argument(
    "slices",
    metavar="SLICE...",
    nargs=-1,
    required=True,
    shell_complete=names_of(Kind.SLICES),
)
_reason = reason_option("by `iris slice show`")


@slice_.command()
@_slices
@click.option(
    "--deadline",
    type=DURATION,
    help="Stop tasks that still run after this time, such as 10m.  [default: no limit]",
)
@_reason
@cluster_option
@click.pass_context
def drain(
    ctx: click.Context, slices: tuple[str, ...], deadline: timedelta | None, reason: str
) -> None:
    """Place no new tasks on each SLICE, and delete it when its running tasks have ended."""

    async def one(client: AsyncIrisClient, prefix: str) -> str:
        until = datetime.now(UTC) + deadline if deadline is not None else None
        slice_id, state = await client.slices.drain(prefix, reason, until)
        later = (
            f"; tasks that still run in {format_duration(deadline)} are stopped"
            if deadline and state == "is being drained"
            else ""
        )
        return f"slice {slice_id} {state}{later}"

    for_each(ctx, slices, one)


@slice_.command()
@_slices
@_reason
@yes_option
@cluster_option
@click.pass_context
def delete(ctx: click.Context, slices: tuple[str, ...], reason: str, yes: bool) -> None:
    """Delete each SLICE now. Its tasks are stopped after their grace period, and their jobs wait
    for another slice.
    """

    async def busy(client: AsyncIrisClient) -> tuple[list[str], list[str]]:
        hosts = await client.hosts.list()
        ids = [(await client.slices.show(prefix)).id for prefix in slices]
        return ids, [task for slice_id in ids for task in tasks_on(slice_id, hosts)]

    ids, tasks = with_client(ctx, busy) if not yes else ([], [])
    if tasks:
        confirm(f"Delete {', '.join(ids)}? {several(tasks)} will be stopped.")

    async def one(client: AsyncIrisClient, prefix: str) -> str:
        slice_id, state = await client.slices.delete(prefix, reason)
        return f"slice {slice_id} {state}"

    for_each(ctx, slices, one)
