"""The queue: who is next, and what each gang waits for."""

from typing import NamedTuple

from iris.dashboard.content import Address, Content, page_number
from iris.dashboard.hosts import job_of
from iris.dashboard.reader import Reader
from iris.dashboard.words import words_of
from iris.messages.fleet_views import QueuedGang, QueueView, WaitingUser
from iris.model.errors import InvalidValue
from iris.model.job.requests import CORE_WEIGHT, DEVICE_WEIGHT
from iris.model.job.spec import Band
from iris.model.units import format_cpu
from iris.scheduling.placement.refusals import Refusal

#: The number of gangs on one page.
PER_PAGE = 100


class Place(NamedTuple):
    """A waiting gang with its place in the queue."""

    #: The number of the gang in the queue, from 1 on.
    number: int
    gang: QueuedGang
    job: str
    #: Why the gang waits; None if the scheduler did not compute the reason.
    reason: Refusal | None
    #: The number of an earlier gang on the page that waits for the same reason; None if there is
    #: none. The page shows the reason only once.
    same_as: int | None = None


class Turn(NamedTuple):
    """A user whose gangs wait in a band, with the use that determines when it is the user's
    turn.
    """

    user: str
    gangs: int
    #: The resources that the user holds now, as `8 accelerators` or `4 cores`.
    held: str
    #: The recent use by the user, as `3 accelerator-hours`.
    recent: str


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query has `band`, `held` and `page`."""
    query = address.query
    band = band_of(query.get("band", ""))
    held = query.get("held") == "yes"
    number = page_number(query.get("page", ""))
    offset = (number - 1) * PER_PAGE
    view = await reader.queue(band, offset, PER_PAGE, held=held)
    return Content(
        "Queue",
        {
            "view": view,
            "places": places(view, offset),
            "turns": turns(view),
            "bands": list(Band),
            "query": query,
            "held": held,
            "number": number,
            "more": offset + PER_PAGE < view.total,
            "last": offset + len(view.gangs),
            "words_of": words_of,
        },
    )


def band_of(text: str) -> Band | None:
    """Returns the band with this name; None for an empty text.

    Raises:
        InvalidValue: there is no such band.
    """
    if not text:
        return None
    if text not in list(Band):
        raise InvalidValue("band", text, "is no priority", f"use one of {', '.join(Band)}")
    return Band(text)


def places(view: QueueView, offset: int) -> list[Place]:
    """Returns the gangs of a page of the queue with their places.

    Args:
        offset: the number of gangs before the page.
    """
    found: list[Place] = []
    first: dict[int, int] = {}
    for number, gang in enumerate(view.gangs, offset + 1):
        reason, same_as = None, None
        if gang.reason is not None:
            reason = view.reasons[gang.reason]
            if (earlier := first.setdefault(gang.reason, number)) != number:
                same_as = earlier
        found.append(Place(number, gang, job_of(gang.task), reason, same_as))
    return found


def turns(view: QueueView) -> dict[Band, list[Turn]]:
    """Returns the users with the next turns by band."""
    found: dict[Band, list[Turn]] = {}
    for each in view.users:
        found.setdefault(each.band, []).append(_turn(each))
    return found


def _turn(user: WaitingUser) -> Turn:
    return Turn(user.user, user.gangs, amount_of(user.held), use_of(user.recent))


def amount_of(weight: int) -> str:
    """Formats a weight as accelerators or cores: `8 accelerators`, `2.4 cores`, `nothing`."""
    if not weight:
        return "nothing"
    if weight >= DEVICE_WEIGHT:
        return _plural(weight / DEVICE_WEIGHT, "accelerator")
    return _plural(weight / CORE_WEIGHT, "core")


def use_of(weight_seconds: int) -> str:
    """Formats a recent use as hours of accelerators or of cores."""
    hours = weight_seconds / 3600
    if hours < CORE_WEIGHT / 10:
        return "nothing"
    if hours >= DEVICE_WEIGHT / 10:
        return _plural(hours / DEVICE_WEIGHT, "accelerator-hour")
    return _plural(hours / CORE_WEIGHT, "core-hour")


def _plural(amount: float, noun: str) -> str:
    text = format_cpu(round(amount * 10) * 100)
    return f"{text} {noun}{'' if text == '1' else 's'}"
