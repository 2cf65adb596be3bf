"""Refuses requests that a web page elsewhere causes, and tells browsers what a page may do.

The dashboard has no logins: whoever reaches its port may read. A page of another site can reach it
from the browser of a user under the name of its own site, if that name resolves to this machine
(DNS rebinding). So the `Host` header must have a name of this machine, or a configured one.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: The names of this machine with which browsers may ask. The port may be any, because a tunnel has
#: another port on the user's machine.
OWN_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
HEADERS = {
    # Scripts, styles and data come from this origin only, and none is written into a page.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """Checks each request, and adds the headers to each answer.

    Args:
        names: the host names with which browsers may ask, besides those of this machine.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str] = ()) -> None:
        self._app = app
        self._names = OWN_NAMES | {name.lower() for name in names}

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
        if _name(host) not in self._names:
            return (
                f"this machine is not {host or 'named'}; open the dashboard at 127.0.0.1, at"
                " localhost, or at a name in dashboard.names of the configuration"
            )
        if method not in ("GET", "HEAD") and headers.get("sec-fetch-site", "none") not in (
            "same-origin",
            "none",
        ):
            return "the request comes from a page of another site"
        return ""


def _name(host: str) -> str:
    """Returns the name without the port; empty if it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
