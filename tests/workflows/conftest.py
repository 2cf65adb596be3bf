"""The fixtures of the time-skipping tests."""

import asyncio
from collections.abc import AsyncIterator, Generator

import pytest

from tests.fleet_harness import FleetCluster
from tests.fleet_played import TenantNotifier
from tests.harness import PATIENCE, Cluster, time_skipping_cluster

PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells the fixtures below how their test went."""
    report = yield
    item.stash[PASSED] = report.when == "call" and report.passed
    return report


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster of its own for each test, on a server whose clock jumps."""
    async with time_skipping_cluster() as cluster:
        yield cluster


@pytest.fixture
async def fleet(request: pytest.FixtureRequest) -> AsyncIterator[FleetCluster]:
    """The same with a platform. When the test has passed its books have to balance: those of one
    that has failed may be of a wedged workflow, whose replay never ends.
    """
    async with time_skipping_cluster(FleetCluster, TenantNotifier) as fleet:
        yield fleet
        if not request.node.stash[PASSED]:
            return
        async with asyncio.timeout(4 * PATIENCE.total_seconds()):
            await fleet.audit()
            await fleet.replay()
