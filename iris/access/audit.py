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

#: Matches the name that a Temporal server gives an audit file: `audit-YYYYMMDDTHH-SERVER.jsonl`.
_FILE = re.compile(r"audit-(\d{4})(\d\d)(\d\d)T(\d\d)-([A-Za-z0-9._-]{1,100})\.jsonl")


class AuditEntry(Frozen):
    """One call to Temporal's service, as the server recorded it. The server identifies the caller
    by the caller's token.
    """

    at: datetime
    #: The name of the caller (`who`) and the caller's role; both are empty if the server could not
    #: identify the caller.
    who: str = ""
    role: str = ""
    #: The first characters of the id of the caller's key.
    key: str = ""
    #: The address from which the call came: `HOST:PORT`.
    origin: str = Field(default="", alias="from")
    #: The name of the called method of Temporal's API.
    method: str = ""
    #: The id of the object on which the caller acted, such as a workflow or a schedule, without the
    #: name of the cluster: `job/ada/train`.
    what: str = ""
    #: The kind of the action and its name, such as `signal hold`.
    detail: str = ""
    #: The reason that the caller gave; empty if there is none, or if it is encrypted.
    why: str = ""
    allowed: bool = True
    #: Why the call was refused; empty if it was allowed.
    refusal: str = ""
    #: The number of refused calls before this entry that the server did not record, because there
    #: were too many in a second.
    left_out: int = 0


class AuditQuestion(NamedTuple):
    """Selects the audit entries to show: those of calls at or after `since` and before `until`."""

    since: datetime
    until: datetime
    #: Selects only the calls of this person; empty selects the calls of all callers.
    user: str = ""
    #: The full id of a job: selects only the calls about this job, its tasks and its child jobs.
    #: Empty selects the calls about anything.
    job: str = ""
    #: Whether to select only refused calls.
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
    """The audit entries that an `AuditQuestion` selects, the oldest first."""

    entries: tuple[AuditEntry, ...]
    #: The number of lines in the audit files that are not valid entries. They are skipped.
    unreadable: int = 0


class AuditFile(NamedTuple):
    """The parts of the name of an audit file: the day and the hour of its entries, and the server
    that wrote it.
    """

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
