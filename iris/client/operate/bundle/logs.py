"""Reads the ends of the logs of a cluster's control plane and agents, for a bundle."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import cluster_dir
from iris.client.logs.stored import AgentReader
from iris.client.operate.bundle.archive import Collection
from iris.client.operate.gcp.ssh import container_log
from iris.client.operate.make_controller import controller_of
from iris.concurrency import for_each
from iris.model import store_paths
from iris.model.errors import NotFound, first_line
from iris.model.units import MIB
from iris.storage.object_store import Store

#: The maximum number of agents' logs in a bundle, and the maximum number of log files of a local
#: cluster's processes.
MAX_LOGS = 40
#: The number of logs that are read from the store at the same time.
_AT_ONCE = 8
#: The maximum number of bytes that are read from the end of a log file.
_END = 4 * MIB


def add_local_logs(collection: Collection, cluster: str, tail: int) -> None:
    """Adds the ends of the newest logs that this machine has of the cluster: of a local cluster,
    those of all its processes; of another one, that of its tunnel.
    """
    files = sorted(
        (cluster_dir(cluster) / "logs").glob("*.log"),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    for file in files[:MAX_LOGS]:
        try:
            collection.add_log(f"logs/{file.name}", _end_of(file, tail))
        except OSError as error:
            collection.lacks(f"logs/{file.name}", first_line(error))
    if len(files) > MAX_LOGS:
        collection.lacks("logs", f"{len(files) - MAX_LOGS} older files of {files[0].parent}")


def _end_of(file: Path, tail: int) -> list[str]:
    """Returns the last lines of a file, and no more than its last bytes. Leaves out a line without
    its beginning: a part of a secret has no form, and is equal to no secret.
    """
    with file.open("rb") as opened:
        start = max(0, opened.seek(0, os.SEEK_END) - _END)
        opened.seek(start)
        lines = opened.read(_END).decode(errors="replace").splitlines()
    lines = lines[1:] if start else lines
    return lines[-tail:] if tail else []


async def add_control_plane_log(collection: Collection, cluster: ClusterRef, tail: int) -> None:
    """Adds the end of the log of a control plane on another machine, which SSH reads.

    Raises:
        NotFound: this machine does not know where the control plane is.
        IrisError: the machine cannot be reached.
    """
    if cluster.platform == "gcp":
        lines = await asyncio.to_thread(container_log, cluster.controller_vm(""), tail)
    elif cluster.platform == "manual":
        controller = await asyncio.to_thread(controller_of, cluster)
        text = await asyncio.to_thread(controller.fetch_startup_logs, tail)
        lines = (text or "").splitlines()
    else:
        raise NotFound(
            "this machine does not know where the control plane is; name the configuration of"
            " the cluster with --config FILE"
        )
    collection.add_log("logs/controller.log", lines)


async def add_agent_logs(
    collection: Collection, url: str, cluster: str, first: Sequence[str], tail: int
) -> None:
    """Adds the ends of the agents' logs in the store.

    Args:
        url: the store.
        first: the hosts whose logs matter most.

    Raises:
        OSError, obstore.exceptions.BaseError: the store cannot be read.
    """
    store = Store(url)
    stored = await store.folders(store_paths.agent_logs(cluster, "").rstrip("/"))
    known = [host for host in dict.fromkeys(first) if host in stored]
    hosts = [*known, *sorted(set(stored) - {*known})]

    async def add(host: str) -> None:
        lines = [each.line for each in await AgentReader(store, cluster, host).tail(tail)]
        pieces = (each.data + (b"" if each.goes_on else b"\n") for each in lines)
        text = b"".join(pieces).decode(errors="replace")
        collection.add_log(f"logs/agents/{host}.log", text.splitlines())

    await for_each(hosts[:MAX_LOGS], add, at_once=_AT_ONCE)
    if len(hosts) > MAX_LOGS:
        collection.lacks(
            "logs/agents", f"the logs of {len(hosts) - MAX_LOGS} more hosts: iris logs --agent HOST"
        )
