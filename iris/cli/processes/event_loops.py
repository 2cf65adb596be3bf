"""Event loops of a process that ends with its command."""

import asyncio


class OpenLoop(asyncio.SelectorEventLoop):
    """An event loop that stays open after its work, until the process ends.

    The store and Temporal's client answer requests from their own threads. An answer to a request
    that was just cancelled may come when `asyncio.run` has returned. It would find a closed loop,
    and the client would print a traceback to the user.
    """

    def close(self) -> None:
        """Does nothing."""


class OpenLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Lets `asyncio.run` use an `OpenLoop`."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return OpenLoop()


def keep_loops_open() -> None:
    """Lets every later `asyncio.run` of this process leave its loop open."""
    asyncio.set_event_loop_policy(OpenLoopPolicy())
