"""Shows that a form came from a page of this dashboard, in the browser that had opened the page.

Each browser has a random cookie. A form has a second value, which only this process can compute
from the cookie. A page of another site can send neither: its requests carry no cookie with
`SameSite=Strict`, and it cannot read a form. A program at another port of the same machine can set
the cookie, because browsers do not separate cookies by port. So the second value is no copy of it.
"""

import hashlib
import hmac
import secrets
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

COOKIE = "iris-browser"
#: The prefix of the name of the cookie that holds a message for the next page. The id of the
#: process follows the prefix, because dashboards at other ports of the machine get the same
#: cookies.
SAID = "iris-said-"
#: The limit on characters of a message. A browser keeps 4096 bytes of a cookie, and one character
#: may need twelve of them.
MOST_SAID = 300
#: The lifetime of the cookie with a message, in seconds. If the next page opens later, it does not
#: show the message.
SAID_FOR = 30


class Tokens:
    """Makes and checks the tokens that tie a form to one browser. A token of an earlier process is
    not accepted.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def browser(self, request: Request) -> str:
        """Returns the browser's cookie; a new value if it has none."""
        known = request.cookies.get(COOKIE, "")
        return known if len(known) == 43 and known.isascii() else secrets.token_urlsafe(32)

    def of(self, browser: str) -> str:
        """Returns the token for the forms of a browser."""
        return hmac.new(self._key, browser.encode(), hashlib.sha256).hexdigest()

    def fits(self, request: Request, token: str) -> bool:
        """Returns whether a form with this token is from the browser that has sent it."""
        browser = request.cookies.get(COOKIE, "")
        return bool(browser) and hmac.compare_digest(self.of(browser).encode(), token.encode())


def remember(response: Response, browser: str) -> None:
    """Gives the browser its cookie."""
    response.set_cookie(COOKIE, browser, httponly=True, samesite="strict")


def say(response: Response, started: str, message: str) -> None:
    """Shows a message on the next page that this browser opens, and only there."""
    response.set_cookie(
        SAID + started,
        quote(message[:MOST_SAID], safe=""),
        max_age=SAID_FOR,
        httponly=True,
        samesite="strict",
    )


def said(request: Request, started: str) -> str:
    """Returns the message for this page; empty if there is none."""
    return unquote(request.cookies.get(SAID + started, ""), errors="replace")[:MOST_SAID]


def forget_said(response: Response, started: str) -> None:
    response.delete_cookie(SAID + started, httponly=True, samesite="strict")
