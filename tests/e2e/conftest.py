"""Clusters that tests share. Whoever kills something has a cluster of its own."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, a_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One host with four cores; tests use names of their own and give back what they take."""
    with a_cluster("--cpu", "4", "--memory", "8g", "--hosts", "1", "--ephemeral") as running:
        yield running
