"""The page about usage: who used the cluster, what it cost, what was without result."""

from typing import Any

import pytest

from iris.client.fleet.usage_report import question
from iris.dashboard.content import Address, Content
from iris.dashboard.pages import usage
from iris.dashboard.pages.usage import by_day, by_key, measure_of
from iris.dashboard.rendering import make_environment
from iris.model.errors import InvalidValue
from iris.usage.prices import Rate
from iris.usage.records import AttemptUse, SliceUse
from iris.usage.report import UsageReport
from tests.usage.made_uses import DAY, T, attempt, slice_use, summed


class Reports:
    """Answers the page's question with a made report."""

    def __init__(self, *uses: AttemptUse | SliceUse, **asked: Any) -> None:
        self._uses, self._asked = uses, asked

    async def usage(self, by: tuple[str, ...], since: object, user: str = "") -> UsageReport:
        question(by, None, None, user=user)
        return summed(*self._uses, by=by, **self._asked)

    async def shared(self, question: object, ask: Any, fresh: float = 0) -> Any:
        return await ask()


#: Ada held a host for two days, and Bob for a quarter of a day.
WEEK = (
    slice_use(0, 1, 72),
    attempt(1, 49),
    attempt(50, 56, user="bob", job="bob/eval", id="bob/eval@1"),
)


async def page(reports: Reports, **query: str) -> Content:
    return await usage.load(reports, Address({}, query))  # type: ignore[arg-type]


async def html(reports: Reports, **query: str) -> str:
    content = await page(reports, **query)
    template = make_environment().get_template("usage.html")
    return template.render(content.values, layout="live.html", title="", page=Address({}, query))


def test_each_row_has_its_share_of_the_total() -> None:
    """Who used most is at the top, whatever the unit."""
    report = summed(*WEEK, by=("user",))
    first, second = by_key(report, "user", measure_of(report))
    assert (first.name, round(first.amounts.host_hours), round(first.share, 2)) == ("ada", 48, 0.89)
    assert (second.name, round(second.amounts.host_hours)) == ("bob", 6)


def test_every_day_of_the_time_has_a_bar() -> None:
    """A day without use is a gap in the chart, not a missing day."""
    report = summed(*WEEK, by=("day",))
    bars = by_day(report, measure_of(report))
    assert len(bars) == 8
    assert [round(bar.amount) for bar in bars[:4]] == [23, 24, 7, 0]
    assert bars[0].label == "2 Nov"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"rates": ()}, "core_hours"), ({}, "cost")],
    ids=["without prices", "with prices"],
)
def test_rows_are_compared_by_money_if_it_is_known(fields: dict[str, Any], expected: str) -> None:
    """Without prices, the scarcest hours say who used most."""
    assert measure_of(summed(*WEEK, **fields)).field == expected


def test_chips_are_scarcer_than_cores() -> None:
    """On a cluster with TPUs, the hours of chips say who used most."""
    report = summed(attempt(1, 2, tpu_chips=4), rates=())
    assert measure_of(report).field == "tpu_chip_hours"


async def test_the_page_shows_money_and_what_was_without_result() -> None:
    """A lab asks first who used what, what it cost, and what was wasted."""
    text = await html(Reports(*WEEK))
    for expected in ("Cost USD", "48.00", "bob", "idle", "boot"):
        assert expected in text


async def test_names_are_text() -> None:
    """A user may have chosen a name that is markup."""
    text = await html(Reports(attempt(0, 1, user="<b>eve</b>")))
    assert "<b>eve" not in text
    assert "&lt;b&gt;eve" in text


async def test_an_empty_report_and_machines_without_a_price_say_so() -> None:
    """An empty table would look like a fault."""
    assert "No job held a machine" in await html(Reports())
    other = [Rate(machine="other", machine_hour=1.0)]
    assert "No price for n2-standard-8" in await html(Reports(*WEEK, rates=tuple(other)))


@pytest.mark.parametrize(("field", "value"), [("by", "colour"), ("since", "36500d")])
async def test_a_wrong_key_and_a_time_that_is_not_offered_are_refused(
    field: str, value: str
) -> None:
    """The address can have anything, and a century of days would be a chart of megabytes."""
    with pytest.raises(InvalidValue, match=value):
        await page(Reports(*WEEK), **{field: value})


async def test_the_table_may_be_by_a_tag() -> None:
    """A tag is chosen in the address, and stays chosen in the form."""
    reports = Reports(attempt(0, 1, tags={"sweep": "a"}), until=T + DAY)
    text = await html(reports, by="tag:sweep")
    assert "<option selected>tag:sweep</option>" in text
