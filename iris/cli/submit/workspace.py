"""Sends the files of the jobs of `iris submit`, and reports on it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from iris.cli.show.progress import transfer
from iris.client.build.draft import PlannedJob
from iris.client.build.files import JobFiles
from iris.client.build.send import send
from iris.client.connect.clusters import ClusterRecord
from iris.client.workspace.pack import pack
from iris.client.workspace.upload import upload
from iris.model.job.bundles import Bundle
from iris.model.job.spec import JobSpec
from iris.model.units import format_bytes
from iris.storage.object_store import Store


async def send_files(
    cluster: ClusterRecord, jobs: Sequence[PlannedJob], *, quiet: bool
) -> list[JobSpec]:
    """Uploads the files of the jobs, and returns the jobs with them. Reports on standard error,
    with a bar on a terminal.

    Raises:
        IrisError: packing or uploading failed, or a project cannot be installed from its files.
    """

    async def packed_upload(store: Store, files: JobFiles) -> Bundle:
        return await upload_workspace(store, files, quiet=quiet)

    return await send(cluster, jobs, packed_upload)


async def upload_workspace(store: Store, files: JobFiles, *, quiet: bool) -> Bundle:
    """Packs the files of a job and uploads them to the store. The first line is printed before the
    files are read.

    Raises:
        IrisError: packing or uploading failed.
    """
    what = _described(files)

    def say(count: int) -> None:
        if not quiet:
            click.echo(what.format(f"{count:,} file{'s' * (count != 1)}"), err=True)

    with await asyncio.to_thread(pack, files.directory, files.extra, say) as packed:
        with transfer("workspace", shown=not quiet) as progress:
            bundle = await upload(store, packed, progress)
        if not quiet:
            result = progress.summary("uploaded") if progress.called else "unchanged, nothing sent"
            click.echo(f"workspace: {format_bytes(bundle.size)}, {result}", err=True)
        return bundle


def _described(files: JobFiles) -> str:
    """Returns what is sent and why, with `{}` for the number of files."""
    if files.directory is None:
        return "sends {}"
    if files.is_named:
        return f"sends {_escaped(files.directory)}: {{}}"
    return f"sends the project at {_escaped(files.directory)}: {{}}; --no-workspace sends none"


def _escaped(directory: Path) -> str:
    return str(directory.resolve()).replace("{", "{{").replace("}", "}}")
