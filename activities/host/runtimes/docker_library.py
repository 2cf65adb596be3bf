"""The names of the libraries docker and requests that Iris uses.

They are optional, and take 0.15 s to import. `runtimes.docker_library` imports them at its first
use, on a host with an engine.
"""

from docker import DockerClient
from docker.errors import APIError, DockerException
from docker.types import DeviceRequest, LogConfig, Mount
from docker.utils import parse_repository_tag
from requests import RequestException

__all__ = [
    "APIError",
    "DeviceRequest",
    "DockerClient",
    "DockerException",
    "LogConfig",
    "Mount",
    "RequestException",
    "parse_repository_tag",
]
