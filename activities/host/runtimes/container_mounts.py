"""Checks the host's directories that the configuration gives to every container, when a container is created."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from iris.activities.host.runtimes import engine
from iris.activities.host.runtimes.base import HostUnable
from iris.model import mounts

_OWN = "where the agent has its files"
_SOCKET = "which is the socket of the container engine"


def places(directories: Iterable[Path], own: Iterable[Path]) -> Mapping[Path, Path]:
    """Returns the directories, each with its place on this host.

    A place has no links, so a container never gets what a link leads to after this check. The configuration was checked by names
    only: a link may lead elsewhere, and each host has the agent's directories at other places. A directory that does not exist
    here is its own place: an agent in a container sees the links of its image, and not those of the machine.

    Args:
        own: the agent's own directories and files.

    Raises:
        HostUnable: a container would get one of them, the engine's socket, or a directory that no container gets.
    """
    found = {directory: directory.resolve() for directory in directories}
    if not found:
        return found
    closed = {path.resolve(): content for path, content in mounts.CLOSED.items()}
    closed |= {path.resolve(): _OWN for path in own} | {Path(engine.docker_socket()).resolve(): _SOCKET}
    for directory, place in found.items():
        if why := mounts.why_not(place, closed):
            leads = "" if place == directory else f" leads to {place}, which"
            reason = f"no container gets {directory}: it{leads} {why}; remove it from bootstrap.mounts"
            raise HostUnable(reason, engine.FAULT)
    return {directory: place if place.exists() else directory for directory, place in found.items()}
