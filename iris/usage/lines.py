"""The stored form of the records of use: objects of JSON lines, in one folder for each day.

The name of an object follows from its content. So the same records, written again, are the same
object, and an object never changes.
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC, date, datetime

from pydantic import ValidationError

from iris.model import store_paths
from iris.usage.records import RECORD, AttemptUse, Record, UseEnd, times_of


def to_line(record: Record) -> bytes:
    """Returns the record as a line of JSON, without the fields that have their default values."""
    fields = record.model_dump_json(exclude_defaults=True)[1:]
    return f'{{"kind":"{record.kind}",{fields}\n'.encode()


def from_line(line: bytes) -> Record | None:
    """Returns the record of a line; None if the line has none that this version knows."""
    try:
        return RECORD.validate_json(line)
    except ValidationError:
        return None


def day_of(at: datetime) -> date:
    """Returns the day, by UTC, of a time."""
    return at.astimezone(UTC).date()


def day_folder(cluster: str, day: date) -> str:
    """Returns the folder with the records of the uses that ended on this day."""
    return f"{store_paths.usage_records(cluster)}/{day.isoformat()}"


def object_path(folder: str, content: bytes) -> str:
    """Returns the path of the object with this content in the folder of a day."""
    return f"{folder}/{hashlib.sha256(content).hexdigest()[:32]}.jsonl"


def to_objects(cluster: str, records: Iterable[Record]) -> dict[str, bytes]:
    """Returns the objects that store these records, by path: one for each day."""
    folders: dict[str, list[bytes]] = {}
    for record in records:
        folder = day_folder(cluster, day_of(times_of(record)[1]))
        folders.setdefault(folder, []).append(to_line(record))
    contents = {folder: b"".join(lines) for folder, lines in folders.items()}
    return {object_path(folder, content): content for folder, content in contents.items()}


def is_guess(record: Record) -> bool:
    """Returns whether another record with the same id, if there is one, says more: how the use
    really ended.
    """
    return isinstance(record, AttemptUse) and record.end is UseEnd.UNKNOWN
