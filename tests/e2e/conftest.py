"""Clusters that tests share. Whoever kills something has a cluster of its own."""

from collections.abc import Generator, Iterator

import pytest

from tests.e2e.cluster import Cluster, a_cluster
from tests.fakes.google.client import FakeGoogle


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """One host with four cores; tests use names of their own and give back what they take."""
    with a_cluster("--cpu", "4", "--memory", "8g", "--hosts", "1", "--ephemeral") as running:
        yield running


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    """A cloud whose machines boot, and give up soon; each test has a project of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IRIS_TRIES", "2")
        patch.setenv("IRIS_PAUSE", "1")
        with FakeGoogle(boot=True) as google:
            yield google


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of the clusters that run to the report of a test that fails, and cancel its
    jobs, which would keep the hosts from the tests that follow.
    """
    report = yield
    if report.failed:
        for cluster in Cluster.running:
            report.sections.append((f"logs of cluster {cluster.name}", cluster.last_log_lines()))
            cluster.cancel_jobs_since(call.start)
    return report
