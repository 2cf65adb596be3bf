"""Lists in pages, with the oddities of real ones."""

import base64
from typing import TypeVar

from tests.fakes.google.records import Knobs
from tests.fakes.google.refusals import invalid

T = TypeVar("T")


def page(
    knobs: Knobs, items: list[T], asked: int, token: str, default: int = 500
) -> tuple[list[T], str]:
    """(the page, the token of the next one).

    Raises:
        Refusal: the token is none of ours.
    """
    if asked < 0:
        raise invalid("Invalid value for field 'page_size': must not be negative")
    empties, start = _read(token) if token else (knobs.empty_pages, 0)
    if empties:
        return [], _written(empties - 1, start)
    size = max(1, min(asked or default, knobs.page_size))
    end = start + size
    if end >= len(items):
        return items[start:end], ""
    back = 1 if knobs.duplicates and size > 1 else 0
    return items[start:end], _written(0, end - back)


def _written(empties: int, start: int) -> str:
    return base64.urlsafe_b64encode(f"{empties}.{start}".encode()).decode()


def _read(token: str) -> tuple[int, int]:
    try:
        empties, start = base64.urlsafe_b64decode(token.encode()).decode().split(".")
        return int(empties), int(start)
    except ValueError:
        raise invalid("Invalid value for field 'page_token'") from None
