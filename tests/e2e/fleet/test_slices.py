"""Slices of several hosts: simulated on one machine, whole or not there at all, and whole again
after any loss.
"""

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.e2e.cluster import Cluster, a_cluster, alive, eventually

pytestmark = pytest.mark.long

GROUP = "local-v5litepod-16"


@pytest.fixture(scope="module")
def tpu() -> Iterator[Cluster]:
    """One simulated slice of four hosts and nothing else; every test leaves one that is whole."""
    with a_cluster("--tpu", "v5litepod-16", "--hosts", "0", "--ephemeral", name="tpu") as running:
        yield running


def the_slice(cluster: Cluster) -> str | None:
    """The slice that takes work, all of whose hosts do; None: there is none."""
    found = [slice_id for slice_id, hosts in cluster.slices(GROUP).items() if len(hosts) == 4]
    return found[0] if len(found) == 1 else None


def incarnations(cluster: Cluster) -> dict[str, str]:
    return {host: shown["incarnation"] for host, shown in cluster.hosts().items()}


def test_a_simulated_slice_is_one_slice_whose_hosts_say_what_those_of_a_real_one_say(
    tpu: Cluster,
) -> None:
    """Shape, attributes and address; and it takes what a TPU slice takes: no job without a TPU."""
    slice_id = the_slice(tpu)
    listed: list[dict[str, Any]] = tpu.iris("host", "list", "--json").json
    assert [host["id"] for host in listed] == [f"{slice_id}-w-{worker}" for worker in range(4)]
    for worker, host in enumerate(listed):
        assert host["slice"] == slice_id
        assert host["resources"]["device"] == {"kind": "tpu", "variant": "v5litepod-16", "count": 4}
        assert (host["resources"]["cpu"], host["resources"]["memory_bytes"]) == (112, 192 * 10**9)
        assert host["attributes"] == {
            "region": "local",
            "zone": "local-a",
            "preemptible": False,
            "scale-group": GROUP,
            "tpu-name": slice_id,
            "tpu-worker-id": worker,
            "tpu-topology": "4x4",
            "tpu-vm-count": 4,
        }
    assert {
        (host["slice_id"], host["address"], host["accept_cpu_jobs"])
        for host in tpu.hosts().values()
    } == {(slice_id, "127.0.0.1", False)}


def test_a_slice_with_a_restarted_machine_is_whole_again_at_once(tpu: Cluster) -> None:
    """Its agent comes back in a new life and takes the place of the former one."""
    before = incarnations(tpu)
    victim = list(before)[1]
    tpu.crash(victim)
    eventually(lambda: incarnations(tpu).get(victim, before[victim]) != before[victim], every=0.5)
    assert {host: life for host, life in incarnations(tpu).items() if host != victim} == {
        host: life for host, life in before.items() if host != victim
    }


def test_the_loss_of_one_host_ends_the_whole_slice_and_another_takes_its_place_and_its_work(
    tpu: Cluster,
) -> None:
    """No heartbeat runs out: the lost host says so, what ran beside it is ended and tried again on
    the slice that comes, and of the former one nothing stays: no agent, no file, and a workflow
    that says what became of it.
    """
    command = "echo $IRIS_HOST_ID >> survivor; [ $IRIS_ATTEMPT != 1 ] || exec sleep 1000"
    tpu.submit("survivor", "--device", "tpu:v5litepod-16:4", "--", "sh", "-c", command)
    (host,) = eventually(lambda: tpu.lines("survivor"))
    former = the_slice(tpu)
    assert former is not None
    agents = [tpu.pid("agent", each) for each in tpu.slices()[former]]
    lost = next(each for each in tpu.slices()[former] if each != host)
    psutil.Process(tpu.pid("agent", lost)).terminate()
    following = eventually(lambda: (found := the_slice(tpu)) != former and found, every=0.5)
    tpu.iris("wait", "survivor")
    first, second = tpu.lines("survivor")
    assert (first, second in tpu.slices()[following]) == (host, True)
    eventually(lambda: tpu.machines() == [following])
    assert not any(alive(pid) for pid in agents if pid is not None)
    ended = tpu.slice(former)
    assert ended is not None
    assert (ended["state"], ended["facts"]["fault"], ended["reason"]) == (
        "DELETED",
        "HOST_LEFT",
        f"host {lost} was stopped",
    )
    assert [step["state"] for step in ended["steps"]][-3:] == ["FAILED", "DELETING", "DELETED"]


def test_hosts_that_people_bring_make_a_slice_when_the_last_of_them_has_joined() -> None:
    """By `--slice` and `--slice-size`; half of a slice is offered to nobody. Their attributes have
    types.
    """
    with a_cluster(
        "--hosts",
        "1",
        "--ephemeral",
        "--attribute",
        "rack=4",
        "--attribute",
        "name=007",
        name="own",
    ) as cluster:
        (plain,) = cluster.iris("host", "list", "--json").json
        assert plain["attributes"] == {
            "region": "local",
            "zone": "local-a",
            "preemptible": False,
            "scale-group": "local-cpu",
            "rack": 4,
            "name": "007",
        }
        pair = [
            "--slice",
            "pair",
            "--slice-size",
            "2",
            "--device",
            "gpu:H100:8",
            "--attribute",
            "fast=true",
        ]
        for host in ("one", "two"):
            cluster.begin(
                "agent",
                "--join",
                "--run-as=root",
                "--host-id",
                host,
                *pair,
                *(["--address", "10.0.0.2"] if host == "two" else []),
            )
            state = {"one": "BOOTSTRAPPING", "two": "READY"}[host]
            eventually(
                lambda state=state: (cluster.slice("pair") or {}).get("state") == state, every=0.5
            )
            assert cluster.slices() == {plain["id"]: [plain["id"]]} | (
                {"pair": ["one", "two"]} if host == "two" else {}
            )
        one, two = (cluster.hosts()[host] for host in ("one", "two"))
        assert one["attributes"] == two["attributes"] == {"fast": True}
        assert (one["slice_id"], two["slice_id"], two["address"]) == ("pair", "pair", "10.0.0.2")
        assert one["address"].count(".") == 3
