"""Slices of several hosts: simulated on one machine, whole or not there at all, and whole again after any loss."""

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.e2e.cluster import Cluster, a_cluster, eventually

SLICE = "tpu-v5litepod-16-0"
HOSTS = [f"{SLICE}-w-{worker}" for worker in range(4)]


@pytest.fixture(scope="module")
def tpu() -> Iterator[Cluster]:
    """One simulated slice of four hosts and nothing else; every test leaves it whole."""
    with a_cluster("--tpu", "v5litepod-16", "--hosts", "0", "--ephemeral", name="tpu") as running:
        yield running


def incarnations(cluster: Cluster) -> dict[str, str]:
    return {host: shown["incarnation"] for host, shown in cluster.hosts().items()}


def whole_again(cluster: Cluster, before: dict[str, str], *anew: str) -> bool:
    """Whether all hosts take work, these in a new life."""
    now = incarnations(cluster)
    return list(now) == HOSTS and all(now[host] != before[host] for host in anew)


def test_a_simulated_slice_is_one_slice_whose_hosts_say_what_those_of_a_real_one_say(tpu: Cluster) -> None:
    """Shape, attributes and address; and it takes what a TPU slice takes: no job without a TPU."""
    listed: list[dict[str, Any]] = tpu.iris("host", "list", "--json").json
    assert [host["id"] for host in listed] == HOSTS
    for worker, host in enumerate(listed):
        assert host["slice"] == SLICE
        assert host["resources"]["device"] == {"kind": "tpu", "variant": "v5litepod-16", "count": 4}
        assert (host["resources"]["cpu"], host["resources"]["memory_bytes"]) == (112, 192 * 10**9)
        assert host["attributes"] == {
            "region": "local",
            "zone": "local-a",
            "preemptible": False,
            "scale-group": "local-v5litepod-16",
            "tpu-name": SLICE,
            "tpu-worker-id": worker,
            "tpu-topology": "4x4",
            "tpu-vm-count": 4,
        }
    assert {(host["slice_id"], host["address"], host["accept_cpu_jobs"]) for host in tpu.hosts().values()} == {
        (SLICE, "127.0.0.1", False)
    }


def test_a_slice_with_a_killed_agent_is_whole_again_at_once(tpu: Cluster) -> None:
    """The machine is still there: its agent comes back in a new life and takes the place of the former one."""
    before = incarnations(tpu)
    tpu.kill("agent", HOSTS[1])
    eventually(lambda: whole_again(tpu, before, HOSTS[1]), every=0.5)


def test_the_loss_of_one_host_bounces_the_whole_slice_and_what_ran_on_it_at_once(tpu: Cluster) -> None:
    """The others notice that their slice has ended, say that their tasks are dead, and report anew: no heartbeat runs out."""
    command = "echo $IRIS_HOST_ID >> survivor; [ $IRIS_ATTEMPT != 1 ] || exec sleep 1000"
    tpu.submit("survivor", "--device", "tpu:v5litepod-16:4", "--", "sh", "-c", command)
    (host,) = eventually(lambda: tpu.lines("survivor"))
    before = incarnations(tpu)
    lost = next(each for each in HOSTS if each != host)
    psutil.Process(tpu.pid("agent", lost)).terminate()
    eventually(lambda: whole_again(tpu, before, *HOSTS), within=45, every=0.5)
    tpu.iris("wait", "survivor", within=25)
    assert len(tpu.lines("survivor")) == 2


def test_hosts_that_people_bring_make_a_slice_when_the_last_of_them_has_joined() -> None:
    """By `--slice` and `--slice-size`; half of a slice is offered to nobody. Their attributes have types."""
    with a_cluster("--hosts", "1", "--ephemeral", "--attribute", "rack=4", "--attribute", "name=007", name="own") as cluster:
        (plain,) = cluster.iris("host", "list", "--json").json
        assert plain["attributes"] == {
            "region": "local",
            "zone": "local-a",
            "preemptible": False,
            "scale-group": "local-cpu",
            "rack": 4,
            "name": "007",
        }
        pair = ["--slice", "pair", "--slice-size", "2", "--device", "gpu:H100:8", "--attribute", "fast=true"]
        for host in ("one", "two"):
            cluster.begin("agent", "--join", "--host-id", host, *pair, *(["--address", "10.0.0.2"] if host == "two" else []))
            state = {"one": "BOOTSTRAPPING", "two": "READY"}[host]
            eventually(lambda state=state: slice_state(cluster, "pair") == state, every=0.5)
            assert cluster.host_ids() == {"one": ["own-0"], "two": ["one", "own-0", "two"]}[host]
        one, _plain, two = cluster.hosts().values()
        assert one["attributes"] == two["attributes"] == {"fast": True}
        assert (one["slice_id"], two["slice_id"], two["address"]) == ("pair", "pair", "10.0.0.2")
        assert one["address"].count(".") == 3


def slice_state(cluster: Cluster, slice_id: str) -> str | None:
    """The state of a slice, None while there is none."""
    mine = f"WorkflowId = '{cluster.name}/slice/{slice_id}'"
    if not cluster.temporal("workflow", "list", "--query", mine):
        return None
    about = ["--workflow-id", f"{cluster.name}/slice/{slice_id}", "--name", "status"]
    (status,) = cluster.temporal("workflow", "query", *about)["queryResult"]
    return str(status["state"])
