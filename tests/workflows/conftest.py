"""The fixtures of the time-skipping tests."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.fleet_harness import FleetCluster
from tests.fleet_played import TenantCouriers
from tests.harness import PATIENCE, Cluster, time_skipping_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster of its own for each test, on a server whose clock jumps."""
    async with time_skipping_cluster() as cluster:
        yield cluster


@pytest.fixture
async def fleet() -> AsyncIterator[FleetCluster]:
    """The same with a platform. When the test is over its books have to balance."""
    async with time_skipping_cluster(FleetCluster, TenantCouriers) as fleet:
        yield fleet
        async with asyncio.timeout(4 * PATIENCE.total_seconds()):
            await fleet.audit()
            await fleet.replay()
