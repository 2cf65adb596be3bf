"""The form in which a report is kept in a cluster's store: one object of two lines of JSON. The
first line is short, so that a list of many reports reads little.

Others may be able to write to the store. So what is read is checked, and nothing of it is HTML.
"""

from datetime import datetime
from typing import Annotated, Literal, NamedTuple

from pydantic import StringConstraints, ValidationError

from iris.model.frozen import Frozen
from iris.simulation.report.document import Report
from iris.simulation.report.tables import Headline

#: The limit on bytes of the first line of a stored report.
MOST_HEADING = 8 * 1024
#: The limit on bytes of a stored report. A report about two weeks with 10,000 jobs and 200
#: simultaneous slices has a fifth of this size.
MOST_BYTES = 4 * 1024 * 1024
#: The limit on characters of each text in the first line of a stored report.
_MOST_TEXT = 300
_Text = Annotated[str, StringConstraints(max_length=_MOST_TEXT)]


class Heading(Frozen):
    """The first line of a stored report: the data that a list of reports shows."""

    version: Literal[1] = 1
    #: The name of the user who published the report.
    user: _Text
    #: The time at which the report was published.
    at: datetime
    configuration: _Text
    against: _Text = ""
    workload: _Text
    headline: Headline


class StoredReport(NamedTuple):
    """A report that was published to the cluster's store."""

    heading: Heading
    report: Report


def to_bytes(report: Report, user: str, at: datetime) -> bytes:
    """Returns the content of the object. If it would be too large, the largest pictures are left
    out, which a line of the report says.

    Args:
        user: who publishes it.
        at: when.

    Raises:
        ValueError: it is too large without pictures, too.
    """
    heading = Heading(
        user=_short(user),
        at=at,
        configuration=_short(report.configuration),
        against=_short(report.against),
        workload=_short(report.workload),
        headline=report.headline,
    )
    first = heading.model_dump_json()
    while len(content := f"{first}\n{report.model_dump_json()}\n".encode()) > MOST_BYTES:
        report = _without_largest_picture(report, len(content))
    return content


def _without_largest_picture(report: Report, size: int) -> Report:
    if not report.pictures:
        raise ValueError(f"the report has {size:,} bytes; the limit is {MOST_BYTES:,}")
    largest = max(report.pictures, key=lambda each: len(each.drawing.model_dump_json()))
    note = f"left out, because it is too large: the picture {largest.title}"
    return report.model_copy(
        update={
            "facts": (*report.facts, note),
            "pictures": tuple(each for each in report.pictures if each is not largest),
        }
    )


def heading_in(content: bytes) -> Heading | None:
    """Returns the heading at the begin of an object; None if this version cannot read it.

    Args:
        content: the first `MOST_HEADING` bytes of the object.
    """
    first, end, _ = content.partition(b"\n")
    try:
        return Heading.model_validate_json(first) if end else None
    except ValidationError:
        return None


def from_bytes(content: bytes) -> StoredReport | None:
    """Returns the report in an object; None if this version cannot read it."""
    first, _, second = content.partition(b"\n")
    try:
        return StoredReport(Heading.model_validate_json(first), Report.model_validate_json(second))
    except ValidationError:
        return None


def _short(text: str) -> str:
    """Returns a text, or its end if it is too long: of a path, that says most."""
    return text if len(text) <= _MOST_TEXT else f"…{text[1 - _MOST_TEXT :]}"
