"""The sums that the ledger keeps over its placements, after any sequence of messages."""

from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from iris.model.host.constraints import TPU_WORKER_ID
from iris.model.job.requests import Claim, Placement
from iris.model.job.spec import Band
from iris.model.quotas import QuotaRule, QuotaRules
from iris.model.rules import Rules
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from tests.builders import a_host, a_request, at
from tests.scheduling.ledger.kept_sums import check_kept_sums
from tests.small_world import SLICES, WANTS
from tests.strategies import examples

_DEEDS = (
    *("ask", "ask", "up", "down", "lost", "amend", "release", "vacate", "adopt", "forecast"),
    "quotas",
)
#: No quotas, and quotas of users and bands that are reached, with a cohort and a named limit.
_QUOTAS = (
    QuotaRules(),
    QuotaRules(
        quotas=(
            QuotaRule(name="a", user="a", nominal={"cpus": 2000, "chips": 8}, cohort="lab"),
            QuotaRule(name="b", user="b", nominal={"cpus": 1000, "chips": 8}, cohort="lab"),
            QuotaRule(name="each", user="*", nominal={"hosts": 3}, bands=(Band.BATCH,)),
        ),
        limits={"licence": 2},
    ),
)
_PASSED = (0, 0, 1, 130, 50_000, 200_000)


class _Story:
    """One ledger, and what is drawn to happen to it."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw
        self.ledger = Ledger(LedgerState(rules=Rules(min_run_time=timedelta(0))))
        self.now: datetime = at(0)
        #: The placements that there were, which gangs report to a ledger that was lost.
        self._were: dict[str, Placement] = {}
        self._number = 0

    def goes_on(self) -> None:
        draw, ledger = self._draw, self.ledger
        deed = draw(st.sampled_from(_DEEDS))
        name, host = draw(st.sampled_from(sorted(SLICES))), draw(st.integers(0, 1))
        band, user = draw(st.sampled_from(Band)), draw(st.sampled_from("ab"))
        self._number += 1
        request = a_request(
            f"{user}/job:{self._number}@1/run",
            **draw(st.sampled_from(WANTS)),
            user=user,
            band=band,
            submitted_at=self.now,
            claim=Claim((), draw(st.sampled_from(((), (("licence", 1),))))),
        )
        keys = sorted({*ledger.live, *ledger.waiting.keys(), *self._were})
        key = draw(st.sampled_from(keys)) if keys else ""
        match deed:
            case "ask":
                ledger.ask(request)
            case "up":
                self.comes_up(name)
            case "down" | "lost":
                of_slice = sorted(
                    each.id for each in ledger.hosts.values() if each.slice_id == name
                )
                gone = of_slice if deed == "down" else of_slice[host : host + 1]
                ledger.slice_down([(each, ledger.hosts[each].incarnation) for each in gone])
            case "amend":
                ledger.amend(key, band, held=draw(st.booleans()))
            case "release":
                ledger.forget(key)
            case "vacate" if key in ledger.live:
                seat = draw(st.sampled_from(ledger.live[key].seats))
                ledger.vacate(key, seat.host_id, seat.incarnation)
            case "adopt" if key in self._were:
                ledger.adopt(self._were[key])
            case "quotas":
                ledger.set_quotas(draw(st.sampled_from(_QUOTAS)))
            case "forecast":
                ledger.forecast(request, self.now + timedelta(seconds=draw(st.integers(0, 9))))

    def comes_up(self, name: str) -> None:
        count, offers, says = SLICES[name]
        self.ledger.hosts_up(
            [
                a_host(
                    f"{name}-{each}",
                    offers,
                    slice_id=name,
                    incarnation=f"life {self._number}",
                    attributes={**says, TPU_WORKER_ID: each},
                )
                for each in range(count)
            ]
        )

    def passes(self) -> None:
        self.now += timedelta(seconds=self._draw(st.sampled_from(_PASSED)))
        self.ledger.settle(self.now, self._draw(st.sampled_from((None, 1))))
        self._were.update(self.ledger.live)

    def is_lost(self) -> None:
        """Begins a new ledger, to which the gangs have to report their placements."""
        hosts = list(self.ledger.hosts.values())
        quotas = self.ledger.quotas.table.rules
        self.ledger = Ledger(LedgerState(rules=self.ledger.rules, quotas=quotas))
        self.ledger.hosts_up(hosts)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_kept_sums_are_those_over_the_live_placements(data: st.DataObject) -> None:
    """A sum that drifts would let hosts be given twice, or serve users in the wrong order."""
    story = _Story(data)
    for name in sorted(SLICES):
        story.comes_up(name)
    for _ in range(data.draw(st.integers(1, 25))):
        story.goes_on()
        check_kept_sums(story.ledger, story.now)
        if data.draw(st.booleans()):
            story.passes()
            check_kept_sums(story.ledger, story.now)
        if data.draw(st.integers(0, 19)) == 19:
            story.is_lost()


def test_a_question_about_a_later_time_changes_no_decision() -> None:
    """Queries ask the ledger, too. A replay has no queries, and must decide the same."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h")])
    ledger.ask(a_request("a/job@1/run", submitted_at=at(0)))
    ledger.settle(at(0))
    assert ledger.live
    before = ledger._seated.recent_use.lately(at(0), timedelta(hours=1))

    ledger.ask(a_request("b/job@1/run", user="b", submitted_at=at(0)))
    ledger.explain("b/job@1/run", at(60))

    assert ledger._seated.recent_use.lately(at(0), timedelta(hours=1)) == before
