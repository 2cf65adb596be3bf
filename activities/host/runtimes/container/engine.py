"""Connects to this machine's Docker engine, runs containers, and removes the containers that
attempts left behind.
"""

import asyncio
import base64
import io
import json
import logging
import os
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris.activities.host import runtimes
from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.activities.host.runtimes.shim import start_errors
from iris.activities.host.runtimes.shim.container import of_the_job
from iris.activities.host.runtimes.threads import in_thread
from iris.retrying import retry

if TYPE_CHECKING:
    from docker import DockerClient

logger = logging.getLogger(__name__)


#: The name of the fault if the container engine fails.
FAULT = "docker"
#: The labels of every container of an attempt. They tell a later agent to which cluster, host and
#: attempt the container belongs.
LABEL_MANAGED, LABEL_CLUSTER, LABEL_HOST = "iris.managed", "iris.cluster", "iris.host"
LABEL_JOB, LABEL_TASK, LABEL_KEY, LABEL_DIRECTORY = (
    "iris.job",
    "iris.task",
    "iris.key",
    "iris.directory",
)

#: The PATH in a container whose image sets no PATH.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The timeout of one answer of the engine, in seconds. An engine that is not busy creates a
#: container in less than a second.
REQUEST_TIMEOUT_S = 60.0
#: The time limit of the check whether an engine answers, in seconds.
GREETING = 5.0
#: How long the engine may be unreachable while a command runs, for instance during a restart of the
#: engine, before the command counts as failed. In seconds.
AWAY = 60.0
#: The interval between checks of a running command, in seconds.
POLL_INTERVAL_S = 0.2
#: The number of tries to remove containers while the engine is unreachable, and the seconds between
#: two tries.
CLEAR_TRIES, CLEAR_EVERY = 5, 1.0
#: The size limit of a file in a container whose first line is read, in bytes. Larger files are not
#: scripts.
MOST_SCRIPT = 1024**2
#: The bits for directories and links in the file modes that the engine reports. They are the bits
#: of the Go language.
_DIRECTORY, _LINK = 1 << 31, 1 << 27


def docker_socket() -> str:
    """Returns the socket of this machine's engine.

    Raises:
        HostFault: the environment names an engine on another machine, whose containers would not
            have this machine's files.
    """
    address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not address.startswith("unix://"):
        raise HostFault(
            f"DOCKER_HOST is {address!r}, which is not a socket on this host; use"
            " unix:///path/to/socket",
            FAULT,
        )
    return address.removeprefix("unix://")


async def available() -> str:
    """Returns the reason why no engine answers on this host; empty if an engine answers."""
    try:
        await asyncio.to_thread(_greet)
    except HostFault as error:
        return str(error)
    return ""


def _greet() -> None:
    with engine(GREETING) as found:
        found.ping()


@contextmanager
def engine(patience: float = REQUEST_TIMEOUT_S) -> Iterator["DockerClient"]:
    """Yields a client of the engine and closes it after the block.

    Args:
        patience: the timeout of one answer, in seconds.

    Raises:
        HostFault: there is no engine, or it does not answer, or it refuses a request. The block's
            own calls raise it, too.
    """
    try:
        library = runtimes.docker_library
    except ImportError:
        raise HostFault(
            "the Python package docker is not installed: pip install 'iris-temporal[docker]'", FAULT
        ) from None
    path = docker_socket()
    _knock(path)
    try:
        # The timeout keeps an engine that hangs from blocking the caller for ever.
        client = library.DockerClient(
            base_url=f"unix://{path}",
            timeout=patience,  # type: ignore[arg-type]
        )
        try:
            yield client
        finally:
            client.close()
    except library.APIError as error:
        raise HostFault(
            f"the container engine refused a request: {error.explanation or error}", FAULT
        ) from None
    except (library.DockerException, library.RequestException) as error:
        raise HostFault(f"the container engine gave an invalid answer: {error}", FAULT) from None


def _knock(path: str) -> None:
    """Connects to the socket once, because the errors of the client library do not name the
    cause.
    """
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.settimeout(GREETING)
        try:
            knocking.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            raise HostFault(f"no program listens at the socket {path}", FAULT) from None
        except PermissionError:
            raise HostFault(
                f"the agent's user may not use {path}; add the user to the group of that socket",
                FAULT,
            ) from None
        except OSError as error:
            raise HostFault(
                f"the container engine at {path} does not answer: {error}", FAULT
            ) from None


def run(container: str, stop: threading.Event) -> dict[str, Any]:
    """Starts the container, waits until it ends or `stop` is set, and returns its state.

    Raises:
        JobFault: no host can start the container, because of the image or the job's options.
        HostFault: the container could not be started, or the engine was away for too long or ended
            the container.
    """
    with engine() as found:
        try:
            found.api.start(container)
        except runtimes.docker_library.APIError as error:
            if of_the_job(str(error.explanation)):
                raise JobFault(
                    f"the container could not be started: {error.explanation}", 126
                ) from None
            raise
    last_contact, away = time.monotonic(), ""
    while True:
        try:
            with engine(GREETING) as found:
                state: dict[str, Any] = found.api.inspect_container(container)["State"]
            last_contact = time.monotonic()
        except HostFault as error:
            away = str(error)
            if time.monotonic() - last_contact > AWAY:
                raise
        else:
            if away and not state["Running"] and state["ExitCode"]:
                raise HostFault(
                    f"the container engine stopped while it ran a command: {away}", FAULT
                )
            if not state["Running"] or stop.is_set():
                return state
        stop.wait(POLL_INTERVAL_S)


def pause(key: str, *, paused: bool) -> bool:
    """Pauses the running containers of an attempt, or continues its paused containers. Returns True
    if there were any.

    Raises:
        HostFault: the engine does not answer, or refuses.
    """
    states = ["running"] if paused else ["paused"]
    with engine() as found:
        there = found.api.containers(filters={"label": [f"{LABEL_KEY}={key}"], "status": states})
        for each in there:
            (found.api.pause if paused else found.api.unpause)(each["Id"])
    return bool(there)


def remove(found: "DockerClient", container: str) -> None:
    """Kills and removes the container. Does nothing if it is gone or is being removed."""
    try:
        found.api.remove_container(container, v=True, force=True)
    except runtimes.docker_library.APIError as error:
        if error.status_code not in (404, 409):
            raise


def sweep(
    labels: Sequence[str], matches: Callable[[dict[str, str]], bool] = lambda _: True
) -> None:
    """Kills and removes all containers that have these labels and for which `matches` returns True.

    Args:
        labels: labels in the form `name=value`.
        matches: gets all labels of a container.

    Raises:
        HostFault: the engine does not answer.
    """
    with engine() as found:
        for each in found.api.containers(all=True, filters={"label": list(labels)}):
            if matches(each["Labels"]):
                remove(found, each["Id"])


async def clear(labels: Sequence[str]) -> None:
    """Does the same as `sweep`, with retries. Raises nothing."""
    try:
        await retry(HostFault, every=CLEAR_EVERY, tries=CLEAR_TRIES)(in_thread)(
            lambda _: sweep(labels)
        )
    except HostFault as error:
        logger.warning("the containers with %s could not be removed: %s", " ".join(labels), error)


async def clear_host(cluster: str, host_id: str) -> None:
    """Kills and removes all containers of a host. Raises nothing."""
    with suppress(HostFault):  # without an engine there are no containers
        await asyncio.to_thread(_greet)
        await clear(
            [f"{LABEL_MANAGED}=true", f"{LABEL_CLUSTER}={cluster}", f"{LABEL_HOST}={host_id}"]
        )


def executable(found: "DockerClient", container: str, path: Path) -> bool | None:
    """Returns True if a file of the container is executable according to its mode; None if the file
    does not exist.
    """
    stat = _stat(found, container, path)
    # If the engine does not report the mode, the start of the program will show whether it works.
    if not stat:
        return None if stat is None else True
    return not stat["mode"] & _DIRECTORY and bool(stat["mode"] & _LINK or stat["mode"] & 0o111)


def head(found: "DockerClient", container: str, path: Path) -> bytes:
    """Returns the first bytes of a small regular file of the container; empty if it is not such a
    file, or the engine does not report it.
    """
    stat = _stat(found, container, path)
    if not stat or stat["mode"] & (_DIRECTORY | _LINK) or stat["size"] > MOST_SCRIPT:
        return b""
    archive = found.api.get(
        _archive(found, container), params={"path": str(path)}, timeout=REQUEST_TIMEOUT_S
    )
    with suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(archive.content)) as files:
        inside = files.extractfile(files.getmembers()[0])
        return inside.read(start_errors.HEAD) if inside is not None else b""
    return b""


def _stat(found: "DockerClient", container: str, path: Path) -> dict[str, Any] | None:
    """Returns the status of a file of the container: None if the file does not exist, and empty if
    the engine does not report the status.

    The status of a link is its own, not that of its target.
    """
    answer = found.api.head(
        _archive(found, container), params={"path": str(path)}, timeout=REQUEST_TIMEOUT_S
    )
    if answer.status_code == HTTPStatus.NOT_FOUND:
        return None
    header = answer.headers.get("X-Docker-Container-Path-Stat")
    return {} if header is None else dict(json.loads(base64.b64decode(header)))


def _archive(found: "DockerClient", container: str) -> str:
    return f"{found.api.base_url}/v{found.api.api_version}/containers/{container}/archive"


def existed(found: "DockerClient", container: str, directory: Path) -> bool:
    """Returns True if the image contains the directory. The engine creates the working directory of
    a container if the image does not contain it.
    """
    changes = found.api.diff(container) or ()
    made = any(change["Path"] == str(directory) and change["Kind"] == 1 for change in changes)
    return not made and executable(found, container, directory) is not None
