"""Selects lines of a log by their time and their stream."""

import time
from collections.abc import Collection
from datetime import datetime, timedelta

from iris.model.errors import InvalidValue
from iris.model.units import parse_duration
from iris.storage.log_format import Stream

#: The log streams, by the names that users write.
STREAMS = {stream.name.lower(): stream for stream in Stream}


def milliseconds_since(since: str | float | timedelta | datetime) -> int:
    """Returns a time in milliseconds since 1970.

    Args:
        since: a duration that counts back from now, such as `10m`, or a time, such as
            `2026-01-31T08:00:00Z`. A time without a zone is local.

    Raises:
        InvalidValue: a text is neither a duration nor a time.
    """
    if isinstance(since, datetime):
        return int(since.timestamp() * 1000)
    try:
        ago = since if isinstance(since, timedelta) else parse_duration(since)
        return int((time.time() - ago.total_seconds()) * 1000)
    except InvalidValue:
        pass
    try:
        return int(datetime.fromisoformat(str(since)).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        remedy = "write a duration, such as 10m, or a time, such as 2026-01-31T08:00:00Z"
        raise InvalidValue("since", since, "is neither a duration nor a time", remedy) from None


def streams_of(given: str | Collection[str] | None) -> set[Stream] | None:
    """Returns the streams with these names. None stands for all streams.

    Raises:
        InvalidValue: there is no such stream.
    """
    if given is None:
        return None
    wanted = {given} if isinstance(given, str) else set(given)
    if not wanted or (unknown := wanted - {*STREAMS}):
        raise InvalidValue(
            "stream",
            ", ".join(unknown) if wanted else "",
            "is not a stream",
            f"write {', '.join(STREAMS)}",
        )
    return {STREAMS[name] for name in wanted}
