"""Checks of single values that several sections have."""

from collections.abc import Callable, Iterator, Sequence

from iris.model.errors import InvalidValue
from iris.model.slice.scale_groups import is_gcp_zone


def raised_by(check: Callable[[str, str], object], path: str, value: str) -> Iterator[InvalidValue]:
    """Yields the error that the check raises, if it raises one."""
    try:
        check(path, value)
    except InvalidValue as error:
        yield error


def gcp_zone(path: str, zone: str) -> Iterator[InvalidValue]:
    if not is_gcp_zone(zone):
        yield InvalidValue(
            path, zone, "is not a zone", "use a region and a letter, such as europe-west4-b"
        )


def repeated(path: str, values: Sequence[str], what: str = "zone") -> Iterator[InvalidValue]:
    for value in sorted({each for each in values if values.count(each) > 1}):
        yield InvalidValue(path, value, "is listed twice", f"list each {what} once")
