"""All errors of a configuration file are reported at once, each with its path, its value, the rule
and the remedy.
"""

from pathlib import Path

import pytest

from iris.config import InvalidConfig, lines_of, load_config
from iris.model.errors import Rejected
from tests.config.test_config import GCP, in_cloud, local

MANUAL = (
    "platform: {manual: {}}\ncontroller: {image: i, bundle_prefix: file:///b, manual: {host:"
    " h}}\nscale_groups:\n"
)


def prices(*rates: str) -> str:
    return f"platform: {{local: {{}}}}\nprices: {{rates: [{', '.join(rates)}]}}"


def budget(fields: str) -> str:
    return f"platform: {{local: {{}}}}\nbudgets: {{b: {{{fields}}}}}"


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidConfig) as caught:
        load_config(text)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        # -- YAML --
        ("", "the file is empty; start with platform: {local: {}}"),
        ("# nothing", "the file is empty"),
        ("- a", "the top level is a list, not a mapping"),
        ("platform", "the top level is a str, not a mapping"),
        (
            "platform: {local: {}}\nname: [a",
            "line 2, column 9: while parsing a flow sequence, expected ',' or ']'",
        ),
        (
            "platform:\n\tlocal:",
            "line 2, column 1: while scanning for the next token, found character '\\t'",
        ),
        ("name: !!python/name:os.system x", "line 1, column 7: could not determine a constructor"),
        ("name: \x00", "invalid YAML: "),
        (
            "name: a\nname: b",
            "line 2, column 1: the key 'name' is repeated; it is first set in line 1",
        ),
        (
            local("max_slices: 1", "max_slices: 2"),
            "line 6, column 5: the key 'max_slices' is repeated",
        ),
        (
            "name: a\n? [b]\n: c",
            "line 2, column 3: while constructing a mapping, found unhashable key",
        ),
        # -- keys --
        (
            "platform: {local: {}}\nscale_grups: {}",
            "scale_grups: unknown key; did you mean 'scale_groups'?",
        ),
        (
            local("max_slice: 2"),
            "scale_groups.g.max_slice: unknown key; did you mean 'max_slices'?",
        ),
        (
            local("maxSlices: 2"),
            "scale_groups.g.maxSlices: unknown key; did you mean 'max_slices'?",
        ),
        (
            local("resources: {ram: 1g}"),
            "unknown key; scale_groups.g.resources has cpu, memory, disk, device",
        ),
        ("platform: {locl: {}}", "platform.locl: unknown key; did you mean 'local'?"),
        (
            "platform: {local: {port: 1}}",
            "platform.local.port: unknown key; platform.local has no keys",
        ),
        (local("7: x"), "scale_groups.g.7: the key 7 is not text; put it in quotes"),
        (
            "platform: {local: {}}\nscale_groups: {7: {type: local_vm}}",
            "scale_groups.7: the key 7 is not text",
        ),
        (
            "name: x",
            (
                "platform: is required (the source of the cluster's machines: one of gcp, manual"
                " and local"
            ),
        ),
        (
            "platform: {gcp: {}}",
            "platform.gcp.project_id: is required (the project that is billed)",
        ),
        (
            "platform: {local: {}}\nscale_groups: {g: {}}",
            "scale_groups.g.type: is required (type of a slice: tpu_vm",
        ),
        ("platform: {local: {}}\nscale_groups: {g: }", "scale_groups.g.type: is required"),
        (
            local("max_slices:"),
            "scale_groups.g.max_slices: has no value; set one or remove the key",
        ),
        # -- values --
        (
            local("max_slices: two"),
            "scale_groups.g.max_slices: 'two' is not a whole number; write one without quotes",
        ),
        (local("max_slices: 1.5"), "scale_groups.g.max_slices: '1.5' is not a whole number"),
        (local("max_slices: true"), "scale_groups.g.max_slices: 'True' is not a whole number"),
        (
            local("max_slices: -1"),
            "scale_groups.g.max_slices: '-1' is less than 0; write 0 or more",
        ),
        (
            local("scale_ups_per_minute: 0"),
            "scale_groups.g.scale_ups_per_minute: '0' is less than 1; write 1 or more",
        ),
        (
            local("preemptible: 'yes'"),
            "scale_groups.g.preemptible: 'yes' is not a boolean; write true or false",
        ),
        (local("zones: a"), "scale_groups.g.zones: 'a' is not a list; write it as [a, b]"),
        (local("zones: [1]"), "scale_groups.g.zones.0: '1' is not text; put it in quotes"),
        (local("attributes: [a]"), "scale_groups.g.attributes: \"['a']\" is not a mapping"),
        (
            local("attributes: {a: [1]}"),
            "scale_groups.g.attributes.a: '[1]' is not an attribute value; use text, a number",
        ),
        (
            local("attributes: {'a b': 1}"),
            "scale_groups.g.attributes.a b: 'a b' is not a valid attribute key",
        ),
        (
            local("attributes: {a: .inf}"),
            "scale_groups.g.attributes.a: 'inf' is not a finite number",
        ),
        (
            local("attributes: {tpu-worker-id: 0}"),
            "scale_groups.g.attributes.tpu-worker-id: '0' differs from host to host",
        ),
        (
            "platform: {local: {}}\nscale_groups: {g: {type: tpu-vm}}",
            "is not a known value; use 'tpu_vm', 'gce_vm', 'manual_vm' or",
        ),
        ("platform: local", "platform: 'local' is not a mapping; write keys and values below it"),
        (
            local("scale_up_delay: soon"),
            "scale_groups.g.scale_up_delay: 'soon' is not a duration; write a number with a unit",
        ),
        (local("scale_up_delay: -5s"), "scale_groups.g.scale_up_delay: '-5s' is not a duration"),
        (
            local("scale_up_delay: {seconds: -5}"),
            "scale_groups.g.scale_up_delay: \"{'seconds': -5}\" is negative",
        ),
        (
            local("scale_up_delay: {secs: 5}"),
            "has the unknown time unit 'secs'; use any of days, hours, minutes, seconds",
        ),
        (
            local("scale_up_delay: {seconds: x}"),
            "gives seconds as 'x', which is not a valid number",
        ),
        (
            local("scale_up_delay: {seconds: .nan}"),
            "gives seconds as nan, which is not a valid number",
        ),
        (
            local("scale_up_delay: {seconds: true}"),
            "gives seconds as True, which is not a valid number",
        ),
        (
            local("scale_up_delay: {}"),
            "scale_groups.g.scale_up_delay: '{}' is empty; use any of days",
        ),
        (local("scale_up_delay: true"), "scale_groups.g.scale_up_delay: 'True' is not a duration"),
        (
            local("scale_up_delay: 400d"),
            "scale_groups.g.scale_up_delay: '400d' is longer than a year; check the unit",
        ),
        (
            local("boot_timeout: 0s"),
            "scale_groups.g.boot_timeout: '0s' is zero; use a duration above zero",
        ),
        (local("resources: {memory: 8x}"), "scale_groups.g.resources.memory: '8x' is not a size"),
        (local("resources: {memory: 1.5}"), "scale_groups.g.resources.memory: '1.5' is not a size"),
        (local("resources: {memory: 0}"), "scale_groups.g.resources.memory: '0' is zero"),
        (
            local("resources: {cpu: many}"),
            "scale_groups.g.resources.cpu: 'many' is not a number of cores",
        ),
        (
            local("resources: {cpu: true}"),
            "scale_groups.g.resources.cpu: 'True' is not a number of cores",
        ),
        (
            local("resources: {device: quantum}"),
            "scale_groups.g.resources.device: 'quantum' has the unknown kind 'quantum'",
        ),
        (
            local("resources: {device: 8}"),
            "scale_groups.g.resources.device: '8' is not a device; write KIND:VARIANT:COUNT",
        ),
        (
            local("resources: {device: 'gpu:A100,H100:1'}"),
            "scale_groups.g.resources.device: 'gpu:A100,H100:1' has several",
        ),
        (
            "name: a b\nplatform: {local: {}}",
            "name: 'a b' is not a valid name; use 1 to 60 letters",
        ),
        (
            "platform: {local: {}}\nbootstrap: {env_vars: {A: 1}}",
            "bootstrap.env_vars.A: '1' is not text; put it in quotes",
        ),
        (
            "platform: {local: {}}\nbootstrap: {env_vars: {IRIS_X: a}}",
            "bootstrap.env_vars.IRIS_X: 'IRIS_X' is reserved for Iris",
        ),
        (
            "platform: {local: {}}\ndefaults: {bootstrap: {env_vars: {A-B: a}}}",
            "'A-B' is not a valid name of a variable",
        ),
        (
            "platform: {local: {}}\nbootstrap: {mounts: [data]}",
            "bootstrap.mounts: 'data' is not an absolute path; write /data",
        ),
        (
            "platform: {local: {}}\nbootstrap: {mounts: [/a/../b]}",
            "bootstrap.mounts: '/a/../b' contains '..'; write /b",
        ),
        (
            "platform: {local: {}}\ndefaults: {bootstrap: {mounts: [/]}}",
            "mounts: '/' is the root of the host's file system; list the",
        ),
        *(
            (
                f"platform: {{local: {{}}}}\nbootstrap: {{mounts: [{directory}]}}",
                f"bootstrap.mounts: '{directory}' {problem}",
            )
            for directory, problem in (
                ("/run", "is a directory where services of the host have their sockets"),
                (
                    "/var/run/docker.sock",
                    (
                        "is in /var/run, where services of the host have their sockets, such as the"
                        " container"
                    ),
                ),
                ("//run/user/", "is in /run, where services of the host have their sockets"),
                (
                    "/var/cache/iris",
                    (
                        "is a directory where the agent has its caches (bootstrap.cache_dir); list"
                        " a directory"
                    ),
                ),
                (
                    "/var/lib/./iris/",
                    (
                        "is a directory where the agent has its files; list a directory that has"
                        " only files for"
                    ),
                ),
                (
                    "/var/lib/iris-jobs/a",
                    "is in /var/lib/iris-jobs, where the files of other tasks are",
                ),
                (
                    "/etc",
                    (
                        "contains /etc/iris, where the configuration and the credentials of the"
                        " agent are"
                    ),
                ),
                ("/proc", "is a directory where the kernel of the host shows its state"),
                ("/sys/fs/cgroup", "is in /sys, where the kernel of the host shows its state"),
                ("/dev", "is a directory where the kernel of the host shows its state"),
                ("/var", "contains /var/"),
            )
        ),
        (
            "platform: {local: {}}\ndefaults: {bootstrap: {cache_dir: /big/iris, mounts: [/big]}}",
            (
                "defaults.bootstrap.mounts: '/big' contains /big/iris, where the agent has its"
                " caches (bootstrap.cache_dir)"
            ),
        ),
        (
            (
                "platform: {local: {}}\ncontroller: {bundle_prefix:"
                " 'file:///srv/a%20lab/'}\nbootstrap: {mounts: [/srv/a lab/x]}"
            ),
            (
                "'/srv/a lab/x' is in /srv/a lab, where the cluster has its store"
                " (controller.bundle_prefix)"
            ),
        ),
        (
            "platform: {local: {}}\ndefaults: {ssh: {port: 70000}}",
            "defaults.ssh.port: '70000' is more than 65535",
        ),
        # -- platform and controller --
        (
            "platform: {}",
            "platform: '' is not exactly one platform; use one of gcp, manual and local",
        ),
        (
            "platform: {local: {}, manual: {}}",
            "platform: 'manual, local' is not exactly one platform",
        ),
        (
            (
                "platform: {gcp: {project_id: my-project, region: us-west4, default_zones:"
                " [europe-west4-b]}}"
            ),
            "platform.gcp.default_zones: 'europe-west4-b' is not in platform.gcp.region (us-west4)",
        ),
        (
            "platform: {gcp: {project_id: my-project, default_zones: [europe-west4]}}",
            "'europe-west4' is not a zone; use a region and a",
        ),
        (
            "platform: {gcp: {project_id: my-project, label_prefix: Iris}}",
            "platform.gcp.label_prefix: 'Iris' is not a valid label prefix",
        ),
        ("platform: {gcp: {project_id: my-project}}", "controller.gcp.zone: '' is not a zone"),
        (
            "platform: {gcp: {project_id: my-project}}",
            "controller.image: '' is required by controller.gcp; set a container image",
        ),
        (
            "platform: {gcp: {project_id: My Project}}",
            (
                "platform.gcp.project_id: 'My Project' is not a valid project id; use 6 to 30"
                " lower-case letters, digits"
            ),
        ),
        (
            "platform: {manual: {}}\ncontroller: {manual: {host: h}}",
            "controller.bundle_prefix: '' is required by platform.manual",
        ),
        (
            "platform: {local: {}}\ncontroller: {bundle_prefix: bucket}",
            "controller.bundle_prefix: 'bucket' is not the URL of an object store",
        ),
        (
            "platform: {local: {}}\ncontroller: {bundle_prefix: 'gs:///b'}",
            "controller.bundle_prefix: 'gs:///b' is not the URL",
        ),
        (
            "platform: {local: {}}\ncontroller: {bundle_prefix: 'file://b'}",
            "controller.bundle_prefix: 'file://b' is not the URL",
        ),
        (
            MANUAL.replace("host: h", "host: h, ssh_jump_host: 'a b'") + "  {}",
            "controller.manual.ssh_jump_host: 'a b' is not a machine; write [USER@]HOST[:PORT]",
        ),
        (
            GCP.replace("bundle_prefix: gs://b", "bundle_prefix: gs://b, manual: {host: h}"),
            "controller.manual: 'manual' does not work with platform.gcp; use another controller",
        ),
        (
            GCP.replace("bundle_prefix: gs://b", "bundle_prefix: gs://b, gcp: {port: 65535}"),
            "controller.gcp.port: '65535' leaves no port for the Web UI",
        ),
        (
            "platform: {local: {}}\ncontroller: {gcp: {}, local: {}}",
            "controller: 'gcp, local' has more than one kind; use one",
        ),
        (
            "platform: {local: {}}\ncontroller: {gcp: {}}",
            "controller.gcp: 'gcp' does not work with platform.local",
        ),
        (
            "platform: {manual: {}}\ncontroller: {local: {}}",
            (
                "controller.bundle_prefix: '' is required by platform.manual; set a place that"
                " every host reaches: s3://"
            ),
        ),
        (
            GCP.replace("bundle_prefix: gs://b", "bundle_prefix: gs://b, local: {}"),
            (
                "controller.local: 'local' does not work with platform.gcp, whose hosts have to"
                " reach the control plane; use gcp"
            ),
        ),
        (
            "platform: {local: {}}\nscheduler: {lease: 5s}",
            "scheduler.lease: '5s' is less than 20s; use more",
        ),
        # -- groups --
        (
            local("min_slices: 2"),
            (
                "scale_groups.g.max_slices: '1' is less than min_slices (2); increase it or reduce"
                " min_slices"
            ),
        ),
        (
            local("buffer_slices: 3"),
            "scale_groups.g.max_slices: '1' is less than buffer_slices (3)",
        ),
        (
            local("backoff: 10m"),
            (
                "scale_groups.g.max_backoff: '5m' is less than backoff (10m); increase it or reduce"
                " backoff"
            ),
        ),
        (
            local("max_stockout_delay: 1s"),
            "scale_groups.g.max_stockout_delay: '1s' is less than stockout_delay (30s)",
        ),
        (local("zones: [A]"), "scale_groups.g.zones: 'A' is not a zone"),
        (
            local("zones: [a, b, a]"),
            "scale_groups.g.zones: 'a' is listed twice; list each zone once",
        ),
        (
            (
                "platform: {manual: {}}\ncontroller: {bundle_prefix: 's3://b', local: {}}\n"
                "scale_groups: {g: {type: manual_vm, hosts: [a], ssh_jump_host: 'gw:ssh'}}"
            ),
            "scale_groups.g.ssh_jump_host: 'gw:ssh' is not a machine; write [USER@]HOST[:PORT]",
        ),
        (
            local("zones: []"),
            "scale_groups.g.zones: '' has no zone; set one here, such as europe-west4-b",
        ),
        (
            local("machine_type: n2-standard-4"),
            (
                "scale_groups.g.machine_type: 'n2-standard-4' does not apply to a local_vm; remove"
                " it: only gce_vm"
            ),
        ),
        (
            local("topology: 4x4"),
            (
                "scale_groups.g.topology: '4x4' is set without a TPU variant; add"
                " accelerator_variant, or remove it"
            ),
        ),
        (
            local("accelerator_type: gpu"),
            "scale_groups.g.accelerator_type: 'gpu' gives no variant or count",
        ),
        (
            local("accelerator_type: gpu", "accelerator_variant: v6e-8"),
            "'v6e-8' has the unknown variant 'V6E-8'",
        ),
        (
            local("accelerator_type: cpu", "accelerator_variant: v6e-8"),
            "'v6e-8' is not of accelerator_type cpu",
        ),
        (
            local("accelerator_variant: H1000x8"),
            "'H1000x8' has the unknown variant 'H1000'; did you mean H100",
        ),
        (
            local("accelerator_variant: '8'"),
            "scale_groups.g.accelerator_variant: '8' is not one variant",
        ),
        (
            local("accelerator_variant: 'A100,H100x8'"),
            "'A100,H100x8' is not one variant; set the variant of the machines",
        ),
        (
            local("accelerator_variant: H100x8", "resources: {device: 'gpu:H100:4'}"),
            (
                "scale_groups.g.resources.device: 'gpu:H100:4' does not match accelerator_variant"
                " (gpu:H100:8)"
            ),
        ),
        (
            local("accelerator_variant: v6e-8", "resources: {device: cpu}"),
            (
                "scale_groups.g.resources.device: 'cpu' does not match the group's accelerator_type"
                " (tpu)"
            ),
        ),
        (in_cloud("type: tpu_vm"), "scale_groups.g.accelerator_variant: '' is not a TPU variant"),
        (
            in_cloud("type: tpu_vm", "accelerator_variant: v5litepod-17"),
            "did you mean v5litepod-16 or v5litepod-32?",
        ),
        (
            in_cloud("type: tpu_vm", "accelerator_type: gpu"),
            "scale_groups.g.accelerator_type: 'gpu' is not possible for a tpu_vm",
        ),
        (
            in_cloud("type: tpu_vm", "accelerator_variant: v5litepod-16", "topology: 4x8"),
            (
                "scale_groups.g.topology: '4x8' is not a topology of v5litepod-16, which has 16"
                " chips; use 4x4, or remove it"
            ),
        ),
        (
            in_cloud("type: tpu_vm", "accelerator_variant: v6e-8", "topology: big"),
            "scale_groups.g.topology: 'big' is not a topology",
        ),
        (
            in_cloud("type: tpu_vm", "accelerator_variant: v6e-8", "hosts: [h]"),
            "does not apply to a tpu_vm; remove it: only manual_vm groups have it",
        ),
        (
            in_cloud("type: tpu_vm", "accelerator_variant: v6e-8", "zones: [local-a]"),
            "scale_groups.g.zones: 'local-a' is not a zone",
        ),
        (
            in_cloud("type: tpu_vm", "accelerator_variant: v6e-8", "reservation: mine"),
            (
                "scale_groups.g.reservation: 'mine' is possible only for queued slices; add queued:"
                " true"
            ),
        ),
        (
            in_cloud(
                "type: tpu_vm",
                "accelerator_variant: v6e-8",
                "reservation: mine",
                "queued: true",
                "preemptible: true",
            ),
            (
                "scale_groups.g.reservation: 'mine' has no preemptible capacity; remove preemptible"
                " or the reservation"
            ),
        ),
        (
            in_cloud(
                "type: gce_vm",
                "machine_type: n2-standard-8",
                "reservation: mine",
                "preemptible: true",
            ),
            "scale_groups.g.reservation: 'mine' has no preemptible capacity",
        ),
        (
            in_cloud(
                "type: gce_vm",
                "machine_type: n2-standard-8",
                "reservation: projects/p/zones/z/reservations/mine",
            ),
            (
                "is not a valid name of a reservation; use NAME, or"
                " projects/OWNER/reservations/NAME for a reservation that another"
            ),
        ),
        (
            in_cloud("type: local_vm"),
            "scale_groups.g.type: 'local_vm' is not available on the platform gcp",
        ),
        (
            in_cloud("type: gce_vm"),
            (
                "scale_groups.g.machine_type: '' is required for a gce_vm; set one, such as"
                " n2-standard-8, or add"
            ),
        ),
        (
            in_cloud("type: gce_vm", "machine_type: m3-megamem-64"),
            "has an unknown size; add resources with cpu and",
        ),
        (
            in_cloud("type: gce_vm", "resources: {cpu: 500, memory: 1t}"),
            "is more than any n2 machine has; set a machine_type",
        ),
        (
            in_cloud("type: gce_vm", "machine_type: e2-standard-2", "resources: {cpu: 4}"),
            "'4' is more than a e2-standard-2 has (2)",
        ),
        (
            in_cloud("type: gce_vm", "machine_type: e2-standard-2", "resources: {memory: 9g}"),
            "scale_groups.g.resources.memory: '9 GiB' is more than a e2-standard-2 has (8 GiB)",
        ),
        (
            in_cloud("type: gce_vm", "accelerator_variant: v6e-8"),
            "'v6e-8' is a TPU; a gce_vm group cannot have one; use the type tpu_vm",
        ),
        (
            MANUAL + "  g: {type: manual_vm}",
            "scale_groups.g.hosts: '' has no machines; list the addresses of the machines",
        ),
        (
            MANUAL + "  g: {type: manual_vm, hosts: [a, a]}",
            "scale_groups.g.hosts: 'a' is listed twice; list each machine once",
        ),
        (
            MANUAL + "  g: {type: manual_vm, hosts: [me@a]}",
            "scale_groups.g.hosts.0: 'me@a' contains a user name; write only the address",
        ),
        (
            MANUAL + "  g: {type: manual_vm, hosts: [a b]}",
            "scale_groups.g.hosts.0: 'a b' is not an address",
        ),
        (
            MANUAL + "  g: {type: manual_vm, hosts: [a], retiring_hosts: [b]}",
            (
                "scale_groups.g.retiring_hosts: 'b' is not one of the group's hosts; remove it, or"
                " add it to hosts"
            ),
        ),
        (
            MANUAL + "  g: {type: manual_vm, hosts: [a, b], retiring_hosts: [b], min_slices: 2}",
            (
                "'2' is more than the number of hosts that stay (1); reduce it, or remove a machine"
                " from retiring_hosts"
            ),
        ),
        (
            MANUAL + "  g: {type: manual_vm, hosts: [a], max_slices: 2}",
            "'2' is more than the number of hosts (1); remove it",
        ),
        (
            MANUAL + "  g: {type: manual_vm, hosts: [a], accelerator_variant: v5litepod-16}",
            "is a slice of 4 hosts; a slice of a manual_vm group",
        ),
        (
            MANUAL + "  g: {type: tpu_vm, accelerator_variant: v6e-8, zones: [us-west4-a]}",
            "is not available on the platform manual",
        ),
        (
            "platform: {local: {}}\nscale_groups: {g: {type: manual_vm, hosts: [a]}}",
            "is not available on the platform local; use local_vm",
        ),
        (
            MANUAL + "  g: {type: manual_vm, hosts: [a]}\n  h: {type: manual_vm, hosts: [a]}",
            "scale_groups.h.hosts: 'a' is also a host of the group 'g'; list each machine once",
        ),
        (
            "platform: {local: {}}\nscale_groups: {'a b': {type: local_vm}}",
            "scale_groups.a b: 'a b' is not a valid name",
        ),
        (
            (
                "platform: {local: {}}\nscale_groups: {tpu_1: {type: local_vm}, TPU-1: {type:"
                " local_vm}}"
            ),
            "scale_groups.TPU-1: 'TPU-1' gives machines the same names as the group 'tpu_1'",
        ),
        (
            f"platform: {{local: {{}}}}\nscale_groups: {{{'g' * 50}: {{type: local_vm}}}}",
            "too long; use at most 44 characters",
        ),
        (
            f"{GCP}name: {'n' * 50}",
            "-controller, too long; shorten it, or platform.gcp.label_prefix, by 3 characters",
        ),
        # -- prices and teams --
        (prices("{machine: n2, gpu_our: 1}"), "prices.rates.0.gpu_our: unknown key; did you mean"),
        (prices("{chip_hour: 1}"), "prices.rates.0: '' names no machine; set either machine"),
        (
            prices("{machine: n2, group: g, chip_hour: 1}"),
            "prices.rates.0: 'n2, g' names a machine and a group; set either machine or group",
        ),
        (prices("{machine: n2}"), "prices.rates.0: 'n2' has no price; set machine_hour, chip_hour"),
        (prices("{machine: n2, chip_hour: -1}"), "prices.rates.0.chip_hour: '-1' is not an amount"),
        (prices("{machine: n2, chip_hour: '1'}"), "prices.rates.0.chip_hour: '1' is not an amount"),
        (prices("{machine: n2, chip_hour: .nan}"), "prices.rates.0.chip_hour: 'nan' is not an"),
        (
            prices("{machine: n2, chip_hour: 1, since: tomorrow}"),
            "prices.rates.0.since: 'tomorrow' is not a day; write year-month-day",
        ),
        (
            prices("{machine: n2, chip_hour: 1}", "{machine: n2, gpu_hour: 1}"),
            "prices.rates.1: 'n2' has the same zone, spot and since in prices.rates.0; remove one",
        ),
        (
            "platform: {local: {}}\nprices: {currency: usd}",
            "prices.currency: 'usd' is not a currency; write the three letters of ISO 4217",
        ),
        (
            "platform: {local: {}}\nteams: {a: [ada], b: [bob, ada]}",
            "teams.b: 'ada' is in the team a, too; list each user once",
        ),
        (budget("amount: 1"), "budgets.b: '' is for nobody; set either user or team"),
        (
            budget("user: ada, team: t, gpu_hours: 1"),
            "budgets.b: 'ada, t' is for a user and a team; set either user or team",
        ),
        (budget("team: t, gpu_hours: 1"), "budgets.b.team: 't' is not a team; add it to teams"),
        (budget("user: ada"), "budgets.b: '' has no limit; set one of amount, chip_hours and"),
        (
            budget("user: ada, chip_hours: 1, gpu_hours: 1"),
            "budgets.b: 'chip_hours, gpu_hours' has several limits; set one of amount",
        ),
        (budget("user: ada, amount: 1"), "budgets.b.amount: '1.0' needs prices; add prices.rates"),
        (
            budget("user: ada, gpu_hours: 1, per: year"),
            "budgets.b.per: 'year' is not a known value; use 'day', 'week' or 'month'",
        ),
        (budget("user: a b, gpu_hours: 1"), "budgets.b.user: 'a b' is not the name of a user"),
        (
            budget("user: ada, chip_hour: 1"),
            "budgets.b.chip_hour: unknown key; did you mean 'chip_hours'?",
        ),
        ("platform: {local: {}}\nteams: {a: [x y]}", "teams.a: 'x y' is not the name of a user"),
    ],
)
def test_a_problem_names_the_path_the_value_the_rule_and_the_remedy(
    text: str, problem: str
) -> None:
    """A user can correct the file from this line alone."""
    assert any(problem in line for line in problems(text)), problems(text)


def test_all_problems_are_reported_at_once() -> None:
    """Correcting a file one error at a time takes too long; schema errors must not hide rule
    errors.
    """
    text = (
        GCP + "defaults: {autoscaler: {evaluation_intervall: 1s}}\n"
        "scale_groups:\n"
        "  a: {type: tpu_vm, accelerator_variant: v5litepod-17, min_slices: 2}\n"
        "  b: {type: tpu_vm, max_slice: 2, priority: high}\n"
        "  c: {type: local_vm}\n"
    )

    found = problems(text)
    assert [line.partition(": ")[0] for line in found] == [
        "defaults.autoscaler.evaluation_intervall",
        "scale_groups.b.priority",
        "scale_groups.b.max_slice",
        "scale_groups.a.max_slices",
        "scale_groups.a.accelerator_variant",
        "scale_groups.c.type",
    ]


@pytest.mark.parametrize(
    "project",
    ["abcdef", "my-project-1", "a" * 30, "example.com:my-project", "a-1.example.com:my-project"],
)
def test_every_project_id_of_google_is_accepted(project: str) -> None:
    """Old ids of an organisation start with its domain."""
    assert load_config(GCP.replace("my-project", f'"{project}"')).platform.gcp is not None


@pytest.mark.parametrize(
    "project",
    [
        "abcde",
        "a" * 31,
        "1-project",
        "my-project-",
        "my_project",
        "My-project",
        "my.project",
        "my-project ",
        ":my-project",
    ],
)
def test_an_invalid_project_id_is_refused(project: str) -> None:
    """A project's name, its number, a typing error: Google would only report that the project is
    not found.
    """
    (problem,) = problems(GCP.replace("my-project", f'"{project}"'))
    assert problem.startswith(
        f"platform.gcp.project_id: {project!r} is not a valid project id; use 6 to 30"
    )


def test_checks_that_depend_on_an_invalid_platform_are_skipped() -> None:
    """A hundred consequences would hide the one error."""
    assert (
        len(
            problems(
                in_cloud("type: tpu_vm", "accelerator_variant: v6e-8").replace(
                    "[europe", "x: [europe"
                )
            )
        )
        == 1
    )


def test_an_invalid_default_zone_is_reported_once() -> None:
    """Every group and the control plane inherit it."""
    text = in_cloud("type: tpu_vm", "accelerator_variant: v6e-8").replace(
        "europe-west4-b", "europe-west4"
    )
    assert len(problems(text)) == 1


def test_the_error_names_the_file(tmp_path: Path) -> None:
    """Users have several files, and see the error without its context."""
    path = tmp_path / "fleet.yaml"
    path.write_text("platform: {}")

    with pytest.raises(
        Rejected, match=r"fleet\.yaml has 1 problem:\n  line 1: platform: "
    ) as caught:
        load_config(path)
    assert caught.value.exit_code == 5


def test_the_error_names_the_line_of_each_problem_in_their_order() -> None:
    """A file of a fleet has hundreds of lines, and several groups have the same keys."""
    text = (
        "platform: {local: {}}\n"
        "name: a b\n"
        "scale_groups:\n"
        "  a:\n"
        "    type: local_vm\n"
        "    resources:\n"
        "      memory: 8x\n"
        "      cpus: 4\n"
        "    zones:\n"
        "      - here\n"
        "      - 3\n"
        "  b:\n"
        "    max_slices: 1\n"
        "    max_slices: 2\n"
        "    min_slices:\n"
        "  c: {type: local_vm, max_slices: 1}\n"
        "  c: {type: local_vm, max_slices: 1}\n"
    )
    with pytest.raises(InvalidConfig) as caught:
        load_config(text)

    title, *shown = str(caught.value).splitlines()
    assert title == f"the configuration has {len(shown)} problems:"
    assert [" ".join(line.split()[:3]) for line in shown] == [
        "line 2: name:",
        "line 7: scale_groups.a.resources.memory:",
        "line 8: scale_groups.a.resources.cpus:",
        "line 11: scale_groups.a.zones.1:",
        "line 12: scale_groups.b.type:",
        "line 14, column",
        "line 15: scale_groups.b.min_slices:",
        "line 17, column",
    ]


def test_lines_are_found_however_often_aliases_repeat_a_section() -> None:
    """Each alias below refers to two of the next one: as paths, they would be thousands, or
    millions.
    """

    def layers(count: int) -> str:
        return "x0: &x0 {a: 1}\n" + "".join(
            f"x{n}: &x{n} {{a: *x{n - 1}, b: *x{n - 1}}}\n" for n in range(1, count)
        )

    found = lines_of(layers(13))
    assert found["x12.a"] == 13
    assert len(found) < 100
    assert lines_of(layers(24)) == {}  # no configuration is loaded from this text


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    """An archive beside the file may have nearly the same name."""
    path = tmp_path / "fleet.yaml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(InvalidConfig, match="the file is not UTF-8 text"):
        load_config(path)


def test_anchors_and_merge_keys_are_not_duplicate_keys() -> None:
    """YAML's anchors and merge keys repeat keys without an error of the user."""
    text = (
        "platform: {local: {}}\nscale_groups:\n  a: &a {type: local_vm, max_slices: 2}\n  b: {<<:"
        " *a, max_slices: 3}"
    )
    assert [group.max_slices for group in load_config(text).scale_groups.values()] == [2, 3]


def test_a_merged_mapping_that_overrides_merged_keys_has_no_duplicate_keys() -> None:
    """PyYAML merges the outer mappings first. Then the merged keys stand beside the keys that
    override them.
    """
    deep = "bootstrap: {env_vars: &deep {<<: {A: '1'}, A: '2'}}"
    text = (
        f"platform: {{local: {{}}}}\ndefaults: {{{deep}}}\nbootstrap: {{env_vars:"
        " *deep}\nscale_groups: {<<: *deep}"
    )
    with pytest.raises(InvalidConfig) as refused:
        load_config(text)
    assert not any("is repeated" in problem for problem in refused.value.problems)
