"""The fixture of the time-skipping tests."""

from collections.abc import AsyncIterator

import pytest

from tests.harness import Cluster, time_skipping_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster of its own for each test, on a server whose clock jumps."""
    async with time_skipping_cluster() as cluster:
        yield cluster
