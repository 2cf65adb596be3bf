"""The notice that this machine is about to be taken away: Google gives some thirty seconds (spot) or a minute (maintenance)."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

from iris.worker_agents.metadata import Metadata

logger = logging.getLogger(__name__)

#: What is watched, and which of its values mean the end, in which words. A migration is none: the machine goes on elsewhere.
#: cloud.google.com/compute/docs/instances/create-use-spot and .../metadata/getting-live-migration-notice
NOTICES: Mapping[str, Mapping[str, str]] = {
    "instance/preempted": {"TRUE": "the provider is taking the machine back (preempted)"},
    "instance/maintenance-event": {"TERMINATE_ON_HOST_MAINTENANCE": "the provider is stopping the machine for maintenance"},
}
#: Between two tries while the server is away or does not know the value: from the first, doubled up to the last.
RETRY_FIRST, RETRY_LAST = timedelta(seconds=1), timedelta(seconds=30)


async def watch_for_preemption(metadata: Metadata, on_notice: Callable[[str], None], retry: timedelta = RETRY_FIRST) -> None:
    """Wait for the notice, however long that takes and however the server fails; then say why, once.

    Args:
        retry: the first wait after a failure.
    """
    watches = [asyncio.create_task(_watch(metadata, path, meant, retry)) for path, meant in NOTICES.items()]
    try:
        done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
    on_notice(done.pop().result())


async def _watch(metadata: Metadata, path: str, meant: Mapping[str, str], retry: timedelta) -> str:
    """Which end the value means, once it means one."""
    etag: str | None = None  # None: as it is now; the change may have been before we came
    pause = retry
    while True:
        try:
            text, etag = await metadata.ask(path, changed_from=etag)
        except OSError as error:
            logger.debug("no word of %s: %s", path, error)
            text, etag = None, None
        if text is not None:
            if text.strip() in meant:
                return meant[text.strip()]
            pause = retry
            continue
        await asyncio.sleep(pause.total_seconds())
        pause = min(pause * 2, RETRY_LAST)
