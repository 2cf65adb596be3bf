"""Implements `iris cluster validate`."""

from datetime import timedelta
from pathlib import Path

import click

from iris.cli.command import Command
from iris.cli.parameters import (
    DURATION,
    Parsed,
    cluster_argument,
    cluster_option,
    config_option,
    json_option,
)
from iris.cli.run import selected, with_client
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.cli.show.messages import print_json
from iris.client.client import AsyncIrisClient
from iris.client.operate.validation import CaseResult
from iris.client.operate.validation import validate as run_cases
from iris.model.host import accelerators
from iris.model.units import format_duration

#: The type of an option whose value is a TPU variant. It returns an `accelerators.Tpu`.
KIND = Parsed("variant", lambda text: accelerators.tpu(text, "tpu-type"))
CASES: Listing[CaseResult] = Listing(
    Column("CASE", "name"),
    Column("RESULT", "passed", text=lambda passed: "passed" if passed else "FAILED"),
    Column(
        "TOOK",
        "took_seconds",
        lambda case: case.took,
        lambda took: rounded(took),
        lambda took: round(took, 3),
    ),
    Column("DETAILS", "said", wraps=True),
    Column(key="jobs"),
)


@click.command(cls=Command)
@cluster_argument
@config_option
@click.option(
    "--tpu-type",
    "kind",
    type=KIND,
    default="v5litepod-16",
    show_default=True,
    help="TPU type of the slices.",
)
@click.option(
    "--timeout",
    type=DURATION,
    default="30m",
    show_default=True,
    help="How long a job may wait for its slice, including the creation of the slice.",
)
@json_option
@cluster_option
@click.pass_context
def validate(
    ctx: click.Context,
    name: str | None,
    file: Path | None,
    kind: accelerators.Tpu,
    timeout: timedelta,
    as_json: bool,
) -> None:
    """Run three small jobs on TPU slices, and check that every host answers correctly.

    The cases are a simple job, one that computes with arguments, and two at once that must go
    through the scheduler. Exits with 0 if all pass, with 1 if one fails. If no slice is idle, the
    autoscaler creates one, at the usual cost.
    """

    def progress(text: str) -> None:
        if not as_json:
            click.echo(text, err=True)

    async def work(client: AsyncIrisClient) -> list[CaseResult]:
        progress(
            f"cluster {client.record.name}: {kind.variant}, {kind.hosts} host(s) with"
            f" {kind.chips_per_host} chip(s) each"
        )
        results = []
        async for result in run_cases(client, kind, timeout, progress):
            results.append(result)
            progress(
                f"  {'passed' if result.passed else 'FAILED'} in"
                f" {format_duration(rounded(result.took))}"
            )
        return results

    results = with_client(ctx, work, selected(ctx, name, file))
    ok = all(result.passed for result in results)
    if as_json:
        print_json(
            {
                "ok": ok,
                "tpu_type": kind.variant,
                "hosts": kind.hosts,
                "cases": [CASES.json(each) for each in results],
            }
        )
    else:
        click.echo(CASES.table(results))
        click.echo(f"{sum(each.passed for each in results)} of {len(results)} passed")
    ctx.exit(0 if ok else 1)


def rounded(seconds: float) -> timedelta:
    """Returns the duration, rounded to a tenth of a second."""
    return timedelta(seconds=round(seconds, 1))
