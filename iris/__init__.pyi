"""The public names for type checkers and editors. `__init__.py` loads them at their first use."""

# ruff: noqa: I001  # the names of a module stay in one import

from iris.client.actors.asynchronous import (
    AsyncActorClient as AsyncActorClient,
    AsyncActorPool as AsyncActorPool,
)
from iris.client.actors.calls import ActorResult as ActorResult
from iris.client.actors.client import ActorClient as ActorClient, ActorPool as ActorPool
from iris.client.actors.server import ActorServer as ActorServer
from iris.client.actors.wire import (
    ActorUnavailable as ActorUnavailable,
    CallInterrupted as CallInterrupted,
)
from iris.client.blocking.client import IrisClient as IrisClient
from iris.client.blocking.context import (
    JobContext as JobContext,
    context as context,
    get_job_info as get_job_info,
    iris_ctx as iris_ctx,
)
from iris.client.blocking.job import Job as Job
from iris.client.blocking.pool import WorkerPool as WorkerPool
from iris.client.build.entrypoint import Entrypoint as Entrypoint
from iris.client.build.options import Resources as Resources
from iris.client.client import AsyncIrisClient as AsyncIrisClient
from iris.client.functions.result import NoResult as NoResult
from iris.client.jobs.exec.commands import ExecResult as ExecResult
from iris.client.jobs.handle import AsyncJob as AsyncJob
from iris.client.jobs.lists import JobFilter as JobFilter
from iris.client.schedules.when import Overlap as Overlap, When as When
from iris.client.logs.entries import LogEntry as LogEntry
from iris.client.operate.cluster_manager import ClusterManager as ClusterManager
from iris.client.pool.errors import (
    CallLost as CallLost,
    PoolBroken as PoolBroken,
    PoolClosed as PoolClosed,
)
from iris.client.pool.pool import AsyncWorkerPool as AsyncWorkerPool
from iris.config import (
    ClusterConfig as ClusterConfig,
    load_config as load_config,
    make_local_config as make_local_config,
)
from iris.model.errors import (
    InvalidJob as InvalidJob,
    InvalidValue as InvalidValue,
    IrisError as IrisError,
    NotFound as NotFound,
    Rejected as Rejected,
    Unreachable as Unreachable,
    WaitTimeout as WaitTimeout,
)
from iris.model.job.environments import EnvironmentSpec as EnvironmentSpec
from iris.model.job.errors import JobCancelled as JobCancelled, JobFailed as JobFailed
from iris.model.job.spec import JobSpec as JobSpec
from iris.model.job.status import JobStatus as JobStatus, TaskStatus as TaskStatus
from iris.model.states import JobState as JobState, TaskState as TaskState
