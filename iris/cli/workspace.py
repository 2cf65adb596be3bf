"""Selects the workspace of `iris submit`, and reports on its upload."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from iris.client.workspace.files import is_project
from iris.client.workspace.pack import ExtraFile, pack
from iris.client.workspace.upload import upload
from iris.model.bundles import Bundle
from iris.model.units import format_bytes
from iris.storage.object_store import Store


def workspace_of(options: dict[str, Any]) -> Path | None:
    """Returns the directory whose files the job gets: the named one, else the current one if it is a project's.

    Raises:
        click.UsageError: options exclude each other.
    """
    named, none, workdir = options["workspace"], options["no_workspace"], options["workdir"]
    if named is not None and none:
        raise click.UsageError("--workspace and --no-workspace exclude each other")
    for name, given in (("--workspace", named is not None), ("--file", bool(options["file"]))):
        if workdir is not None and given:
            raise click.UsageError(f"--workdir and {name} exclude each other: the program starts in the workspace's files")
    if named is not None:
        return Path(named)
    here = Path.cwd()
    return here if not none and workdir is None and is_project(here) else None


async def send_workspace(store: Store, directory: Path | None, files: tuple[ExtraFile, ...], *, quiet: bool) -> Bundle:
    """Packs the workspace and uploads it to the store. Reports on standard error, with a progress bar on a terminal.

    Raises:
        IrisError: packing or uploading failed.
    """
    with await asyncio.to_thread(pack, directory, files) as packed:
        bar = _Bar(shown=not quiet and sys.stderr.isatty())
        try:
            bundle = await upload(store, packed, bar)
        finally:
            bar.close()
        if not quiet:
            files_text = f"{packed.files:,} file{'s' * (packed.files != 1)}"
            result = "uploaded" if bar.called else "unchanged, nothing sent"
            click.echo(f"workspace: {files_text}, {format_bytes(bundle.size)}, {result}", err=True)
        return bundle


class _Bar:
    """Shows the progress of the upload on a terminal."""

    def __init__(self, *, shown: bool) -> None:
        self.called = False
        self._shown = shown
        self._bar: Any = None
        self._reported = 0

    def __call__(self, sent: int, total: int) -> None:
        self.called = True
        if not self._shown:
            return
        if self._bar is None:
            self._bar = click.progressbar(
                length=total,
                label="workspace",
                file=sys.stderr,
                item_show_func=lambda sent: f"{format_bytes(sent or 0)} of {format_bytes(total)}",
            )
            self._bar.render_progress()
        self._bar.update(sent - self._reported, sent)
        self._reported = sent

    def close(self) -> None:
        """Ends the bar's line on the terminal."""
        if self._bar is not None:
            self._bar.render_finish()
