"""Watches for the notice that this machine is about to be taken away.

Google gives some thirty seconds (spot) or a minute (maintenance).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

from iris.worker_agents.host.metadata import Metadata

logger = logging.getLogger(__name__)

#: The watched metadata values that announce the end of the machine, and the reason for each. A
#: migration is not an end, because the machine continues elsewhere. Source:
#: cloud.google.com/compute/docs/instances/create-use-spot and
#: .../metadata/getting-live-migration-notice
NOTICES: Mapping[str, Mapping[str, str]] = {
    "instance/preempted": {"TRUE": "the provider is taking the machine back (preempted)"},
    "instance/maintenance-event": {
        "TERMINATE_ON_HOST_MAINTENANCE": "the provider is stopping the machine for maintenance"
    },
}
#: The first and the longest pause between two tries while the metadata server is away or does not
#: have the value. Each pause is twice the previous one.
RETRY_FIRST, RETRY_LAST = timedelta(seconds=1), timedelta(seconds=30)


async def watch_for_preemption(
    metadata: Metadata, on_notice: Callable[[str], None], retry: timedelta = RETRY_FIRST
) -> None:
    """Waits for the notice, for any time and through failures of the server. Then calls `on_notice`
    once with the reason.

    Args:
        retry: the first pause after a failure.
    """
    watches = [
        asyncio.create_task(_watch(metadata, path, reasons, retry))
        for path, reasons in NOTICES.items()
    ]
    try:
        done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
    on_notice(done.pop().result())


async def _watch(
    metadata: Metadata, path: str, reasons: Mapping[str, str], retry: timedelta
) -> str:
    """Returns the reason once the value announces the end of the machine."""
    etag: str | None = (
        None  # None: gets the current value, because it may have changed before this watch
    )
    pause = retry
    while True:
        try:
            text, etag = await metadata.ask(path, changed_from=etag)
        except OSError as error:
            logger.debug("the value %s could not be read: %s", path, error)
            text, etag = None, None
        if text is not None:
            if text.strip() in reasons:
                return reasons[text.strip()]
            pause = retry
            continue
        await asyncio.sleep(pause.total_seconds())
        pause = min(pause * 2, RETRY_LAST)
