"""Clusters on this machine: a simulation of any configuration, and a cluster without a file."""

from datetime import timedelta
from pathlib import Path

import pytest

from iris.config import (
    ClusterConfig,
    InvalidConfig,
    dump_config,
    load_config,
    local_config,
    make_local_config,
    scale_groups_of,
)
from iris.model.host.accelerators import tpu
from iris.model.host.resources import Device, DeviceKind
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.units import GIB
from tests.config.test_config import EXAMPLES, SAMPLE, in_cloud

EU_WEST4 = Path(__file__).parents[2] / "examples" / "eu-west4.yaml"
#: What of a group a job can notice.
SHAPE = (
    "name",
    "hosts",
    "resources",
    "accelerator_variant",
    "topology",
    "preemptible",
    "priority",
    "attributes",
    "zones",
)
LIMITS = ("min_slices", "max_slices", "buffer_slices", "accept_cpu_jobs")


def by_name(config: ClusterConfig) -> dict[str, ScaleGroup]:
    return {group.name: group for group in scale_groups_of(config)}


@pytest.mark.parametrize("text", [SAMPLE, *(path.read_text() for path in EXAMPLES)])
def test_a_local_cluster_has_the_groups_of_the_real_one(text: str) -> None:
    """A job that is tried on a laptop must meet the same shapes, limits and zones, and nothing of
    the cloud.
    """
    written = load_config(text)
    local = make_local_config(written)

    assert [group.type for group in scale_groups_of(local)] == [SliceType.LOCAL_VM] * len(
        written.scale_groups
    )
    for before, after in zip(scale_groups_of(written), scale_groups_of(local), strict=True):
        assert {name: getattr(before, name) for name in SHAPE + LIMITS} == {
            name: getattr(after, name) for name in SHAPE + LIMITS
        }
    assert (local.platform.kind, local.controller.kind, local.controller.bundle_prefix) == (
        "local",
        "local",
        "",
    )
    assert local.controller.local is not None
    assert local.controller.local.port == 0


@pytest.mark.parametrize("text", [SAMPLE, *(path.read_text() for path in EXAMPLES)])
def test_a_local_configuration_can_be_dumped_and_converted_again(text: str) -> None:
    """Its control plane is a separate process and gets a file like any other."""
    local = make_local_config(load_config(text))

    assert load_config(dump_config(local)) == local
    assert make_local_config(local) == local


def test_a_local_cluster_publishes_no_metrics() -> None:
    """A simulation runs on the machine of a user, whose hosts would all need the same port."""
    section = "metrics: {controller_port: 9464, host_port: 9465, address: 0.0.0.0}\n"
    local = make_local_config(load_config(section + "platform: {local: }\n"))
    metrics = local.metrics

    assert (metrics.controller_port, metrics.host_port) == (9464, 0)
    assert metrics.address == "127.0.0.1"


def test_the_conversion_does_not_change_its_argument() -> None:
    """The caller may send the same value to a cloud."""
    written = load_config(SAMPLE)
    before = written.model_copy(deep=True)
    make_local_config(written)

    assert written == before


def test_the_autoscaler_of_a_local_cluster_has_short_delays() -> None:
    """The delays are in the configuration, where the autoscaler reads them."""
    local = make_local_config(
        load_config(in_cloud("type: gce_vm", "machine_type: e2-standard-2", "scale_up_delay: 7m"))
    )
    (group,) = scale_groups_of(local)

    assert (
        local.autoscaler.evaluation_interval
        == local.defaults.autoscaler.evaluation_interval
        == timedelta(seconds=0.5)
    )
    assert (group.pace.scale_up_delay, group.pace.scale_down_delay) == (
        timedelta(seconds=1),
        timedelta(seconds=300),
    )


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(minutes=1), timedelta(hours=1)])
def test_scale_down_delay_is_kept(delay: timedelta) -> None:
    """Users want to observe this delay."""
    seconds = f"{delay.total_seconds():g}s"
    text = in_cloud("type: gce_vm", "machine_type: e2-standard-2")
    for_all = text + f"\ndefaults: {{autoscaler: {{scale_down_delay: {seconds}}}}}"
    for_one = in_cloud(
        "type: gce_vm", "machine_type: e2-standard-2", f"scale_down_delay: {seconds}"
    )

    assert [
        scale_groups_of(make_local_config(load_config(each)))[0].pace.scale_down_delay
        for each in (for_all, for_one)
    ] == [delay] * 2


def test_a_local_cluster_can_have_another_name() -> None:
    """A laptop may run two simulations beside the real cluster."""
    assert make_local_config(load_config(SAMPLE)).name == "iris"
    assert make_local_config(load_config(SAMPLE), name="trial").name == "trial"


def test_an_invalid_local_cluster_is_refused_before_it_starts() -> None:
    """A background process could not report the error to the user."""
    with pytest.raises(InvalidConfig, match="name: 'a b' is not a valid name"):
        make_local_config(load_config(SAMPLE), name="a b")
    with pytest.raises(
        InvalidConfig,
        match=r"scale_groups.local-cpu.attributes.a b: 'a b' is not a valid attribute key",
    ):
        local_config("local", attributes={"a b": 1})


def test_each_manual_machine_becomes_one_process() -> None:
    """Only the number of the addresses matters here."""
    local = make_local_config(load_config(SAMPLE)).scale_groups["manual_hosts"]

    assert (local.type, local.hosts, local.max_slices) == (SliceType.LOCAL_VM, (), 2)


def test_the_cluster_of_the_examples_runs_on_a_laptop() -> None:
    """Started locally, it begins with one process; a gang on a v5litepod-16 adds four."""
    found = by_name(make_local_config(load_config(EU_WEST4)))

    assert sum(group.min_slices * group.hosts for group in found.values()) == 1
    assert {group.accelerator_variant for group in found.values()} >= {
        "",
        "v5litepod-16",
        "v5litepod-256",
        "v6e-32",
    }


def test_a_cluster_without_a_file_has_one_group_of_plain_hosts() -> None:
    """One host always runs; more are created on demand."""
    config = local_config("local", hosts=4)
    (group,) = scale_groups_of(config)

    assert (config.name, config.platform.kind) == ("local", "local")
    assert (group.name, group.type, group.min_slices, group.max_slices) == (
        "local-cpu",
        SliceType.LOCAL_VM,
        1,
        4,
    )
    assert (group.resources.cpu_millis, group.resources.memory_bytes) == (1_000_000, 1000 * GIB)
    assert group.host_attributes("s", group.zones[0], 0) == {
        "scale-group": "local-cpu",
        "zone": "local-a",
        "region": "local",
        "preemptible": False,
    }
    assert config.autoscaler.evaluation_interval == timedelta(seconds=0.5)
    assert group.pace.scale_up_delay == timedelta(seconds=1)


def test_all_hosts_can_run_from_the_start() -> None:
    """Benchmarks must not measure the start of hosts."""
    (group,) = scale_groups_of(local_config("local", hosts=4, min_hosts=4))
    assert (group.min_slices, group.max_slices) == (4, 4)


def test_a_cluster_without_a_file_can_consist_of_simulated_slices() -> None:
    """`--hosts 0 --tpu v5litepod-16 --slices 2`: two slices of four hosts, at all times."""
    (group,) = scale_groups_of(local_config("local", hosts=0, tpu=tpu("v5litepod-16"), slices=2))

    assert (group.name, group.hosts, group.min_slices, group.max_slices) == (
        "local-v5litepod-16",
        4,
        2,
        2,
    )
    assert group.resources.device == Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
    assert group.resources.cpu_millis == 112_000


def test_a_cluster_without_a_file_can_have_no_groups() -> None:
    """Users add their own machines with `iris agent --join`."""
    assert scale_groups_of(local_config("local", hosts=0)) == ()


def test_hosts_offer_the_requested_resources() -> None:
    """Tests and demonstrations fill small hosts quickly."""
    gpu = Device(kind=DeviceKind.GPU, variant="H100", count=8)
    sizes = {"cpu_millis": 1500, "memory_bytes": 3 * GIB + 1, "disk_bytes": 5 * GIB}
    config = local_config("x", tpu=tpu("v6e-8"), device=gpu, attributes={"rack": 7}, **sizes)
    plain, slices = scale_groups_of(config)

    assert plain.resources.device == gpu
    assert plain.accept_cpu_jobs
    assert plain.attributes == {"rack": 7}
    for group in (plain, slices):
        assert (
            group.resources.cpu_millis,
            group.resources.memory_bytes,
            group.resources.disk_bytes,
        ) == tuple(sizes.values())
    assert load_config(dump_config(config)) == config


def test_a_host_can_have_chips_without_a_slice() -> None:
    """A single machine with a TPU, for jobs that request a device instead of a slice."""
    (group,) = scale_groups_of(
        local_config("x", device=Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4))
    )
    assert (group.hosts, group.resources.device_count) == (1, 4)
