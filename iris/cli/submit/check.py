"""Implements `iris job check | schema`."""

import os
import shlex
from typing import BinaryIO

import click

from iris.cli.command import Command
from iris.cli.parameters import json_option
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.cli.show.messages import print_json
from iris.cli.submit.file import checked_jobs
from iris.cli.submit.input_file import name_of, read_whole
from iris.cli.submit.read_file import read_jobs
from iris.cli.submit.write_file import job_schema
from iris.client.build.warnings import job_warnings
from iris.model.job.spec import JobSpec

_JOBS: Listing[JobSpec] = Listing(
    Column("JOB", "id", shortens=True),
    Column("TASKS", "replicas"),
    Column("EACH TASK", value=lambda spec: str(spec.resources), wraps=True),
    Column("PRIORITY", "band", optional=True),
    Column("AFTER", value=lambda spec: ", ".join(map(str, spec.after)), wraps=True, optional=True),
    Column("COMMAND", value=lambda spec: " ".join(shlex.join(spec.command).split()), wraps=True),
    Column(key="command"),
    keys="id replicas band command",
)


@click.command(cls=Command)
@click.argument("file", type=click.File("rb"), metavar="FILE|-")
@json_option
def check(file: BinaryIO, as_json: bool) -> None:
    """Check a job file, and show its jobs or all its errors with their lines. Contacts no cluster.

    Exits with 2 if the file has errors. Warnings change nothing about the exit code.

    `iris submit --dry-run -f FILE` shows which hosts fit.
    """
    documents = read_jobs(read_whole(file), name_of(file), os.environ)
    specs = [job.spec for job in checked_jobs(documents, shares_files=False)]
    warnings = list(dict.fromkeys(warning for spec in specs for warning in job_warnings(spec)))
    if as_json:
        print_json({"ok": True, "jobs": [_JOBS.json(spec) for spec in specs], "warnings": warnings})
        return
    click.echo(f"{name_of(file)} is valid")
    click.echo(_JOBS.table(specs))
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


@click.command(cls=Command)
def schema() -> None:
    """Print the JSON schema of job files, for editors.

    \b
    iris job schema > iris-job.schema.json
    """
    print_json(job_schema())
