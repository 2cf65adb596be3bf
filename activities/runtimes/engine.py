"""The Docker engine of this machine: how it is spoken to, and what is left in it of attempts."""

import asyncio
import base64
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris.activities.runtimes.base import HostUnable
from iris.activities.threads import in_thread

if TYPE_CHECKING:
    from docker import DockerClient

logger = logging.getLogger(__name__)


#: The name of the fault when the engine does not do what it should.
FAULT = "docker"
#: On every container of an attempt, so that whoever comes later knows whose it is.
LABEL_MANAGED, LABEL_CLUSTER, LABEL_HOST = "iris.managed", "iris.cluster", "iris.host"
LABEL_JOB, LABEL_TASK, LABEL_KEY, LABEL_DIRECTORY = "iris.job", "iris.task", "iris.key", "iris.directory"

#: For one answer of the engine, in seconds: it makes a container in well under one, but it may have a lot to do.
PATIENCE = 60.0
#: To find out whether there is one.
GREETING = 5.0
#: So long an engine may be away that is started anew, in seconds.
AWAY = 60.0
#: Between looks at a command that runs, in seconds.
LOOK_EVERY = 0.2
#: How often it is tried to remove what an engine that is away still has, and the seconds between.
CLEAR_TRIES, CLEAR_EVERY = 5, 1.0


def docker_socket() -> str:
    """Where the engine of this machine listens.

    Raises:
        HostUnable: the environment names one that is elsewhere, whose containers would not have this machine's files.
    """
    address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not address.startswith("unix://"):
        raise HostUnable(f"DOCKER_HOST is {address!r}, but only an engine of the host itself will do: unix:///its/socket", FAULT)
    return address.removeprefix("unix://")


async def available() -> str:
    """Why no engine answers on this host; empty: one does."""
    try:
        await asyncio.to_thread(_greet)
    except HostUnable as error:
        return str(error)
    return ""


def _greet() -> None:
    with engine(GREETING) as found:
        found.ping()


@contextmanager
def engine(patience: float = PATIENCE) -> Iterator["DockerClient"]:
    """The engine, for as long as it is needed.

    Args:
        patience: for one answer, in seconds.

    Raises:
        HostUnable: there is none, or it does not answer, or refuses: also from within the block.
    """
    try:
        import docker
        from requests import RequestException
    except ImportError:
        raise HostUnable("the Python package docker is not installed: pip install 'iris-temporal[docker]'", FAULT) from None
    path = docker_socket()
    _knock(path)
    try:
        # Its answers are read with a limit, so that an engine that hangs holds nobody up for ever.
        client = docker.DockerClient(base_url=f"unix://{path}", timeout=patience)  # type: ignore[arg-type]
        try:
            yield client
        finally:
            client.close()
    except docker.errors.APIError as error:
        raise HostUnable(f"the container engine refuses: {error.explanation or error}", FAULT) from None
    except (docker.errors.DockerException, RequestException) as error:
        raise HostUnable(f"the container engine does not answer as it should: {error}", FAULT) from None


def _knock(path: str) -> None:
    """The errors of the client below say little of what they are."""
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.settimeout(GREETING)
        try:
            knocking.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            raise HostUnable(f"nothing listens at {path}", FAULT) from None
        except PermissionError:
            raise HostUnable(f"the agent's user may not use {path}: it is not in the group of that socket", FAULT) from None
        except OSError as error:
            raise HostUnable(f"{path} does not answer: {error}", FAULT) from None


def run(container: str, stop: threading.Event) -> dict[str, Any]:
    """Start the container and wait for its end, or for the word to stop; the state that it is in then.

    Raises:
        HostUnable: it could not be started, or the engine was away for too long, or has ended it.
    """
    with engine() as found:
        found.api.start(container)
    heard, away = time.monotonic(), ""
    while True:
        try:
            with engine(GREETING) as found:
                state: dict[str, Any] = found.api.inspect_container(container)["State"]
            heard = time.monotonic()
        except HostUnable as error:
            away = str(error)
            if time.monotonic() - heard > AWAY:
                raise
        else:
            if away and not state["Running"] and state["ExitCode"]:
                raise HostUnable(f"the container engine went away while it ran a command: {away}", FAULT)
            if not state["Running"] or stop.is_set():
                return state
        stop.wait(LOOK_EVERY)


def remove(found: "DockerClient", container: str) -> None:
    """Kill and remove it; one that is gone, or is just being removed, needs no more."""
    from docker.errors import APIError

    try:
        found.api.remove_container(container, v=True, force=True)
    except APIError as error:
        if error.status_code not in (404, 409):
            raise


def sweep(labels: Sequence[str], meant: Callable[[dict[str, str]], bool] = lambda _: True) -> None:
    """Kill and remove all containers that have these labels, `name=value`, and are meant.

    Raises:
        HostUnable: the engine does not answer.
    """
    with engine() as found:
        for each in found.api.containers(all=True, filters={"label": list(labels)}):
            if meant(each["Labels"]):
                remove(found, each["Id"])


async def clear(labels: Sequence[str], meant: Callable[[dict[str, str]], bool] = lambda _: True) -> None:
    """The same, tried some times. Raises nothing."""
    for left in reversed(range(CLEAR_TRIES)):
        try:
            await in_thread(lambda _: sweep(labels, meant))
            return
        except HostUnable as error:
            if not left:
                logger.warning("the containers with %s could not be removed: %s", " ".join(labels), error)
        await asyncio.sleep(CLEAR_EVERY)


async def clear_strays(cluster: str, host_id: str, keep: Collection[str], attempts: Path | None = None) -> None:
    """Kill and remove all containers of this host but those of the attempts with these keys. Raises nothing.

    Args:
        attempts: only those whose attempt has its directory in this one: several clusters of one name may share a machine.
    """

    def meant(labels: dict[str, str]) -> bool:
        directory = Path(labels.get(LABEL_DIRECTORY, ""))
        return labels.get(LABEL_KEY) not in keep and (attempts is None or directory.parent == attempts)

    with suppress(HostUnable):  # no engine here, no containers
        await asyncio.to_thread(_greet)
        await clear([f"{LABEL_MANAGED}=true", f"{LABEL_CLUSTER}={cluster}", f"{LABEL_HOST}={host_id}"], meant)


def executable(found: "DockerClient", container: str, path: Path) -> bool | None:
    """Whether a file of the container may be executed, as far as can be seen; None: there is none."""
    from requests import codes

    address = f"{found.api.base_url}/v{found.api.api_version}/containers/{container}/archive"
    answer = found.api.head(address, params={"path": str(path)}, timeout=PATIENCE)
    if answer.status_code == codes.not_found:
        return None
    said = answer.headers.get("X-Docker-Container-Path-Stat")
    if said is None:  # it cannot say; whoever starts it will see
        return True
    stat = json.loads(base64.b64decode(said))
    # Go's mode: a directory by its highest bit; a link has its target's rights.
    link, directory = stat["mode"] & 1 << 27, stat["mode"] & 1 << 31
    return not directory and bool(link or stat["mode"] & 0o111)


def existed(found: "DockerClient", container: str, directory: Path) -> bool:
    """Whether the image has that directory; the engine makes the one that a container is to start in."""
    changes = found.api.diff(container) or ()
    made = any(change["Path"] == str(directory) and change["Kind"] == 1 for change in changes)
    return not made and executable(found, container, directory) is not None
