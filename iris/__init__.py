"""Iris is a durable job orchestrator for TPU slices, GPU and CPU machines, built on Temporal.

The names below are the public API. They are loaded on first use, so that `import iris` and the command line start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iris.client.blocking.client import IrisClient, Job
    from iris.client.blocking.pool import WorkerPool
    from iris.client.client import AsyncIrisClient
    from iris.client.context import JobContext, context
    from iris.client.functions.result import NoResult
    from iris.client.job import AsyncJob, LogEntry
    from iris.client.job_options import Resources
    from iris.client.operate.cluster_manager import ClusterManager
    from iris.client.pool.errors import CallLost, PoolBroken
    from iris.client.pool.pool import AsyncWorkerPool
    from iris.model.environments import EnvironmentSpec
    from iris.model.errors import IrisError, JobCancelled, JobFailed, NotFound, Rejected, Unreachable, WaitTimeout
    from iris.model.jobs import JobSpec, JobStatus

__all__ = [
    "AsyncIrisClient",
    "AsyncJob",
    "AsyncWorkerPool",
    "CallLost",
    "ClusterManager",
    "EnvironmentSpec",
    "IrisClient",
    "IrisError",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "JobSpec",
    "JobStatus",
    "LogEntry",
    "NoResult",
    "NotFound",
    "PoolBroken",
    "Rejected",
    "Resources",
    "Unreachable",
    "WaitTimeout",
    "WorkerPool",
    "context",
]

_MODULES = {
    "AsyncIrisClient": "iris.client.client",
    "AsyncJob": "iris.client.job",
    "AsyncWorkerPool": "iris.client.pool.pool",
    "CallLost": "iris.client.pool.errors",
    "ClusterManager": "iris.client.operate.cluster_manager",
    "EnvironmentSpec": "iris.model.environments",
    "IrisClient": "iris.client.blocking.client",
    "IrisError": "iris.model.errors",
    "Job": "iris.client.blocking.client",
    "JobCancelled": "iris.model.errors",
    "JobContext": "iris.client.context",
    "JobFailed": "iris.model.errors",
    "JobSpec": "iris.model.jobs",
    "JobStatus": "iris.model.jobs",
    "LogEntry": "iris.client.job",
    "NoResult": "iris.client.functions.result",
    "NotFound": "iris.model.errors",
    "PoolBroken": "iris.client.pool.errors",
    "Rejected": "iris.model.errors",
    "Resources": "iris.client.job_options",
    "Unreachable": "iris.model.errors",
    "WaitTimeout": "iris.model.errors",
    "WorkerPool": "iris.client.blocking.pool",
    "context": "iris.client.context",
}


def __getattr__(name: str) -> Any:
    """Loads a public name from its module.

    Raises:
        AttributeError: the name is not public.
    """
    if name not in _MODULES:
        raise AttributeError(f"module 'iris' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
