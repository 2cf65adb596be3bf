"""Reads the log of a job as whole lines, for Python programs."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from iris.client.logs.entries import Entries, LogEntry
from iris.client.logs.follow import new_lines, reading_from
from iris.client.logs.reading import Reader
from iris.model.terminal_text import fit


async def whole_lines(
    reader: Reader, until: Coroutine[Any, Any, None] | None, title: str, *, tail: int | None
) -> AsyncGenerator[LogEntry, None]:
    """Yields the lines that exist now, and then the lines that are written until `until` returns.

    Args:
        until: None yields only the lines that exist now.
        tail: the number of existing lines to yield, counted from the end. None yields all of them.

    Raises:
        IrisError: the store is gone.
        Exception: an exception of `until`.
    """
    entries = Entries()
    ended = asyncio.ensure_future(until if until is not None else asyncio.sleep(0))
    try:
        if tail is not None:
            with reading_from(reader.store, title):
                last = await reader.tail(tail)
            for entry in entries.add(last):
                yield entry
        if until is not None or tail is None:
            async for lines in new_lines(reader, ended, title):
                for entry in entries.add(lines):
                    yield entry
        for entry in entries.finish():
            yield entry
        await ended
    finally:
        ended.cancel()


async def print_lines(lines: AsyncGenerator[LogEntry, None], limit: timedelta | None) -> bool:
    """Prints lines until there are no more, and returns True. Returns False if that takes longer
    than the limit.
    """
    try:
        async with (
            asyncio.timeout(None if limit is None else limit.total_seconds()),
            aclosing(lines),
        ):
            async for entry in lines:
                print_line(entry)
    except TimeoutError:
        return False
    return True


def print_line(entry: LogEntry) -> None:
    """Prints a line of a job's output. A terminal gets no escape sequences other than colours."""
    print(fit(entry.text) if sys.stdout.isatty() else entry.text)
