"""The audit of a cluster with identities: one entry for each change by a person, and for each call
that was refused. Pure.

Temporal's servers write the entries as lines of JSON into files of their own machines, one for each
hour (`server/`). `iris controller ship-audit` stores them, and `iris audit` reads what is stored.
"""

import re
from collections.abc import Iterable
from datetime import date, datetime
from typing import NamedTuple

from pydantic import Field, ValidationError

from iris.model import store_paths
from iris.model.frozen import Frozen

#: `audit-<YYYYMMDDTHH>-<server>.jsonl`, as `server/` names its files.
_FILE = re.compile(r"audit-(\d{4})(\d\d)(\d\d)T(\d\d)-([A-Za-z0-9._-]{1,100})\.jsonl")


class AuditEntry(Frozen):
    """One call to Temporal's service. The server knows who made it from the caller's token."""

    at: datetime
    #: The name of the caller, and its role; empty if the caller proved no name.
    who: str = ""
    role: str = ""
    #: The first characters of the id of the caller's key.
    key: str = ""
    #: The address from which the call came: `HOST:PORT`.
    origin: str = Field(default="", alias="from")
    #: Temporal's method.
    method: str = ""
    #: The id of what the call was about, without the cluster: `job/ada/train`.
    what: str = ""
    #: What was done there, such as `signal hold`.
    detail: str = ""
    #: The reason that the caller gave, if it is not encrypted.
    why: str = ""
    allowed: bool = True
    #: Why the call was refused.
    refusal: str = ""
    #: The number of refused calls before this entry that the server did not record, because there
    #: were too many in a second.
    left_out: int = 0


class AuditQuestion(NamedTuple):
    """Which entries to show: those from `since` on, before `until`."""

    since: datetime
    until: datetime
    #: Only the calls of this person; empty for all.
    user: str = ""
    #: Only the calls about this job, its tasks and its child jobs, as a full job id; empty for all.
    job: str = ""
    #: Only refused calls.
    refused: bool = False

    def asks_for(self, entry: AuditEntry) -> bool:
        """Returns whether the entry is one of those to show."""
        return (
            self.since <= entry.at < self.until
            and self.user in ("", entry.who)
            and (not self.job or _is_about(entry.what, self.job))
            and not (self.refused and entry.allowed)
        )


class Audit(NamedTuple):
    """The entries that a question asks for, the oldest first."""

    entries: tuple[AuditEntry, ...]
    #: The number of lines that are not entries.
    unreadable: int = 0


class AuditFile(NamedTuple):
    """What the name of a server's file says."""

    day: date
    hour: int
    server: str


def entry_of(line: bytes) -> AuditEntry | None:
    """Returns the entry of a line; None if the line has none."""
    try:
        return AuditEntry.model_validate_json(line)
    except ValidationError:
        return None


def found_in(lines: Iterable[bytes], question: AuditQuestion) -> Audit:
    """Returns the entries of these lines that the question asks for."""
    found, unreadable = [], 0
    for line in lines:
        if (entry := entry_of(line)) is None:
            unreadable += bool(line.strip())
        elif question.asks_for(entry):
            found.append(entry)
    return Audit(tuple(sorted(found, key=lambda entry: entry.at)), unreadable)


def file_of(name: str) -> AuditFile | None:
    """Returns what the name of a server's file says; None if it is not the name of one."""
    if (parts := _FILE.fullmatch(name)) is None:
        return None
    year, month, day, hour, server = parts.groups()
    try:
        return AuditFile(date(int(year), int(month), int(day)), int(hour), server)
    except ValueError:  # such as the 31st of February
        return None


def chunk_path(cluster: str, file: AuditFile, offset: int) -> str:
    """Returns the path of the stored part of a server's file that begins at this byte."""
    folder = day_folder(cluster, file.day)
    return f"{folder}/{file.hour:02d}-{file.server}-{offset:010d}.jsonl"


def day_folder(cluster: str, day: date) -> str:
    """Returns the folder with the entries of a day, by UTC."""
    return f"{store_paths.audit(cluster)}/{day.isoformat()}"


def _is_about(what: str, job: str) -> bool:
    _, _, named = what.partition("/")
    return named == job or named.startswith((f"{job}/", f"{job}:"))
