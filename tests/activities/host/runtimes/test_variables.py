"""What a program finds in its environment."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from iris.activities.host.machine.accelerators import TpuHost
from iris.activities.host.runtimes.variables import Prepared, attempt_env, needs_own_coordinator
from iris.client.blocking.context import context
from iris.messages.task import Rank, RunTask
from iris.model.errors import IrisError, NotFound
from iris.model.host.hosts import Host
from iris.model.host.resources import Resources
from tests.builders import a_host, some

RANK = Rank(coordinator="10.0.0.1:8476", num_slices=2, slice_index=1, tasks_per_slice=4)
ONE_SLICE = RANK.model_copy(update={"num_slices": 1, "slice_index": 0, "tasks_per_slice": 8})
TPU_HOST = a_host(
    "w2",
    some(cpu=4, device="tpu:v5litepod-16:4"),
    slice_id="s1",
    address="10.0.0.7",
    attributes={"tpu-name": "s1", "tpu-worker-id": 2, "tpu-topology": "4x4", "tpu-vm-count": 4},
)
#: What its metadata says, if its chips are real.
REAL = TpuHost(
    name="s1",
    variant="v5litepod-16",
    worker_id=2,
    addresses=("10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8"),
    hosts=4,
    chips=4,
    bounds="2,2,1",
    topology="4x4",
)
WANTS_TPU = some(cpu=1, device="tpu:v5litepod-16:4")


def a_run(**changes: Any) -> RunTask:
    """Attempt 3 of task 6 of 8."""
    settings = {
        "key": "ada/train:6@3/run",
        "placement_key": "ada/train@3/run",
        "owner": "local/job/ada/train",
        "job": "ada/train",
        "index": 6,
        "attempt": 3,
        "num_tasks": 8,
        "incarnation": "first",
        "command": ("true",),
        "env": {},
        "workdir": None,
        "timeout": None,
        "grace": timedelta(seconds=1),
        "logs": "logs/ada/train/run/6/3",
        "resources": some(cpu=1),
    }
    return RunTask(**settings | changes)


def env_of(
    task: RunTask, host: Host = TPU_HOST, defaults: Mapping[str, str] = {}, **prepared: Any
) -> dict[str, str]:
    base = {"PATH": "/bin", "HOME": "/home/ada"}
    return attempt_env(task, base, "local", host, Prepared(**prepared), defaults=defaults)


def told(wants: Resources = WANTS_TPU, rank: Rank | None = None, **given: Any) -> dict[str, str]:
    """What a task is told beside who and where it is."""
    plain = env_of(a_run())
    return {
        name: value
        for name, value in env_of(a_run(resources=wants, rank=rank), **given).items()
        if name not in plain and not name.startswith("IRIS_")
    }


def test_a_program_knows_its_job_its_attempt_and_its_host() -> None:
    """And what every program of the host gets."""
    directories = {
        "workdir": Path("/a/work"),
        "outputs": Path("/a/outputs"),
        "checkpoint": Path("/a/checkpoint"),
    }
    assert env_of(a_run(), **directories, ports={"http": 31007, "my-debug": 31008}) == {
        "PATH": "/bin",
        "HOME": "/home/ada",
        "PYTHONUNBUFFERED": "1",
        "IRIS_CLUSTER": "local",
        "IRIS_JOB_ID": "ada/train",
        "IRIS_JOB_UID": "ada-train-run",
        "IRIS_USER": "ada",
        "IRIS_TASK_ID": "ada/train:6",
        "IRIS_TASK_INDEX": "6",
        "IRIS_NUM_TASKS": "8",
        "IRIS_ATTEMPT": "3",
        "IRIS_ATTEMPT_KEY": "ada/train:6@3/run",
        "IRIS_HOST_ID": "w2",
        "IRIS_HOST_ADDRESS": "10.0.0.7",
        "IRIS_SLICE_ID": "s1",
        "IRIS_WORKDIR": "/a/work",
        "IRIS_OUTPUT_DIR": "/a/outputs",
        "IRIS_CHECKPOINT_DIR": "/a/checkpoint",
        "IRIS_PORT_HTTP": "31007",
        "IRIS_PORT_MY_DEBUG": "31008",
    }


def test_a_python_program_reads_it_as_one_value() -> None:
    """The same facts with their types; a port is found by the name that the job gave it."""
    env = env_of(
        a_run(
            rank=Rank(coordinator="10.0.0.5:8476", num_slices=2, slice_index=1, tasks_per_slice=4)
        ),
        workdir=Path("/a/work"),
        outputs=Path("/a/outputs"),
        checkpoint=Path("/a/checkpoint"),
        checkpoint_url="gs://bucket/shared",
        ports={"my-debug": 31008},
    )
    here = context(env)

    assert (here.cluster, here.job, here.task, here.num_tasks, here.attempt) == (
        "local",
        "ada/train",
        6,
        8,
        3,
    )
    assert (here.host, here.slice, here.address) == ("w2", "s1", "10.0.0.7")
    assert (here.coordinator, here.slice_index, here.num_slices, here.tasks_per_slice) == (
        "10.0.0.5:8476",
        1,
        2,
        4,
    )
    assert (here.workdir, here.outputs) == (Path("/a/work"), Path("/a/outputs"))
    assert (here.checkpoint_dir, here.checkpoint_url) == (
        Path("/a/checkpoint"),
        "gs://bucket/shared",
    )
    assert here.port("my-debug") == 31008
    with pytest.raises(
        NotFound, match="job ada/train has no port 'http'; submit it with --port http"
    ):
        here.port("http")


def test_a_python_program_outside_of_a_job_is_told_so() -> None:
    """It was started by hand."""
    with pytest.raises(IrisError, match="does not run in a job: IRIS_JOB_ID is not set"):
        context({})


def test_what_is_not_there_is_not_spoken_of() -> None:
    """An empty variable is taken for a value."""
    env = env_of(a_run(rank=Rank(coordinator="")), a_host("h1"))

    assert [name for name, value in env.items() if value == ""] == []
    assert {
        "IRIS_COORDINATOR_ADDRESS",
        "JAX_COORDINATOR_ADDRESS",
        "IRIS_HOST_ADDRESS",
        "IRIS_OUTPUT_DIR",
    } & set(env) == set()
    assert env["IRIS_NUM_SLICES"] == "1"


def test_a_gangs_member_knows_its_place_and_where_the_gang_meets() -> None:
    """In Iris' words, and in those of JAX and PyTorch, so that a program written for them needs no
    line for Iris.
    """
    alone, member = (
        env_of(a_run()),
        env_of(a_run(rank=RANK), a_host("w2", slice_id="s1", address="10.0.0.7")),
    )

    assert {name: value for name, value in member.items() if name not in alone} == {
        "IRIS_COORDINATOR_ADDRESS": "10.0.0.1:8476",
        "IRIS_SLICE_INDEX": "1",
        "IRIS_NUM_SLICES": "2",
        "IRIS_TASKS_PER_SLICE": "4",
        **MEETING,
    }


MEETING = {
    "JAX_COORDINATOR_ADDRESS": "10.0.0.1:8476",
    "JAX_NUM_PROCESSES": "8",
    "JAX_PROCESS_ID": "6",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "8476",
    "WORLD_SIZE": "8",
    "RANK": "6",
    "LOCAL_RANK": "0",
    "PET_MASTER_ADDR": "10.0.0.1",
    "PET_MASTER_PORT": "8476",
    "PET_NNODES": "8",
    "PET_NODE_RANK": "6",
}
OWN_CHIPS = {
    "JAX_PLATFORMS": "tpu,cpu",
    "JAX_FORCE_TPU_INIT": "1",
    "PJRT_DEVICE": "TPU",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_NAME": "s1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",
    "TPU_TYPE": "v5litepod-16",
    "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1",
}
WHOLE_SLICE = OWN_CHIPS | {
    "TPU_WORKER_ID": "2",
    "TPU_TOPOLOGY": "4x4",
    "TPU_WORKER_HOSTNAMES": "10.0.0.5,10.0.0.6,10.0.0.7,10.0.0.8",
}


def test_a_member_on_real_chips_is_told_all_that_libtpu_wants_to_know() -> None:
    """It need not ask the metadata server, which cannot be seen from every container; nor may it
    run on the CPU instead.
    """
    assert told(rank=ONE_SLICE, tpu=REAL) == MEETING | WHOLE_SLICE


def test_members_on_several_slices_are_told_where_the_slices_meet() -> None:
    """On the host of task 0, beside JAX's own port there."""
    assert told(rank=RANK, tpu=REAL) == MEETING | WHOLE_SLICE | {
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1",
        "MEGASCALE_PORT": "8081",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
    }


def test_a_task_that_is_alone_on_one_host_of_a_slice_does_not_wait_for_the_others() -> None:
    """Nobody has started anything there for it."""
    assert told(tpu=REAL) == OWN_CHIPS | {
        "TPU_HOST_BOUNDS": "1,1,1",
        "TPU_WORKER_ID": "0",
        "TPU_WORKER_HOSTNAMES": "localhost",
    }


def test_a_slice_of_one_host_is_whole_without_a_gang() -> None:
    """Its only task has the whole slice."""
    only = REAL.model_copy(
        update={"worker_id": 0, "addresses": ("10.0.0.7",), "hosts": 1, "topology": "2x2"}
    )
    seen = told(tpu=only)

    assert (seen["TPU_WORKER_ID"], seen["TPU_WORKER_HOSTNAMES"], seen["TPU_TOPOLOGY"]) == (
        "0",
        "10.0.0.7",
        "2x2",
    )
    assert "TPU_HOST_BOUNDS" not in seen


def test_a_host_that_does_not_know_the_others_leaves_the_question_to_libtpu() -> None:
    """Which would stop at the missing list if it were told not to ask."""
    seen = told(rank=ONE_SLICE, tpu=REAL.model_copy(update={"addresses": ()}))

    assert {"TPU_SKIP_MDS_QUERY", "TPU_WORKER_HOSTNAMES"} & set(seen) == set()
    assert seen["TPU_WORKER_ID"] == "2"


def test_on_simulated_chips_jax_runs_on_the_cpu_and_counts_the_same_processes() -> None:
    """No library looks for chips or a metadata server. `jax.distributed.initialize()` needs no
    arguments, as on real chips.
    """
    assert told(rank=RANK) == MEETING | {
        "TPU_NAME": "s1",
        "TPU_WORKER_ID": "2",
        "TPU_TOPOLOGY": "4x4",
        "TPU_ACCELERATOR_TYPE": "v5litepod-16",
        "TPU_TYPE": "v5litepod-16",
        "JAX_PLATFORMS": "cpu",
        "JAX_FORCE_TPU_INIT": "1",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost,localhost,localhost,localhost",
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1",
        "MEGASCALE_PORT": "8081",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
    }


def test_a_task_alone_on_simulated_chips_is_the_only_process_that_jax_counts() -> None:
    """`jax.distributed.initialize()` needs no arguments there either, and two such tasks can run on
    one laptop.
    """
    assert told(coordinator_port=31007) == {
        "JAX_COORDINATOR_ADDRESS": "localhost:31007",
        "TPU_NAME": "s1",
        "TPU_WORKER_ID": "0",
        "TPU_TOPOLOGY": "4x4",
        "TPU_ACCELERATOR_TYPE": "v5litepod-16",
        "TPU_TYPE": "v5litepod-16",
        "JAX_PLATFORMS": "cpu",
        "JAX_FORCE_TPU_INIT": "1",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "MEGASCALE_NUM_SLICES": "1",
        "MEGASCALE_SLICE_ID": "0",
    }


def test_only_a_task_alone_on_simulated_chips_needs_a_coordinator_of_its_own() -> None:
    """Members of a gang have theirs from the scheduler. Real chips name the host; without chips JAX
    looks for no slice.
    """
    tpu = a_run(resources=WANTS_TPU)

    assert needs_own_coordinator(tpu, None)
    assert not needs_own_coordinator(tpu, REAL)
    assert not needs_own_coordinator(a_run(resources=WANTS_TPU, rank=RANK), None)
    assert not needs_own_coordinator(a_run(), None)


def test_a_task_that_asked_for_no_chips_keeps_its_hands_off_them() -> None:
    """They are another's, and can be opened once only."""
    assert told(some(cpu=1), tpu=REAL) == {"JAX_PLATFORMS": "cpu"}
    assert told(some(cpu=1), rank=ONE_SLICE) == MEETING


def test_a_task_sees_the_gpus_that_it_was_given() -> None:
    """By their UUIDs; who was given none sees none."""
    gpu = some(cpu=1, device="gpu:H100:2")

    assert told(gpu, gpus=("GPU-b", "GPU-d")) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-b,GPU-d",
    }
    assert told(some(cpu=1), gpus=())["CUDA_VISIBLE_DEVICES"] == ""
    assert told(gpu) == {}


def test_each_is_stronger_than_the_one_before_and_nobody_than_the_identity() -> None:
    """The host, the cluster's defaults, JAX and libtpu, the job. A user may well know better where
    JAX meets; nobody else knows which attempt this is.
    """
    names = (
        "HOME",
        "PYTHONUNBUFFERED",
        "TPU_NAME",
        "JAX_PROCESS_ID",
        "IRIS_TASK_INDEX",
        "IRIS_COORDINATOR_ADDRESS",
    )
    defaults = dict.fromkeys((*names, "MINE"), "default")
    job = dict.fromkeys(
        ("JAX_PROCESS_ID", "IRIS_TASK_INDEX", "IRIS_COORDINATOR_ADDRESS", "IRIS_WHO_KNOWS"), "job"
    )
    env = env_of(a_run(rank=RANK, resources=WANTS_TPU, env=job), defaults=defaults)

    assert {name: env.get(name) for name in (*names, "MINE", "IRIS_WHO_KNOWS")} == {
        "HOME": "default",
        "PYTHONUNBUFFERED": "default",
        "TPU_NAME": "s1",
        "JAX_PROCESS_ID": "job",
        "IRIS_TASK_INDEX": "6",
        "IRIS_COORDINATOR_ADDRESS": "10.0.0.1:8476",
        "MINE": "default",
        "IRIS_WHO_KNOWS": None,
    }
