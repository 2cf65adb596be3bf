"""Starts and stops a local cluster from outside: in the background, with a wait until it is ready
or gone.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
from pydantic import ValidationError

from iris.activities.host.runtimes.cleanup import leftover_processes, trees
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import (
    ClusterRecord,
    ProcessRef,
    cluster_dir,
    make_cluster_dir,
    not_running,
    read_record,
)
from iris.model.errors import IrisError, Rejected
from iris.platforms.local import MACHINES, homes
from iris.processes.process import IRIS
from iris.retrying import poll
from iris.storage.files import make_private, private_file
from iris.worker_agents.local.cluster import (
    CHILD_STOP_TIMEOUT,
    START_PER_HOST,
    START_TIMEOUT,
    LocalClusterOptions,
    clear_leftovers,
    machines_dir,
)
from iris.worker_agents.local.local_machines import AGENT_STOP_TIMEOUT, LocalMachines

#: The time limit for the stop of a local cluster. Its supervisor stops the agents, then the control
#: plane, then the server.
STOP_TIMEOUT = AGENT_STOP_TIMEOUT + 2 * CHILD_STOP_TIMEOUT
#: The time limit for a restart of the control plane: for the old one to stop, and for the
#: supervisor to start another one that does not die at once. If none runs by then, the restart has
#: failed.
RESTART_TIMEOUT = CHILD_STOP_TIMEOUT + timedelta(seconds=50)
#: The interval between two polls of the cluster's state, in seconds.
POLL_INTERVAL = 0.1
#: The number of lines from the end of each log that an error shows.
LOG_TAIL_LINES = 15


def start_detached(options: LocalClusterOptions) -> ClusterRecord:
    """Starts a cluster in the background and waits until its hosts take work.

    Raises:
        Rejected: a cluster of that name runs already.
        IrisError: it did not start; the message has the ends of the logs.
    """
    before = read_record(options.name)
    if before is not None and before.alive():
        raise Rejected(
            f"local cluster {options.name!r} runs already ({before.address}); stop it with: iris"
            f" cluster stop {options.name}"
        )
    log = make_cluster_dir(options.name) / "logs" / "supervisor.log"
    make_private(log.parent)
    command = [
        *IRIS,
        "cluster",
        "start",
        "--local",
        "--name",
        options.name,
        "--options",
        "-",
    ]
    with private_file(log).open("w+b") as output, tempfile.TemporaryFile() as given:
        # The options are in a file without a name, so that another start of a cluster of this name
        # cannot replace them.
        given.write(options.model_dump_json().encode())
        given.seek(0)
        supervisor = subprocess.Popen(
            command, stdin=given, stdout=output, stderr=output, start_new_session=True
        )
        try:
            return asyncio.run(wait_until_ready(options, running=lambda: supervisor.poll() is None))
        except IrisError as error:
            # The logs are read now, because the stop of an ephemeral cluster removes its directory.
            parts = _ends_of_logs(log.parent, but=log)
            with contextlib.suppress(ProcessLookupError):
                supervisor.terminate()
            supervisor.wait(STOP_TIMEOUT.total_seconds())
            # Read from the open file, which has the stop too.
            output.seek(0)
            raise IrisError("\n".join([str(error), *_tail(output.read()), *parts])) from None


def _ends_of_logs(logs: Path, but: Path) -> list[str]:
    """Returns the last lines of the logs of a cluster's parts, each under its file's name."""
    ends = [
        (path.name, _tail(path.read_bytes()))
        for path in sorted(logs.glob("*.log"))
        if path != but and not path.is_symlink()
    ]
    return [line for name, lines in ends if lines for line in (f"{name}:", *lines)]


def _tail(log: bytes) -> list[str]:
    return log.decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]


async def wait_until_ready(
    options: LocalClusterOptions, running: Callable[[], bool] = lambda: True
) -> ClusterRecord:
    """Waits until all hosts of the cluster take work, and returns the cluster's record.

    Raises:
        IrisError: they do not within two minutes and 3 s for each host, or the supervisor has
            ended.
    """
    expected = options.hosts
    patience = START_TIMEOUT + START_PER_HOST * expected
    deadline = time.monotonic() + patience.total_seconds()
    client: AsyncIrisClient | None = None
    while time.monotonic() < deadline and running():
        record = read_record(options.name)
        if record is not None and record.alive():
            with contextlib.suppress(IrisError):
                client = client or await AsyncIrisClient.connect(options.name)
                hosts = [view.host for view in await client.hosts.list()]
                if len(hosts) >= expected and all(
                    [await client.hosts.polls(host) for host in hosts]
                ):
                    return record
        await asyncio.sleep(POLL_INTERVAL)
    what = (
        f"did not start within {patience.total_seconds():.0f} s"
        if running()
        else "ended while it was starting"
    )
    raise IrisError(
        f"local cluster {options.name!r} {what}; its logs are in"
        f" {cluster_dir(options.name) / 'logs'}"
    )


def stop_local(name: str) -> None:
    """Stops a local cluster, waits until none of its processes is left, and removes its machines.

    Nothing of an ephemeral cluster stays.

    Raises:
        IrisError: the supervisor still runs after a minute.
    """
    record = read_record(name)
    if record is None:
        return
    if record.supervisor is not None and record.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.supervisor.pid, signal.SIGTERM)
        if not poll(lambda: not record.alive(), every=POLL_INTERVAL, timeout=STOP_TIMEOUT):
            raise IrisError(
                f"the supervisor of local cluster {name!r} (process {record.supervisor.pid}) does"
                " not stop; kill it"
            )
    clear_stopped(name)


def left_processes(name: str) -> list[ProcessRef]:
    """Returns the processes, including agents, that still run of a cluster whose supervisor is
    gone.
    """
    record = read_record(name)
    if record is None or record.alive():
        return []
    agents = (ref for home in homes(machines_dir(cluster_dir(name))) for ref in _agents(home))
    return [ref for ref in (*record.processes, *agents) if ref.alive()]


def clear_stopped(name: str) -> None:
    """Kills the processes of a cluster whose supervisor is gone, and removes its machines. Removes
    an ephemeral cluster entirely.

    A persistent cluster keeps its jobs' state for its next start.
    """
    record = read_record(name)
    if record is None or record.alive():
        return
    clear_leftovers(name)
    agents = [process for ref in left_processes(name) for process in _process(ref)]
    for agent in agents:
        with contextlib.suppress(psutil.NoSuchProcess):
            agent.kill()
    psutil.wait_procs(agents, leftover_processes.KILL_WAIT.total_seconds())
    _end_programs(name)
    directory = cluster_dir(name)
    trees.remove(directory if record.ephemeral else machines_dir(directory))


def restart_control_plane(name: str) -> ClusterRecord:
    """Ends the control plane of a running local cluster, and waits until its supervisor has started
    another one.

    Raises:
        Unreachable: the cluster does not run.
        IrisError: the supervisor started no other control plane.
    """
    record = read_record(name)
    if record is None or not record.alive():
        raise not_running(name)
    deadline = time.monotonic() + RESTART_TIMEOUT.total_seconds()
    before = control_plane(record)
    if before is not None:
        for process in _process(before):
            process.terminate()
            if psutil.wait_procs([process], CHILD_STOP_TIMEOUT.total_seconds())[1]:
                process.kill()
    while True:
        record = read_record(name) or record
        after = control_plane(record)
        if after is not None and after != before:
            return record
        if time.monotonic() > deadline or not record.alive():
            raise IrisError(
                f"the control plane was not started again; see {cluster_dir(name) / 'logs'}"
            )
        time.sleep(POLL_INTERVAL)


def control_plane(record: ClusterRecord) -> ProcessRef | None:
    """Returns the control plane among the processes of a local cluster; None while there is
    none.
    """
    for ref in record.processes:
        for process in _process(ref):
            with contextlib.suppress(psutil.Error):
                if {"controller", "serve"} <= set(process.cmdline()):
                    return ref
    return None


def _process(ref: ProcessRef) -> Iterator[psutil.Process]:
    """Yields the process if it still runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if ref.alive():
            yield psutil.Process(ref.pid)


def _end_programs(name: str) -> None:
    """Kills the programs of all hosts that a local cluster ever created. Each host has left a log
    with its name.
    """
    hosts = {log.stem for log in (cluster_dir(name) / "logs").glob("*.log")}
    leftover_processes.kill_on(hosts, machines_dir(cluster_dir(name)))


def _agents(home: Path) -> tuple[ProcessRef, ...]:
    """Returns the agents that the last supervisor had for a slice."""
    try:
        return tuple(
            LocalMachines.model_validate_json((home / MACHINES).read_bytes()).agents.values()
        )
    except (OSError, ValidationError):
        return ()
