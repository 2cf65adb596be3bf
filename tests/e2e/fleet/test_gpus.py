"""Agents on machines with GPUs, which a stand-in for `nvidia-smi` reports: real processes and a
real cluster.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, Running, a_cluster, eventually, until
from tests.fakes.nvidia_smi import FakeNvidiaSmi

pytestmark = pytest.mark.long

#: More than once, as an attempt may be tried again.
PROGRAM = "echo gpus $CUDA_VISIBLE_DEVICES; touch up; " + until("go") + "; rm go; test -e well"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with a_cluster("--cpu", "1", "--ephemeral") as cluster:
        yield cluster


def state(cluster: Cluster, host: str) -> str:
    """READY or QUARANTINED; empty while the cluster does not have the host."""
    return next(
        (
            each["state"]
            for each in cluster.iris("host", "list", "--json").json
            if each["id"] == host
        ),
        "",
    )


def joined(cluster: Cluster, smi: FakeNvidiaSmi, host: str, *options: str) -> Running:
    """An agent of a host that the scheduler has."""
    ways = ["--run-as=root", "--host-id", host, "--cpu", "4", "--gpu-check", "1s", *options]
    agent = cluster.begin("agent", "--join", *ways, PATH=smi.path)
    eventually(lambda: host in cluster.hosts(), every=0.3)
    return agent


def test_a_lost_gpu_quarantines_its_host_until_it_is_back(cluster: Cluster, tmp_path: Path) -> None:
    """The task that fails there is run again at no cost to its user, on the same GPUs of the
    repaired host.
    """
    smi = FakeNvidiaSmi(tmp_path / "smi")
    smi.lists("GPU-a", "GPU-b", "GPU-c")
    agent = joined(cluster, smi, "gpus")
    assert cluster.hosts()["gpus"]["attributes"]["gpu-memory-gib"] == 80
    cluster.iris("submit", "-d", "-n", "train", "--gpu", "H100x2", "--", "sh", "-c", PROGRAM)
    cluster.there_is("up")
    smi.loses_one()
    eventually(lambda: state(cluster, "gpus") == "QUARANTINED", every=0.3)
    reason = (
        "nvidia-smi reports: Unable to determine the device handle for GPU0000:0B:00.0: GPU is"
        " lost."
    )
    assert reason in cluster.iris("host", "show", "gpus").out
    assert reason in cluster.iris("slice", "show", "gpus").out
    assert f"QUARANTINED  host gpus: {reason}" in cluster.iris("cluster", "status").out
    assert "its agent finds no fault" in cluster.iris("host", "uncordon", "gpus", code=5).err
    cluster.iris("submit", "-d", "-n", "waits", "--gpu", "3", "--", "true")
    assert reason in eventually(
        lambda: (told := cluster.iris("explain", "waits").out) and "CLOSED" in told and told,
        every=0.3,
    )

    # An agent that is killed knows the GPUs that its predecessor found, and the task that it adopts
    # keeps its own.
    agent.process.send_signal(signal.SIGKILL)
    agent.ends(None)
    again = joined(cluster, smi, "gpus")
    assert state(cluster, "gpus") == "QUARANTINED"
    cluster.file("go").touch()  # the program fails
    failed = "infrastructure fault: nvidia-smi reports: Unable"
    eventually(lambda: failed in cluster.iris("explain", "train").out, every=0.3)

    smi.lists("GPU-b", "GPU-c", "GPU-a")  # in another order
    eventually(lambda: state(cluster, "gpus") == "READY", every=0.3)
    cluster.file("well").touch()
    cluster.file("go").touch()
    cluster.iris("wait", "train", "waits")
    assert cluster.logs("train") == ["gpus GPU-a,GPU-b", "gpus GPU-a,GPU-b"]
    again.process.terminate()
    again.ends()


def test_mig_instances_are_given_to_tasks_one_by_one(cluster: Cluster, tmp_path: Path) -> None:
    """Each task sees its own instance only; a task that wants a whole GPU does not get one."""
    smi = FakeNvidiaSmi(tmp_path / "smi")
    instances = "".join(f"  MIG 1g.10gb     Device  {n}: (UUID: MIG-{n})\n" for n in range(2))
    smi.lists("GPU-m", name="NVIDIA A100-SXM4-80GB", instances=instances)
    agent = joined(cluster, smi, "mig")
    ran = cluster.iris(
        "submit",
        "--replicas",
        "2",
        "--gpu",
        "A100-1g.10gb",
        "--",
        "sh",
        "-c",
        "sleep 1; echo $CUDA_VISIBLE_DEVICES",
    )

    assert sorted(line.split()[-1] for line in ran.out.splitlines()) == ["MIG-0", "MIG-1"]
    cluster.iris("submit", "-d", "-n", "whole", "--gpu", "A100", "--", "true")
    assert "NO_DEVICE" in cluster.iris("explain", "whole").out
    cluster.iris("cancel", "whole")
    agent.process.terminate()
    agent.ends()


def test_a_host_without_all_the_gpus_that_its_operator_names_takes_nothing_until_it_has_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A task for two GPUs would find one. The agent may start before the driver is ready, and
    begins anew when it is.
    """
    smi = FakeNvidiaSmi(tmp_path / "smi")
    smi.lists("GPU-x")
    agent = joined(cluster, smi, "few", "--device", "gpu:H100:2")
    assert "has 1 of 2 H100" in cluster.iris("host", "show", "few").out
    smi.lists("GPU-x", "GPU-y")
    eventually(lambda: state(cluster, "few") == "READY", every=0.3)
    agent.process.terminate()
    agent.ends()


def test_a_job_with_idle_gpus_ends_and_its_use_is_shown(cluster: Cluster, tmp_path: Path) -> None:
    """A forgotten notebook holds the most expensive machines of a cluster. A job that computes goes
    on.
    """
    smi = FakeNvidiaSmi(tmp_path / "smi")
    smi.lists("GPU-a", "GPU-b", "GPU-c")
    smi.uses(3, 0, 90)
    agent = joined(cluster, smi, "idle")
    idle = ["submit", "-d", "-n", "idle", "--gpu", "H100x2", "--stop-idle", "1m"]
    busy = ["submit", "-d", "-n", "busy", "--gpu", "H100", "--stop-idle", "1m"]
    for words in (idle, busy):
        cluster.iris(*words, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 1000")
        eventually(lambda name=words[3]: cluster.logs(name), every=0.3)
    shown = eventually(
        lambda: (
            (used := cluster.iris("status", "idle", "--resources", "--json").json["usage"])
            and used[0]["gpu_percent"] is not None
            and used[0]
        ),
        every=0.5,
    )
    assert (shown["gpu_percent"], shown["gpu_memory_bytes"]) == (1.5, 40_004 * 1024 * 1024)
    ended = cluster.iris("wait", "idle", "--timeout", "3m", code=125)

    assert "used less than 5% for 1m, at most 3%" in ended.err
    assert cluster.status("idle")["tasks"][0]["state"] == "FAILED"
    assert any("(--stop-idle 1m)" in line for line in cluster.logs("idle", "--build"))
    used = eventually(lambda: cluster.iris("usage", "idle", "--json").json["whole"]["gpu_percent"])
    assert (used["peak"], used["mean"]) == (1.5, 1.5)
    assert cluster.status("busy")["tasks"][0]["state"] == "RUNNING"
    cluster.iris("cancel", "busy")
    cluster.iris("wait", "busy", code=126)
    refused = cluster.iris("submit", "-d", "--stop-idle", "1m", "--", "true", code=2)
    assert "needs GPUs" in refused.err
    agent.process.terminate()
    agent.ends()
