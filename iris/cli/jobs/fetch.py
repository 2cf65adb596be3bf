"""Implements `iris fetch`."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task
from iris.cli.jobs.logs import find_archive
from iris.cli.parameters import cluster_option, job_argument, json_option
from iris.cli.show.messages import print_json
from iris.cli.show.progress import transfer
from iris.cli.show.terminal import is_live
from iris.client.connect.identity import job_and_run
from iris.client.jobs.fetch import Fetched, repository_warnings
from iris.client.jobs.fetch import fetch as fetch_files
from iris.client.jobs.files import OutputFile, find_files
from iris.client.logs.follow import reading_from
from iris.client.operate.archive import Archive
from iris.model.errors import NotFound
from iris.model.names import ENV_CHECKPOINT_DIR, ENV_OUTPUT_DIR
from iris.model.units import format_bytes
from iris.storage.object_store import Store


@click.command(cls=Command)
@job_argument
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory to write to.  [default: NAME-outputs or NAME-checkpoint]",
)
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    help="Only this attempt.  [default: each task's latest attempt that has files]",
)
@click.option(
    "--checkpoint",
    is_flag=True,
    help="The files of the checkpoint directory, as they were saved last.",
)
@click.option("--list", "only_list", is_flag=True, help="List the files without fetching them.")
@click.option("--force", is_flag=True, help="Overwrite existing files that differ.")
@json_option
@cluster_option
@click.pass_context
def fetch(
    ctx: click.Context,
    job: str,
    directory: Path | None,
    attempt: int | None,
    checkpoint: bool,
    only_list: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Fetch the files that JOB (NAME, one task: NAME:3, an earlier run: NAME#1) wrote to
    $IRIS_OUTPUT_DIR, or to its checkpoint directory, $IRIS_CHECKPOINT_DIR.

    The files of a job with several tasks are written to one folder for each task: NAME-outputs/3/.
    Works without hosts and control plane.

    \b
    iris fetch train
    iris fetch train:0 -o results
    iris fetch train --list
    iris fetch train --checkpoint
    """
    if checkpoint and attempt:
        raise click.UsageError(
            "--checkpoint and --attempt exclude each other: all attempts share one checkpoint"
        )
    named, number = job_and_run(job)
    _, task = job_and_task(named)

    async def work() -> None:
        cluster = ctx.find_root().obj["cluster"]
        archive = await find_archive(cluster, named.partition(":")[0], task, number)
        files = await find_files(
            Store(archive.cluster.store),
            archive.job,
            archive.source,
            task,
            attempt,
            checkpoint=checkpoint,
        )
        if not files:
            raise NotFound(_no_checkpoint(job) if checkpoint else _nothing(job, attempt))
        if only_list:
            _list(files, as_json=as_json)
            return
        what = "checkpoint" if checkpoint else "outputs"
        into = directory or Path(f"{archive.job.rpartition('/')[2]}-{what}")
        by_task = task is None and archive.source.tasks > 1
        fetched = await _fetch(archive, files, what, into, by_task=by_task, force=force)
        _report(fetched, into, as_json=as_json)

    asyncio.run(work())


async def _fetch(
    archive: Archive, files: list[OutputFile], what: str, into: Path, *, by_task: bool, force: bool
) -> list[Fetched]:
    """Writes the files into a directory, with progress on standard error."""
    store = Store(archive.cluster.store)
    with _progress(files) as progress, reading_from(store, f"the {what} of {archive.job}"):
        return await fetch_files(
            store, files, into, by_task=by_task, force=force, progress=progress
        )


def _report(fetched: list[Fetched], into: Path, *, as_json: bool) -> None:
    """Prints the written files, and warnings."""
    if as_json:
        print_json(
            [
                {**_file_json(each.file), "to": str(each.to), "written": each.written}
                for each in fetched
            ]
        )
    same = sum(not each.written for each in fetched)
    size = format_bytes(sum(each.file.size for each in fetched))
    existed = f"; {same} existed already" if same else ""
    click.echo(f"{_files(len(fetched))}, {size}, in {into}{existed}", err=True)
    for warning in repository_warnings(fetched):
        click.echo(f"warning: {warning}", err=True)


def _nothing(job: str, attempt: int | None) -> str:
    whose = f"attempt {attempt} of {job}" if attempt else job
    return (
        f"the store has no outputs of {whose}: files in ${ENV_OUTPUT_DIR} are stored when an"
        f" attempt ends; check the state with: iris status {job.partition(':')[0]}"
    )


def _no_checkpoint(job: str) -> str:
    return (
        f"the store has no checkpoint of {job}: files in ${ENV_CHECKPOINT_DIR} are saved some"
        " seconds after their last change; check the state with: iris status"
        f" {job.partition(':')[0]}"
    )


def _list(files: list[OutputFile], *, as_json: bool) -> None:
    if as_json:
        print_json([_file_json(file) for file in files])
        return
    width = max(len(format_bytes(file.size)) for file in files)
    for file in files:
        click.echo(f"{file.task:>4}  {format_bytes(file.size):>{width}}  {_printable(file)}")
    click.echo(f"{_files(len(files))}, {format_bytes(sum(file.size for file in files))}", err=True)


def _file_json(file: OutputFile) -> dict[str, Any]:
    return {
        "task": file.task,
        "attempt": file.attempt,
        "path": str(file.path),
        "size_bytes": file.size,
    }


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _printable(file: OutputFile) -> str:
    """Returns the path without line breaks and control characters."""
    return "".join(each if each.isprintable() else "�" for each in str(file.path))


@contextmanager
def _progress(files: list[OutputFile]) -> Iterator[Callable[[Fetched], None]]:
    """Yields a function to call after each file.

    It shows the progress on standard error: a bar on a terminal, elsewhere a line for each file.
    """
    if not is_live():
        yield lambda fetched: click.echo(
            f"{format_bytes(fetched.file.size):>10}  {fetched.to}", err=True
        )
        return
    total, done = sum(file.size for file in files), 0
    with transfer("fetching") as progress:
        progress(0, total)

        def add(fetched: Fetched) -> None:
            nonlocal done
            done += fetched.file.size
            progress(done, total)

        yield add
