"""Whose turn it is to call Google, and when."""

import asyncio

import pytest

from iris.platforms.base import RateLimited
from iris.platforms.gcp.limits import FIRST_PAUSE, JITTER, Pace, Urgency


async def served(pace: Pace, *urgencies: Urgency) -> list[Urgency]:
    """Who came, in the order in which they were served."""
    order: list[Urgency] = []

    async def come(urgency: Urgency) -> None:
        await pace.turn(urgency)
        order.append(urgency)

    await asyncio.gather(*(come(each) for each in urgencies))
    return order


async def test_calls_within_the_allowance_do_not_wait() -> None:
    """Ten seconds' worth may come at once: a list is made of several calls."""
    pace = Pace(60, patience=0.0)

    assert await served(pace, *[Urgency.LOOK] * 10) == [Urgency.LOOK] * 10
    with pytest.raises(RateLimited, match="requests_per_minute"):
        await pace.turn(Urgency.LOOK)


async def test_what_is_too_many_goes_on_at_the_pace_that_is_allowed() -> None:
    """Refused calls would be made again, and count."""
    pace = Pace(6000, burst=0.01)  # one call each hundredth of a second
    begun = asyncio.get_running_loop().time()
    await served(pace, *[Urgency.LOOK] * 31)

    assert asyncio.get_running_loop().time() - begun >= 0.29


async def test_deletes_go_before_looks_and_creates_last() -> None:
    """Whatever is deleted makes room, for quotas and in bills; and a create needs the room."""
    pace = Pace(6000, burst=0.01)
    D, L, C = Urgency.DELETE, Urgency.LOOK, Urgency.CREATE  # noqa: N806 - read as a table
    order = await served(pace, C, C, L, D, L, D)

    assert order == [C, D, D, L, L, C]  # the first came when nobody else was there


async def test_whoever_gives_up_takes_nobodys_turn() -> None:
    """A list has ten seconds in all; what it did not wait for is there for the next."""
    pace = Pace(6000, burst=0.01)
    await pace.turn(Urgency.LOOK)
    gone = asyncio.create_task(pace.turn(Urgency.DELETE))
    await asyncio.sleep(0)
    gone.cancel()

    assert await served(pace, Urgency.CREATE) == [Urgency.CREATE]


async def test_a_service_that_complains_is_left_alone_for_longer_each_time() -> None:
    """Whoever hammers at it is refused for longer. It says for how long, or it is doubled; one answer ends it."""
    now = 0.0
    pace = Pace(60_000, patience=0.0, now=lambda: now)

    async def left_alone() -> float:
        """For how long, in steps of a tenth of a second."""
        nonlocal now
        begun = now
        while True:
            try:
                await pace.turn(Urgency.DELETE)
            except RateLimited:
                now += 0.1
            else:
                return now - begun

    pauses = []
    for retry_after in (None, None, None, 30.0):
        pace.complained(retry_after)
        pauses.append(await left_alone())
    pace.answered()
    pace.complained()
    pauses.append(await left_alone())

    for pause, least in zip(pauses, (FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 30.0, FIRST_PAUSE), strict=True):
        assert least <= pause <= least * (1 + JITTER) + 0.2


def test_a_pace_goes_on_in_another_loop() -> None:
    """A command that looks and deletes runs several, one after the other."""
    pace = Pace(6000, burst=0.01)

    assert [asyncio.run(served(pace, Urgency.LOOK, Urgency.LOOK)) for _ in range(2)] == [[Urgency.LOOK] * 2] * 2
