#!/usr/bin/env python3
"""Tries a configuration: starts its cluster, runs small jobs on TPU slices, stops the cluster, and
prints a table of the phases.

    .venv/bin/python scripts/smoke-test.py --config examples/eu-west4.yaml --local
        simulated on this machine
    .venv/bin/python scripts/smoke-test.py --config FILE [--tpu-type VARIANT]
            [--build REGISTRY] [--clean-start]

Without --local the cluster must not exist yet; an existing cluster is left alone. The exit code is
0 if every phase has passed.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import iris
from iris.client.operate.validation import validate
from iris.model.host import accelerators
from iris.model.units import format_duration, parse_duration

SCRIPTS = Path(__file__).parent


class Results:
    """The phases so far."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, bool, float, str]] = []

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[list[str]]:
        """Measures a phase. The block appends what it has found to the list."""
        click.echo(f"== {name}", err=True)
        details: list[str] = []
        begun, passed = time.monotonic(), False
        try:
            yield details
            passed = True
        except iris.IrisError as error:
            details.append(str(error))
            raise
        finally:
            self.rows.append((name, passed, time.monotonic() - begun, "; ".join(details)))

    @property
    def passed(self) -> bool:
        return all(passed for _, passed, _, _ in self.rows)

    def show(self) -> None:
        table = Table("phase", "result", "took", "details")
        for name, passed, took, details in self.rows:
            table.add_row(
                name,
                "passed" if passed else "FAILED",
                format_duration(timedelta(seconds=round(took, 1))),
                details,
            )
        console = Console()
        Console(width=None if console.is_terminal else 160).print(table)
        click.echo(
            f"{sum(passed for _, passed, _, _ in self.rows)} of {len(self.rows)} phases passed"
        )


def run_jobs(results: Results, cluster: str, kind: accelerators.Tpu, timeout: timedelta) -> None:
    """Adds a row for each case of `iris cluster validate`."""

    async def cases() -> None:
        client = await iris.AsyncIrisClient.connect(cluster)
        async for case in validate(client, kind, timeout, lambda text: click.echo(text, err=True)):
            results.rows.append((f"job: {case.name}", case.passed, case.took, case.said))

    click.echo(
        f"== jobs on {kind.variant}, {kind.hosts} host(s) with {kind.chips_per_host} chip(s) each",
        err=True,
    )
    asyncio.run(cases())


def smoke_test(
    config: iris.ClusterConfig,
    kind: accelerators.Tpu,
    timeout: timedelta,
    results: Results,
    registry: str,
    clean: list[str],
) -> None:
    """Runs the phases. A phase that fails ends them; a cluster that this has started is stopped in
    any case.
    """
    manager = iris.ClusterManager(
        config,
        ephemeral=config.controller.local is not None,
        owned=config.controller.local is not None,
        progress=lambda text: click.echo(text, err=True),
    )
    if registry:
        with results.phase("build and push images"):
            subprocess.run([SCRIPTS / "build-images", "--push", registry], check=True)
    if clean:
        with results.phase("clean up"):
            subprocess.run(
                [SCRIPTS / "cleanup-cluster", *clean, "--controller", "--no-dry-run"], check=True
            )
    with results.phase("start") as details:
        details.append(manager.start(new=True))
    try:
        run_jobs(results, config.name, kind, timeout)
    finally:
        with results.phase("stop"):
            manager.stop()


@click.command(help="Try a configuration with small jobs on TPU slices.")
@click.option(
    "--config", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=True
)
@click.option(
    "--local", is_flag=True, help="Simulate the cluster on this machine, beside other clusters."
)
@click.option(
    "--tpu-type", default="v5litepod-16", show_default=True, help="TPU type of the slices."
)
@click.option(
    "--timeout", default="30m", show_default=True, help="How long a job may wait for its slice."
)
@click.option(
    "--build",
    "registry",
    metavar="REGISTRY",
    default="",
    help="First build the images and push them here.",
)
@click.option(
    "--clean-start",
    is_flag=True,
    help="First delete what an earlier cluster of this configuration has left.",
)
def main(
    file: Path, local: bool, tpu_type: str, timeout: str, registry: str, clean_start: bool
) -> int:
    if local and (registry or clean_start):
        raise click.UsageError(
            "--build and --clean-start are for a cluster elsewhere; leave --local out"
        )
    results = Results()
    try:
        config = iris.load_config(file.read_text())
        if local:
            config = iris.make_local_config(config, f"smoke-{os.getpid()}")
        kind, patience = accelerators.tpu(tpu_type, "tpu-type"), parse_duration(timeout, "timeout")
        smoke_test(
            config,
            kind,
            patience,
            results,
            registry,
            ["--config", str(file)] if clean_start else [],
        )
    except iris.IrisError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    finally:
        if results.rows:
            results.show()
    return 0 if results.passed else 1


def ended(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ended)  # as Ctrl-C: the cluster is stopped
    try:
        code = main.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = 130
    sys.stdout.flush()
    os._exit(code)  # Temporal's client may abort during the interpreter's own clean-up
