"""Serves the metrics of this process, if it has a port for them.

The page has the metrics of Iris, those of the process (memory, CPU, open files), and those of
Temporal's SDK. The SDK serves its own at a port that it opens itself, and the page copies them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

from iris.metrics.declared import METRICS
from iris.metrics.kinds import Part
from iris.processes.process import free_ports

logger = logging.getLogger(__name__)


class Listen(NamedTuple):
    """The address and the port at which a process serves its metrics."""

    #: The port; 0 to serve none.
    port: int = 0
    #: The IP address. Other machines reach the page only if it is not a loopback address.
    address: str = "127.0.0.1"

    def with_options(self, port: int | None, address: str | None) -> "Listen":
        """Returns this with the values of the options that are set."""
        return Listen(
            self.port if port is None else port, self.address if address is None else address
        )


@contextlib.contextmanager
def serving_metrics(part: Part, listen: Listen) -> Iterator[str]:
    """Serves the metrics of this process for as long as the block lasts.

    A port that cannot be used is logged. It does not end the process, whose own work is more
    important, and Prometheus shows that the target is down.

    Yields:
        The `host:port` at which Temporal's SDK has to serve its metrics
        (`connection.make_runtime`); empty if this process serves none.
    """
    if not listen.port:
        yield ""
        return
    from iris.metrics import page  # late: most processes do not need the libraries

    sdk = f"127.0.0.1:{free_ports()[0]}"
    with contextlib.ExitStack() as stack:
        try:
            registry = stack.enter_context(
                page.storing([each for each in METRICS if each.part is part])
            )
            stack.enter_context(page.serving(registry, listen.address, listen.port, sdk))
        except OSError as error:
            logger.warning(
                "no metrics are served: port %d of %s cannot be used: %s",
                *(listen.port, listen.address, error.strerror or error),
            )
            sdk = ""
            stack.pop_all().close()
        yield sdk


async def keep_gauges(gather: Callable[[], Awaitable[None]], interval: timedelta) -> None:
    """Gathers the values of gauges at the interval, until this is cancelled."""
    while True:
        try:
            await gather()
        except Exception:
            logger.exception("the values of metrics could not be gathered")
        await asyncio.sleep(interval.total_seconds())
