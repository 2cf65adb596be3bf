"""Clusters on this machine: any configuration as a simulation of itself, and that of a cluster without a file."""

from datetime import timedelta
from pathlib import Path

import pytest

from iris.config import ClusterConfig, InvalidConfig, dump_config, load_config, local_config, make_local_config, scale_groups_of
from iris.model.accelerators import tpu
from iris.model.resources import Device, DeviceKind
from iris.model.scale_groups import ScaleGroup, SliceType
from iris.model.units import GIB
from tests.config.test_config import EXAMPLES, SAMPLE, in_cloud

EU_WEST4 = Path(__file__).parents[2] / "examples" / "eu-west4.yaml"
#: What of a group a job can notice.
SHAPE = ("name", "hosts", "resources", "accelerator_variant", "topology", "preemptible", "priority", "attributes", "zones")
LIMITS = ("min_slices", "max_slices", "buffer_slices", "accept_cpu_jobs")


def by_name(config: ClusterConfig) -> dict[str, ScaleGroup]:
    return {group.name: group for group in scale_groups_of(config)}


@pytest.mark.parametrize("text", [SAMPLE, *(path.read_text() for path in EXAMPLES)])
def test_a_local_cluster_has_the_groups_of_the_real_one(text: str) -> None:
    """A job that is tried out on a laptop must meet the same shapes, limits and zones, and nothing of the cloud."""
    written = load_config(text)
    local = make_local_config(written)

    assert [group.type for group in scale_groups_of(local)] == [SliceType.LOCAL_VM] * len(written.scale_groups)
    for before, after in zip(scale_groups_of(written), scale_groups_of(local), strict=True):
        assert {name: getattr(before, name) for name in SHAPE + LIMITS} == {name: getattr(after, name) for name in SHAPE + LIMITS}
    assert (local.platform.kind, local.controller.kind, local.controller.bundle_prefix) == ("local", "local", "")
    assert local.controller.local is not None
    assert local.controller.local.port == 0


@pytest.mark.parametrize("text", [SAMPLE, *(path.read_text() for path in EXAMPLES)])
def test_a_local_cluster_can_be_written_down_and_made_local_again(text: str) -> None:
    """Its control plane is a process of its own, and is given a file like any other."""
    local = make_local_config(load_config(text))

    assert load_config(dump_config(local)) == local
    assert make_local_config(local) == local


def test_a_configuration_is_not_changed_by_making_it_local() -> None:
    """The same value may be on its way to a cloud."""
    written = load_config(SAMPLE)
    before = written.model_copy(deep=True)
    make_local_config(written)

    assert written == before


def test_the_autoscaler_of_a_local_cluster_does_not_keep_people_waiting() -> None:
    """Its times are in the configuration, where the autoscaler reads them; a number of its own would be a setting ignored."""
    local = make_local_config(load_config(in_cloud("type: gce_vm", "machine_type: e2-standard-2", "scale_up_delay: 7m")))
    (group,) = scale_groups_of(local)

    assert local.autoscaler.evaluation_interval == local.defaults.autoscaler.evaluation_interval == timedelta(seconds=0.5)
    assert (group.pace.scale_up_delay, group.pace.scale_down_delay) == (timedelta(seconds=1), timedelta(seconds=300))


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(minutes=1), timedelta(hours=1)])
def test_how_long_an_idle_slice_is_kept_stays_as_it_was_written(delay: timedelta) -> None:
    """That is the one delay that people want to see at work."""
    seconds = f"{delay.total_seconds():g}s"
    text = in_cloud("type: gce_vm", "machine_type: e2-standard-2")
    for_all = text + f"\ndefaults: {{autoscaler: {{scale_down_delay: {seconds}}}}}"
    for_one = in_cloud("type: gce_vm", "machine_type: e2-standard-2", f"scale_down_delay: {seconds}")

    assert [scale_groups_of(make_local_config(load_config(each)))[0].pace.scale_down_delay for each in (for_all, for_one)] == [
        delay
    ] * 2


def test_a_local_cluster_may_be_called_something_else() -> None:
    """Beside the real one there may be two of it on a laptop."""
    assert make_local_config(load_config(SAMPLE)).name == "iris"
    assert make_local_config(load_config(SAMPLE), name="trial").name == "trial"


def test_a_local_cluster_that_cannot_be_is_refused_before_it_starts() -> None:
    """A process that gives up in the background would say so to nobody."""
    with pytest.raises(InvalidConfig, match="name: 'a b' is not a valid name"):
        make_local_config(load_config(SAMPLE), name="a b")
    with pytest.raises(InvalidConfig, match=r"scale_groups.local-cpu.attributes.a b: 'a b' is not a valid attribute key"):
        local_config("local", attributes={"a b": 1})


def test_machines_that_are_there_anyway_become_as_many_processes() -> None:
    """Their addresses mean nothing here; how many there are does."""
    local = make_local_config(load_config(SAMPLE)).scale_groups["manual_hosts"]

    assert (local.type, local.hosts, local.max_slices) == (SliceType.LOCAL_VM, (), 2)


def test_the_cluster_of_the_examples_runs_on_a_laptop() -> None:
    """Started locally it begins with one process; a gang on a v5litepod-16 brings four more."""
    found = by_name(make_local_config(load_config(EU_WEST4)))

    assert sum(group.min_slices * group.hosts for group in found.values()) == 1
    assert {group.accelerator_variant for group in found.values()} >= {"", "v5litepod-16", "v5litepod-256", "v6e-32"}


def test_a_cluster_without_a_file_has_one_group_of_plain_hosts() -> None:
    """One host is there from the start, and more come when they are wanted."""
    config = local_config("local", hosts=4)
    (group,) = scale_groups_of(config)

    assert (config.name, config.platform.kind) == ("local", "local")
    assert (group.name, group.type, group.min_slices, group.max_slices) == ("local-cpu", SliceType.LOCAL_VM, 1, 4)
    assert (group.resources.cpu_millis, group.resources.memory_bytes) == (1_000_000, 1000 * GIB)
    assert group.host_attributes("s", group.zones[0], 0) == {
        "scale-group": "local-cpu",
        "zone": "local-a",
        "region": "local",
        "preemptible": False,
    }
    assert config.autoscaler.evaluation_interval == timedelta(seconds=0.5)
    assert group.pace.scale_up_delay == timedelta(seconds=1)


def test_all_hosts_may_be_there_from_the_start() -> None:
    """Benchmarks do not want to measure how hosts come."""
    (group,) = scale_groups_of(local_config("local", hosts=4, min_hosts=4))
    assert (group.min_slices, group.max_slices) == (4, 4)


def test_a_cluster_without_a_file_may_have_simulated_slices_alone() -> None:
    """`--hosts 0 --tpu v5litepod-16 --slices 2`: two slices of four hosts, all the time."""
    (group,) = scale_groups_of(local_config("local", hosts=0, tpu=tpu("v5litepod-16"), slices=2))

    assert (group.name, group.hosts, group.min_slices, group.max_slices) == ("local-v5litepod-16", 4, 2, 2)
    assert group.resources.device == Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
    assert group.resources.cpu_millis == 112_000


def test_a_cluster_without_a_file_may_have_nothing_at_all() -> None:
    """People bring their own machines with `iris agent --join`."""
    assert scale_groups_of(local_config("local", hosts=0)) == ()


def test_hosts_offer_what_they_are_told_to() -> None:
    """Tests and demonstrations fill small hosts quickly."""
    gpu = Device(kind=DeviceKind.GPU, variant="H100", count=8)
    sizes = {"cpu_millis": 1500, "memory_bytes": 3 * GIB + 1, "disk_bytes": 5 * GIB}
    config = local_config("x", tpu=tpu("v6e-8"), device=gpu, attributes={"rack": 7}, **sizes)
    plain, slices = scale_groups_of(config)

    assert plain.resources.device == gpu
    assert plain.accept_cpu_jobs
    assert plain.attributes == {"rack": 7}
    for group in (plain, slices):
        assert (group.resources.cpu_millis, group.resources.memory_bytes, group.resources.disk_bytes) == tuple(sizes.values())
    assert load_config(dump_config(config)) == config


def test_a_host_may_have_chips_of_no_slice() -> None:
    """A single machine with a TPU, for jobs that ask for a device rather than a slice."""
    (group,) = scale_groups_of(local_config("x", device=Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)))
    assert (group.hosts, group.resources.device_count) == (1, 4)
