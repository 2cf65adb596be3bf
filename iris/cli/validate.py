"""Implements `iris cluster validate`."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iris.cli.columns import Column, Listing
from iris.cli.common import DURATION, Parsed, cluster_option, json_option, print_json
from iris.cli.elsewhere import named
from iris.client.client import IrisClient
from iris.model import accelerators
from iris.model.units import format_duration

if TYPE_CHECKING:
    from iris.client.operate.validation import CaseResult

#: Gives an `accelerators.Tpu`.
KIND = Parsed("variant", lambda text: accelerators.tpu(text, "tpu-type"))
CASES: "Listing[CaseResult]" = Listing(
    Column("CASE", "name"),
    Column("RESULT", "passed", text=lambda passed: "passed" if passed else "FAILED"),
    Column("TOOK", "took_seconds", lambda case: case.took, lambda took: rounded(took), lambda took: round(took, 3)),
    Column("DETAILS", "said", wraps=True),
    Column(key="jobs"),
)


@click.command()
@click.argument("name", required=False)
@click.option(
    "--config", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="The cluster of this configuration."
)
@click.option("--tpu-type", "kind", type=KIND, default="v5litepod-16", show_default=True, help="The kind of slice to try.")
@click.option(
    "--timeout",
    type=DURATION,
    default="30m",
    show_default=True,
    help="How long a job may wait for its slice, the making of it included.",
)
@json_option
@cluster_option
@click.pass_context
def validate(
    ctx: click.Context, name: str | None, file: Path | None, kind: accelerators.Tpu, timeout: timedelta, as_json: bool
) -> None:
    """Run three small jobs on TPU slices, and check that every host answers correctly.

    The cases are a simple job, one that computes with arguments, and two at once that must go through the scheduler. Exits with 0
    if all pass, with 1 if one fails. If no slice is idle, one is created, at the usual cost.
    """

    def tell(text: str) -> None:
        if not as_json:
            click.echo(text, err=True)

    # Imported here because only this command needs them, and they would slow down the group's other commands.
    from iris.client.operate import validation
    from iris.client.operate.cluster_ref import meant_by

    cluster = meant_by(named(ctx, name, file), file)

    async def work() -> "list[CaseResult]":
        client = await IrisClient.connect(cluster)
        tell(f"cluster {client.cluster.name}: {kind.variant}, {kind.hosts} host(s) with {kind.chips_per_host} chip(s) each")
        results = []
        async for result in validation.validate(client, kind, timeout, tell):
            results.append(result)
            tell(f"  {'passed' if result.passed else 'FAILED'} in {format_duration(rounded(result.took))}")
        return results

    results = asyncio.run(work())
    ok = all(result.passed for result in results)
    if as_json:
        print_json({"ok": ok, "tpu_type": kind.variant, "hosts": kind.hosts, "cases": [CASES.json(each) for each in results]})
    else:
        click.echo(CASES.table(results))
        click.echo(f"{sum(each.passed for each in results)} of {len(results)} passed")
    ctx.exit(0 if ok else 1)


def rounded(seconds: float) -> timedelta:
    """Rounds to a tenth of a second, for people."""
    return timedelta(seconds=round(seconds, 1))
