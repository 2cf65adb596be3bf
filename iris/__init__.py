"""Iris is a durable job orchestrator for TPU slices, GPU and CPU machines, built on Temporal.

The names below are the public API. They are loaded on first use, so that `import iris` and the
command line start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iris.client.actors.asynchronous import AsyncActorClient, AsyncActorPool
    from iris.client.actors.calls import ActorResult
    from iris.client.actors.client import ActorClient, ActorPool
    from iris.client.actors.server import ActorServer
    from iris.client.actors.wire import ActorUnavailable, CallInterrupted
    from iris.client.blocking.client import IrisClient
    from iris.client.blocking.context import JobContext, context, get_job_info, iris_ctx
    from iris.client.blocking.job import Job
    from iris.client.blocking.pool import WorkerPool
    from iris.client.build.entrypoint import Entrypoint
    from iris.client.build.options import Resources
    from iris.client.client import AsyncIrisClient
    from iris.client.functions.result import NoResult
    from iris.client.jobs.exec.commands import ExecResult
    from iris.client.jobs.handle import AsyncJob
    from iris.client.jobs.lists import JobFilter
    from iris.client.logs.entries import LogEntry
    from iris.client.operate.cluster_manager import ClusterManager
    from iris.client.pool.messages import CallLost, PoolBroken, PoolClosed
    from iris.client.pool.pool import AsyncWorkerPool
    from iris.client.schedules.when import Overlap, When
    from iris.config import ClusterConfig, load_config, make_local_config
    from iris.model.errors import (
        InvalidJob,
        InvalidValue,
        IrisError,
        NotFound,
        Rejected,
        Unreachable,
        WaitTimeout,
    )
    from iris.model.job.environments import EnvironmentSpec
    from iris.model.job.errors import JobCancelled, JobFailed
    from iris.model.job.spec import JobSpec
    from iris.model.job.status import JobStatus, TaskStatus
    from iris.model.states import JobState, TaskState

__all__ = [
    "ActorClient",
    "ActorPool",
    "ActorResult",
    "ActorServer",
    "ActorUnavailable",
    "AsyncActorClient",
    "AsyncActorPool",
    "AsyncIrisClient",
    "AsyncJob",
    "AsyncWorkerPool",
    "CallInterrupted",
    "CallLost",
    "ClusterConfig",
    "ClusterManager",
    "Entrypoint",
    "EnvironmentSpec",
    "ExecResult",
    "InvalidJob",
    "InvalidValue",
    "IrisClient",
    "IrisError",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "JobFilter",
    "JobSpec",
    "JobState",
    "JobStatus",
    "LogEntry",
    "NoResult",
    "NotFound",
    "Overlap",
    "PoolBroken",
    "PoolClosed",
    "Rejected",
    "Resources",
    "TaskState",
    "TaskStatus",
    "Unreachable",
    "WaitTimeout",
    "When",
    "WorkerPool",
    "context",
    "get_job_info",
    "iris_ctx",
    "load_config",
    "make_local_config",
]

_MODULES = {
    "ActorClient": "iris.client.actors.client",
    "ActorPool": "iris.client.actors.client",
    "ActorResult": "iris.client.actors.calls",
    "ActorServer": "iris.client.actors.server",
    "ActorUnavailable": "iris.client.actors.wire",
    "AsyncActorClient": "iris.client.actors.asynchronous",
    "AsyncActorPool": "iris.client.actors.asynchronous",
    "AsyncIrisClient": "iris.client.client",
    "AsyncJob": "iris.client.jobs.handle",
    "AsyncWorkerPool": "iris.client.pool.pool",
    "CallInterrupted": "iris.client.actors.wire",
    "CallLost": "iris.client.pool.messages",
    "ClusterConfig": "iris.config",
    "ClusterManager": "iris.client.operate.cluster_manager",
    "Entrypoint": "iris.client.build.entrypoint",
    "EnvironmentSpec": "iris.model.job.environments",
    "ExecResult": "iris.client.jobs.exec.commands",
    "InvalidJob": "iris.model.errors",
    "InvalidValue": "iris.model.errors",
    "IrisClient": "iris.client.blocking.client",
    "IrisError": "iris.model.errors",
    "Job": "iris.client.blocking.job",
    "JobCancelled": "iris.model.job.errors",
    "JobContext": "iris.client.blocking.context",
    "JobFailed": "iris.model.job.errors",
    "JobFilter": "iris.client.jobs.lists",
    "JobSpec": "iris.model.job.spec",
    "JobState": "iris.model.states",
    "JobStatus": "iris.model.job.status",
    "LogEntry": "iris.client.logs.entries",
    "NoResult": "iris.client.functions.result",
    "NotFound": "iris.model.errors",
    "Overlap": "iris.client.jobs.schedules",
    "PoolBroken": "iris.client.pool.messages",
    "PoolClosed": "iris.client.pool.messages",
    "Rejected": "iris.model.errors",
    "Resources": "iris.client.build.options",
    "TaskState": "iris.model.states",
    "TaskStatus": "iris.model.job.status",
    "Unreachable": "iris.model.errors",
    "WaitTimeout": "iris.model.errors",
    "When": "iris.client.jobs.schedules",
    "WorkerPool": "iris.client.blocking.pool",
    "context": "iris.client.blocking.context",
    "get_job_info": "iris.client.blocking.context",
    "iris_ctx": "iris.client.blocking.context",
    "load_config": "iris.config",
    "make_local_config": "iris.config",
}


def __getattr__(name: str) -> Any:
    """Loads a public name from its module.

    Raises:
        AttributeError: the name is not public.
        ImportError: this is a job without an Iris of its own. It gets the modules of `context` with
            its function.
    """
    if name not in _MODULES:
        raise AttributeError(f"module 'iris' has no attribute {name!r}")
    try:
        module = importlib.import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("iris."):
            raise
        raise ImportError(
            f"this job has only iris.context(), without its client, and iris.{name} needs all of"
            " Iris: add the wheel of iris-temporal to the job's project, packages or image"
        ) from None
    return getattr(module, name)


def __dir__() -> list[str]:
    """Lists the public names, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})
