"""Finds where a cluster is, and whether it answers."""

import asyncio

from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import read_record
from iris.client.operate.controller import answering_client
from iris.client.operate.local.controller import LocalController
from iris.client.operate.make_controller import controller_of, gcp_controller
from iris.model.frozen import Frozen


class MachineSeen(Frozen):
    """A control plane's machine, as its platform reports it."""

    name: str
    zone: str
    project: str
    #: The status that Google reports, such as RUNNING.
    status: str
    #: The IP address of the machine in its own network; empty if it has none.
    address: str = ""


class Discovery(Frozen):
    """A cluster's location and state."""

    cluster: str
    platform: str
    #: Whether the control plane's process or machine runs; None if this machine cannot find that
    #: out.
    running: bool | None = None
    #: Whether the scheduler and the autoscaler answer.
    healthy: bool = False
    #: The address at which this machine reaches the cluster's Temporal service, `host:port`; empty
    #: if this machine cannot reach the service.
    address: str = ""
    namespace: str = ""
    store: str = ""
    ui: str = ""
    #: The control plane's machine on Google Cloud; None if there is none, or for a cluster
    #: elsewhere.
    machine: MachineSeen | None = None


def discovery(cluster: ClusterRef) -> Discovery:
    """Returns the cluster's location, and whether it answers. Opens the tunnel to a running cluster
    that needs one.
    """
    if cluster.platform == "address":
        return asyncio.run(_at_address(cluster))
    machine = None
    if cluster.platform == "local":
        status = LocalController.of(cluster.name).status()
    elif cluster.platform == "manual":
        status = controller_of(cluster).status()
    else:
        controller = gcp_controller(cluster, "its location is not known here")
        status = controller.status()
        seen, project = asyncio.run(controller.seen()), cluster.controller_vm("").project
        if seen is not None:
            machine = MachineSeen(
                project=project, **seen.model_dump(include={"name", "zone", "status", "address"})
            )
    record = read_record(cluster.name)
    known = (
        record.model_dump(include={"namespace", "store", "ui"})
        if record is not None and status.running
        else {}
    )
    running = {"running": status.running, "healthy": status.healthy, "address": status.address}
    return Discovery(
        cluster=cluster.name, platform=cluster.platform, machine=machine, **running, **known
    )


async def _at_address(cluster: ClusterRef) -> Discovery:
    record = (await AsyncIrisClient.connect(cluster)).record
    known = record.model_dump(include={"address", "namespace", "store", "ui"})
    return Discovery(
        cluster=record.name,
        platform="address",
        healthy=await answering_client(cluster.name) is not None,
        **known,
    )
