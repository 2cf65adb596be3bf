"""Decides which directories of a host no container may mount, because a program in the container
could change Iris or control the host.
"""

from collections.abc import Mapping
from pathlib import Path

_KERNEL = "where the kernel of the host shows its state and its devices"
_SERVICES = "where services of the host have their sockets, such as the container engine"
_AGENT = "where the agent has its files"
#: The directories of a host that containers of tasks must not mount. Each has a clause for messages
#: that says what the directory contains.
CLOSED = {
    Path("/proc"): _KERNEL,
    Path("/sys"): _KERNEL,
    Path("/dev"): _KERNEL,
    Path("/run"): _SERVICES,
    Path("/var/run"): _SERVICES,
    Path("/var/lib/docker"): "where the container engine has its files",
    Path("/var/lib/iris"): _AGENT,
    Path("/var/lib/iris-jobs"): "where the files of other tasks are",
    Path("/etc/iris"): "where the configuration and the credentials of the agent are",
}


def why_not(directory: Path, closed: Mapping[Path, str]) -> str:
    """Returns why a container must not mount a directory: it is, contains or is below a closed
    directory. Empty if it may.

    Args:
        closed: the closed directories, each with a clause that says what it contains.
    """
    for each, content in closed.items():
        if directory == each:
            return f"is a directory {content}"
        if directory.is_relative_to(each):
            return f"is in {each}, {content}"
        if each.is_relative_to(directory):
            return f"contains {each}, {content}"
    return ""
