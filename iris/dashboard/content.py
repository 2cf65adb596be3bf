"""What a page shows, before it is HTML."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from iris.dashboard.reader import Reader
from iris.model.errors import InvalidValue, IrisError, NotFound, Rejected

#: The HTTP status of a page if the cluster does not answer. The cluster may answer a moment later.
NO_ANSWER = 503


class Content(NamedTuple):
    """The values that a template renders as a page."""

    title: str
    #: The values, by the names that the template uses.
    values: Mapping[str, Any]
    #: The path of the page to which the `Back` link leads; empty if there is no such link.
    above: str = ""
    #: The HTTP status of the page.
    status: int = 200


class Address(NamedTuple):
    """The parameters in the address of a page."""

    #: The parameters in the path, such as `job`.
    path: Mapping[str, str]
    #: The parameters of the query, which follow the question mark.
    query: Mapping[str, str]
    #: Whether the request is for an update of an open page, which contains only the part that
    #: changes.
    live: bool = False


#: Loads the content of a page.
#:
#: Raises:
#:     NotFound: the address names an object that does not exist.
#:     InvalidValue: a parameter is wrong.
#:     Unreachable: the service or the control plane does not answer.
Load = Callable[[Reader, Address], Awaitable[Content]]


class Page(NamedTuple):
    """The path, the template and the content of one page of the dashboard."""

    #: The path, in Starlette's notation: `/hosts/{host}`.
    path: str
    template: str
    load: Load
    #: The path of the navigation's entry that is marked while this page is open.
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
