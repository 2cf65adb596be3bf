"""Starting and stopping a local cluster from outside: in the background, and waiting until it is there or gone."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
from pydantic import ValidationError

from iris.activities import leftovers
from iris.client.client import IrisClient
from iris.client.clusters import ClusterRecord, ProcessRef, cluster_dir, not_running, read_record
from iris.errors import IrisError, Rejected
from iris.platforms.local import MACHINES, homes
from iris.worker_agents.local_cluster import (
    START_PER_HOST,
    START_TIMEOUT,
    STOP,
    LocalClusterOptions,
    clear_leftovers,
    machines_dir,
)
from iris.worker_agents.machine_room import AGENT_STOP, Machines

#: A supervisor stops its parts in turn: agents, control plane, server.
STOP_TIMEOUT = AGENT_STOP + 2 * STOP
#: A control plane that was stopped is there again, or has died again and again.
RESTART_TIMEOUT = STOP + timedelta(seconds=50)
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
    with log.open("w+b") as output, tempfile.TemporaryFile() as given:
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
            # The file that is open here: an ephemeral cluster's directory is gone.
            output.seek(0)
            said = output.read().decode(errors="replace").splitlines()[-SAID:]
            raise IrisError("\n".join([str(error), *said])) from None


async def wait_until_ready(options: LocalClusterOptions, running: Callable[[], bool] = lambda: True) -> ClusterRecord:
    """The record of the cluster once all its hosts take work.

    Raises:
        IrisError: they do not within a minute and 3 s for each host, or the supervisor has ended.
    """
    expected = options.hosts
    patience = START_TIMEOUT + START_PER_HOST * expected
    deadline = time.monotonic() + patience.total_seconds()
    client: IrisClient | None = None
    while time.monotonic() < deadline and running():
        record = read_record(options.name)
        if record is not None and record.alive():
            with contextlib.suppress(IrisError):
                client = client or await IrisClient.connect(options.name)
                hosts = [view.host for view in await client.hosts()]
                if len(hosts) >= expected and all([await client.polls(host) for host in hosts]):
                    return record
        await asyncio.sleep(POLL)
    what = f"did not start within {patience.total_seconds():.0f} s" if running() else "ended while it was starting"
    raise IrisError(f"local cluster {options.name!r} {what}; its logs are in {cluster_dir(options.name) / 'logs'}")


def stop_local(name: str) -> None:
    """Stop a local cluster and wait until none of its processes is left, nor anything that it would come back with: of an
    ephemeral one nothing at all stays.

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
    clear_stopped(name)


def left_processes(name: str) -> list[ProcessRef]:
    """What still runs of a cluster whose supervisor is gone: parts of it, and agents."""
    record = read_record(name)
    if record is None or record.alive():
        return []
    agents = (ref for home in homes(machines_dir(cluster_dir(name))) for ref in _agents(home))
    return [ref for ref in (*record.processes, *agents) if ref.alive()]


def clear_stopped(name: str) -> None:
    """End the processes of a cluster whose supervisor is gone, and forget its machines; of an ephemeral one, everything.

    What a persistent cluster knows of its jobs stays, for its next start.
    """
    record = read_record(name)
    if record is None or record.alive():
        return
    clear_leftovers(name)
    agents = [process for ref in left_processes(name) for process in _process(ref)]
    for agent in agents:
        with contextlib.suppress(psutil.NoSuchProcess):
            agent.kill()
    psutil.wait_procs(agents, leftovers.KILL_WAIT.total_seconds())
    _end_programs(name)
    directory = cluster_dir(name)
    shutil.rmtree(directory if record.ephemeral else machines_dir(directory), ignore_errors=True)


def restart_control_plane(name: str) -> ClusterRecord:
    """End the control plane of a local cluster that runs; its supervisor starts another, which this waits for.

    Raises:
        Unreachable: the cluster does not run.
        IrisError: no other control plane came.
    """
    record = read_record(name)
    if record is None or not record.alive():
        raise not_running(name)
    deadline = time.monotonic() + RESTART_TIMEOUT.total_seconds()
    before = control_plane(record)
    if before is not None:
        for process in _process(before):
            process.terminate()
            if psutil.wait_procs([process], STOP.total_seconds())[1]:
                process.kill()
    while True:
        record = read_record(name) or record
        after = control_plane(record)
        if after is not None and after != before:
            return record
        if time.monotonic() > deadline or not record.alive():
            raise IrisError(f"no control plane came in the place of the former; see {cluster_dir(name) / 'logs'}")
        time.sleep(POLL)


def control_plane(record: ClusterRecord) -> ProcessRef | None:
    """The control plane among the processes of a local cluster; None while it is not there."""
    for ref in record.processes:
        for process in _process(ref):
            with contextlib.suppress(psutil.Error):
                if {"controller", "serve"} <= set(process.cmdline()):
                    return ref
    return None


def _process(ref: ProcessRef) -> Iterator[psutil.Process]:
    """The process, if it still runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if ref.alive():
            yield psutil.Process(ref.pid)


def _end_programs(name: str) -> None:
    """Those of all hosts that a local cluster has ever made: each has left a log."""
    hosts = {log.stem for log in (cluster_dir(name) / "logs").glob("*.log")}
    leftovers.kill_on(hosts, machines_dir(cluster_dir(name)))


def _agents(home: Path) -> tuple[ProcessRef, ...]:
    """The agents that the last room had for a slice."""
    try:
        return tuple(Machines.model_validate_json((home / MACHINES).read_bytes()).agents.values())
    except (OSError, ValidationError):
        return ()
