"""Local hosts: what they claim to be, and how their agents are told."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from iris.accelerators import known_tpus, tpu
from iris.constraints import parse_attribute
from iris.errors import InvalidValue
from iris.platforms.local import LOCAL_CPU_MILLIS, LOCAL_MEMORY, LocalHost, agent_command, local_hosts, local_slices
from iris.resources import Device, DeviceKind, parse_device

H100 = Device(kind=DeviceKind.GPU, variant="H100", count=8)


def test_a_simulated_slice_has_the_hosts_and_the_shape_of_a_real_one() -> None:
    """What a job must ask for and constrain on a fleet is the same here."""
    hosts = local_slices("mine", tpu("v5litepod-16"))

    assert [host.id for host in hosts] == [f"mine-v5litepod-16-0-w-{worker}" for worker in range(4)]
    for worker, host in enumerate(hosts):
        assert (host.slice_id, host.slice_size) == ("mine-v5litepod-16-0", 4)
        assert host.device == Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
        assert (host.cpu_millis, host.memory_bytes) == (112_000, 192 * 10**9)
        assert host.attributes == {
            "region": "local",
            "zone": "local-a",
            "preemptible": False,
            "scale-group": "local-v5litepod-16",
            "tpu-name": "mine-v5litepod-16-0",
            "tpu-worker-id": worker,
            "tpu-topology": "4x4",
            "tpu-vm-count": 4,
        }
        assert not host.accept_cpu_jobs


def test_several_slices_share_no_host_and_each_counts_its_workers_from_0() -> None:
    """A gang that is to be on one slice must not find half of it in another."""
    hosts = local_slices("mine", tpu("v5litepod-16"), 3)

    assert len({host.id for host in hosts}) == 12
    workers = [(host.slice_id, host.attributes["tpu-worker-id"]) for host in hosts]
    assert workers == [(f"mine-v5litepod-16-{number}", worker) for number in range(3) for worker in range(4)]


@pytest.mark.parametrize("variant", known_tpus())
def test_every_known_slice_can_be_simulated(variant: str) -> None:
    """With all the chips of the real one, and ids that fit."""
    kind = tpu(variant)
    hosts = local_slices("local", kind)

    assert sum(host.device.count for host in hosts if host.device) == kind.chips
    assert {len(hosts), *(host.slice_size for host in hosts)} == {kind.hosts}


def test_what_a_slices_hosts_offer_can_be_made_smaller() -> None:
    """A test of waiting wants little room."""
    (host,) = local_slices("mine", tpu("v5e-8"), cpu_millis=2000, memory_bytes=5)

    assert (host.cpu_millis, host.memory_bytes) == (2000, 5)
    assert host.attributes["tpu-name"] == "mine-v5litepod-8-0"


def test_a_plain_host_offers_more_than_anybody_asks_for() -> None:
    """It is a slice by itself, in the same place as all others."""
    first, second = local_hosts("mine", 2)

    assert (first.id, second.id, first.slice_id) == ("mine-0", "mine-1", None)
    assert (first.cpu_millis, first.memory_bytes, first.device) == (LOCAL_CPU_MILLIS, LOCAL_MEMORY, None)
    assert first.attributes == {"region": "local", "zone": "local-a", "preemptible": False, "scale-group": "local-cpu"}


def test_a_plain_host_with_a_device_takes_every_job_and_its_attributes_are_its_users() -> None:
    """It may be the only host there is; what is said of it counts more than what is assumed."""
    (host,) = local_hosts("mine", 1, device=H100, attributes={"zone": "attic", "rack": 4})

    assert (host.device, host.accept_cpu_jobs) == (H100, True)
    assert (host.attributes["zone"], host.attributes["rack"], host.attributes["region"]) == ("attic", 4, "local")


@pytest.mark.parametrize("make", [lambda name: local_hosts(name, 1), lambda name: local_slices(name, tpu("v5p-8"))])
def test_a_name_that_leaves_no_room_for_host_ids_is_refused(make: Callable[[str], tuple[LocalHost, ...]]) -> None:
    """Its agents would be refused, again and again."""
    with pytest.raises(InvalidValue, match="longer than 60 characters; choose a shorter one"):
        make("x" * 60)

    assert len(make("x" * 40)) == 1


def option(command: list[str], name: str) -> list[str]:
    """Every value that the option has in a command line."""
    return [value for before, value in pairwise(command) if before == name]


def test_an_agent_is_told_all_that_its_host_is() -> None:
    """Nothing that the host claims is lost on the way, and each attribute arrives as what it is."""
    odd = {"flag": True, "share": 0.5, "big": 1e22, "label": "a=b c", "none": ""}
    host = local_slices("mine", tpu("v5litepod-16"))[2]
    host = host.model_copy(update={"attributes": {**host.attributes, **odd}, "address": "10.0.0.7"})
    command = agent_command(host, "mine", Path("/somewhere"))

    assert command[command.index("agent") :][:2] == ["agent", "--join"]
    assert option(command, "--cluster") == ["mine"]
    assert option(command, "--host-id") == ["mine-v5litepod-16-0-w-2"]
    assert (option(command, "--slice"), option(command, "--slice-size")) == (["mine-v5litepod-16-0"], ["4"])
    assert (option(command, "--address"), option(command, "--dir")) == (["10.0.0.7"], ["/somewhere"])
    assert [parse_device(text) for text in option(command, "--device")] == [host.device]
    assert (option(command, "--cpu"), option(command, "--memory")) == (["112000m"], [str(192 * 10**9)])
    pairs = [text.partition("=") for text in option(command, "--attribute")]
    told = {key: parse_attribute(value) for key, _, value in pairs}
    assert (told, [type(value) for value in told.values()]) == (host.attributes, [type(v) for v in host.attributes.values()])
    assert "--accept-cpu-jobs" not in command


def test_an_agent_of_a_plain_host_is_told_of_no_slice() -> None:
    """It makes one of itself; and it takes CPU jobs only where that was said."""
    plain = agent_command(LocalHost(id="h", device=H100, accept_cpu_jobs=True), "mine", Path("/somewhere"))

    assert "--slice" not in plain
    assert "--accept-cpu-jobs" in plain
