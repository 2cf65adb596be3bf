"""Starting and stopping a local cluster from outside: in the background, and waiting until it is there or gone."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from iris.client.client import IrisClient
from iris.client.clusters import ClusterRecord, cluster_dir, read_record
from iris.errors import IrisError, Rejected
from iris.worker_agents.local_cluster import START_PER_HOST, START_TIMEOUT, STOP, LocalClusterOptions, clear_leftovers
from iris.worker_agents.machine_room import AGENT_STOP

#: A supervisor stops its parts in turn: agents, control plane, server.
STOP_TIMEOUT = AGENT_STOP + 2 * STOP
POLL = 0.1
#: Lines of the supervisor's log that go with the error.
SAID = 15


def start_detached(options: LocalClusterOptions) -> ClusterRecord:
    """Start a cluster in the background and wait until its hosts take work.

    Raises:
        Rejected: a cluster of that name runs already.
        IrisError: it did not start; the message has the end of the supervisor's log.
    """
    before = read_record(options.name)
    if before is not None and before.alive():
        raise Rejected(
            f"local cluster {options.name!r} runs already ({before.address}); stop it with: iris cluster stop {options.name}"
        )
    directory = cluster_dir(options.name)
    log = directory / "logs" / "supervisor.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "iris.cli.main", "cluster", "start", "--local", "--name", options.name, "--options", "-"]
    with log.open("wb") as output, tempfile.TemporaryFile() as given:
        # By a file without a name: nobody else's start of a cluster of this name can put its own in its place.
        given.write(options.model_dump_json().encode())
        given.seek(0)
        supervisor = subprocess.Popen(command, stdin=given, stdout=output, stderr=output, start_new_session=True)
    try:
        return asyncio.run(wait_until_ready(options, running=lambda: supervisor.poll() is None))
    except IrisError as error:
        with contextlib.suppress(ProcessLookupError):
            supervisor.terminate()
        supervisor.wait(STOP_TIMEOUT.total_seconds())
        said = "\n".join(log.read_text(errors="replace").splitlines()[-SAID:]) if log.exists() else ""
        raise IrisError(f"{error}\n{said}".strip()) from None


async def wait_until_ready(options: LocalClusterOptions, running: Callable[[], bool] = lambda: True) -> ClusterRecord:
    """The record of the cluster once all its hosts take work.

    Raises:
        IrisError: they do not within 30 s and 3 s for each host, or the supervisor has ended.
    """
    patience = START_TIMEOUT + START_PER_HOST * options.hosts
    deadline = time.monotonic() + patience.total_seconds()
    client: IrisClient | None = None
    while time.monotonic() < deadline and running():
        record = read_record(options.name)
        if record is not None and record.alive():
            with contextlib.suppress(IrisError):
                client = client or await IrisClient.connect(options.name)
                if len(await client.hosts()) >= options.hosts:
                    return record
        await asyncio.sleep(POLL)
    logs = cluster_dir(options.name) / "logs"
    raise IrisError(
        f"local cluster {options.name!r} did not start within {patience.total_seconds():.0f} s; its logs are in {logs}"
    )


def stop_local(name: str) -> None:
    """Stop a local cluster and wait until none of its processes is left.

    Raises:
        IrisError: something is still there after a minute.
    """
    record = read_record(name)
    if record is None:
        return
    if record.supervisor is not None and record.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.supervisor.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT.total_seconds()
        while record.alive():
            if time.monotonic() > deadline:
                raise IrisError(
                    f"the supervisor of local cluster {name!r} (process {record.supervisor.pid}) does not stop; kill it"
                )
            time.sleep(POLL)
    clear_leftovers(name)
