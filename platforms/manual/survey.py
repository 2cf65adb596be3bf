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
from iris.model.units import GIB, KIB, format_duration
from iris.platforms.manual.connections import Connections, MachineFault
from iris.platforms.manual.leases import script, state_of
from iris.platforms.manual.runtime import MACHINE, PYTHON
from iris.platforms.manual.settings import HostAccess

#: Drivers that are being loaded make `nvidia-smi` slow.
SURVEY_LIMIT = timedelta(seconds=90)
TUNNEL_LIMIT = timedelta(seconds=15)
#: S3 refuses requests whose time is off by more than 15 minutes; an answer of a busy machine takes
#: a while.
CLOCK_TOLERANCE = timedelta(minutes=5)
#: The disk that the agent and its packages need.
LEAST_DISK = GIB // 4


class Surveyed(NamedTuple):
    """What is known of a machine after a survey."""

    #: None: it cannot be a host.
    report: MachineReport | None
    #: Why it cannot be a host, or what its user should know.
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
    """Returns what the answer of a machine means.

    Args:
        now: the time at which it arrived, in seconds since 1970.
    """
    if answer.get("system") != f"Linux {MACHINE}":
        return Surveyed(
            None,
            (
                (
                    f"is {answer.get('system')}, and the packages of this machine are for Linux"
                    f" {MACHINE}"
                ),
            ),
        )
    if "python" not in answer:
        other = answer.get("other") or "no Python"
        return Surveyed(
            None,
            (
                (
                    f"has {other}, and the agent needs Python {PYTHON} as here; install"
                    f" python{PYTHON} there"
                ),
            ),
        )
    numbers = [answer.get(key, "") for key in ("cores", "memory", "disk")]
    if not all(each.isdecimal() for each in numbers):
        return Surveyed(
            None,
            (f"does not report its cores, memory and disk, but {', '.join(map(repr, numbers))}",),
        )
    cores, memory, disk = map(int, numbers)
    if disk * KIB < LEAST_DISK:
        return Surveyed(
            None,
            (
                (
                    f"has {disk // 1024} MiB of disk free, and the agent needs"
                    f" {LEAST_DISK // 1024**2} MiB"
                ),
            ),
        )
    if "readonly" in answer:
        return Surveyed(
            None,
            (
                (
                    f"the user's home directory {answer['readonly']} is not writable; Iris keeps"
                    " its files there"
                ),
            ),
        )
    if "store" in answer:
        return Surveyed(
            None, (f"its {store} {answer['store']}; mount the shared directory of the store there",)
        )
    notes = [wrong] if (wrong := clock_fault(answer.get("clock", ""), now)) else []
    device = None
    if "nvidia" in answer:
        reading = gpus.read(
            int(answer["nvidia"]),
            _decoded(answer.get("queried", "")),
            _decoded(answer.get("listed", "")),
        )
        device = gpus.device_of(reading.gpus)
        if reading.problem:
            notes.append(f"{reading.problem}; it offers {device or 'no GPU'}")
    if device is None and answer.get("tpu"):
        device, problem = _tpu(answer["tpu"])
        if problem:
            return Surveyed(None, (problem,))
    if "lease" in answer and (lease := state_of(answer).lease) is not None:
        notes.append(
            f"is leased to cluster {lease.request.cluster}, which has to stop or to give it back"
            " first"
        )
    login = Login(address=host.address, user=host.user, port=host.port)
    report = MachineReport(
        login=login, cores=cores, memory_bytes=memory * KIB, disk_bytes=disk * KIB, device=device
    )
    return Surveyed(report, tuple(notes))


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
        return (
            None,
            (
                f"is one of the {kind.hosts} machines of a TPU slice {name}; slices of several"
                " machines need platform.gcp"
            ),
        )
    return Device(kind=DeviceKind.TPU, variant=kind.variant, count=kind.chips), ""


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode(errors="replace")
    except binascii.Error:
        return ""
