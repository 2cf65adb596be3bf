"""What a page shows, before it is HTML."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from iris.dashboard.reader import Reader
from iris.model.errors import InvalidValue, IrisError, NotFound, Rejected

#: The HTTP status of a page that the cluster does not answer for. It may a moment later.
NO_ANSWER = 503


class Content(NamedTuple):
    """The values of a page for its template."""

    title: str
    #: The values by their names in the template.
    values: Mapping[str, Any]
    #: The page to which a person comes with the `Back` link; empty for none.
    above: str = ""
    #: The HTTP status.
    status: int = 200


class Address(NamedTuple):
    """The parts of a page's address that it depends on."""

    #: The parameters in the path, such as `job`.
    path: Mapping[str, str]
    #: The parameters after the question mark.
    query: Mapping[str, str]
    #: Whether only the changed part of an open page is wanted.
    live: bool = False


#: Loads a page.
#:
#: Raises:
#:     NotFound: the address names an object that does not exist.
#:     InvalidValue: a parameter is wrong.
#:     Unreachable: the service or the control plane does not answer.
Load = Callable[[Reader, Address], Awaitable[Content]]


class Page(NamedTuple):
    """A page of the dashboard."""

    #: The path, in Starlette's notation.
    path: str
    template: str
    load: Load
    #: The entry of the navigation that leads to this page or to the page above it.
    section: str


def problem_of(error: IrisError) -> Content:
    """Returns the page for an error."""
    if isinstance(error, NotFound):
        title, status = "Not found", 404
    elif isinstance(error, InvalidValue):
        title, status = "Wrong value", 400
    elif isinstance(error, Rejected):
        title, status = "Refused", 403
    else:
        title, status = "No answer", NO_ANSWER
    return Content(title, {"problem": str(error)}, status=status)


def page_number(text: str) -> int:
    """Returns the number of a page of a list, from 1 on."""
    return int(text) if text.isdecimal() and len(text) < 5 and int(text) else 1
