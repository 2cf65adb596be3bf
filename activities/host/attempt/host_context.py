"""Holds what all attempts on one host share: the clients, the directories and caches, and the
host's resources. Makes what uploads the files of one attempt.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client

from iris.activities.host.environment.commands import with_commands, without_environment
from iris.activities.host.environment.secret_values import HostSecrets
from iris.activities.host.files.bundles import Bundles
from iris.activities.host.files.caches import Cache
from iris.activities.host.files.checkpoints import End, Saver
from iris.activities.host.files.logs import LogShipper
from iris.activities.host.files.outputs import AT_ONCE
from iris.activities.host.files.upload import Delivery
from iris.activities.host.machine.accelerators import Accelerators
from iris.activities.host.machine.gpu_health import GpuHealth
from iris.activities.host.machine.ports import Gpus, Ports, TakenGpus
from iris.activities.host.machine.usage import Use
from iris.activities.host.runtimes.base import HostFault, Runtime
from iris.activities.host.runtimes.container.images import Token
from iris.activities.host.runtimes.container.runtime import DockerRuntime
from iris.activities.host.runtimes.process.job_users import PASSABLE, JobUsers
from iris.activities.host.runtimes.process.runtime import ProcessRuntime
from iris.activities.host.runtimes.program import Exit
from iris.activities.host.runtimes.variables import base_env
from iris.messages.task import RunTask
from iris.model import key_text
from iris.model.host.faults import FAULTS, Fault
from iris.model.host.gpus import GPU_FAULT, GpuUse, offered
from iris.model.host.hosts import Host
from iris.model.host.resources import DeviceKind
from iris.model.host.store_limits import StoreLimits
from iris.model.message_keys import MessageKey
from iris.model.names import ENV_JOB_KEY
from iris.model.units import GIB
from iris.storage.log_format import Stream
from iris.storage.object_store import Store

#: The size limit of the cache of bundles on one machine, in bytes. The least recently used bundles
#: are removed first.
BUNDLE_CACHE_BYTES = 10 * GIB
#: The size limit of the cache of environments on one machine, in bytes. The least recently used
#: environments are removed first.
ENVIRONMENT_CACHE_BYTES = 50 * GIB


@dataclass(frozen=True)
class HostContext:
    """The shared context of all attempts in one incarnation of a host."""

    client: Client
    store: Store
    cluster: str
    host: Host
    #: The directory that only this host uses. It contains the directories of the attempts.
    directory: Path
    #: The directory of the caches of bundles and environments. Hosts on one machine may share it.
    cache_dir: Path
    #: The container image of tasks that do not name an image. If it is None, such tasks run as
    #: processes.
    image: str | None = None
    #: True if a task must name its image by digest.
    require_digests: bool = False
    #: Directories of the host that the configuration mounts into every container.
    mounts: Sequence[Path] = ()
    #: The agent's own directories and files, which no job may use.
    own: Sequence[Path] = ()
    #: The default variables of every task's environment. A job may set them to other values.
    env_vars: Mapping[str, str] = field(default_factory=dict)
    #: The umask of programs and of their set-up commands; -1 for the agent's umask.
    umask: int = -1
    #: The users of jobs that run as processes. If it is None, such jobs run as the agent's user.
    job_users: JobUsers | None = None
    #: The ids of the groups that own the host's device files. A job that requests devices and runs
    #: as a user of its own needs these groups.
    device_groups: Sequence[int] = ()
    #: Patterns that show, in the last lines of a failed program's output, that this host or its
    #: infrastructure caused the failure.
    faults: Sequence[Fault] = FAULTS
    #: The few environment variables that the agent passes on to programs from its own environment.
    #: Containers do not get them, except for SSL_CERT_FILE, which there names a copy of the host's
    #: file.
    base_env: Mapping[str, str] = field(default_factory=lambda: base_env(without_environment))
    #: The variables that tell a client on this machine where the cluster is: the cluster's address,
    #: and the state directory that contains the cluster, if there is one.
    contact_env: Mapping[str, str] = field(default_factory=dict)
    #: The key that authenticates the cluster's messages; None if nothing authenticates them.
    message_key: MessageKey | None = None
    #: The accelerators of the real machine. A simulated host may offer others.
    accelerators: Accelerators = field(default_factory=Accelerators)
    #: Returns a token for images in Google's registries, or None if this machine is not in Google
    #: Cloud.
    registry_token: Token = lambda: None
    limits: StoreLimits = field(default_factory=StoreLimits)
    #: Reads the secrets that jobs on this host may use.
    secrets: HostSecrets = field(default_factory=HostSecrets)
    ports: Ports = field(default_factory=Ports)
    gpus: Gpus = field(default_factory=Gpus)
    gpu_health: GpuHealth = field(default_factory=GpuHealth)
    #: Limits the number of output files that are uploaded at the same time.
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    #: The placement keys of this host's attempts whose outcome the server may still want. If
    #: several attempts have the same key, it is in the list once for each of them.
    claims: list[str] = field(default_factory=list)
    #: The last measured resource usage of each attempt, by the attempt's key.
    uses: dict[str, Use] = field(default_factory=dict)
    #: The last measured use of the machine's GPUs, by UUID.
    gpu_uses: dict[str, GpuUse] = field(default_factory=dict)

    @property
    def attempts_dir(self) -> Path:
        return self.directory / "attempts"

    @property
    def bundles(self) -> Bundles:
        return Bundles(self.store, self.cache_dir / "bundles", BUNDLE_CACHE_BYTES)

    def environments(self, task: RunTask) -> Cache:
        """Returns the cache of environments for a task. Tasks with users of their own have another
        cache, because they cannot reach the agent's directories.
        """
        if (users := self.users_of(task)) is not None:
            return Cache(users.environments, ENVIRONMENT_CACHE_BYTES, mode=PASSABLE)
        name = "container-environments" if self.image_of(task) else "process-environments"
        return Cache(self.cache_dir / name, ENVIRONMENT_CACHE_BYTES)

    def image_of(self, task: RunTask) -> str | None:
        """Returns the container image of the task; None if the task runs as a process of the
        host.
        """
        return task.image or self.image

    def users_of(self, task: RunTask) -> JobUsers | None:
        """Returns the users from which the task gets one; None if the task runs in a container or
        as the user of the agent.
        """
        return None if self.image_of(task) else self.job_users

    def contact(self, task: RunTask) -> Mapping[str, str]:
        """Returns the variables with which a client in the task's program reaches the cluster."""
        if self.message_key is None:
            return self.contact_env
        key = self.message_key.of_job(task.job).secret
        return {**self.contact_env, ENV_JOB_KEY: key_text.text_of(key)}

    def host_env(self, task: RunTask) -> Mapping[str, str]:
        """Returns the variables of the host that a task's program gets. Outside of a container,
        PATH includes a directory with the commands `python` and `iris`.
        """
        if self.image_of(task):
            return self.base_env
        users = self.users_of(task)
        if users is None:
            return with_commands(self.base_env, self.directory / "commands")
        # These users cannot reach the host's directory.
        return with_commands(self.base_env, users.environments / "commands", 0o755)

    def gpus_of(self, task: RunTask) -> TakenGpus | None:
        """Allocates the task's GPUs among the host's, real or simulated.

        Returns:
            The UUIDs of the GPUs, or the numbers of simulated GPUs. None if the host has no GPU, if
            the task has requested all GPUs of the machine, or if it runs in a container on a host
            with simulated GPUs.

        Raises:
            HostFault: too few GPUs are free, or a GPU of the host is broken.
        """
        real, wanted = self.accelerators.device, task.resources.device
        if fault := self.device_fault(task):
            raise HostFault(f"this host is quarantined: {fault}", GPU_FAULT)
        there = real or (None if self.image_of(task) else self.host.resources.device)
        if there is None or there.kind is not DeviceKind.GPU:
            return None
        count = wanted.count if wanted is not None and wants_gpu(task) else 0
        # Simulated GPUs belong to one host, real ones to all hosts of the machine.
        if real is None:
            gpus, names = Gpus(self.directory / "gpus"), [str(each) for each in range(there.count)]
        else:
            own = offered(self.accelerators.gpus, self.host.resources.device)
            gpus, names = self.gpus, [gpu.uuid for gpu in own]
        everything = max(len(names), len(self.accelerators.gpus))
        # A MIG instance is always named, because a program without the names sees only the first
        # instance.
        by_name = count < everything or any(gpu.is_instance for gpu in self.accelerators.gpus)
        return gpus.take(count, names) if by_name else None

    def usable_gpus(self, task: RunTask, taken: Sequence[str] | None) -> tuple[str, ...]:
        """Returns the UUIDs of the real GPUs that the task's program can use.

        Args:
            taken: the names of the GPUs that `gpus_of` allocated; None if it allocated none by
                name.
        """
        if self.accelerators.device is None or not wants_gpu(task):
            return ()
        own = offered(self.accelerators.gpus, self.host.resources.device)
        return tuple(gpu.uuid for gpu in own) if taken is None else tuple(taken)

    async def check_devices(self, task: RunTask, ended: Exit | None) -> None:
        """Checks the GPUs of a task whose program has failed, because the next regular check may be
        later than the report of the outcome.
        """
        if ended is not None and ended.status and wants_gpu(task):
            await self.gpu_health.check()

    def device_fault(self, task: RunTask) -> str:
        """Returns the fault of the host's devices of the kind that the task requests; empty if they
        have no fault.
        """
        return self.gpu_health.fault if wants_gpu(task) else ""

    def logger(
        self, logger: logging.Logger, task: RunTask | None = None
    ) -> "logging.LoggerAdapter[logging.Logger]":
        """Returns the logger with the fields that identify the attempt and this host.

        `iris.worker_agents.logging_setup` shows the fields.
        """
        attempt = {} if task is None else {"job": task.job, "attempt": task.key}
        return logging.LoggerAdapter(
            logger, {**attempt, "host": self.host.id, "slice": self.host.slice_id}
        )

    def runtime(self, task: RunTask, directory: Path) -> Runtime:
        """Returns the runtime in which an attempt's commands run."""
        if (image := self.image_of(task)) is None:
            groups = self.device_groups if task.resources.device is not None else ()
            person = task.job.partition("/")[0]
            return ProcessRuntime(
                task.key, directory, task.resources, umask=self.umask, user=person, groups=groups
            )
        return DockerRuntime(
            image,
            task,
            self.host.id,
            self.cluster,
            directory,
            mounts=self.mounts,
            own=self.own,
            host_env=self.base_env,
            token=self.registry_token,
        )


def wants_gpu(task: RunTask) -> bool:
    """Returns whether the task requests GPUs."""
    return task.resources.device is not None and task.resources.device.kind is DeviceKind.GPU


class Uploads(NamedTuple):
    """The objects that store the log, the checkpoint and the outputs of one attempt."""

    logs: LogShipper
    saver: Saver
    delivery: Delivery


def uploads(
    context: HostContext,
    task: RunTask,
    directory: Path,
    program_end: Callable[[], End | None],
    *,
    found: bool,
) -> Uploads:
    """Returns what uploads the attempt's files.

    Args:
        directory: the directory of the attempt.
        program_end: returns the end of the program; None if no program was started.
        found: True if an earlier agent took the attempt.
    """
    logs = LogShipper(
        context.store,
        task.logs,
        {
            Stream.BUILD: directory / "build",
            Stream.STDOUT: directory / "stdout",
            Stream.STDERR: directory / "stderr",
        },
        directory / "shipped.json",
        taken_over=found,
        limit=context.limits.logs,
    )
    saver = Saver(
        context.store,
        task.checkpoints,
        task.attempt,
        directory,
        context.gate,
        context.limits.checkpoint,
        logs.say,
        taken_over=found,
    )
    delivery = Delivery(
        context.store,
        logs,
        directory,
        task.outputs,
        context.gate,
        context.limits.outputs,
        saver,
        program_end,
    )
    return Uploads(logs, saver, delivery)
