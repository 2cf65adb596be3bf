"""Asks machines over SSH what they have, before they become hosts. Changes nothing there."""

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from iris.model.errors import InvalidValue
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
    """Returns what each machine has, or why it cannot be a host.

    Args:
        store: the URL of the store. The machines have to share its directory with this one, unless
            it is a bucket or empty.
        setting: names the store in errors.
        access: as in `Connections`.

    Raises:
        InvalidValue: the directory of the store cannot be used here.
    """
    from iris.platforms.manual.connections import (
        Connections,  # imports asyncssh, which is slow and optional
    )
    from iris.platforms.manual.survey import survey

    async def ask(directory: str, shared: str) -> "dict[HostAccess, Surveyed]":
        connections = Connections(settings, keep=True, access=access)
        try:
            return await survey(hosts, connections, store=directory, shared=shared)
        finally:
            await connections.close()

    with _shared_file(store, setting) as (directory, shared):
        return asyncio.run(ask(directory, shared))


@contextlib.contextmanager
def _shared_file(store: str, setting: str) -> Iterator[tuple[str, str]]:
    """Yields the directory of a store and the name of a file there, by which machines find out
    whether they share it.

    Both are empty if the store is none or a bucket.
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
