"""Follows logs while they grow."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

from obstore.exceptions import BaseError

from iris.client.logs.reading import Reader, TaskLine
from iris.model.errors import IrisError, Unreachable, first_line
from iris.storage.files import CannotWrite, is_full
from iris.storage.object_store import Store, StoreAway

#: The number of seconds between two checks for new output. It is so short that output seems to
#: appear at once.
POLL_INTERVAL_S = 0.25
#: The number of seconds between two checks for new output if the store is on this machine. Checks
#: of a local store cost almost nothing.
POLL_INTERVAL_LOCAL_S = 0.1
#: The number of seconds for which reads from a failing store are repeated. After it, the error is
#: raised.
STORE_TIMEOUT_S = 20.0


@contextlib.contextmanager
def reading_from(store: Store, title: str) -> Iterator[None]:
    """Turns failures of the store into readable errors.

    The block must not print. A broken pipe or a full disk of the output would look like a failure
    of the store.
    """
    try:
        yield
    except CannotWrite as error:
        raise cannot_write(error) from None
    except (OSError, BaseError) as error:
        kind = Unreachable if isinstance(error, StoreAway | BaseError) else IrisError
        raise kind(
            f"{title} cannot be read from the store {store.url}: {first_line(error)}"
        ) from None


def cannot_write(error: OSError) -> IrisError:
    """Returns the error for a file of this machine that cannot be written."""
    remedy = "free disk space there" if is_full(error) else "check that you may write there"
    return IrisError(
        f"{error.filename} cannot be written: {error.strerror}; {remedy}, or use another directory"
    )


async def present_lines(
    reader: Reader, title: str, tail: int | None
) -> AsyncIterator[list[TaskLine]]:
    """Yields the lines that exist now.

    Args:
        tail: the number of last lines to yield. None yields all lines.

    Raises:
        IrisError: the store is gone.
    """
    # The caller prints the lines outside of this block: an error of the caller is not raised in a
    # generator.
    with reading_from(reader.store, title):
        if tail is not None:
            yield await reader.tail(tail)
            return
        async for lines in reader.new_lines():
            yield lines


async def new_lines(
    reader: Reader, ended: "asyncio.Future[None]", title: str
) -> AsyncIterator[list[TaskLine]]:
    """Yields lines as they are written until `ended` is done, and then the last lines that were
    written before.

    Raises:
        IrisError: the store is gone.
    """
    interval = POLL_INTERVAL_LOCAL_S if reader.store.url.startswith("file:") else POLL_INTERVAL_S
    last = False
    failing_since: float | None = None
    while True:
        try:
            with reading_from(reader.store, title):
                async for lines in reader.new_lines(quick=not last):
                    yield lines
            if last:
                return
            failing_since = None
        except IrisError:  # the failure may be temporary, and no line is skipped
            if last and not ended.cancelled() and ended.exception() is not None:
                # The store has gone with its cluster. The caller learns the reason from `ended`.
                return
            failing_since = failing_since or time.monotonic()
            if time.monotonic() - failing_since > STORE_TIMEOUT_S:
                raise
            await asyncio.sleep(POLL_INTERVAL_S)
        await asyncio.wait({ended}, timeout=interval)
        # All output is stored before a job ends, so one check after the end sees all of it.
        last = ended.done()
