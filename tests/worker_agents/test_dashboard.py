"""A control plane and its dashboard: whoever knows only the address of the cluster finds it, and
its absence stops nothing.
"""

import asyncio
import logging
import sys
from datetime import timedelta

import pytest

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.remote import discover
from iris.config import DashboardAddress
from iris.dashboard.installed import INSTALL
from iris.model.errors import NotFound
from iris.processes.process import free_ports
from iris.retrying import retry
from iris.worker_agents.control_plane import dashboard
from iris.worker_agents.control_plane.serve import ControlPlaneOptions, start_planners
from tests.e2e.cluster import eventually
from tests.harness import Cluster, dev_server_cluster

RECORD = ClusterRecord(name="trial", address="127.0.0.1:7233", store="file:///nowhere")


async def found(cluster: Cluster, address: str) -> ClusterRecord:
    """The record of the second cluster in the service, as somebody finds it at this address."""

    @retry(NotFound, every=0.1, timeout=timedelta(seconds=60))
    async def attempt() -> ClusterRecord:  # the service lists a workflow soon after its start
        return (await discover(cluster.client, address, "second"))[0]

    return await attempt()


async def test_the_address_of_the_cluster_leads_to_its_dashboard() -> None:
    """On the same machine only: from another one, a loopback address would be the reader's own."""
    async with dev_server_cluster() as cluster:
        options = ControlPlaneOptions(
            address="127.0.0.1:7233",
            namespace="default",
            cluster="second",
            store="file:///nowhere",
            dashboard_port=7002,
        )
        await start_planners(cluster.client, options)
        here = await found(cluster, "127.0.0.1:7233")
        elsewhere = await found(cluster, "temporal.internal:7233")

    assert here.dashboard == "http://127.0.0.1:7002"
    assert elsewhere.dashboard == ""
    client = AsyncIrisClient(cluster.client, here)
    assert client.jobs.dashboard_page("ada/train") == "http://127.0.0.1:7002/jobs/ada/train"


async def test_without_the_extra_a_line_in_the_log_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The control plane's own work does not need it."""
    monkeypatch.setitem(sys.modules, "starlette", None)
    async with dev_server_cluster() as cluster:
        with caplog.at_level(logging.INFO, dashboard.__name__):
            async with dashboard.serving(cluster.client, RECORD, DashboardAddress(7002)):
                pass

    assert [each.message for each in caplog.records] == [
        f"no dashboard is served: to install it, run: {INSTALL}"
    ]


async def test_a_port_in_use_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Two control planes on one machine have the same configuration."""
    port, _ = free_ports()
    async with dev_server_cluster() as cluster:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        async with taken, dashboard.serving(cluster.client, RECORD, DashboardAddress(port)):
            await asyncio.to_thread(
                eventually,
                lambda: any("cannot be used" in each.message for each in caplog.records),
            )
