"""Reads the versions of a cluster's parts."""

from collections import defaultdict
from datetime import UTC, datetime

from pydantic import Field
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest

from iris.autoscaling.liveness import SILENCE
from iris.client.client import AsyncIrisClient
from iris.client.connect.connection import RPC_TIMEOUT
from iris.client.connect.deployment import own_version, version_in
from iris.client.connect.rpc import Connection
from iris.client.operate.worker_reports import worker_reports
from iris.model import names
from iris.model.errors import IrisError
from iris.model.frozen import Frozen
from iris.model.versions import FEATURES, remedy

#: Temporal's statuses of workers that have ended or will end soon.
_ENDED = (WorkerStatus.WORKER_STATUS_SHUTTING_DOWN, WorkerStatus.WORKER_STATUS_SHUTDOWN)


class AgentVersion(Frozen):
    """A version that some agents of the cluster have, and the hosts on which these agents run."""

    version: str | None = Field(
        description="null: the agents do not report it, because theirs is too old."
    )
    hosts: tuple[str, ...]


class Versions(Frozen):
    """The output of `iris version --json`: the versions of this client and of a cluster's parts."""

    client: str
    cluster: str | None = Field(None, description="The cluster that was asked; null: none.")
    server: str | None = Field(
        None, description="The version of the Temporal service; null: unknown."
    )
    control_plane: tuple[str | None, ...] = Field(
        (),
        description=(
            "The versions of the running control planes; null: one does not report its version."
        ),
    )
    agents: tuple[AgentVersion, ...] = ()
    not_asked: str = Field(
        "", description="What could not be asked, and why; empty: all was asked."
    )
    fits: bool | None = Field(
        None, description="Whether the versions fit; null: not all are known."
    )
    remedy: str = Field("", description="The first thing to do if they do not fit.")


async def versions_of(client: AsyncIrisClient) -> Versions:
    """Returns the versions of a cluster's parts. A part that cannot be asked is missing, and
    `not_asked` has the reason.
    """
    connection, cluster = client.connection, client.record.name
    found = Versions(client=own_version(), cluster=cluster)
    try:
        server, features = await _server(connection)
        found = found.model_copy(update={"server": server})
        control_planes, agents = await _workers(connection, cluster)
    except IrisError as error:
        return found.model_copy(update={"not_asked": str(error)})
    by_version = tuple(
        AgentVersion(version=version, hosts=tuple(sorted(hosts)))
        for version, hosts in agents.items()
    )
    update = {"control_plane": tuple(control_planes), "agents": by_version}
    if not control_planes:
        reason = (
            f"no control plane of cluster {cluster} reports; one reports within ten seconds of its"
            " start"
        )
        return found.model_copy(update={**update, "not_asked": reason})
    todo = remedy(found.client, control_planes, agents, server, features)
    return found.model_copy(update={**update, "fits": not todo, "remedy": todo})


async def _server(connection: Connection) -> tuple[str, dict[str, bool]]:
    """Returns the version of the Temporal service, and whether it has each of the features that
    Iris uses.
    """
    service, namespace = connection.client.workflow_service, connection.client.namespace
    with connection.rpc_errors():
        system = await service.get_system_info(GetSystemInfoRequest(), timeout=RPC_TIMEOUT)
        described = await service.describe_namespace(
            DescribeNamespaceRequest(namespace=namespace), timeout=RPC_TIMEOUT
        )
    has = described.namespace_info.capabilities
    return system.server_version, {feature: bool(getattr(has, feature)) for feature in FEATURES}


async def _workers(
    connection: Connection, cluster: str
) -> tuple[list[str | None], dict[str | None, list[str]]]:
    """Returns the versions of the control planes that report, and the hosts by the version of their
    agents.
    """
    control_planes: list[str | None] = []
    hosts: dict[str, tuple[datetime, str | None]] = {}
    now = datetime.now(UTC)
    async for report in worker_reports(connection):
        at = report.heartbeat_time.ToDatetime(UTC)
        if report.status in _ENDED or now - at > SILENCE:
            continue
        host = names.host_of_queue(cluster, report.task_queue)
        if report.task_queue == names.control_queue(cluster):
            control_planes.append(version_in(report))
        # The service may still have the report of an earlier agent of the host.
        elif host is not None and (host not in hosts or hosts[host][0] < at):
            hosts[host] = (at, version_in(report))
    agents: defaultdict[str | None, list[str]] = defaultdict(list)
    for host, (_, version) in hosts.items():
        agents[version].append(host)
    return control_planes, agents
