"""What a program finds in its environment."""

from datetime import timedelta
from typing import Any

from iris.activities.environment import attempt_env
from iris.hosts import Host
from iris.workflows.messages import Rank, RunTask
from tests.builders import a_host, some

RANK = Rank(coordinator="10.0.0.1:8476", num_slices=2, slice_index=1, tasks_per_slice=4)
TPU_HOST = a_host(
    "w2",
    some(cpu=4, device="tpu:v5litepod-16:4"),
    slice_id="s1",
    attributes={"tpu-name": "s1", "tpu-worker-id": 2, "tpu-topology": "4x4", "tpu-vm-count": 4},
)


def a_run(**changes: Any) -> RunTask:
    """Attempt 3 of task 6 of 8."""
    settings = {
        "key": "ada/train:6@3/run",
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
    }
    return RunTask(**settings | changes)


def env_of(task: RunTask, host: Host = TPU_HOST) -> dict[str, str]:
    return attempt_env(task, {"PATH": "/bin", "HOME": "/home/ada"}, "local", host)


def test_a_program_knows_its_job_its_attempt_and_its_host() -> None:
    """And what every program of the host gets."""
    assert env_of(a_run()) == {
        "PATH": "/bin",
        "HOME": "/home/ada",
        "PYTHONUNBUFFERED": "1",
        "IRIS_CLUSTER": "local",
        "IRIS_JOB_ID": "ada/train",
        "IRIS_TASK_ID": "ada/train:6",
        "IRIS_TASK_INDEX": "6",
        "IRIS_NUM_TASKS": "8",
        "IRIS_ATTEMPT": "3",
        "IRIS_ATTEMPT_KEY": "ada/train:6@3/run",
        "IRIS_HOST_ID": "w2",
        "IRIS_SLICE_ID": "s1",
    }


def test_a_gangs_member_knows_its_place_and_where_the_gang_meets() -> None:
    """In Iris' words, and in those of JAX and of libtpu, so that a program written for them needs no line for Iris."""
    alone, member = env_of(a_run()), env_of(a_run(rank=RANK))

    assert {name: value for name, value in member.items() if name not in alone} == {
        "IRIS_COORDINATOR_ADDRESS": "10.0.0.1:8476",
        "IRIS_SLICE_INDEX": "1",
        "IRIS_NUM_SLICES": "2",
        "IRIS_TASKS_PER_SLICE": "4",
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:8476",
        "JAX_NUM_PROCESSES": "8",
        "JAX_PROCESS_ID": "6",
        "TPU_NAME": "s1",
        "TPU_WORKER_ID": "2",
        "TPU_TOPOLOGY": "4x4",
        "TPU_ACCELERATOR_TYPE": "v5litepod-16",
    }


def test_a_gang_on_plain_hosts_is_told_nothing_of_tpus() -> None:
    """A library that finds TPU_NAME looks for a TPU."""
    member = env_of(a_run(rank=RANK), a_host("h1"))

    assert [name for name in member if name.startswith("TPU_")] == []
    assert member["JAX_PROCESS_ID"] == "6"


def test_what_a_job_sets_is_stronger_than_its_host_and_jax_but_not_than_its_identity() -> None:
    """A user may well know better where JAX meets; nobody else knows which attempt this is."""
    own = {"HOME": "/data", "PYTHONUNBUFFERED": "", "JAX_PROCESS_ID": "0", "TPU_NAME": "mine", "IRIS_TASK_INDEX": "9"}
    env = env_of(a_run(rank=RANK, env={**own, "IRIS_COORDINATOR_ADDRESS": "elsewhere:1"}))

    assert {name: env[name] for name in own} == {**own, "IRIS_TASK_INDEX": "6"}
    assert env["IRIS_COORDINATOR_ADDRESS"] == "10.0.0.1:8476"
