"""Iris is a durable job orchestrator for TPU slices, GPU and CPU machines, built on Temporal.

The names below are the public API. A name is loaded at its first use, so that `import iris` and the
command line start quickly. `__init__.pyi` shows the same names to type checkers and editors.
"""

import importlib
from typing import Any

#: The public names of each module.
_PUBLIC = {
    "iris.client.actors.asynchronous": ("AsyncActorClient", "AsyncActorPool"),
    "iris.client.actors.calls": ("ActorResult",),
    "iris.client.actors.client": ("ActorClient", "ActorPool"),
    "iris.client.actors.server": ("ActorServer",),
    "iris.client.actors.wire": ("ActorUnavailable", "CallInterrupted"),
    "iris.client.blocking.client": ("IrisClient",),
    "iris.client.blocking.context": ("JobContext", "context", "get_job_info", "iris_ctx"),
    "iris.client.blocking.job": ("Job",),
    "iris.client.blocking.pool": ("WorkerPool",),
    "iris.client.build.entrypoint": ("Entrypoint",),
    "iris.client.build.options": ("Resources",),
    "iris.client.client": ("AsyncIrisClient",),
    "iris.client.functions.result": ("NoResult",),
    "iris.client.jobs.exec.commands": ("ExecResult",),
    "iris.client.jobs.handle": ("AsyncJob",),
    "iris.client.jobs.lists": ("JobFilter",),
    "iris.client.schedules.when": ("Overlap", "When"),
    "iris.client.logs.entries": ("LogEntry",),
    "iris.client.operate.cluster_manager": ("ClusterManager",),
    "iris.client.pool.errors": ("CallLost", "PoolBroken", "PoolClosed"),
    "iris.client.pool.pool": ("AsyncWorkerPool",),
    "iris.config": ("ClusterConfig", "load_config", "make_local_config"),
    "iris.model.errors": (
        "InvalidJob",
        "InvalidValue",
        "IrisError",
        "NotFound",
        "Rejected",
        "Unreachable",
        "WaitTimeout",
    ),
    "iris.model.job.environments": ("EnvironmentSpec",),
    "iris.model.job.errors": ("JobCancelled", "JobFailed"),
    "iris.model.job.spec": ("JobSpec",),
    "iris.model.job.status": ("JobStatus", "TaskStatus"),
    "iris.model.states": ("JobState", "TaskState"),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Loads a public name from its module.

    Raises:
        AttributeError: the name is not public.
        ImportError: this program runs in a job that has `iris.context()` and no other part of Iris.
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
    """Lists the public names, loaded or not."""
    return sorted({*globals(), *__all__})
