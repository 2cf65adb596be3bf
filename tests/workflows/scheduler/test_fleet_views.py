"""The scheduler's answers about the whole queue and the whole fleet."""

from iris.messages.fleet_views import Amounts, Holdings, QueuePage, QueueView
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.hosts import ClosedBy, Closure
from iris.model.job.demand_limits import BATCH_BYTES, size_of
from iris.model.job.spec import Band
from iris.planners.ledger_messages import RECOVERING
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.refusals import RefusalCode
from iris.workflows.scheduler.fleet_views import MOST_USERS, holdings_of, queue_of
from tests.builders import (
    CHIPS,
    a_gang_placement,
    a_host,
    a_placement,
    a_request,
    a_slice,
    at,
    demands,
    some,
)
from tests.harness import Cluster


def a_busy_ledger() -> Ledger:
    """A full machine, and a queue of two bands and a held request."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=4))])
    ledger.ask(a_request("runs", some(cpu=4), user="ada"))
    ledger.settle(at(0))
    for i in range(3):
        ledger.ask(a_request(f"ada-{i}", some(cpu=4), user="ada", task=f"ada/j{i}:0"))
    ledger.ask(a_request("bob-0", some(cpu=4), user="bob", submitted_at=at(5)))
    ledger.ask(a_request("big", some(cpu=40), user="bob", band=Band.BATCH))
    ledger.ask(a_request("later", user="bob"))
    ledger.amend("later", Band.INTERACTIVE, held=True)
    ledger.settle(at(10))
    return ledger


def page(ledger: Ledger, **wanted: object) -> QueueView:
    return queue_of(ledger, QueuePage.model_validate(wanted), at(10), None)


def test_a_page_of_the_queue_has_the_order_the_reasons_and_whose_turn_it_is() -> None:
    """Gangs with the same reason share it."""
    view = page(a_busy_ledger())

    assert [gang.task for gang in view.gangs] == [
        "task of bob-0",
        "ada/j0:0",
        "ada/j1:0",
        "ada/j2:0",
        "task of big",
    ]
    codes = [view.reasons[gang.reason].code for gang in view.gangs if gang.reason is not None]
    assert codes == [*[RefusalCode.BUSY] * 4, RefusalCode.TOO_BIG]
    assert len(view.reasons) == 2
    assert (view.total, view.held) == (5, 1)
    assert view.waiting == {Band.INTERACTIVE: 4, Band.BATCH: 1}
    assert [(each.band, each.user, each.gangs, each.held) for each in view.users] == [
        (Band.INTERACTIVE, "bob", 1, 0),
        (Band.INTERACTIVE, "ada", 3, 20),
        (Band.BATCH, "bob", 1, 0),
    ]


def test_a_page_can_have_one_band_or_the_held_gangs() -> None:
    """Each has its own total, so that a reader can page through it."""
    ledger = a_busy_ledger()
    batch, held = page(ledger, band="batch"), page(ledger, held=True)
    last = page(ledger, offset=4)

    assert ([gang.task for gang in batch.gangs], batch.total) == (["task of big"], 1)
    assert ([gang.task for gang in held.gangs], held.total) == (["task of later"], 1)
    assert held.gangs[0].reason is None
    assert [gang.task for gang in last.gangs] == ["task of big"]


def test_while_the_ledger_is_rebuilt_every_gang_waits_for_that() -> None:
    """Reasons from half a ledger would be wrong."""
    view = queue_of(a_busy_ledger(), QueuePage(), at(10), RECOVERING)

    assert view.reasons == (RECOVERING,)
    assert {gang.reason for gang in view.gangs} == {0}


def test_a_page_fits_in_an_answer_however_large_the_requests_are() -> None:
    """Each gang has its own shape, with as many constraints as a job may have."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1")])
    for i in range(500):
        wants = demands(*(f"k{i}-{j}-{'x' * 200}=y" for j in range(10)))
        ledger.ask(a_request(f"k{i}", constraints=wants, user="u" * 64, task="t" * 500))
    ledger.settle(at(0))
    view = page(ledger, limit=500)

    assert view.total == 500
    assert len(view.gangs) > 50
    assert size_of(view) < 2 * BATCH_BYTES


def test_holdings_count_what_is_used_free_and_closed_by_group() -> None:
    """The free part of a closed host is no capacity."""
    ledger = Ledger()
    in_group = {SCALE_GROUP: "tpus"}
    tpus = [*a_slice("s1", attributes=in_group), *a_slice("s2", attributes=in_group)]
    ledger.hosts_up([*tpus, a_host("h1", some(cpu=4)), a_host("h2", some(cpu=4))])
    ledger.adopt(a_gang_placement(tpus[:4], CHIPS, "gang", user="ada"))
    ledger.adopt(a_placement(ledger.hosts["h1"], some(cpu=3), "one", user="bob"))
    ledger.close("h1", Closure(by=ClosedBy.CORDON))
    ledger.close("s2-0", Closure(by=ClosedBy.CORDON))
    ledger.settle(at(0))
    held = holdings_of(ledger)

    cpus, group = held.groups
    assert (cpus.group, cpus.device, cpus.hosts, cpus.busy, cpus.closed) == ("", "", 2, 1, 0)
    assert (cpus.offers.cpu_millis, cpus.used.cpu_millis) == (8000, 3000)
    assert cpus.closed_off == Amounts(cpu_millis=1000)
    assert (group.group, group.device) == ("tpus", "tpu:v5litepod-16")
    assert (group.hosts, group.busy, group.closed) == (8, 4, 1)
    assert (group.offers.devices, group.used.devices, group.closed_off.devices) == (32, 16, 4)
    ada, bob = held.users
    assert (ada.user, ada.gangs, ada.devices) == ("ada", 1, {"tpu:v5litepod-16": 16})
    assert (bob.user, bob.cpu_millis, bob.devices) == ("bob", 3000, {})
    assert held.idle == {"s2": at(0)}


def test_holdings_name_the_users_who_hold_the_most() -> None:
    """A cluster may have any number of users, and an answer must stay small."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=1000))])
    for i in range(MOST_USERS + 20):
        wants = some(cpu=2 if i == 115 else 1)
        ledger.adopt(a_placement(ledger.hosts["h1"], wants, f"k{i}", user=f"u{i:03}"))
    held = holdings_of(ledger)

    assert (len(held.users), held.total_users) == (MOST_USERS, MOST_USERS + 20)
    assert held.users[0].user == "u115"


async def test_clients_can_ask_for_the_queue_and_the_holdings(cluster: Cluster) -> None:
    """A running scheduler answers both."""
    await cluster.join(offers=some(cpu=4))
    job = await cluster.submit(resources=some(cpu=32))
    await cluster.waits(job)

    view = await cluster.scheduler.query("queue", QueuePage(), result_type=QueueView)
    held = await cluster.scheduler.query("holdings", result_type=Holdings)

    assert [gang.task for gang in view.gangs] == ["ada/train:0"]
    assert view.reasons[0].code is RefusalCode.TOO_BIG
    assert [each.offers.cpu_millis for each in held.groups] == [4000]
