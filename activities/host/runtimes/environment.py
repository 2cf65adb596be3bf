"""Builds the environment variables of a program."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from iris.messages.task import Rank, RunTask
from iris.model import names
from iris.model.frozen import Frozen
from iris.model.host import constraints
from iris.model.host.gpus import Gpu, Reading
from iris.model.host.hosts import Host
from iris.model.host.resources import Device, DeviceKind
from iris.model.job.arrays import ENV_ARRAY_COUNT, ENV_ARRAY_INDEX, param_variable

#: The only variables that a program gets from the agent's environment: a program must not depend on
#: how the agent was started.
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
#: The port on the host of task 0 where the libtpu processes of several slices meet.
MEGASCALE_PORT = 8081


class TpuHost(Frozen):
    """A host's real TPU chips and their slice. A host with simulated chips has no `TpuHost`."""

    #: The name of the slice.
    name: str
    #: As in `iris.model.host.accelerators`: `v5litepod-16`.
    variant: str
    worker_id: int = 0
    #: The addresses of the slice's hosts, in the order of their numbers; none: not known.
    addresses: tuple[str, ...] = ()
    #: The number of the slice's hosts.
    hosts: int = 1
    #: The number of this host's chips.
    chips: int
    #: The layout of this host's chips: `2,2,1`.
    bounds: str
    #: The layout of the whole slice's chips: `4x4`.
    topology: str = ""


class Accelerators(Frozen):
    """The accelerators that a machine itself reports."""

    device: Device | None = None
    #: All GPUs of the machine, also those of another kind than the device.
    gpus: tuple[Gpu, ...] = ()
    #: What the driver says about its GPUs; None: there is no driver.
    reading: Reading | None = None
    #: None: the machine is not a host of a TPU slice.
    tpu: TpuHost | None = None
    #: Includes the machine's location.
    attributes: dict[str, constraints.Attribute] = Field(default_factory=dict)


def base_env(clean: Callable[[str], str] = str) -> dict[str, str]:
    """Returns the variables that every program gets from its host.

    Args:
        clean: returns the part of the agent's PATH that programs get.
    """
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed_on | ({"PATH": clean(passed_on["PATH"])} if "PATH" in passed_on else {})


def attempt_env(
    task: RunTask,
    base: Mapping[str, str],
    cluster: str,
    host: Host,
    *,
    defaults: Mapping[str, str] = {},
    contact: Mapping[str, str] = {},
    workdir: Path | None = None,
    outputs: Path | None = None,
    checkpoint: Path | None = None,
    checkpoint_url: str = "",
    call: Path | None = None,
    params: Mapping[str, str] = {},
    ports: Mapping[str, int] = {},
    tpu: TpuHost | None = None,
    gpus: Sequence[str] | None = None,
    coordinator_port: int | None = None,
) -> dict[str, str]:
    """Returns the program's environment. A later part overrides an earlier one.

    The order is: the host's few variables, the defaults of the cluster and of the host's group, the
    task's variables for JAX, PyTorch, libtpu and CUDA, the job's own variables, Iris' identity
    variables.

    Args:
        defaults: the cluster's defaults, overridden by the group's.
        contact: where a client in the program finds the cluster. workdir, outputs, checkpoint,
        call: the directories, by the paths under which the program finds them.
        checkpoint_url: where in the store the program can store checkpoints itself; empty: the
            store is not one that it reaches.
        params: the task's row of the array's table.
        ports: the ports by the names that the job gave them.
        tpu: the host's real chips; None: it has none, and no variable may make a library look for
            them.
        gpus: the UUIDs of the task's GPUs, or the numbers of simulated ones; None: all of them, or
            the host has none.
        coordinator_port: the port for JAX' coordinator if the task needs one of its own.
    """
    identity = {
        **_identity(task, cluster, host),
        **contact,
        **{names.env_port(name): str(port) for name, port in ports.items()},
    }
    if task.array is not None:
        identity |= {ENV_ARRAY_INDEX: str(task.index), ENV_ARRAY_COUNT: str(task.num_tasks)}
        identity |= {param_variable(column): value for column, value in params.items()}
    if workdir is not None:
        identity[names.ENV_WORKDIR] = str(workdir)
    if call is not None:
        identity[names.ENV_CALL_DIR] = str(call)
    if outputs is not None:
        identity[names.ENV_OUTPUT_DIR] = str(outputs)
    if checkpoint is not None:
        identity[names.ENV_CHECKPOINT_DIR] = str(checkpoint)
    if checkpoint_url:
        identity[names.ENV_CHECKPOINT_URL] = checkpoint_url
    variables: dict[str, str] = {}
    if task.rank is not None:
        variables |= _meeting_variables(task, task.rank)
    if _wants(task, DeviceKind.TPU):
        variables |= _libtpu_variables(task, host, tpu)
        if coordinator_port is not None:
            # The task's only process is the first of one, whichever host of a slice it is on.
            alone = Rank(coordinator=f"localhost:{coordinator_port}", tasks_per_slice=1)
            variables |= {
                names.ENV_JAX_COORDINATOR: alone.coordinator,
                names.ENV_TPU_WORKER_ID: "0",
                **_of_simulated_chips(alone),
            }
    elif tpu is not None:
        variables["JAX_PLATFORMS"] = "cpu"  # another task has the chips
    if gpus is not None:
        # In the order of the bus, as the driver numbers them. By default, CUDA puts the fastest
        # first.
        variables |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    given = {**base, "PYTHONUNBUFFERED": "1", **defaults, **variables, **task.env}
    return {
        name: value for name, value in given.items() if not name.startswith(names.RESERVED_PREFIX)
    } | identity


def needs_own_coordinator(task: RunTask, tpu: TpuHost | None) -> bool:
    """Whether JAX needs a port on this host for a task: it is alone on simulated chips.

    JAX starts a coordinator for a single process, too. Without a port of its own, it takes the same
    one in each task, and simulated hosts share the ports of the machine.
    """
    return task.rank is None and tpu is None and _wants(task, DeviceKind.TPU)


def _wants(task: RunTask, kind: DeviceKind) -> bool:
    return task.resources.device is not None and task.resources.device.kind is kind


def _identity(task: RunTask, cluster: str, host: Host) -> dict[str, str]:
    identity = {
        names.ENV_USER: task.job.partition("/")[0],  # `iris` in the program acts for the job's user
        names.ENV_JOB_UID: names.job_uid(task.logs),
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


def _meeting_variables(task: RunTask, rank: Rank) -> dict[str, str]:
    """Returns where a gang meets, in the words of JAX and PyTorch. A single task has no coordinator
    and needs none.

    JAX itself reads only the coordinator's address. On TPU slices it takes the other two from
    libtpu's variables; elsewhere programs pass them on. PyTorch reads its variables with
    `init_method="env://"`, the default. `torchrun` reads an option from `PET_` and its name, and
    sets PyTorch's variables for its processes.
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
    address where slices meet.
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

    JAX counts the workers of the slice, and adds the slice's number times their count to the
    worker's number. It asks the metadata server for the two numbers of slices if no variable has
    them. The computations run on the CPU.
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
    it would run unnoticed for ever.
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
        # A single host of a slice: if libtpu knew of the other hosts, it would wait for them.
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
