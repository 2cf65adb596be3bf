"""The newest jobs are those submitted last, whenever they ended. The service is replaced: no test
waits for 10,000 jobs.
"""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from iris.client.jobs.lists import MOST_TIMES, newest_first

NOW = datetime.now(UTC)


class Workflow(NamedTuple):
    start_time: datetime
    ended: datetime
    run_id: str = ""


class Service:
    """Lists in the order of Temporal's stores: by the end, the latest first. Counts its calls, and
    the workflows that it sent.
    """

    def __init__(self, *workflows: Workflow) -> None:
        self._workflows = sorted(workflows, key=lambda each: each.ended, reverse=True)
        self.calls = self.sent = 0

    async def count_workflows(self, query: str) -> SimpleNamespace:
        self.calls += 1
        return SimpleNamespace(count=len(self._found(query)))

    async def list_workflows(self, query: str) -> AsyncIterator[Workflow]:
        for place, each in enumerate(self._found(query)):
            self.calls += place % 1_000 == 0
            self.sent += 1
            yield each

    def _found(self, query: str) -> list[Workflow]:
        bounds = {
            sign: datetime.fromisoformat(text)
            for sign, text in re.findall(r"StartTime (>=|<) '(.*?)'", query)
        }
        least, below = (
            bounds.get(">=", datetime.min.replace(tzinfo=UTC)),
            bounds.get("<", datetime.max.replace(tzinfo=UTC)),
        )
        return [each for each in self._workflows if least <= each.start_time < below]


async def newest(service: Any, number: int) -> list[datetime]:
    found = []
    async for each in newest_first(service, "true", number):
        found.append(each.start_time)
        if len(found) == number:
            break
    return found


def ago(*, lasted: timedelta = timedelta(0), **before: float) -> Workflow:
    start = NOW - timedelta(**before)
    return Workflow(start, start + lasted)


SPREAD = [ago(minutes=7 * number, lasted=timedelta(hours=number % 50)) for number in range(10_000)]
BURST = [ago(days=30, seconds=number / 100) for number in range(10_000)]
YEARS = [ago(days=20 * number) for number in range(20)]


@pytest.mark.parametrize(
    "workflows",
    [SPREAD, BURST, [*YEARS, *BURST], [*YEARS, *SPREAD]],
    ids=["spread", "burst", "both", "years"],
)
@pytest.mark.parametrize("number", [1, 50, 500])
async def test_the_last_submitted_are_found_with_few_calls_among_thousands(
    workflows: list[Workflow], number: int
) -> None:
    """A job of last week that ended today came before all those of today, which then were not in
    the list at all.
    """
    service = Service(*workflows)
    starts = sorted((each.start_time for each in workflows), reverse=True)

    assert await newest(service, number) == starts[:number]
    assert service.calls < 60
    assert service.sent <= 2 * MOST_TIMES * number + 1_000  # a second of the burst has a hundred


async def test_all_of_them_are_found_once() -> None:
    """A list that looks for something reads on until it has enough, at the worst everything."""
    starts = [each.start_time for each in sorted([*YEARS, *BURST, *SPREAD], reverse=True)]
    service = Service(*YEARS, *BURST, *SPREAD)

    assert [each.start_time async for each in newest_first(service, "true", 500)] == starts  # type: ignore[arg-type]
    assert service.sent == len(starts)
    assert service.calls < 300


async def test_few_workflows_are_read_at_once() -> None:
    """Most clusters have few jobs, and a list of them is one question more than before."""
    service = Service(*YEARS)

    assert await newest(service, 50) == [each.start_time for each in YEARS]
    assert service.calls == 2


async def test_a_list_can_begin_in_the_past() -> None:
    """A part of a long list is read from its place on, and not from the newest job."""
    starts = [NOW - timedelta(minutes=n) for n in range(5_000)]
    service = Service(*(Workflow(start, start) for start in starts))
    place = starts[3_000]

    query = f"StartTime < '{place.isoformat()}'"
    found = newest_first(service, query, 50, place)  # type: ignore[arg-type]

    assert [(await anext(found)).start_time for _ in range(50)] == starts[3_001:3_051]
    assert service.sent <= MOST_TIMES * 50


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.7], ids=str)
async def test_the_next_list_begins_with_the_window_of_the_last_one(fraction: float) -> None:
    """An open page asks the same again and again: for a count and a list, and no search. More or
    fewer jobs are found as before. A second of the burst has more jobs than a window may have.
    """
    moved = timedelta(seconds=fraction - NOW.microsecond / 1e6)
    burst = [each._replace(start_time=each.start_time + moved) for each in BURST]
    service, windows = Service(*burst), dict[str, datetime]()

    async def newest_again() -> list[datetime]:
        service.calls = 0
        found = newest_first(service, "true", 50, windows=windows)  # type: ignore[arg-type]
        return [(await anext(found)).start_time for _ in range(50)]

    starts = sorted((each.start_time for each in burst), reverse=True)
    assert await newest_again() == starts[:50]
    assert await newest_again() == starts[:50]
    assert service.calls == 2

    later = [ago(hours=1, seconds=number) for number in range(1_000)]
    service = Service(*burst, *later)
    assert await newest_again() == [each.start_time for each in later[:50]]
    assert service.calls > 2

    found = newest_first(service, "true", 50, windows=windows)  # type: ignore[arg-type]
    every = sorted((each.start_time for each in [*burst, *later]), reverse=True)
    assert [each.start_time async for each in found] == every
