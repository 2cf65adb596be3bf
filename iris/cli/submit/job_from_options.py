"""From the options of a command line, a line of a batch or a job file to the job they ask for."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iris.client.build.arrays import GivenArray
from iris.client.build.conflicts import OptionConflict
from iris.client.build.draft import JobDraft, PlannedJob, plan
from iris.client.build.files import FileOptions
from iris.client.build.options import checkpoint_source
from iris.client.build.tasks import TaskOptions
from iris.client.connect.identity import current_user
from iris.model.host.constraints import (
    Constraint,
    preemptible_constraint,
    region_constraint,
    zone_constraint,
)
from iris.model.host.resources import Device, Resources
from iris.model.job.spec import Band

if TYPE_CHECKING:
    from iris.client.build.parent import EnclosingJob


def plan_job(
    options: Mapping[str, Any], *, shares_files: bool, within: "EnclosingJob | None" = None
) -> PlannedJob:
    """Returns the job that the options describe, with its files chosen and not sent.

    Args:
        shares_files, within: as for `plan`.

    Raises:
        InvalidJob: the job is invalid; the message has every problem.
        click.UsageError: options contradict each other.
        Rejected: a file that an option names cannot be sent.
    """
    try:
        return plan(draft_of(options), shares_files=shares_files, within=within)
    except OptionConflict as conflict:
        raise click.UsageError(conflict.usage) from None


def draft_of(options: Mapping[str, Any]) -> JobDraft:
    """Returns the job that the options ask for."""
    array: GivenArray | None = options["array"]
    return JobDraft(
        user=current_user(),
        name=options["name"],
        command=options["command"],
        resources=Resources(
            cpu_millis=options["cpu"],
            memory_bytes=options["memory"],
            disk_bytes=options["disk"],
        ),
        tasks=TaskOptions(
            tpu=options["tpu"],
            gpu=options["gpu"],
            device=options["device"] if isinstance(options["device"], Device) else None,
            slices=options["slices"],
            replicas=options["replicas"],
            array=None if array is None else array.array,
            gang_by=options["gang_by"],
            tasks_per_host=options["tasks_per_host"],
        ),
        files=_file_options(options),
        table=None if array is None else array.table,
        band=None if options["priority"] is None else Band(options["priority"]),
        fields=_fields(options),
    )


def _file_options(options: Mapping[str, Any]) -> FileOptions:
    named, none = options["workspace"], options["no_workspace"]
    if named is not None and none:
        raise click.UsageError("--workspace and --no-workspace exclude each other")
    return FileOptions(
        workspace=False if none else None if named is None else Path(named),
        project=options["project"],
        extra=options["file"],
        workdir=options["workdir"],
        image=options["image"],
        pip=options["pip"],
        sync=not options["no_sync"],
        project_extras=options["extra"],
    )


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `JobSpec` that the options give as they are."""
    after = (each for name in ("after", "after_any", "after_fail") for each in options[name])
    return {
        "constraints": _constraints(options),
        "env": dict(options["env"]),
        "secrets": dict(options["secret"]),
        "environment": {
            "sync": not options["no_sync"],
            "extras": options["extra"],
            "setup": options["setup"],
            "setup_timeout": options["setup_timeout"],
        },
        "from_checkpoint": checkpoint_source(options["from_checkpoint"]),
        "ports": options["port"],
        "scheduling_timeout": options["scheduling_timeout"],
        "timeout": options["timeout"],
        "grace": options["grace"],
        "stop_idle": options["stop_idle"],
        "max_retries_failure": options["max_retries"],
        "max_retries_preemption": options["max_retries_preemption"],
        "max_task_failures": options["max_task_failures"],
        "after": tuple(itertools.chain.from_iterable(after)),
        "tags": dict(options["tag"]),
        "limits": dict(options["limit"]),
        "note": options["note"],
        "notify": options["notify"],
    }


def _constraints(options: Mapping[str, Any]) -> tuple[Constraint, ...]:
    found = [*options["constraint"], *options["prefer"]]
    if options["region"]:
        found.append(region_constraint(options["region"]))
    if options["zone"]:
        found.append(zone_constraint(*options["zone"]))
    if options["preemptible"] is not None:
        found.append(preemptible_constraint(options["preemptible"]))
    return tuple(found)
