"""Asks before an action, on a page of its own, and performs it when the form comes back.

The question is not a part of the pages that show jobs and hosts: those are rendered once for all
who look at them, and a form has the token of one browser.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from iris.client.connect.identity import acting_as
from iris.dashboard.actions.browser import Tokens, remember, say
from iris.dashboard.actions.table import ACTIONS, ACTOR, Action, Order
from iris.dashboard.content import Content
from iris.dashboard.live import Live
from iris.dashboard.reader import Reader
from iris.model.errors import InvalidValue, NotFound

#: The limit on bytes of a submitted form.
MOST_BYTES = 16_384
#: The limit on fields of a submitted form.
MOST_FIELDS = 10
#: The limit on characters of the address to which the browser returns after an action.
MOST_BACK = 2_000
FORM = "application/x-www-form-urlencoded"
#: A function that renders a page from its content and the name of a template.
Show = Callable[[Request, Content, str], Response]


class Forms:
    """Asks for a confirmation of each action, and performs confirmed actions.

    Args:
        allowed: whether the dashboard may change the cluster.
        show: renders a page.
        live: the open pages, which show the effect of an action at once.
    """

    def __init__(self, reader: Reader, show: Show, live: Live, *, allowed: bool) -> None:
        self._reader = reader
        self._show = show
        self._live = live
        self._allowed = allowed
        self._tokens = Tokens()

    async def answer(self, request: Request) -> Response:
        """Answers a request for `/actions/{action}`."""
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            raise NotFound("there is no such action")
        if not self._allowed:
            return self._problem(
                request,
                403,
                "Only for reading",
                "this dashboard is read-only; to change the cluster from its pages, start it with"
                " dashboard.allow_actions: true in its configuration, or with --local"
                " --allow-actions",
            )
        if request.method == "POST":
            return await self._perform(request, action)
        return await self._ask(request, action)

    async def _ask(self, request: Request, action: Action) -> Response:
        target = request.query_params.get("target", "")
        run, seen = await action.see(self._reader.client, _checked(action, target))
        browser = self._tokens.browser(request)
        values: dict[str, Any] = {
            "action": action,
            "target": target,
            "seen": seen,
            "hidden": {
                "target": target,
                "run": run,
                "back": _page_before(request),
                "token": self._tokens.of(browser),
            },
        }
        content = Content(f"{action.verb} {action.kind} {target}".strip(), values)
        response = self._show(request, content, "action.html")
        remember(response, browser)
        return response

    async def _perform(self, request: Request, action: Action) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            return self._problem(request, 415, "No form", f"the request is not {FORM}")
        body = await _body(request)
        if body is None:
            return self._problem(
                request, 413, "Too large", f"the form has more than {MOST_BYTES} bytes"
            )
        try:
            values = dict(parse_qsl(body.decode(), max_num_fields=MOST_FIELDS))
        except ValueError:
            return self._problem(request, 400, "No form", "the form cannot be read")
        if not self._tokens.fits(request, values.get("token", "")):
            return self._problem(
                request,
                403,
                "Not from here",
                "the form is not from this browser, or from before the control plane's last start;"
                " nothing was changed: open the page again",
            )
        order = Order(values.get("target", ""), values.get("run", ""), values)
        _checked(action, order.target)
        with acting_as(ACTOR):
            message = await action.do(self._reader.client, order)
        self._reader.forget()
        self._live.forget()
        response = RedirectResponse(_own_address(values.get("back", "")), 303)
        say(response, self._live.started, message)
        return response

    def _problem(self, request: Request, status: int, title: str, problem: str) -> Response:
        return self._show(
            request, Content(title, {"problem": problem}, status=status), "problem.html"
        )


def _checked(action: Action, target: str) -> str:
    """Returns the target.

    Raises:
        InvalidValue: the action has no target, or needs none.
    """
    whole = action.kind == "cluster"
    if bool(target) == whole or (action.kind == "job" and "/" not in target):
        form = (
            "leave it out" if whole else "write USER/NAME" if action.kind == "job" else "name one"
        )
        raise InvalidValue("target", target, f"is no {action.kind}", form)
    return target


async def _body(request: Request) -> bytes | None:
    """Returns the body; None if it is too large. Reads no more than it may have."""
    if int(request.headers.get("content-length") or 0) > MOST_BYTES:
        return None
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return None
    return bytes(body)


def _page_before(request: Request) -> str:
    """Returns the page of this dashboard from which the browser comes, as the path with the query;
    the first page if it comes from elsewhere.
    """
    try:
        before = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return "/"
    if before.netloc != request.headers.get("host", "") or before.path.startswith("/actions/"):
        return "/"
    return _own_address(f"{before.path}?{before.query}" if before.query else before.path)


def _own_address(path: str) -> str:
    """Returns the path if it leads to a page of this dashboard, else the first page."""
    plain = path.isascii() and path.isprintable() and "\\" not in path
    own = path.startswith("/") and not path.startswith("//")
    return path if own and plain and len(path) <= MOST_BACK else "/"
