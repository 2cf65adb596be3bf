"""An SSH tunnel to a control plane that this machine cannot reach directly. It forwards ports of
this machine to the machine of the control plane.

The connection is `gcloud compute ssh` for a machine on Google Cloud, and asyncssh for any other
machine. Each cluster's tunnel is a separate process, which outlives the command that started it and
serves later commands. It connects again whenever the connection breaks. It ends when the cluster's
record is gone or names another machine. An open port does not prove that the service answers, so a
client must ask the service.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from iris.client.connect.clusters import (
    ClusterRecord,
    ControllerVm,
    ProcessRef,
    SshController,
    cluster_dir,
    read_record,
    write_record,
)
from iris.concurrency import pause
from iris.model.errors import IrisError, Rejected, Unreachable
from iris.model.units import format_duration
from iris.platforms import manual
from iris.processes.children import Child, Restarts
from iris.processes.process import free_port, free_ports, locked, stop_event
from iris.retrying import poll
from iris.storage.files import make_private, private_file

logger = logging.getLogger(__name__)

GCLOUD = "gcloud"
#: The Python module that the tunnel's process runs. The process is recognised by this name in its
#: command line.
MODULE = "iris.client.connect.tunnel"
#: The delays before a broken connection is opened again.
RESTARTS = Restarts(delay=timedelta(seconds=1), max_delay=timedelta(seconds=15))
#: The tunnel's process ends when it has not connected for this long; the next command starts a new
#: one.
GIVE_UP = timedelta(minutes=15)
#: How often the tunnel's process reads the cluster's record. The process ends if the cluster was
#: stopped or has another machine.
CHECK_INTERVAL = timedelta(seconds=1)
#: The time limit for the start of a tunnel, until its process has recorded its id in the cluster's
#: record.
START = timedelta(seconds=15)
#: How long the tunnel's process may take to end after a signal.
STOP = timedelta(seconds=5)
#: The pause, in seconds, between two checks of whether the tunnel's process has ended, or has
#: written itself into the cluster's record.
POLL = 0.05
#: How many lines of the tunnel's log an error shows.
LOG_LINES = 8
#: Options of SSH that end a connection after a minute of silence.
SSH_OPTIONS = ("ServerAliveInterval=15", "ServerAliveCountMax=4", "ConnectTimeout=15")


def ssh_login(vm: ControllerVm) -> list[str]:
    """Builds the SSH command line for the machine. The command never prompts, because no user may
    be present.
    """
    through = ["--tunnel-through-iap"] if vm.iap else []
    return [
        GCLOUD,
        "compute",
        "ssh",
        vm.machine,
        f"--project={vm.project}",
        f"--zone={vm.zone}",
        "--quiet",
        *through,
    ]


def tunnel_command(vm: ControllerVm, port: int, ui_port: int, dashboard_port: int = 0) -> list[str]:
    """Builds the command line of one connection.

    Args:
        port: the port of this machine that leads to the service.
        ui_port: the port of this machine that leads to the service's Web UI.
        dashboard_port: the port of this machine that leads to the dashboard; 0: none does.
    """
    dashboard = f"127.0.0.1:{dashboard_port}:localhost:{vm.dashboard_port}"
    return [
        *ssh_login(vm),
        "--",
        "-N",
        *("-L", _forwarding(vm, port)),
        *("-L", f"127.0.0.1:{ui_port}:localhost:{vm.port + 1}"),
        *(("-L", dashboard) if dashboard_port else ()),
        *("-o", "ExitOnForwardFailure=yes"),
        *(part for option in SSH_OPTIONS for part in ("-o", option)),
    ]


def _forwarding(vm: ControllerVm, port: int) -> str:
    """Returns the argument of SSH's `-L` option."""
    return f"127.0.0.1:{port}:localhost:{vm.port}"


def tunnel_log(name: str) -> Path:
    """Returns the log file of the cluster's tunnel."""
    return cluster_dir(name) / "logs" / "tunnel.log"


def last_output(name: str) -> str:
    """Returns the end of the tunnel's log for an error message; empty if there is no log."""
    try:
        lines = tunnel_log(name).read_text(errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return ""
    return "\n".join([f"; the end of {tunnel_log(name)}:", *lines]) if lines else ""


# -- for clients
# --------------------------------------------------------------------------------------------------


def open_tunnel(name: str) -> ClusterRecord:
    """Opens the cluster's tunnel unless it runs, and returns the record. The tunnel may not be
    connected yet.

    Raises:
        Unreachable: the cluster is not known here, there is no `gcloud`, or the tunnel's process
            does not start.
    """
    record = read_record(name)
    if record is None:
        raise Unreachable(
            f"cluster {name!r} is not known here; name its configuration: iris cluster start"
            " --config FILE"
        )
    if record.end is None or (record.tunnel is not None and record.tunnel.alive()):
        return record
    if record.vm is not None:
        check_gcloud(record.name, record.vm.port)
    process: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + START.total_seconds()
    while True:
        record = read_record(name) or record
        if record.end is None or (record.tunnel is not None and record.tunnel.alive()):
            return record
        ended = process.poll() if process is not None else 0
        if ended or time.monotonic() > deadline:
            raise Unreachable(
                f"the tunnel to cluster {name} could not be started{last_output(name)}"
            )
        # There is no process yet; or it has ended, because it found another tunnel, which will soon
        # be in the record or end.
        if ended == 0:
            process = _start(name)
        time.sleep(POLL)


def check_gcloud(name: str, port: int) -> None:
    """Raises when this machine cannot open a tunnel to the cluster.

    Args:
        port: the port of the service on the cluster's machine.

    Raises:
        Unreachable: there is no `gcloud`.
    """
    if shutil.which(GCLOUD) is None:
        raise Unreachable(
            f"cluster {name} is reached through {GCLOUD} compute ssh, and there is no {GCLOUD} on"
            " PATH; install the Google Cloud CLI (cloud.google.com/sdk), or name the cluster by"
            f" its address from a machine in its network: iris --cluster HOST:{port}/{name}"
        )


def _start(name: str) -> "subprocess.Popen[bytes]":
    log = tunnel_log(name)
    make_private(log.parent)
    command = [sys.executable, "-m", MODULE, name]
    with private_file(log).open("ab") as output:  # an existing log becomes private, too
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def close_tunnel(name: str) -> None:
    """Ends the cluster's tunnel, if there is one, and waits until it is gone."""
    record = read_record(name)
    if record is None or (tunnel := record.tunnel) is None:
        return
    with contextlib.suppress(ProcessLookupError):
        if tunnel.alive():
            os.kill(tunnel.pid, signal.SIGTERM)
    poll(lambda: not tunnel.alive(), every=POLL, timeout=2 * STOP)
    _end_orphans(record)


# -- the process
# --------------------------------------------------------------------------------------------------


async def serve_tunnel(name: str) -> None:
    """Runs the cluster's tunnel until SIGTERM, or until the cluster no longer needs it.

    Raises:
        Unreachable: the cluster is not known here or needs no tunnel, or no connection succeeded
            for a quarter of an hour.
        Rejected: the cluster has a tunnel already.
    """
    stop = stop_event()
    me = ProcessRef.of(os.getpid())
    delay, closed_since = timedelta(), time.monotonic()
    with locked(cluster_dir(name) / "tunnel", f"cluster {name} has a tunnel already"):
        if (before := read_record(name)) is not None:
            _end_orphans(before)
        while not stop.is_set():
            record = read_record(name)
            end = record.end if record is not None else None
            if record is None or end is None:
                raise Unreachable(
                    f"cluster {name} is not known here, or is reached without a tunnel"
                )
            ports = _free_ports(record, end)
            record = record.model_copy(update={**_addresses(ports), "tunnel": me})
            write_record(record)
            began = time.monotonic()
            if await _connection(record, end, ports, stop):
                closed_since = time.monotonic()
            if time.monotonic() - closed_since > GIVE_UP.total_seconds():
                raise Unreachable(
                    f"machine {end.machine} could not be reached for {format_duration(GIVE_UP)}"
                )
            delay = RESTARTS.after(timedelta(seconds=time.monotonic() - began), delay)
            await pause(stop, delay)


async def _connection(
    record: ClusterRecord,
    end: ControllerVm | SshController,
    ports: tuple[int, int, int],
    stop: asyncio.Event,
) -> bool:
    """Runs one connection until it breaks or is no longer needed. Returns whether it was ever open.

    Writes the tunnel's entries into the record again if another process has overwritten them with
    an older copy.
    """
    logger.info("connecting port %d to port %d of %s", ports[0], end.port, end.machine)
    process: asyncio.subprocess.Process | None = None
    ended: asyncio.Future[str]
    if isinstance(end, SshController):
        ended = asyncio.ensure_future(_forward(end, ports))
    else:
        process = await Child("the connection", tunnel_command(end, *ports), None).start()
        ended = asyncio.ensure_future(_status_of(process))
    opened = False
    try:
        while not ended.done() and not stop.is_set():
            await asyncio.wait({ended}, timeout=CHECK_INTERVAL.total_seconds())
            if not opened and (opened := await _is_open(ports[0])):
                logger.info("connected")
            if (now := read_record(record.name)) is None or now.end != end:
                logger.info("the cluster was stopped, or has another machine")
                stop.set()
            elif (now.tunnel, now.address) != (record.tunnel, record.address):
                write_record(now.model_copy(update=of_tunnel(record)))
    finally:
        if process is not None:
            await _end(process, ended)
        else:
            ended.cancel()
            await asyncio.wait({ended}, timeout=STOP.total_seconds())
    if not stop.is_set():
        logger.warning("the connection ended: %s", ended.result())
    return opened


async def _forward(end: SshController, ports: tuple[int, int, int]) -> str:
    """Runs one connection without `gcloud`, and returns why it ended."""
    access = manual.settings.HostAccess(
        address=end.machine,
        user=end.user,
        port=end.ssh_port,
        key_file=end.key_file,
        jump_host=end.jump_host,
    )
    behind = zip(ports, (end.port, end.ui_port, end.dashboard_port), strict=True)
    there = {port: target for port, target in behind if port and target}
    return await manual.connections.forward(
        access, there, known_hosts=end.known_hosts, connect_timeout=end.connect_timeout
    )


async def _status_of(process: asyncio.subprocess.Process) -> str:
    """Returns how the process ended, for the log."""
    return f"status {await process.wait()}"


async def _end(process: asyncio.subprocess.Process, ended: "asyncio.Future[str]") -> None:
    """Ends `gcloud` and its child `ssh`, because they would keep the ports."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        await asyncio.wait({ended}, timeout=STOP.total_seconds())


def _end_orphans(record: ClusterRecord) -> None:
    """Ends the processes `gcloud` and `ssh` of a killed tunnel, because they keep the ports."""
    import psutil  # slow to import

    port, *_ = _ports(record)
    if record.vm is None or not port:
        return
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # A process with a live tunnel among its parents belongs to another cluster's tunnel.
            kept = (MODULE in each.cmdline() for each in process.parents())
            if _forwarding(record.vm, port) in process.cmdline() and not any(kept):
                process.kill()
                left.append(process)
    psutil.wait_procs(left, STOP.total_seconds())


async def _is_open(port: int) -> bool:
    """Returns whether a process listens on this port. `ssh` listens once it is connected."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def of_tunnel(record: ClusterRecord) -> dict[str, Any]:
    """Returns the entries of the record that the tunnel's process has written."""
    return record.model_dump(include={"address", "ui", "dashboard"}) | {"tunnel": record.tunnel}


def _addresses(ports: tuple[int, int, int]) -> dict[str, str]:
    """Returns the entries of a record for the ports of a tunnel."""
    port, ui, dashboard = ports
    addresses = {"address": f"127.0.0.1:{port}", "ui": f"http://127.0.0.1:{ui}"}
    return addresses | ({"dashboard": f"http://127.0.0.1:{dashboard}"} if dashboard else {})


def _free_ports(record: ClusterRecord, end: ControllerVm | SshController) -> tuple[int, int, int]:
    """Returns ports of this machine for a new tunnel: those of the last one, if they are free."""
    port, ui, dashboard = _ports(record)
    port, ui = free_ports((port, ui))
    return port, ui, free_port(dashboard, (port, ui)) if end.dashboard_port else 0


def _ports(record: ClusterRecord) -> tuple[int, int, int]:
    """Returns the ports of the last tunnel, so that the next tunnel gets the same ports. Returns
    zeros if there was no tunnel.
    """
    if record.end is None or not record.address.startswith("127.0.0.1:"):
        return 0, 0, 0
    port, ui, dashboard = (
        int(address.rpartition(":")[2]) if address else 0
        for address in (record.address, record.ui, record.dashboard)
    )
    return port, ui, dashboard


def main(name: str) -> int:
    """Runs the tunnel as a program and returns its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s: %(message)s")
    try:
        asyncio.run(serve_tunnel(name))
    except Rejected:  # another process serves the tunnel
        return 0
    except IrisError as error:
        logger.error("%s", error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
