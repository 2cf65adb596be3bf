"""Starts clusters with hosts on other machines: in a cloud, or over SSH."""

from pathlib import Path
from typing import Any

import click

from iris.cli.interrupts import interrupted_start
from iris.cli.show.messages import print_json, show_risks
from iris.cli.show.progress import Steps
from iris.client.connect.clusters import ClusterRecord, read_record
from iris.config import load_written

#: The options of `iris cluster start` that only a cluster on this machine can have.
_LOCAL_ONLY = (
    *("name", "hosts", "tpu", "slices", "ephemeral", "agents"),
    *("cpu", "memory", "disk", "device", "attribute"),
    *("preemption", "patience", "min_run_time"),
)


def start(given: dict[str, Any], *, dry_run: bool) -> ClusterRecord | None:
    """Starts the cluster of a configuration, and returns its record.

    Args:
        given: the options of the command.
        dry_run: print the requests to the cloud, start nothing, and return None.

    Raises:
        InvalidValue: this version cannot start the cluster from this machine.
        IrisError: the cluster did not start.
    """
    from iris.client.operate.local.controller import create_controller

    file: Path | None = given["file"]
    if file is None:
        raise click.UsageError(
            "add --local for a cluster on this machine, or --config FILE for another cluster"
        )
    config, text = load_written(file)
    if config.platform.local is not None:
        raise click.UsageError(f"the cluster of {file} is on this machine: add --local")
    beside = [
        f"--{option.replace('_', '-')}"
        for option in _LOCAL_ONLY
        if given[option] not in (None, (), False)
    ]
    if beside:
        raise click.UsageError(
            f"{', '.join(beside)}: only for local clusters; change the file of --config instead"
        )
    show_risks(config)
    steps = Steps(f"starting cluster {config.name}")
    controller = create_controller(config, text=text, progress=steps)
    if dry_run and config.platform.gcp is None:
        raise click.UsageError("--dry-run shows the requests to a cloud; this cluster sends none")
    if dry_run:
        print_json(controller.requests())
        return None
    with steps, interrupted_start(config.name, f"iris cluster stop --config {file}"):
        controller.start(new=given["new"])
    return read_record(config.name)
