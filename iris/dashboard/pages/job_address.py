"""What an address says about one job: its run, its tasks and the jobs above it."""

from collections.abc import Mapping

from iris.dashboard.reader import Reader
from iris.model import names
from iris.model.errors import InvalidValue


async def run_of(
    reader: Reader, job: str, query: Mapping[str, str]
) -> tuple[str | None, int | None]:
    """Returns the id and the number of the run that an address names; None for the latest run.

    Raises:
        NotFound: the job has no such run.
    """
    number = number_in(query, "run")
    if number is None:
        return None, None
    return await reader.shared(
        ("run", job, number), lambda: reader.client.jobs.run(job, number)
    ), number


def number_in(query: Mapping[str, str], name: str) -> int | None:
    """Returns a number of an address; None if the address has none.

    Raises:
        InvalidValue: it is no number.
    """
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 9):
        raise InvalidValue(name, text, "is no number", "write a number such as 3")
    return int(text)


def ancestors_of(job: str) -> list[str]:
    """Returns the jobs above the job, the highest first."""
    above: list[str] = []
    while (parent := names.parent_id(job)) is not None:
        above.insert(0, parent)
        job = parent
    return above
