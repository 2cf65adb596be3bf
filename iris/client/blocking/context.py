"""The facts that a program in a job can read about its job and its task."""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from iris.model import names
from iris.model.errors import IrisError, NotFound

if TYPE_CHECKING:
    from iris.client.blocking.client import IrisClient
    from iris.model.job.endpoints import Endpoint


@dataclass(frozen=True)
class JobContext:
    """The task that runs this program, and the task's job.

    Attributes:
        job: the id of the job: `USER/NAME`, or `USER/PARENT/NAME` for a child job.
        task: the task's number, from 0. In a gang it is the rank.
        attempt: the number of this run of the task, from 1.
        slice: the id of the host's slice.
        slice_index: the number of this slice among the slices of the gang; 0 without a gang.
        num_slices: the number of the gang's slices; 1 without a gang.
        tasks_per_slice: the number of the gang's tasks on each slice; `num_tasks` without a gang.
        address: the address at which other hosts reach this one; empty if it is unknown.
        coordinator: the address on the host of task 0 to which all tasks of the gang connect to
            find each other, `HOST:PORT`; empty for a single task.
        ports: the task's ports by their environment variables; `port` finds one by its name.
        outputs: the directory for the results of the program. Iris stores its files in the object
            store.
        checkpoint_dir: the directory for checkpoints. Iris saves its files, and restores them for
            the task's next attempt.
        checkpoint_url: a folder of the object store that all tasks and attempts of the job share;
            empty if the program cannot reach the store.
    """

    cluster: str
    job: str
    task: int
    num_tasks: int
    attempt: int
    host: str
    slice: str
    slice_index: int
    num_slices: int
    tasks_per_slice: int
    address: str
    coordinator: str
    ports: Mapping[str, int]
    workdir: Path
    outputs: Path
    checkpoint_dir: Path
    checkpoint_url: str

    @property
    def parent(self) -> str | None:
        """The id of the parent job; None if this job is not a child job."""
        return names.parent_id(self.job)

    @property
    def client(self) -> "IrisClient":
        """A client of the job's cluster, the same object each time. Jobs that it submits are
        children of this job.

        Asynchronous programs use `await iris.AsyncIrisClient.from_env()`.

        Raises:
            ImportError: Iris is not installed in the job's environment.
            Unreachable: the cluster does not answer.
        """
        return _client(os.getpid())

    def register_endpoint(
        self, name: str, address: str | int, metadata: Mapping[str, str] = {}
    ) -> "Endpoint":
        """Registers an address of this task, so that other programs of the job find it. The address
        is known until the attempt ends.

        Replaces an address with the same name.

        Args:
            name: the name by which other programs find the address.
            address: `HOST:PORT`, or a port of this host.
            metadata: facts for the programs that look for the address.

        Raises:
            Rejected: the name or the address is invalid, or the job has registered too many
                endpoints.
            Unreachable: the cluster does not answer.
        """
        client, loop = self.client.parts
        return loop.run(client.endpoints.register(name, address, metadata))

    def withdraw_endpoint(self, name: str) -> None:
        """Withdraws an address of this task before its attempt ends.

        Args:
            name: the name of the address.

        Raises:
            Unreachable: the cluster does not answer.
        """
        client, loop = self.client.parts
        loop.run(client.endpoints.withdraw(name))

    def port(self, name: str) -> int:
        """Returns the task's port of this name.

        Args:
            name: the name of the port in the options of the job.

        Raises:
            NotFound: the job has no port of this name.
        """
        if (variable := names.env_port(name)) not in self.ports:
            raise NotFound(f"job {self.job} has no port {name!r}; submit it with --port {name}")
        return self.ports[variable]


@functools.cache
def _client(process: int) -> "IrisClient":
    """Returns the client of this process. A forked process cannot use the connection of its parent
    process.
    """
    from iris import IrisClient  # most programs in a job read the context alone

    return IrisClient.from_env()


def get_job_info(env: Mapping[str, str] = os.environ) -> JobContext | None:
    """Returns the context of the task that this program runs as; None if the program does not run
    in a job.
    """
    return context(env) if names.ENV_JOB_ID in env else None


def context(env: Mapping[str, str] = os.environ) -> JobContext:
    """Returns the context of the task that this program runs as.

    Raises:
        IrisError: the program does not run in a job.
    """
    if names.ENV_JOB_ID not in env:
        raise IrisError(
            f"this program does not run in a job: {names.ENV_JOB_ID} is not set; start it with iris"
            " submit"
        )
    num_tasks = int(env[names.ENV_NUM_TASKS])
    return JobContext(
        cluster=env[names.ENV_CLUSTER],
        job=env[names.ENV_JOB_ID],
        task=int(env[names.ENV_TASK_INDEX]),
        num_tasks=num_tasks,
        attempt=int(env[names.ENV_ATTEMPT]),
        host=env[names.ENV_HOST_ID],
        slice=env[names.ENV_SLICE_ID],
        slice_index=int(env.get(names.ENV_SLICE_INDEX, 0)),
        num_slices=int(env.get(names.ENV_NUM_SLICES, 1)),
        tasks_per_slice=int(env.get(names.ENV_TASKS_PER_SLICE, num_tasks)),
        address=env.get(names.ENV_HOST_ADDRESS, ""),
        coordinator=env.get(names.ENV_COORDINATOR, ""),
        ports={
            name: int(value) for name, value in env.items() if name.startswith(names.env_port(""))
        },
        workdir=Path(env[names.ENV_WORKDIR]),
        outputs=Path(env[names.ENV_OUTPUT_DIR]),
        checkpoint_dir=Path(env[names.ENV_CHECKPOINT_DIR]),
        checkpoint_url=env.get(names.ENV_CHECKPOINT_URL, ""),
    )


def iris_ctx(env: Mapping[str, str] = os.environ) -> JobContext:
    """Returns `context()`. The original Iris has this name."""
    return context(env)
