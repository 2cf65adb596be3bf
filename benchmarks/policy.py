"""Measures what the access control of Temporal's servers costs jobs: two clusters on official
servers of their own, one with a policy and one without, take turns with the load of
`benchmarks.load`.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from statistics import median, stdev

import psutil

from benchmarks.ground import NAME, Ground
from benchmarks.load import CONCURRENCY, Round, drive, job, take_round
from benchmarks.table import Row
from iris.client.connect.clusters import ClusterRecord
from tests.e2e.access.conftest import SETTINGS
from tests.e2e.access.lab import a_lab
from tests.e2e.operate.production import OwnCluster, an_own_cluster
from tests.temporal_cluster import TemporalCluster, a_temporal_cluster

_WITH, _WITHOUT = "with a policy", "without"


def measure(*, quick: bool) -> list[Row]:
    with _without_policy() as plain, _with_policy() as (guarded, identity):
        return asyncio.run(_take_turns({_WITHOUT: plain, _WITH: guarded}, identity, quick))


@contextlib.contextmanager
def _without_policy() -> Iterator[Ground]:
    with (
        a_temporal_cluster(settings=SETTINGS) as temporal,
        an_own_cluster(temporal.service.addresses, NAME) as own,
    ):
        yield _ground(own, temporal, own.join("host", f"--cpu={CONCURRENCY}").process.pid)


@contextlib.contextmanager
def _with_policy() -> Iterator[tuple[Ground, str]]:
    """Yields also the path of the identity file of ada."""
    with a_lab() as lab:
        options = (f"--cpu={CONCURRENCY}", "--slice", "own", "--slice-size", "1")
        agent = lab.join("own-w-0", *options, who="joined")
        identity = lab.identity_file(lab.service.people["ada"])
        yield _ground(lab, lab.service.temporal, agent.process.pid), str(identity)


def _ground(own: OwnCluster, temporal: TemporalCluster, agent: int) -> Ground:
    servers = tuple(psutil.Process(each.pid) for each in temporal.service.processes.values())
    (controller,) = own.processes_with("controller", "serve")
    store = (own.home / "store").as_uri()
    record = ClusterRecord(name=own.name, address=own.address, store=store)
    return Ground(record, servers, controller, (psutil.Process(agent),))


async def _take_turns(grounds: dict[str, Ground], identity: str, quick: bool) -> list[Row]:
    jobs, rounds = (100, 4) if quick else (100, 10)
    ones = {}
    for side, ground in grounds.items():
        if side == _WITH:
            os.environ["IRIS_IDENTITY"] = identity
        ones[side] = job(await ground.client(), "ada")
        await drive(ones[side], 2 * CONCURRENCY)
    results: dict[str, list[Round]] = {side: [] for side in grounds}
    for number in range(rounds):
        for side in sorted(grounds, reverse=number % 2 == 1):
            results[side].append(await take_round(grounds[side], side, ones[side], jobs))
    pairs = list(zip(results[_WITH], results[_WITHOUT], strict=True))
    rates = [ours.rate / theirs.rate for ours, theirs in pairs]
    server = [ours.server / theirs.server for ours, theirs in pairs]
    return [
        Row(
            "policy: jobs per second",
            median(one.rate for one in results[_WITH]),
            median(one.rate for one in results[_WITHOUT]),
            0.98,
            at_least=True,
            ratio=median(rates),
            note=f"floor: no policy; {_spread(rates)}",
        ),
        Row(
            "policy: server CPU, ms per job",
            median(one.server for one in results[_WITH]),
            median(one.server for one in results[_WITHOUT]),
            ratio=median(server),
            note=f"floor: no policy; {_spread(server)}",
        ),
    ]


def _spread(ratios: list[float]) -> str:
    error = stdev(ratios) / len(ratios) ** 0.5
    return f"{len(ratios)} pairs, mean ratio {sum(ratios) / len(ratios):.3f} ± {error:.3f}"
