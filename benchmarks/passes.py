"""Measures scheduling passes without a server: it calls the ledger as the scheduler's workflow
does.

A workflow task must end within two seconds, and all jobs wait for the scheduler's. So a pass must
be short in every situation.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from statistics import median

from benchmarks import paper
from benchmarks.table import Row
from iris.messages.scheduler import Ask, Release
from iris.model.host.hosts import Host
from iris.model.host.resources import DeviceKind
from iris.model.job.requests import Request
from iris.model.job.spec import Band
from iris.model.quotas import EACH_USER, QuotaRule, QuotaRules
from iris.planners.ledger_messages import MAX_PLACEMENTS, serve
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.size import LedgerSize
from iris.workflows.scheduler.scheduler import MAX_REPLAY

#: A time after all requests were submitted.
LATER = paper.NOON + timedelta(hours=5)
#: The number of placements that end before the last measured pass.
RELEASED = 100
#: The number of measurements of each pass. The shortest counts, because other load on the same
#: cores only makes a pass longer.
TIMES = 3
#: The users and teams of the measurement of quotas.
_USERS, _TEAMS = 200, 20


def measure(*, quick: bool) -> list[Row]:
    hosts, waiting = (2_000, 20_000) if quick else (10_000, 100_000)
    with paper.as_in_control_plane():
        replays = [
            _longest_replay(600, 5_000),
            _longest_replay(hosts, waiting),
            _longest_replay(hosts, waiting, with_quotas=True),
        ]
        return [
            *_at(hosts, waiting, 0.5),
            *_at(21, 2_838, 0.01),
            *_with_quotas(hosts, waiting, 0.6),
            *_of_shapes(30),
            *_of_shapes(300),
            *_of_shapes(3_000),
            *replays,
        ]


def _at(hosts: int, waiting: int, target: float) -> list[Row]:
    requests = paper.requests(waiting)
    batch = paper.requests(waiting, bands=(Band.BATCH,), seed=3)
    takes: dict[str, float] = {}
    for _ in range(TIMES):
        ledger = asked(hosts, requests)
        for what, seconds in (*_to_the_end(ledger), *_evicting(hosts, batch, requests)):
            takes[what] = min(takes.get(what, seconds), seconds)
    explained = _explained(ledger)
    worst, note = _worst_of(takes)
    size = f"{waiting:,} waiting, {hosts:,} hosts"
    return [
        Row(
            f"worst pass, {size}, s",
            worst,
            target=target,
            format="{:.4f}",
            note=f"of {len(takes)} passes: {note}",
        ),
        Row(f"median pass, {size}, s", median(takes.values()), target=target, format="{:.4f}"),
        Row(f"explain, {size}, s", explained, format="{:.4f}"),
    ]


def _with_quotas(hosts: int, waiting: int, target: float) -> list[Row]:
    """Measures passes with the quotas of 200 users in 20 teams, which lend each other what they do
    not use, and the same passes without quotas.
    """
    requests = paper.requests(waiting, users=_USERS)
    batch = paper.requests(waiting, bands=(Band.BATCH,), seed=3, users=_USERS)
    rules = _quotas(paper.hosts(hosts))
    takes: list[dict[str, float]] = [{}, {}]
    for _ in range(TIMES):
        for quotas, found in zip((QuotaRules(), rules), takes, strict=True):
            ledger = asked(hosts, requests, quotas)
            passes = (*_to_the_end(ledger), *_evicting(hosts, batch, requests, quotas))
            for what, seconds in passes:
                found[what] = min(found.get(what, seconds), seconds)
    size = f"{_USERS} users, {_TEAMS} teams, {waiting:,} waiting, {hosts:,} hosts"
    rows = []
    for what, found in zip(("without quotas", "with quotas"), takes, strict=True):
        worst, note = _worst_of(found)
        middle = median(found.values())
        rows.append(
            Row(
                f"worst pass {what}, {size}, s",
                worst,
                target=target,
                format="{:.4f}",
                note=f"of {len(found)} passes, median {middle * 1000:.0f} ms: {note}",
            )
        )
    return rows


def _worst_of(takes: Mapping[str, float]) -> tuple[float, str]:
    """Returns the time of the slowest pass, and a text with the slowest ones."""
    worst = sorted(takes, key=lambda what: -takes[what])
    note = "; ".join(f"{what} {takes[what] * 1000:.0f} ms" for what in worst[:4])
    return takes[worst[0]], note


def _quotas(hosts: list[Host]) -> QuotaRules:
    """Returns quotas that bind: a team has its share of the cluster, less than its users ask for,
    and a user may not have all of it.
    """
    sums = {"chips": 0, "gpus": 0, "cpus": 0}
    for host in hosts:
        device = host.resources.device
        sums["cpus"] += host.resources.cpu_millis
        if device is not None:
            sums["chips" if device.kind is DeviceKind.TPU else "gpus"] += device.count
    share = {resource: amount // (2 * _TEAMS) for resource, amount in sums.items()}
    teams = {
        f"team{team}": tuple(f"user{user}" for user in range(team, _USERS, _TEAMS))
        for team in range(_TEAMS)
    }
    return QuotaRules(
        quotas=(
            *(
                QuotaRule(name=team, team=team, nominal=share, borrow=share, cohort="lab")
                for team in teams
            ),
            QuotaRule(
                name="each", user=EACH_USER, nominal={"gpus": sums["gpus"] // _USERS, "hosts": 200}
            ),
        ),
        teams=teams,
    )


def _of_shapes(shapes: int) -> list[Row]:
    """Measures the CPU time of passes over a full cluster: in which nothing fits, and after a host
    has changed.
    """
    hosts, waiting = 1_000, 5_000
    ledger = asked(hosts, paper.requests(waiting, specs=paper.many_shapes(shapes)))
    while ledger.settle(LATER, MAX_PLACEMENTS).stopped:
        pass
    rates: list[float] = []

    def cpu() -> float:
        looks, began = ledger.effort.looks, time.process_time()
        ledger.settle(LATER, MAX_PLACEMENTS)
        took = time.process_time() - began
        rates.append((ledger.effort.looks - looks) / took / 1e6)
        return took

    same, changed = min(cpu() for _ in range(TIMES)), []
    for _ in range(TIMES):
        ledger.hosts_up([next(iter(ledger.hosts.values()))])
        changed.append(cpu())
    size = f"{waiting:,} waiting, {hosts:,} hosts, {shapes} shapes"
    note = (
        f"{median(rates):.1f} million looks a second; a run of the scheduler ends after"
        f" {MAX_REPLAY / 1e6:.0f} million"
    )
    return [
        Row(f"pass on a full cluster, {size}, CPU s", same, target=0.5, format="{:.4f}", note=note),
        Row(
            f"the same after a host changed, {size}, CPU s",
            min(changed),
            target=0.5,
            format="{:.4f}",
        ),
    ]


def _longest_replay(hosts: int, waiting: int, *, with_quotas: bool = False) -> Row:
    """Measures the CPU time of all exchanges of one run of the scheduler on a full cluster, and of
    reading its ledger.

    In each exchange one gang leaves and another one asks.
    """
    requests = paper.requests(waiting + 5_000, users=_USERS if with_quotas else paper.USERS)
    quotas = _quotas(paper.hosts(hosts)) if with_quotas else None
    before = asked(hosts, requests[:waiting], quotas)
    while before.settle(LATER, MAX_PLACEMENTS).stopped:
        pass
    state, exchanges = LedgerState.model_validate_json(before.state().model_dump_json()), 0
    began = time.process_time()
    ledger = Ledger(state)
    for request in requests[waiting:]:
        if ledger.effort.looks >= MAX_REPLAY:
            break
        exchanges += 1
        now = LATER + timedelta(seconds=exchanges)
        serve(
            ledger,
            [Release(key=next(iter(ledger.live)), ran=True), Ask(request=request)],
            now,
            size=LedgerSize(),
            whole=True,
        )
    took = time.process_time() - began
    note = f"{exchanges} exchanges, {ledger.effort.looks / 1e6:.1f} million looks"
    return Row(
        f"longest replay{' with quotas' if with_quotas else ''}, {waiting:,} waiting,"
        f" {hosts:,} hosts, CPU s",
        took,
        target=7,
        format="{:.1f}",
        note=note,
    )


def asked(hosts: int, requests: Iterable[Request], quotas: QuotaRules | None = None) -> Ledger:
    ledger = Ledger(LedgerState(quotas=quotas or QuotaRules()))
    ledger.hosts_up(paper.hosts(hosts))
    for request in requests:
        ledger.ask(request)
    return ledger


def _to_the_end(ledger: Ledger) -> Iterable[tuple[str, float]]:
    """Measures the passes from an empty cluster to a full one, one in which nothing fits, and one
    after some placements ended.
    """
    stopped, number = True, 0
    while stopped:
        number += 1
        stopped, seconds = _pass(ledger, LATER)
        yield f"pass {number}{'' if stopped else ', the first on a full cluster'}", seconds
    yield "nothing fits", _pass(ledger, LATER)[1]
    for key in list(ledger.live)[:RELEASED]:
        ledger.forget(key)
    yield f"after {RELEASED} ended", _pass(ledger, LATER)[1]


def _evicting(
    hosts: int, batch: list[Request], others: list[Request], quotas: QuotaRules | None = None
) -> Iterable[tuple[str, float]]:
    """Measures passes on a cluster full of batch work, while as many other requests wait, some of
    them in higher bands.
    """
    ledger = asked(hosts, batch, quotas)
    while ledger.settle(LATER, MAX_PLACEMENTS).stopped:
        pass
    for request in list(ledger.waiting):
        ledger.forget(request.key)
    for request in others:
        ledger.ask(request)
    for number in (1, 2):
        yield f"higher bands evict, {number}", _pass(ledger, LATER + number * timedelta(hours=1))[1]


def _pass(ledger: Ledger, now: datetime) -> tuple[bool, float]:
    began = time.perf_counter()
    settled = ledger.settle(now, MAX_PLACEMENTS)
    return settled.stopped, time.perf_counter() - began


def _explained(ledger: Ledger) -> float:
    """Returns the longest time of about twenty calls of `explain`."""
    took = []
    for key in ledger.waiting.keys()[:: max(1, len(ledger.waiting) // 20)]:
        began = time.perf_counter()
        ledger.explain(key)
        took.append(time.perf_counter() - began)
    return max(took)
