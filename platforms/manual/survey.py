"""Asks machines what they have, all at the same time, and says why some of them cannot be hosts.
Changes nothing there.
"""

import asyncio
import base64
import binascii
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import asyncssh

from iris.config.host_list import Login
from iris.config.new_cluster import MachineReport
from iris.model.errors import InvalidValue
from iris.model.host import gpus
from iris.model.host.accelerators import tpu
from iris.model.host.resources import Device, DeviceKind
from iris.model.units import GIB, KIB, MIB, format_duration
from iris.platforms.manual.connections import Connections, MachineFault
from iris.platforms.manual.leases import script, state_of
from iris.platforms.manual.runtime import MACHINE, PYTHON
from iris.platforms.manual.settings import HostAccess

#: The time limit for the survey of one machine. `nvidia-smi` is slow while the driver is being
#: loaded.
SURVEY_LIMIT = timedelta(seconds=90)
TUNNEL_LIMIT = timedelta(seconds=15)
#: A machine is accepted if its clock differs by at most this time from the clock of the process
#: that surveys it. S3 refuses requests whose time differs by more than 15 minutes, and the answer
#: of a busy machine takes a while.
CLOCK_TOLERANCE = timedelta(minutes=5)
#: The disk space that the agent and its packages need, in bytes.
LEAST_DISK = GIB // 4


class Surveyed(NamedTuple):
    """The result of the survey of one machine."""

    #: The hardware of the machine; None if the machine cannot be a host.
    report: MachineReport | None
    #: The reason why the machine cannot be a host, or facts that its user should know.
    notes: tuple[str, ...] = ()


async def survey(
    hosts: Sequence[HostAccess], connections: Connections, *, store: str = "", shared: str = ""
) -> dict[HostAccess, Surveyed]:
    """Returns what each machine has, or why it cannot be a host.

    Args:
        store: a directory that the machines should share with this one; empty: none.
        shared: the name of a file that this machine has put there.
    """
    found = await asyncio.gather(*(_ask(host, connections, store, shared) for host in hosts))
    return dict(zip(hosts, found, strict=True))


async def _ask(host: HostAccess, connections: Connections, store: str, shared: str) -> Surveyed:
    values = {"PYTHON": PYTHON, "STORE": store, "SHARED": shared}
    values |= {
        "NVIDIA_QUERY": shlex.join(gpus.NVIDIA_SMI),
        "NVIDIA_LIST": shlex.join(gpus.NVIDIA_SMI_LIST),
    }
    asked = script(connections.settings, "survey", **values)
    try:
        answer = await connections.script(
            host, asked, limit=SURVEY_LIMIT, what="asking what it has"
        )
        found = read_survey(host, answer, store, now=time.time())
        return found if found.report is None else await _with_tunnel(host, connections, found)
    except MachineFault as error:
        return Surveyed(None, (str(error).removeprefix(f"{host}: "),))


async def _with_tunnel(host: HostAccess, connections: Connections, found: Surveyed) -> Surveyed:
    """Checks that the machine permits the tunnel through which its agent reaches the control
    plane.
    """
    async with connections.to(host) as connection:
        try:
            async with asyncio.timeout(TUNNEL_LIMIT.total_seconds()):
                listener = await connection.forward_remote_port("127.0.0.1", 0, "127.0.0.1", 9)
        except asyncssh.ChannelListenError:
            return Surveyed(
                None,
                ("its sshd allows no tunnels; set AllowTcpForwarding yes in sshd_config there",),
            )
        except TimeoutError:
            return Surveyed(None, (f"no tunnel within {TUNNEL_LIMIT.total_seconds():g} s",))
        listener.close()
    return found


def read_survey(
    host: HostAccess, answer: Mapping[str, str], store: str = "", *, now: float
) -> Surveyed:
    """Interprets the answer of a machine.

    Args:
        now: the time at which the answer arrived, in seconds since 1970.
    """
    if problem := _why_no_host(answer, store):
        return Surveyed(None, (problem,))
    device, note, problem = _accelerators(answer)
    if problem:
        return Surveyed(None, (problem,))
    report = MachineReport(
        login=Login(address=host.address, user=host.user, port=host.port),
        cores=int(answer["cores"]),
        memory_bytes=int(answer["memory"]) * KIB,
        disk_bytes=int(answer["disk"]) * KIB,
        device=device,
    )
    notes = (clock_fault(answer.get("clock", ""), now), note, _other_cluster(answer))
    return Surveyed(report, tuple(each for each in notes if each))


def _why_no_host(answer: Mapping[str, str], store: str) -> str:
    """Returns why the machine cannot be a host, apart from its accelerators; empty if it can."""
    if answer.get("system") != f"Linux {MACHINE}":
        system = answer.get("system")
        return f"is {system}, and the packages of this machine are for Linux {MACHINE}"
    if "python" not in answer:
        other = answer.get("other") or "no Python"
        needs = f"the agent needs Python {PYTHON} as here; install python{PYTHON} there"
        return f"has {other}, and {needs}"
    numbers = [answer.get(key, "") for key in ("cores", "memory", "disk")]
    if not all(each.isdecimal() for each in numbers):
        return f"does not report its cores, memory and disk, but {', '.join(map(repr, numbers))}"
    if (disk := int(answer["disk"]) * KIB) < LEAST_DISK:
        needs = f"the agent needs {LEAST_DISK // MIB} MiB"
        return f"has {disk // MIB} MiB of disk free, and {needs}"
    if "readonly" in answer:
        home = f"the user's home directory {answer['readonly']}"
        return f"{home} is not writable; Iris keeps its files there"
    if "store" in answer:
        return f"its {store} {answer['store']}; mount the shared directory of the store there"
    return ""


def _accelerators(answer: Mapping[str, str]) -> tuple[Device | None, str, str]:
    """Returns the machine's accelerators, what its user should know about them, and why the
    machine cannot be a host because of them.
    """
    device, note = None, ""
    if "nvidia" in answer:
        reading = gpus.read(
            int(answer["nvidia"]),
            _decoded(answer.get("queried", "")),
            _decoded(answer.get("listed", "")),
        )
        device = gpus.device_of(reading.gpus)
        if reading.problem:
            note = f"{reading.problem}; it offers {device or 'no GPU'}"
    if device is None and answer.get("tpu"):
        device, problem = _tpu(answer["tpu"])
        return device, note, problem
    return device, note, ""


def _other_cluster(answer: Mapping[str, str]) -> str:
    """Returns the cluster that leases the machine and must give it back; empty if none does."""
    if "lease" not in answer or (lease := state_of(answer).lease) is None:
        return ""
    cluster = lease.request.cluster
    return f"is leased to cluster {cluster}, which has to stop or to give it back first"


def clock_fault(clock: str, now: float) -> str:
    """Returns what is wrong with the clock of a machine; empty: nothing, or the machine did not
    tell.

    Args:
        clock: its time when it answered, in seconds since 1970, as a decimal.
        now: the time here when the answer arrived.
    """
    if not clock.isdecimal() or abs(apart := now - int(clock)) < CLOCK_TOLERANCE.total_seconds():
        return ""
    size = format_duration(timedelta(seconds=round(abs(apart))))
    side = "behind" if apart > 0 else "ahead of"
    consequence = "buckets refuse its requests and times in logs are wrong: enable NTP there"
    return f"its clock is {size} {side} that of this machine; {consequence}"


def _tpu(name: str) -> tuple[Device | None, str]:
    """Returns the TPU of a machine by the name of its slice, or why the machine cannot be a
    host.
    """
    try:
        kind = tpu(name)
    except InvalidValue as error:
        return None, str(error)
    if kind.hosts > 1:
        of = f"is one of the {kind.hosts} machines of a TPU slice {name}"
        return None, f"{of}; slices of several machines need platform.gcp"
    return Device(kind=DeviceKind.TPU, variant=kind.variant, count=kind.chips), ""


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode(errors="replace")
    except binascii.Error:
        return ""
