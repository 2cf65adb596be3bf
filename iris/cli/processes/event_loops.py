"""Event loops that stay open until the process ends, because late answers need them."""

import asyncio


class OpenLoop(asyncio.SelectorEventLoop):
    """An event loop that is not closed before the process ends.

    The store and Temporal's client answer requests from their own threads. The answer to a request
    that was just cancelled may arrive after `asyncio.run` has returned. With a closed loop, the
    client would print a traceback.
    """

    def close(self) -> None:
        """Does nothing."""


class OpenLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes `asyncio.run` use an `OpenLoop`, which stays open until the process ends."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return OpenLoop()


def keep_loops_open() -> None:
    """Makes every later `asyncio.run` of this process leave its loop open."""
    asyncio.set_event_loop_policy(OpenLoopPolicy())
