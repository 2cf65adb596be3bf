"""What a program finds in its environment."""

import os
from collections.abc import Mapping

from iris import constraints, names
from iris.hosts import Host
from iris.workflows.messages import Rank, RunTask

#: Of the agent's own environment a program gets these and no others: what it sees must not depend on how the agent was started.
PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


def base_env() -> dict[str, str]:
    """What every program gets from its host."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def attempt_env(task: RunTask, base: Mapping[str, str], cluster: str, host: Host) -> dict[str, str]:
    """The program's environment, each part stronger than the one before.

    The host's few, what a gang's member is told in the words of JAX and libtpu, what the job sets, Iris' own identity.
    """
    identity = {
        names.ENV_CLUSTER: cluster,
        names.ENV_JOB_ID: task.job,
        names.ENV_TASK_ID: names.task_id(task.job, task.index),
        names.ENV_TASK_INDEX: str(task.index),
        names.ENV_NUM_TASKS: str(task.num_tasks),
        names.ENV_ATTEMPT: str(task.attempt),
        names.ENV_ATTEMPT_KEY: task.key,
        names.ENV_HOST_ID: host.id,
        names.ENV_SLICE_ID: host.slice_id,
    }
    told = {}
    if task.rank is not None:
        identity |= _gang_identity(task.rank)
        told = _told_to_jax(task, task.rank) | _told_to_libtpu(host)
    return {**base, "PYTHONUNBUFFERED": "1", **told, **task.env, **identity}


def _gang_identity(rank: Rank) -> dict[str, str]:
    return {
        names.ENV_COORDINATOR: rank.coordinator,
        names.ENV_SLICE_INDEX: str(rank.slice_index),
        names.ENV_NUM_SLICES: str(rank.num_slices),
        names.ENV_TASKS_PER_SLICE: str(rank.tasks_per_slice),
    }


def _told_to_jax(task: RunTask, rank: Rank) -> dict[str, str]:
    """What `jax.distributed.initialize()` reads."""
    return {
        names.ENV_JAX_COORDINATOR: rank.coordinator,
        names.ENV_JAX_NUM_PROCESSES: str(task.num_tasks),
        names.ENV_JAX_PROCESS_ID: str(task.index),
    }


def _told_to_libtpu(host: Host) -> dict[str, str]:
    """Of a host in a TPU slice: which slice, and which host of it this is."""
    if constraints.TPU_NAME not in host.attributes:
        return {}
    told = {
        names.ENV_TPU_NAME: host.attributes.get(constraints.TPU_NAME),
        names.ENV_TPU_WORKER_ID: host.attributes.get(constraints.TPU_WORKER_ID),
        names.ENV_TPU_TOPOLOGY: host.attributes.get(constraints.TPU_TOPOLOGY),
        names.ENV_TPU_TYPE: host.resources.device.variant if host.resources.device else None,
    }
    return {name: str(value) for name, value in told.items() if value is not None}
