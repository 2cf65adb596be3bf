"""Iris is a durable job orchestrator for TPU slices, GPU and CPU machines, built on Temporal.

The names below are the public API. They are loaded on first use, so that `import iris` and the command line start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iris.client.client import IrisClient
    from iris.client.operate.cluster_manager import ClusterManager
    from iris.model.errors import IrisError
    from iris.model.jobs import JobSpec, JobStatus
    from iris.model.resources import Resources

__all__ = ["ClusterManager", "IrisClient", "IrisError", "JobSpec", "JobStatus", "Resources"]

_MODULES = {
    "ClusterManager": "iris.client.operate.cluster_manager",
    "IrisClient": "iris.client.client",
    "IrisError": "iris.model.errors",
    "JobSpec": "iris.model.jobs",
    "JobStatus": "iris.model.jobs",
    "Resources": "iris.model.resources",
}


def __getattr__(name: str) -> Any:
    """Loads a public name from its module.

    Raises:
        AttributeError: the name is not public.
    """
    if name not in _MODULES:
        raise AttributeError(f"module 'iris' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
