"""Turns contents into HTML. Every text is escaped, and loses the characters that would change how
the text around it is shown.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from iris.model.units import format_bytes, format_cpu, format_duration

HERE = Path(__file__).parent
STATIC = HERE / "static"
#: Matches characters that pages do not show: control characters, and characters that change the
#: direction of the text after them (Unicode Standard Annex #9). With one of them, a name could look
#: like another name.
_UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
REPLACEMENT = "�"
#: The limit on characters of a text on a page. A longer text is cut. The limit is needed because
#: most of the texts come from programs, which can write texts of any length.
MOST_TEXT = 10_000
#: The CSS class for the colour of each state: `good`, `moving` (in progress), `waiting`, `bad`, or
#: `ended` (cancelled or preempted). The command line uses the same groups. Pages also show the
#: state's name.
TONES = {
    **dict.fromkeys(("SUCCEEDED", "READY", "AVAILABLE", "OPEN", "FREE"), "good"),
    **dict.fromkeys(
        ("BUILDING", "RUNNING", "ASSIGNED", "PROVISIONING", "BOOTSTRAPPING", "REQUESTED", "BUSY"),
        "moving",
    ),
    **dict.fromkeys(
        ("PENDING", "HELD", "CORDONED", "DRAINED", "DRAINING", "PAUSED", "CLOSED", "REQUESTING"),
        "waiting",
    ),
    **dict.fromkeys(("COOLDOWN", "AT_MAX", "LEAVING", "DELETING"), "waiting"),
    **dict.fromkeys(
        ("QUARANTINED", "FAILED", "WORKER_FAILED", "UNSCHEDULABLE", "SILENT", "BACKOFF"), "bad"
    ),
    **dict.fromkeys(("QUOTA_EXCEEDED",), "bad"),
    **dict.fromkeys(("KILLED", "CANCELLED", "CANCELLING", "PREEMPTED"), "ended"),
}


def clean(value: Any) -> Any:
    """Returns what a template prints for a value: a text without unfit characters and not longer
    than `MOST_TEXT`, nothing for None.
    """
    if value is None:
        return ""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _UNFIT.sub(REPLACEMENT, shorten(value, MOST_TEXT))


def ago(time: datetime | None) -> Markup:
    """Returns a time that the browser shows as an age, and keeps up to date. The age itself is not
    in the HTML, so that a page that has not changed stays the same.
    """
    if time is None:
        return Markup("")
    stamp = time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    shown = f"{moment(time)} UTC"
    return Markup('<time class="ago" datetime="{}">{}</time>').format(stamp, shown)


def shorten(text: str, most: int) -> str:
    """Returns the text, cut after this number of characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def state(name: Any) -> Markup:
    """Returns a state with its tone."""
    return Markup('<span class="state {}">{}</span>').format(tone(name), clean(str(name)))


def tone(name: Any) -> str:
    """Returns the class of a state's colour."""
    return TONES.get(str(name).upper(), "plain")


def moment(time: datetime) -> str:
    """Returns `2026-11-28 14:03:20`, in UTC."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(span: timedelta | None) -> str:
    """Returns `4m 10s`; empty for None."""
    return "" if span is None else format_duration(span)


def address(path: str, query: Mapping[str, object] | None = None, **changes: object) -> str:
    """Returns the address of a page.

    Args:
        query: the parameters; those that are empty are left out.
        changes: parameters that replace those of `query`.
    """
    parameters = {**(query or {}), **changes}
    given = {key: str(value) for key, value in parameters.items() if value not in ("", None, False)}
    return quote(path, safe="/:@#~") + (f"?{urlencode(given)}" if given else "")


@cache
def static(name: str) -> str:
    """Returns the address of a file of the dashboard. It changes with the content, so browsers may
    keep the file for ever.
    """
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{digest}/{name}"


def action_link(action: str, target: str, text: str) -> Markup:
    """Returns the link to the page that asks before an action."""
    return Markup('<a class="action" href="{}">{}</a>').format(
        address(f"/actions/{action}", target=target), clean(text)
    )


def sentence(text: str) -> str:
    """Returns the text as a sentence."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def make_environment(*, allow_actions: bool = False) -> Environment:
    """Returns the environment of the templates.

    Args:
        allow_actions: whether the pages have links to actions.
    """
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ago=ago,
        state=state,
        tone=tone,
        moment=moment,
        shorten=shorten,
        duration=duration,
        bytes=format_bytes,
        cpu=format_cpu,
        sentence=sentence,
    )
    environment.globals.update(
        address=address, static=static, action_link=action_link, allow_actions=allow_actions
    )
    return environment


def joined(parts: list[Any]) -> Markup:
    """Returns the escaped parts, separated by commas."""
    return Markup(", ").join(escape(clean(part)) for part in parts)
