"""Refuses requests that a web page elsewhere causes, and tells browsers what a page may do.

The dashboard has no logins: whoever reaches its port may read. A page of another site can reach it
from the browser of a user under the name of its own site, if that name resolves to this machine
(DNS rebinding). So the `Host` header must have an IP address, which no page can make its own, or
`localhost`, or a configured name. Requests that change something must come from a page of this
dashboard; `actions.browser` checks that, too.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iris.model.ip_address import host_of

HEADERS = {
    # Scripts, styles and data come from this origin only, and none is written into a page.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The dashboard's own requests have the page before and the origin, others have neither.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """Refuses requests whose `Host` header is not allowed, and adds security headers to each
    response.

    Args:
        names: the host names that browsers may use, in addition to localhost and IP addresses.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if problem := self._problem(Headers(scope=scope), scope["method"]):
            answer = PlainTextResponse(f"{problem}\n", 403)
            return await answer(scope, receive, with_headers)
        return await self._app(scope, receive, with_headers)

    def _problem(self, headers: Headers, method: str) -> str:
        """Returns why the request is refused; empty if it is not."""
        host = headers.get("host", "")
        if not self._is_own(host):
            return (
                f"this machine is not {host if host_of(host) else 'so named'}; open the"
                " dashboard at 127.0.0.1, at localhost, or at a name in dashboard.names of the"
                " configuration"
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if method in ("GET", "HEAD"):
            # A link on another site may open a page, but no picture or script there may read one.
            if site in ("same-origin", "none") or headers.get("sec-fetch-mode") == "navigate":
                return ""
            return "the request comes from a page of another site"
        if site != "same-origin" or (origin is not None and _netloc(origin) != host):
            return "the request comes from a page of another site; nothing was changed"
        return ""

    def _is_own(self, host: str) -> bool:
        name = host_of(host)
        return name in self._names or _is_address(name)


def _netloc(origin: str) -> str:
    """Returns the host and port of an origin; empty if it is malformed."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
