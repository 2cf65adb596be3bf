"""Implements `iris top`: the cluster, its groups and the user's jobs on one screen."""

import asyncio
import contextlib
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import click

from iris.cli.command import Command
from iris.cli.parameters import DURATION, cluster_option
from iris.cli.run import locate, selected
from iris.cli.show.autoscaler import GROUPS, problems
from iris.cli.show.full_screen import full_screen
from iris.cli.show.jobs import JOBS
from iris.cli.show.messages import print_json
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import current_user
from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import Snapshot
from iris.model.errors import IrisError, first_line

T = TypeVar("T")

#: The maximum number of jobs on the screen.
MAX_JOBS = 20
#: The maximum number of seconds to wait for each of the three queries (for hosts and queue, scale
#: groups, and jobs). Without a limit, the screen would not be updated while the control plane does
#: not answer.
PATIENCE_S = 5.0


class View(NamedTuple):
    """The data that `iris top` shows. A field is None if its query failed; `unknown` contains the
    reasons.
    """

    cluster: str
    user: str
    snapshot: Snapshot | None
    autoscaler: AutoscalerStatus | None
    jobs: list[JobRow] | None
    unknown: tuple[str, ...]


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="Print the present state once, also without a terminal.")
@click.option(
    "-n", "--interval", type=DURATION, default="2s", show_default=True, help="Time between updates."
)
@click.option("--json", "as_json", is_flag=True, help="Print the present state once, as JSON.")
@cluster_option
@click.pass_context
def top(ctx: click.Context, once: bool, interval: timedelta, as_json: bool) -> None:
    """Show the cluster, its scale groups and your jobs, and keep them up to date. q or Ctrl-C ends
    it.

    While the control plane does not answer, shows the parts that are known.
    """

    async def show() -> None:
        chosen = selected(ctx)
        await locate(chosen)
        client = await AsyncIrisClient.connect(chosen)
        if as_json:
            print_json(top_json(await query(client)))
            return
        if once:
            click.echo(top_text(await query(client), datetime.now(UTC)))
            return
        with full_screen("add --once") as draw:
            while True:
                draw(top_text(await query(client), datetime.now(UTC)))
                await asyncio.sleep(max(0.1, interval.total_seconds()))

    with contextlib.nullcontext() if once or as_json else contextlib.suppress(KeyboardInterrupt):
        asyncio.run(show())


async def query(client: AsyncIrisClient) -> View:
    """Queries all parts of the screen at the same time."""
    unknown: list[str] = []

    async def ask(what: str, answer: Awaitable[T]) -> T | None:
        try:
            return await asyncio.wait_for(answer, PATIENCE_S)
        except IrisError as error:
            unknown.append(f"{what}: {first_line(error)}")
        except TimeoutError:
            unknown.append(f"{what}: no answer within {PATIENCE_S:g} s")
        return None

    user = current_user()
    snapshot, scaling, jobs = await asyncio.gather(
        ask("hosts and queue", client.cluster.status()),
        ask("scale groups", client.autoscaler.status()),
        ask("jobs", client.jobs.list(JobFilter(user=user), limit=MAX_JOBS)),
    )
    return View(client.record.name, user, snapshot, scaling, jobs, tuple(unknown))


def top_json(view: View) -> dict[str, Any]:
    """Returns the screen as JSON. A failed query is null, and `not_asked` has the reasons."""
    snapshot, scaling, jobs = view.snapshot, view.autoscaler, view.jobs
    counts = (
        None
        if snapshot is None
        else {"total": snapshot.total_hosts, "quarantined": snapshot.quarantined}
    )
    queue = (
        None
        if snapshot is None
        else {"waiting": snapshot.waiting, "held": snapshot.held, "paused": snapshot.paused}
    )
    return {
        "cluster": view.cluster,
        "user": view.user,
        "hosts": counts,
        "queue": queue,
        "groups": None if scaling is None else [GROUPS.json(each) for each in scaling.groups],
        "problems": None if scaling is None else problems(scaling),
        "jobs": None if jobs is None else [JOBS.json(row) for row in jobs],
        "not_asked": "; ".join(view.unknown),
    }


def top_text(view: View, now: datetime) -> str:
    """Formats the screen."""
    counts = "its control plane does not answer"
    if view.snapshot is not None:
        counts = f"{view.snapshot.total_hosts} host(s), {view.snapshot.waiting} gang(s) waiting"
        counts += f", {view.snapshot.held} held" if view.snapshot.held else ""
    lines = [f"cluster {view.cluster}: {counts}  {now.astimezone():%H:%M:%S}"]
    if view.snapshot is not None and view.snapshot.paused is not None:
        lines.append(f"PAUSED  {view.snapshot.paused}")
    if view.autoscaler is not None:
        lines += [*problems(view.autoscaler)]
    lines += [f"unknown  {each}" for each in view.unknown]
    parts = ["\n".join(lines)]
    if view.autoscaler is not None and view.autoscaler.groups:
        parts.append(GROUPS.table(view.autoscaler.groups, now, cut=True))
    if view.jobs is not None:
        # live jobs first; both live and ended ones from the newest
        ordered = sorted(view.jobs, key=lambda row: row.state.ended)
        parts.append(f"jobs of {view.user}\n{JOBS.table(ordered, now, cut=True)}")
    return "\n\n".join(parts)
