"""A configuration file is read, completed with defaults, and written back without changes."""

from datetime import timedelta
from pathlib import Path

import pytest

from iris.config import (
    ClusterConfig,
    InvalidConfig,
    apply_defaults,
    dump_config,
    load_config,
    make_local_config,
    origins,
    rules_of,
    scale_groups_of,
    secrets_of,
)
from iris.model.host.resources import Device, DeviceKind
from iris.model.job.secrets import ALL_OF_THE_USERS
from iris.model.slice.scale_groups import Pace, ScaleGroup, SliceType
from iris.model.units import GIB

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))

GCP = """
platform: {gcp: {project_id: my-project, default_zones: [europe-west4-b, europe-west4-a]}}
controller: {image: i, bundle_prefix: gs://b}
"""
#: The sample of the design that this schema goes back to.
SAMPLE = """
platform:
  gcp:
    project_id: some-project
    region: europe-west4
    default_zones: [europe-west4-b]
    label_prefix: iris

defaults:
  autoscaler:
    evaluation_interval: { seconds: 10 }
    requesting_timeout: { seconds: 120 }
    scale_up_delay: { seconds: 1000 }
    scale_down_delay: { seconds: 1000 }
  timeouts:
    boot_timeout: { seconds: 300 }
    init_timeout: { seconds: 600 }
    ssh_poll_interval: { seconds: 5 }
  ssh:
    user: root
    port: 22
    connect_timeout: { seconds: 30 }

controller:
  image: somewhere/iris-controller:latest
  bundle_prefix: gs://some-bucket/tmp/iris/bundles
  gcp:
    machine_type: n2-standard-4
    port: 10000

scale_groups:
  tpu_v5e_16:
    type: tpu_vm
    topology: 4x4
    accelerator_variant: v5litepod-16
    runtime_version: v2-alpha-tpuv5-lite
    min_slices: 1
    max_slices: 2
    zones: [europe-west4-b]
    preemptible: true
    priority: 100
  manual_hosts:
    type: manual_vm
    hosts: [10.0.0.1, 10.0.0.2]
    ssh_user: ubuntu
    ssh_key_file: ~/.ssh/manual_key
"""


def local(*lines: str) -> str:
    """A local cluster with one group `g`, which says this."""
    return "\n".join(
        [
            "platform: {local: {}}",
            "scale_groups:",
            "  g:",
            "    type: local_vm",
            *(f"    {line}" for line in lines),
        ]
    )


def in_cloud(*lines: str) -> str:
    """A cluster on Google Cloud with one group `g`, which says this."""
    return "\n".join([GCP, "scale_groups:", "  g:", *(f"    {line}" for line in lines)])


def only_group(text: str) -> ScaleGroup:
    (found,) = scale_groups_of(load_config(text))
    return found


def test_the_sample_of_the_design_loads_with_its_values() -> None:
    """Users were promised this shape, line by line."""
    tpus, machines = scale_groups_of(load_config(SAMPLE))

    assert (tpus.type, tpus.hosts, tpus.topology) == (SliceType.TPU_VM, 4, "4x4")
    assert (tpus.accelerator_variant, tpus.runtime_version) == (
        "v5litepod-16",
        "v2-alpha-tpuv5-lite",
    )
    assert (tpus.min_slices, tpus.max_slices, tpus.zones, tpus.preemptible) == (
        1,
        2,
        ("europe-west4-b",),
        True,
    )
    assert tpus.resources.device == Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
    assert tpus.pace.scale_up_delay == tpus.pace.scale_down_delay == timedelta(seconds=1000)
    assert (machines.type, machines.hosts, machines.max_slices) == (SliceType.MANUAL_VM, 1, 2)
    assert (tpus.pace.max_stockout_delay, machines.pace.max_stockout_delay) == (
        timedelta(minutes=10),
        timedelta(minutes=1),
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_loads(path: Path) -> None:
    """Users start from the examples."""
    loaded = load_config(path)

    assert scale_groups_of(loaded)
    assert "yaml-language-server: $schema=" in path.read_text().splitlines()[0]


@pytest.mark.parametrize("text", [SAMPLE, *(path.read_text() for path in EXAMPLES)])
def test_a_dumped_configuration_loads_as_the_same(text: str) -> None:
    """The control plane gets the dumped text, and must run the cluster that was checked."""
    loaded = load_config(text)

    assert load_config(dump_config(loaded)) == loaded
    assert load_config(dump_config(loaded, complete=True)) == loaded
    assert ClusterConfig.model_validate_json(loaded.model_dump_json()) == loaded


def test_defaults_are_not_written_back() -> None:
    """A file with two hundred defaults would be unreadable, and would keep today's defaults for
    ever.
    """
    assert (
        dump_config(load_config(local("max_slices: 3"))).split()
        == local("max_slices: 3").replace("{}}", "{}").replace("{local:", "local:").split()
    )


@pytest.mark.parametrize(
    "line",
    [
        "scale_up_delay: 0s",
        "scale_up_delay: 0",
        "scale_up_delay: {seconds: 0}",
        "scale_up_delay: {minutes: 0, seconds: 0}",
    ],
)
def test_a_delay_of_zero_is_not_replaced_by_the_default(line: str) -> None:
    """Unset and zero are different values."""
    text = local(line) + "\ndefaults: {autoscaler: {scale_up_delay: 1h}}"

    assert only_group(text).pace.scale_up_delay == timedelta()


def test_false_zero_and_empty_values_are_kept() -> None:
    """They all look like missing values in Python."""
    loaded = load_config(
        in_cloud(
            "type: gce_vm",
            "machine_type: n2-standard-4",
            "preemptible: false",
            "min_slices: 0",
            "max_slices: 0",
            "priority: 0",
        )
        + "\ndefaults: {ssh: {key_file: /k}, bootstrap: {image: some, env_vars: {A:"
        " b}}}\nbootstrap: {image: '', env_vars: {}}"
    )

    group = loaded.scale_groups["g"]
    assert (group.preemptible, group.min_slices, group.max_slices, group.priority) == (
        False,
        0,
        0,
        0,
    )
    assert (loaded.bootstrap.image, loaded.bootstrap.env_vars) == ("", {})
    assert loaded.bootstrap.cache_dir == "/var/cache/iris"
    assert group.ssh_key_file == "/k"


def test_a_group_overrides_the_defaults_section_and_this_overrides_the_built_in_defaults() -> None:
    """The order that docs/configuration.md promises, for each of the three."""
    text = (
        local("backoff: 7s")
        + "\ndefaults: {autoscaler: {backoff: 9s, quota_timeout: 11s}, timeouts: {boot_timeout:"
        " 13s}}"
    )
    pace = only_group(text).pace

    assert (pace.backoff, pace.quota_timeout) == (timedelta(seconds=7), timedelta(seconds=11))
    assert (pace.boot_timeout, pace.max_backoff) == (timedelta(seconds=13), Pace().max_backoff)


def test_the_cluster_wide_interval_overrides_that_of_the_defaults() -> None:
    """Both places are in the schema; one must win."""
    text = (
        local()
        + "\ndefaults: {autoscaler: {evaluation_interval: 4s, observe_interval: 5s}}\nautoscaler:"
        " {evaluation_interval: 3s}"
    )
    loaded = load_config(text)

    assert loaded.autoscaler.evaluation_interval == timedelta(seconds=3)
    assert loaded.autoscaler.observe_interval == timedelta(seconds=5)


def test_applying_the_defaults_twice_changes_nothing() -> None:
    """A caller need not know whether the defaults were applied."""
    loaded = load_config(SAMPLE)

    assert apply_defaults(loaded) == loaded
    assert origins(apply_defaults(loaded)) == origins(loaded)


def test_the_accelerator_table_completes_a_tpu_group() -> None:
    """A variant is enough; an explicit topology or runtime version stays."""
    plain = only_group(in_cloud("type: tpu_vm", "accelerator_variant: v5p-128"))
    other = only_group(
        in_cloud(
            "type: tpu_vm",
            "accelerator_variant: v5p-128",
            "topology: 2x4x8",
            "runtime_version: mine",
        )
    )

    assert (plain.hosts, plain.topology, plain.runtime_version) == (16, "4x4x4", "v2-alpha-tpuv5")
    assert plain.resources.device_count == 4
    assert plain.zones == ("europe-west4-b", "europe-west4-a")
    assert (other.hosts, other.topology, other.runtime_version) == (16, "2x4x8", "mine")


def test_an_alias_of_a_variant_means_the_same_slices() -> None:
    """Jobs that request v5litepod-16 must find the group that names v5e-16."""
    group = only_group(in_cloud("type: tpu_vm", "accelerator_variant: V5E-16"))

    assert (group.accelerator_variant, group.resources.kind) == (
        "v5litepod-16",
        ("tpu", "v5litepod-16"),
    )


def test_a_machine_type_determines_the_resources() -> None:
    """Users should not have to repeat what the name of Google's machine type says."""
    group = only_group(
        in_cloud("type: gce_vm", "machine_type: n2-highmem-8", "resources: {disk: 200g}")
    )

    assert (
        group.resources.cpu_millis,
        group.resources.memory_bytes,
        group.resources.disk_bytes,
    ) == (8000, 64 * GIB, 200 * GIB)


def test_hosts_offer_less_than_their_machine_has() -> None:
    """A kernel, Docker and the agent need some of it: hosts that promise everything are bought and
    never used.
    """
    cpu = only_group(
        in_cloud("type: gce_vm", "machine_type: n2-standard-8", "resources: {disk: 100g}")
    )
    own = only_group(
        in_cloud("type: gce_vm", "machine_type: n2-standard-8", "resources: {memory: 24g}")
    )
    set_ = only_group(
        in_cloud(
            "type: gce_vm", "machine_type: n2-standard-8", "reserved_memory: 4g", "reserved_disk: 0"
        )
    )
    small = only_group(
        in_cloud("type: gce_vm", "machine_type: e2-standard-1", "resources: {disk: 10g}")
    )

    assert 30 * GIB < cpu.offers.memory_bytes < 31 * GIB
    assert cpu.offers.disk_bytes == 85 * GIB
    assert own.offers.memory_bytes == 24 * GIB
    assert (set_.offers.memory_bytes, set_.offers.disk_bytes) == (28 * GIB, 50 * GIB)
    assert small.offers.disk_bytes == 5 * GIB
    assert only_group(local("resources: {memory: 8g}")).offers.memory_bytes == 8 * GIB


def test_a_fleet_gives_its_jobs_no_secrets_until_they_are_listed_and_a_laptop_all_of_its_user() -> (
    None
):
    """Programs on a laptop run as the user, who can read all of that anyway. An agent of a fleet
    has rights of its own, and so has a root whose jobs have users of their own.
    """
    fleet = in_cloud("type: gce_vm", "machine_type: n2-standard-8")

    assert load_config(fleet).bootstrap.secrets == ()
    assert (
        load_config(local()).bootstrap.secrets
        == make_local_config(load_config(fleet)).bootstrap.secrets
        == ALL_OF_THE_USERS
    )
    for own in ("bootstrap: {run_as: 61000-61009}", "defaults: {bootstrap: {run_as: 61000-61009}}"):
        assert load_config(f"{local()}\n{own}").bootstrap.secrets == ()
        assert make_local_config(load_config(f"{fleet}\n{own}")).bootstrap.secrets == ()
    whole = "defaults: {bootstrap: {run_as: 61000-61009}}\nbootstrap: {run_as: root}"
    assert load_config(f"{local()}\n{whole}").bootstrap.secrets == ALL_OF_THE_USERS
    for listed in (
        "bootstrap: {secrets: [host-env:HF_TOKEN]}",
        "defaults: {bootstrap: {secrets: [host-env:HF_TOKEN]}}",
    ):
        config = load_config(f"{local()}\n{listed}")
        assert (
            config.bootstrap.secrets == secrets_of(config, own_users=True) == ("host-env:HF_TOKEN",)
        )
    assert secrets_of(load_config(local()), own_users=False) == ALL_OF_THE_USERS
    assert secrets_of(load_config(local()), own_users=True) == ()
    with pytest.raises(InvalidConfig, match="HF_TOKEN"):
        load_config(f"{local()}\nbootstrap: {{secrets: [HF_TOKEN]}}")


def test_programs_in_a_cloud_survive_a_restart_of_the_controllers_machine() -> None:
    """It takes minutes. A process on a laptop restarts in seconds."""
    leases = [
        rules_of(load_config(text)).lease
        for text in (in_cloud("type: gce_vm", "machine_type: n2-standard-8"), local())
    ]

    assert leases == [timedelta(minutes=5), timedelta(seconds=50)]


def test_resources_select_the_smallest_machine_type() -> None:
    """Users know cores and memory; they would have to look up the machine type."""
    lean = only_group(in_cloud("type: gce_vm", "resources: {cpu: 3, memory: 6g}"))
    large = only_group(in_cloud("type: gce_vm", "resources: {cpu: 4, memory: 30g}"))

    assert (lean.machine_type, lean.resources.cpu_millis) == ("n2-standard-4", 3000)
    assert large.machine_type == "n2-highmem-4"


def test_gpus_are_a_variant_and_a_count() -> None:
    """Groups spell their GPUs as the option --gpu does. The section `resources` may set them
    instead.
    """
    by_variant = only_group(
        in_cloud(
            "type: gce_vm",
            "machine_type: a3-highgpu-8g",
            "accelerator_variant: H100x8",
            "resources: {cpu: 208, memory: 1872g}",
        )
    )
    by_device = only_group(local("resources: {device: 'gpu:H100:8'}"))

    assert (
        by_variant.resources.device
        == by_device.resources.device
        == Device(kind=DeviceKind.GPU, variant="H100", count=8)
    )
    assert by_variant.accelerator_variant == by_device.accelerator_variant == "H100"


def test_a_local_group_offers_more_than_any_request() -> None:
    """A job that runs on some cluster also runs on a laptop."""
    group = only_group(local())

    assert (group.resources.cpu_millis, group.resources.memory_bytes) == (1_000_000, 1000 * GIB)
    assert (group.zones, group.min_slices, group.max_slices, group.priority) == (
        ("local-a",),
        0,
        1,
        100,
    )


def test_a_local_group_can_simulate_a_tpu_slice() -> None:
    """Users try gangs on a laptop."""
    group = only_group(local("accelerator_variant: v5litepod-16"))

    assert (group.type, group.hosts, group.topology, group.resources.device_count) == (
        SliceType.LOCAL_VM,
        4,
        "4x4",
        4,
    )


def test_every_value_has_an_origin() -> None:
    """To change a wrong value, a user must find its source."""
    text = in_cloud("type: tpu_vm", "accelerator_variant: v5litepod-16", "min_slices: 0")
    found = origins(text + "\ndefaults: {autoscaler: {backoff: 1s}, ssh: {user: me}}")

    assert {
        key: found[f"scale_groups.g.{key}"]
        for key in ("min_slices", "topology", "zones", "backoff", "ssh_user", "priority")
    } == {
        "min_slices": "set in file",
        "topology": "accelerator table",
        "zones": "platform.gcp.default_zones",
        "backoff": "defaults.autoscaler",
        "ssh_user": "defaults.ssh",
        "priority": "built-in default",
    }
    assert found["controller.gcp.zone"] == "platform.gcp.default_zones"
    assert found["name"] == "built-in default"


def test_a_key_of_another_type_of_group_has_no_origin() -> None:
    """A TPU group has no list of hosts: an empty list in the output would invite users to fill
    it.
    """
    assert "scale_groups.g.hosts" not in origins(
        in_cloud("type: tpu_vm", "accelerator_variant: v6e-8")
    )


def test_the_control_plane_is_on_the_platform_unless_the_file_says_otherwise() -> None:
    """Only for a pool of manual machines must the file name the machine."""
    assert (
        load_config(in_cloud("type: gce_vm", "machine_type: e2-standard-2")).controller.kind
        == "gcp"
    )
    assert load_config(local()).controller.kind == "local"
    with pytest.raises(
        InvalidConfig, match="controller: '' does not say where the control plane runs"
    ):
        load_config("platform: {manual: {}}")


def test_the_name_of_a_file_is_read_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of the original write `load_config("eu-west4.yaml")`; no configuration is one line
    without a key.
    """
    (tmp_path / "my lab.yaml").write_text("name: lab\nplatform: {local: {}}\n")
    monkeypatch.chdir(tmp_path)

    assert (
        load_config("my lab.yaml")
        == load_config(str(tmp_path / "my lab.yaml"))
        == load_config(Path("my lab.yaml"))
    )
    with pytest.raises(FileNotFoundError, match=r"none\.yml"):
        load_config("none.yml")
    with pytest.raises(InvalidConfig, match="name"):
        load_config("nmae: lab.yaml")
