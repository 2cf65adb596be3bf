"""The order and the rate of calls to Google."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from iris.platforms.base import RateLimited
from iris.platforms.gcp import clients, rate_limiter
from iris.platforms.gcp.clients import DEADLINE, Calls, Clients
from iris.platforms.gcp.errors import CallFailed
from iris.platforms.gcp.rate_limiter import (
    FIRST_PAUSE,
    FIRST_UNAVAILABLE_PAUSE,
    JITTER,
    MAX_PAUSE,
    MAX_UNAVAILABLE_PAUSE,
    QUIET,
    RateLimiter,
    Urgency,
)
from tests.fakes.google.client import FakeGoogle
from tests.platforms.gcp.requests import ZONE, gcp
from tests.platforms.gcp.site import Site, insists
from tests.platforms.worlds import until

pytestmark = pytest.mark.long


@pytest.fixture
def site(google: FakeGoogle) -> Iterator[Site]:
    yield Site(google)
    google.clear()
    google.run(1)


async def served(pace: RateLimiter, *urgencies: Urgency) -> list[Urgency]:
    """Who came, in the order in which they were served."""
    order: list[Urgency] = []

    async def come(urgency: Urgency) -> None:
        await pace.acquire(urgency)
        order.append(urgency)

    await asyncio.gather(*(come(each) for each in urgencies))
    return order


async def test_calls_within_the_allowance_do_not_wait() -> None:
    """A burst of ten seconds' worth is allowed: a list consists of several calls."""
    pace = RateLimiter(60, max_wait=0.0)

    assert await served(pace, *[Urgency.READ] * 10) == [Urgency.READ] * 10
    with pytest.raises(RateLimited, match="requests_per_minute"):
        await pace.acquire(Urgency.READ)


async def test_calls_beyond_the_burst_run_at_the_allowed_rate() -> None:
    """Refused calls would be repeated, and count."""
    pace = RateLimiter(6000, burst=0.01)  # one call each hundredth of a second
    begun = asyncio.get_running_loop().time()
    await served(pace, *[Urgency.READ] * 31)

    assert asyncio.get_running_loop().time() - begun >= 0.29


async def test_deletes_go_first_and_creates_last() -> None:
    """A delete frees quota, which a create needs, and ends cost."""
    pace = RateLimiter(6000, burst=0.01)
    D, L, C = Urgency.DELETE, Urgency.READ, Urgency.CREATE  # noqa: N806 - read as a table
    order = await served(pace, C, C, L, D, L, D)

    assert order == [C, D, D, L, L, C]  # the first came when nobody else was there


async def test_a_cancelled_wait_uses_no_turn() -> None:
    """A list has ten seconds in all; the next one gets the turn."""
    pace = RateLimiter(6000, burst=0.01)
    await pace.acquire(Urgency.READ)
    gone = asyncio.create_task(pace.acquire(Urgency.DELETE))
    await asyncio.sleep(0)
    gone.cancel()

    assert await served(pace, Urgency.CREATE) == [Urgency.CREATE]


class LeftAlone:
    """A pace whose clock goes on in steps of a tenth of a second while it lets nobody call."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pace = RateLimiter(60_000, max_wait=0.0, now=lambda: self.now)

    async def passes(self) -> float:
        """Until somebody may call again: so long."""
        begun = self.now
        while True:
            try:
                await self.pace.acquire(Urgency.DELETE)
            except RateLimited:
                self.now += 0.1
            else:
                return self.now - begun


def lasts(pause: float, least: float) -> bool:
    """Whether a pause is of that length, with what is added by chance and by steps."""
    return least <= pause <= least * (1 + JITTER) + 0.2


async def test_the_pause_after_rate_limit_errors_doubles() -> None:
    """The service may request a longer pause. Only a quiet period resets it, not one answer: every
    other call may be refused.
    """
    left = LeftAlone()
    pauses = []
    for retry_after in (None, None, None, 30.0):
        left.pace.report_rate_limit(retry_after)
        pauses.append(await left.passes())
        left.pace.report_answer()
    left.now += QUIET
    left.pace.report_rate_limit()
    pauses.append(await left.passes())

    for pause, least in zip(
        pauses, (FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 30.0, FIRST_PAUSE), strict=True
    ):
        assert lasts(pause, least)


async def test_errors_of_concurrent_calls_count_once() -> None:
    """Thirty of them would otherwise mean a pause of a minute."""
    left = LeftAlone()
    for _ in range(30):
        left.pace.report_rate_limit()

    assert lasts(await left.passes(), FIRST_PAUSE)
    left.pace.report_rate_limit()
    assert lasts(await left.passes(), 2 * FIRST_PAUSE)


async def test_an_unavailable_service_causes_growing_pauses_and_an_unavailable_zone_short_ones() -> (
    None
):
    """Without any answer the pauses grow; an answer from another zone resets them."""
    left = LeftAlone()
    pauses = []
    for report_answer in (False, False, True, False):
        if report_answer:
            left.pace.report_answer()
        left.pace.report_unavailable()
        pauses.append(await left.passes())
    left.pace.report_unavailable(7.0)
    pauses.append(await left.passes())
    left.pace.report_unavailable(86_400.0)
    pauses.append(await left.passes())

    first = FIRST_UNAVAILABLE_PAUSE
    for pause, least in zip(
        pauses, (first, 2 * first, first, 2 * first, 7.0, MAX_PAUSE), strict=True
    ):
        assert lasts(pause, least)
    for _ in range(10):
        left.pace.report_unavailable()
        longest = await left.passes()
    assert lasts(longest, MAX_UNAVAILABLE_PAUSE)


async def test_calls_in_flight_are_limited_and_deletes_get_the_next_slot() -> None:
    """In an outage each read lasts until its deadline, and all reads would run before the first
    delete.
    """
    pace, order = RateLimiter(60_000, slots=1), []

    async def come(urgency: Urgency) -> None:
        await pace.acquire(urgency)
        order.append(urgency)

    await pace.acquire(Urgency.READ)
    coming = [
        asyncio.create_task(come(each))
        for each in (Urgency.CREATE, Urgency.READ, Urgency.READ, Urgency.DELETE)
    ]
    await asyncio.sleep(0)
    coming[1].cancel()  # who gives up takes no place along
    served = []
    for _ in range(3):
        await asyncio.sleep(0)
        served.append(len(order))
        pace.release()
        await until(lambda: len(order) > served[-1])
    await asyncio.gather(*coming, return_exceptions=True)

    assert (served, order) == ([0, 1, 2], [Urgency.DELETE, Urgency.READ, Urgency.CREATE])


async def test_a_slot_granted_too_late_is_released() -> None:
    """The caller has given up at the same moment."""
    pace = RateLimiter(60_000, slots=1, max_wait=5.0)
    await pace.acquire(Urgency.READ)
    late = asyncio.create_task(pace.acquire(Urgency.READ))
    await asyncio.sleep(0)
    pace.release()
    await asyncio.sleep(0)  # it has the place now, and does not know yet
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late

    await pace.acquire(Urgency.DELETE)


async def test_deletes_do_not_wait_for_unanswered_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot is free when its thread is, and then a delete gets it first."""
    monkeypatch.setattr(clients, "THREADS", 2)
    nowhere = {"tpu_endpoint": "grpc://127.0.0.1:1", "compute_endpoint": "http://127.0.0.1:1"}
    calls, go, made = Calls(gcp(**nowhere)), threading.Event(), list[str]()

    def call(what: str) -> Callable[[Clients], None]:
        def hangs(to: Clients) -> None:
            go.wait(60)
            made.append(what)

        return hangs

    looks = [
        asyncio.create_task(calls.make(Urgency.READ, call(f"look {number}"))) for number in range(8)
    ]
    await asyncio.sleep(0)
    looks[0].cancel()  # its thread is busy all the same
    delete = asyncio.create_task(calls.make(Urgency.DELETE, call("delete")))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*looks, delete, return_exceptions=True)

    assert made.index("delete") < 4  # two were under way, and of the next two it is one


def test_a_rate_limiter_works_in_another_event_loop() -> None:
    """A command that reads and deletes runs several loops, one after the other."""
    pace = RateLimiter(6000, burst=0.01)

    assert [asyncio.run(served(pace, Urgency.READ, Urgency.READ)) for _ in range(2)] == [
        [Urgency.READ] * 2
    ] * 2


@pytest.mark.parametrize("status", [429, 503])
async def test_rate_limit_errors_of_google_delay_every_call(site: Site, status: int) -> None:
    """With or without a requested delay."""
    for retry_after in (0, 2):
        site.google.fail(
            "GetNode", status, details="rate" if status == 429 else "", retry_after=retry_after
        )
    calls, loop = Calls(site.settings()), asyncio.get_running_loop()
    name = f"projects/{site.project}/locations/{ZONE}/nodes/{site.name}"
    ended = []
    for _ in range(3):
        with pytest.raises(CallFailed):
            await calls.make(
                Urgency.READ, lambda to: to.tpu.get_node(name=name, retry=None, timeout=DEADLINE)
            )
        ended.append(loop.time())

    assert ended[1] - ended[0] >= FIRST_UNAVAILABLE_PAUSE
    assert ended[2] - ended[1] >= 2


async def test_deletes_run_before_creates_under_a_rate_limit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creates need the quota that deletes free, however many slices are requested."""
    monkeypatch.setattr(rate_limiter, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(rate_limiter, "MAX_PAUSE", 1.0)  # the service's minute is a second here
    google = site.google
    eager, slow = site.platform(), site.platform(requests_per_minute=240)
    going, coming = (
        [site.wanted(suffix=f"-{what}-{number}") for number in range(3)] for what in ("old", "new")
    )
    await asyncio.gather(*(eager.create_slice(each) for each in going))

    await slow.list_slices()  # from which it knows what is what
    google.fail("*", 429, details="rate")
    with pytest.raises(RateLimited):  # and there is nothing left that could be used at once
        await slow.describe_slice(site.name, ZONE)
    begun = len(google.calls())
    # Of the four calls in a second that are made, Google takes three; what is refused comes again.
    google.run(60)
    google.rate_limit("*", per_minute=3)
    creates = [asyncio.create_task(insists(slow.create_slice, each)) for each in coming]
    await asyncio.sleep(0)
    await asyncio.gather(
        *(insists(slow.delete_slice, each.slice_id, ZONE) for each in going), *creates
    )

    calls = [(each["method"], each["status"]) for each in google.audit() if each["what"] == "call"][
        begun:
    ]
    assert "RESOURCE_EXHAUSTED" in {status for _, status in calls}
    done = [
        method
        for method, status in calls
        if status == "OK" and method in ("CreateNode", "DeleteNode")
    ]
    assert done == ["DeleteNode"] * 3 + ["CreateNode"] * 3
