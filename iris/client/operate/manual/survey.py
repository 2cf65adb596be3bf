"""Asks machines over SSH for their hardware and software before they become hosts. Changes nothing
there.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from iris.model.errors import InvalidValue
from iris.platforms import manual
from iris.platforms.manual.settings import HostAccess, ManualSettings

if TYPE_CHECKING:
    from iris.platforms.manual.survey import Surveyed


def ask_machines(
    settings: ManualSettings,
    hosts: Sequence[HostAccess],
    store: str,
    *,
    setting: str,
    access: Callable[[str], bytes] | None = None,
) -> "dict[HostAccess, Surveyed]":
    """Returns the facts about each machine, with the reason if it cannot be a host.

    Args:
        store: the URL of the store; empty for none. If it is a directory, the machines must share
            it with this machine.
        setting: the name of the store's setting, for errors.
        access: reads files for SSH from Secret Manager, as in `Connections`.

    Raises:
        InvalidValue: the directory of the store cannot be used here.
    """

    async def ask(directory: str, shared: str) -> "dict[HostAccess, Surveyed]":
        opened = manual.connections.Connections(settings, keep=True, access=access)
        try:
            return await manual.survey.survey(hosts, opened, store=directory, shared=shared)
        finally:
            await opened.close()

    with _shared_file(store, setting) as (directory, shared):
        return asyncio.run(ask(directory, shared))


@contextlib.contextmanager
def _shared_file(store: str, setting: str) -> Iterator[tuple[str, str]]:
    """Yields the directory of a store and the name of a temporary file in it. A machine that finds
    the file shares the directory.

    Both are empty if there is no store or it is a bucket.
    """
    if not store.startswith("file:"):
        yield "", ""
        return
    directory = unquote(urlsplit(store).path)
    if not Path(directory).is_dir():
        raise InvalidValue(
            setting,
            directory,
            "is no directory of this machine",
            "create or mount the shared directory first",
        )
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".iris-init-") as shared:
            yield directory, Path(shared.name).name
    except PermissionError as error:
        raise InvalidValue(
            setting,
            directory,
            f"cannot be written: {error.strerror}",
            "give your user access to it",
        ) from None
