"""Builds the environment variables of a program."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iris.activities.host.machine.accelerators import TpuHost
from iris.messages.task import Rank, RunTask
from iris.model import names, store_paths
from iris.model.host import constraints
from iris.model.host.hosts import Host
from iris.model.host.resources import DeviceKind
from iris.model.job.arrays import ENV_ARRAY_COUNT, ENV_ARRAY_INDEX, param_variable

#: The only variables that a program gets from the agent's environment. A program must not depend on
#: how the agent was started, so it gets no others.
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
#: The port of libtpu's coordinator for several slices. It is on the host of task 0.
MEGASCALE_PORT = 8081


def base_env(clean: Callable[[str], str] = str) -> dict[str, str]:
    """Returns the variables that every program gets from its host.

    Args:
        clean: returns the part of the agent's PATH that programs get.
    """
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed_on | ({"PATH": clean(passed_on["PATH"])} if "PATH" in passed_on else {})


@dataclass(frozen=True)
class Prepared:
    """The paths, ports and devices that the host has prepared for one program. The program finds
    them through its environment variables.

    All paths are those under which the program sees the files.
    """

    workdir: Path | None = None
    outputs: Path | None = None
    checkpoint: Path | None = None
    #: The address in the store at which the program itself can save checkpoints; empty if the
    #: program cannot reach the store.
    checkpoint_url: str = ""
    #: The directory of the function call, if the task runs a function.
    call: Path | None = None
    #: The task's row of the job's parameter table: values by column.
    params: Mapping[str, str] = field(default_factory=dict)
    #: The reserved ports, by the names that the job gave them.
    ports: Mapping[str, int] = field(default_factory=dict)
    #: The host's real TPU chips; None if it has none. Then no variable makes a library search for
    #: real chips.
    tpu: TpuHost | None = None
    #: The UUIDs of the task's GPUs, or the numbers of simulated GPUs; None if the task may use all
    #: GPUs, or the host has none.
    gpus: Sequence[str] | None = None
    #: The port for JAX's coordinator if the task is alone on simulated TPU chips; None for all
    #: other tasks.
    coordinator_port: int | None = None


def attempt_env(
    task: RunTask,
    base: Mapping[str, str],
    cluster: str,
    host: Host,
    prepared: Prepared,
    *,
    defaults: Mapping[str, str] = {},
    contact: Mapping[str, str] = {},
) -> dict[str, str]:
    """Returns the program's environment. A later part overrides an earlier one.

    The order is: the host's few variables, the defaults of the cluster and of the host's group, the
    task's variables for JAX, PyTorch, libtpu and CUDA, the job's own variables, Iris's identity
    variables.

    Args:
        base: the variables that every program gets from its host.
        defaults: the cluster's defaults, overridden by the group's.
        contact: the variables by which a client in the program finds the cluster.
    """
    given = {
        **base,
        "PYTHONUNBUFFERED": "1",
        **defaults,
        **_library_variables(task, host, prepared),
        **task.env,
    }
    allowed = {
        name: value for name, value in given.items() if not name.startswith(names.RESERVED_PREFIX)
    }
    return {
        **allowed,
        **_identity(task, cluster, host),
        **contact,
        **_prepared_variables(task, prepared),
    }


def needs_own_coordinator(task: RunTask, tpu: TpuHost | None) -> bool:
    """Returns whether JAX needs a port on this host for a task: if the task is alone on simulated
    chips.

    JAX starts a coordinator for a single process, too. Without a port of its own, JAX uses the same
    port in each task, and simulated hosts share the ports of the machine.
    """
    return task.rank is None and tpu is None and _wants_tpu(task)


def _wants_tpu(task: RunTask) -> bool:
    return task.resources.device is not None and task.resources.device.kind is DeviceKind.TPU


def _identity(task: RunTask, cluster: str, host: Host) -> dict[str, str]:
    identity = {
        names.ENV_USER: task.job.partition("/")[0],  # `iris` in the program acts for the job's user
        names.ENV_JOB_UID: store_paths.job_uid(task.logs),
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
    if host.address:
        identity[names.ENV_HOST_ADDRESS] = host.address
    if (rank := task.rank) is not None:
        identity |= {
            names.ENV_SLICE_INDEX: str(rank.slice_index),
            names.ENV_NUM_SLICES: str(rank.num_slices),
            names.ENV_TASKS_PER_SLICE: str(rank.tasks_per_slice),
        }
        if rank.coordinator:
            identity[names.ENV_COORDINATOR] = rank.coordinator
    return identity


def _prepared_variables(task: RunTask, prepared: Prepared) -> dict[str, str]:
    """Returns Iris's variables that name the ports, the array's values and the directories."""
    variables = {names.env_port(name): str(port) for name, port in prepared.ports.items()}
    if task.array is not None:
        variables |= {ENV_ARRAY_INDEX: str(task.index), ENV_ARRAY_COUNT: str(task.num_tasks)}
        variables |= {param_variable(column): value for column, value in prepared.params.items()}
    places = {
        names.ENV_WORKDIR: prepared.workdir,
        names.ENV_CALL_DIR: prepared.call,
        names.ENV_OUTPUT_DIR: prepared.outputs,
        names.ENV_CHECKPOINT_DIR: prepared.checkpoint,
        names.ENV_CHECKPOINT_URL: prepared.checkpoint_url or None,
    }
    return variables | {name: str(place) for name, place in places.items() if place is not None}


def _library_variables(task: RunTask, host: Host, prepared: Prepared) -> dict[str, str]:
    """Returns the variables for JAX, PyTorch, libtpu and CUDA."""
    variables = {} if task.rank is None else _meeting_variables(task, task.rank)
    if _wants_tpu(task):
        variables |= _libtpu_variables(task, host, prepared.tpu)
        if prepared.coordinator_port is not None:
            variables |= _of_a_single_task(prepared.coordinator_port)
    elif prepared.tpu is not None:
        variables["JAX_PLATFORMS"] = "cpu"  # another task has the chips
    if prepared.gpus is not None:
        # In the order of the bus, as the driver numbers them. By default, CUDA puts the fastest
        # first.
        variables |= {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(prepared.gpus),
        }
    return variables


def _of_a_single_task(coordinator_port: int) -> dict[str, str]:
    """Returns the variables of a task that is alone on simulated chips.

    Its only process is process 0 of 1, whichever host of a slice the task is on.
    """
    alone = Rank(coordinator=f"localhost:{coordinator_port}", tasks_per_slice=1)
    return {
        names.ENV_JAX_COORDINATOR: alone.coordinator,
        names.ENV_TPU_WORKER_ID: "0",
        **_of_simulated_chips(alone),
    }


def _meeting_variables(task: RunTask, rank: Rank) -> dict[str, str]:
    """Returns the variables by which JAX and PyTorch find the coordinator of a gang. A single task
    has no coordinator and needs none.

    JAX itself reads only the coordinator's address. On TPU slices JAX takes the number of processes
    and its own number from libtpu's variables; elsewhere programs pass them on. PyTorch reads its
    variables with `init_method="env://"`, the default. `torchrun` reads each option from a variable
    with the prefix `PET_`, and sets PyTorch's variables for its processes.
    Source: docs.pytorch.org/docs/stable/distributed.html and .../elastic/run.html
    """
    if not rank.coordinator:
        return {}
    address, _, port = rank.coordinator.rpartition(":")
    size, number = str(task.num_tasks), str(task.index)
    return {
        names.ENV_JAX_COORDINATOR: rank.coordinator,
        names.ENV_JAX_NUM_PROCESSES: size,
        names.ENV_JAX_PROCESS_ID: number,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": size,
        "RANK": number,
        "LOCAL_RANK": "0",
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NNODES": size,
        "PET_NODE_RANK": number,
    }


def _libtpu_variables(task: RunTask, host: Host, tpu: TpuHost | None) -> dict[str, str]:
    """Returns the variables that name the slice, the host and its chips, real or simulated, and the
    address of the coordinator of several slices.
    """
    if tpu is not None:
        variables = _of_real_chips(task, tpu)
    else:
        device = host.resources.device
        known = {
            names.ENV_TPU_NAME: host.attributes.get(constraints.TPU_NAME),
            names.ENV_TPU_WORKER_ID: host.attributes.get(constraints.TPU_WORKER_ID),
            names.ENV_TPU_TOPOLOGY: host.attributes.get(constraints.TPU_TOPOLOGY),
            names.ENV_TPU_TYPE: device.variant if device else None,
            "TPU_TYPE": device.variant if device else None,
        }
        variables = {name: str(value) for name, value in known.items() if value is not None}
        if task.rank is not None and task.rank.coordinator:
            variables |= _of_simulated_chips(task.rank)
    if task.rank is not None and task.rank.num_slices > 1:
        variables |= {
            "MEGASCALE_COORDINATOR_ADDRESS": task.rank.coordinator.rpartition(":")[0],
            "MEGASCALE_PORT": str(MEGASCALE_PORT),
            "MEGASCALE_NUM_SLICES": str(task.rank.num_slices),
            "MEGASCALE_SLICE_ID": str(task.rank.slice_index),
        }
    return variables


def _of_simulated_chips(rank: Rank) -> dict[str, str]:
    """Returns the variables that let `jax.distributed.initialize()` find a gang without arguments,
    as on real chips.

    JAX computes the number of a process: the slice's number times the count of the slice's workers,
    plus the worker's number. JAX asks the metadata server for the number and the count of slices if
    no variable has them. The computations run on the CPU.
    Source: github.com/jax-ml/jax, jax/_src/clusters/cloud_tpu_cluster.py
    """
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_FORCE_TPU_INIT": "1",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": ",".join(["localhost"] * rank.tasks_per_slice),
        "MEGASCALE_NUM_SLICES": str(rank.num_slices),
        "MEGASCALE_SLICE_ID": str(rank.slice_index),
    }


def _of_real_chips(task: RunTask, tpu: TpuHost) -> dict[str, str]:
    """Returns the variables for real chips. A program that cannot get its chips must fail: on a CPU
    it would run very slowly without an error.
    """
    variables = {
        "JAX_PLATFORMS": "tpu,cpu",
        "JAX_FORCE_TPU_INIT": "1",
        "PJRT_DEVICE": "TPU",
        names.ENV_TPU_NAME: tpu.name,
        names.ENV_TPU_TYPE: tpu.variant,
        "TPU_TYPE": tpu.variant,
        "TPU_CHIPS_PER_HOST_BOUNDS": tpu.bounds,
    }
    if task.rank is None and tpu.hosts > 1:
        # The task has a single host of a slice. If libtpu knew the other hosts, it would wait.
        # github.com/ray-project/ray, _private/accelerators/tpu.py
        return variables | {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_HOST_BOUNDS": "1,1,1",
            names.ENV_TPU_WORKER_ID: "0",
            "TPU_WORKER_HOSTNAMES": "localhost",
        }
    variables |= {names.ENV_TPU_WORKER_ID: str(tpu.worker_id)}
    if tpu.topology:
        variables[names.ENV_TPU_TOPOLOGY] = tpu.topology
    if tpu.addresses:  # otherwise libtpu must ask the metadata server
        variables |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": ",".join(tpu.addresses)}
    return variables
