"""`iris cluster config`: what a file says, whether it can be used, and what an editor has to
know.
"""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from iris.cli.cluster.config import config
from iris.cli.main import run
from iris.config import InvalidConfig, load_config, make_local_config

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"
EU_WEST4 = EXAMPLES / "eu-west4.yaml"
BROKEN = (
    "platform: {local: {}}\nscale_groups:\n  g: {type: local_vm, max_slice: 2}\n  h: {type:"
    " local_vm, min_slices: 2}\n"
)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(config, [str(each) for each in arguments])


def test_a_good_file_is_summed_up() -> None:
    """Before money is spent one wants to see how many of what there may be."""
    result = invoke("check", EU_WEST4)

    assert result.exit_code == 0
    assert "is valid: cluster eu-west4, platform gcp, 9 scale group(s)" in result.output
    assert any(
        line.split()[:5] == ["tpu_v5e_16", "tpu_vm", "0", "to", "4"]
        for line in result.output.splitlines()
    )


def test_a_bad_file_is_refused_with_all_its_problems(tmp_path: Path) -> None:
    """What `iris` then prints, and its exit code of 5, are those of every refusal."""
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    result = invoke("check", path)

    assert isinstance(result.exception, InvalidConfig)
    assert result.exception.exit_code == 5
    assert str(result.exception).splitlines() == [
        f"{path} has 2 problems:",
        "  line 3: scale_groups.g.max_slice: unknown key; did you mean 'max_slices'?",
        (
            "  line 4: scale_groups.h.max_slices: '1' is less than min_slices (2); increase it or"
            " reduce min_slices"
        ),
    ]


@pytest.mark.parametrize(
    ("controller", "refusal"),
    [
        (
            "local: {}",
            "line 2: controller.temporal: 't:7233' is not supported with platform.manual; remove it",
        ),
        (
            "manual: {host: h}",
            "line 2: controller.temporal: 't:7233' is not supported with platform.manual; remove it",
        ),
    ],
)
def test_a_file_that_cannot_be_started_is_not_called_valid(
    controller: str, refusal: str, tmp_path: Path
) -> None:
    """It said that the file was fine, and then `start` refused it. On this machine the same file
    runs.
    """
    path = tmp_path / "cluster.yaml"
    text = (
        "platform: {manual: {}}\ncontroller: {bundle_prefix: 's3://b/p', temporal: {address:"
        f" 't:7233'}}, {controller}}}\n"
    )
    path.write_text(text)
    refused = invoke("check", path).exception

    assert isinstance(refused, InvalidConfig)
    assert refused.exit_code == 5, "as the help says"
    assert refusal in str(refused)
    assert invoke("check", "--local", path).exit_code == 0


def test_a_setting_of_containers_has_no_effect_on_machines_over_ssh(tmp_path: Path) -> None:
    """Their agents run without containers, so an image would be believed to run there."""
    path = tmp_path / "cluster.yaml"
    controller = "{bundle_prefix: 's3://b/p', image: i, local: {}}"
    path.write_text(
        f"platform: {{manual: {{}}}}\ncontroller: {controller}\nbootstrap: {{image: a}}\n"
    )
    result = invoke("check", path)

    assert result.exit_code == 0
    for key in ("controller.image", "bootstrap.image"):
        assert f"warning: {key}: has no effect with platform.manual" in result.output


def test_a_setting_that_nothing_reads_is_named(tmp_path: Path) -> None:
    """Whoever sets a login user believes that it is used."""
    path = tmp_path / "cluster.yaml"
    ssh = "defaults: {ssh: {user: iris}, timeouts: {ssh_poll_interval: 9s}}"
    path.write_text(
        f"platform: {{local: {{}}}}\n{ssh}\nscale_groups: {{g: {{type: local_vm, max_slices:"
        " 1}}\n"
    )
    result = invoke("check", path)

    assert result.exit_code == 0
    for key in ("defaults.ssh.user", "defaults.timeouts.ssh_poll_interval"):
        reason = (
            "has no effect in this version, which reaches only machines of manual_vm groups over"
            " SSH; remove it"
        )
        assert f"warning: {key}: {reason}" in result.output
    assert "connect_timeout" not in result.output  # it is not in the file


def test_a_file_that_is_not_there_is_wrong_usage() -> None:
    """Exit code 2, as for every argument that cannot be meant."""
    assert invoke("check", "nowhere.yaml").exit_code == 2


def test_the_verdict_can_be_read_by_programs() -> None:
    """A pipeline that changes the fleet checks the file first."""
    shown = json.loads(invoke("check", "--json", EU_WEST4).output)

    assert (shown["ok"], shown["name"], shown["platform"]) == (True, "eu-west4", "gcp")
    assert [line.split(":")[0] for line in shown["warnings"]] == [
        "platform.gcp.external_ips",
        "controller.image",
        "bootstrap.image",
    ]
    assert shown["scale_groups"][0] == {
        "name": "cpu",
        "type": "gce_vm",
        "zones": ["europe-west4-a", "europe-west4-b", "europe-west4-c"],
        "hosts": 1,
        "min_slices": 1,
        "max_slices": 16,
    }


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_shown_is_the_same_configuration_with_every_value(path: Path) -> None:
    """It can be saved and used in the file's place."""
    shown = invoke("show", path).output

    assert load_config(shown) == load_config(path)
    assert yaml.safe_load(shown)["autoscaler"] == {
        "evaluation_interval": "10s",
        "observe_interval": "15s",
    }
    assert json.loads(invoke("show", "--json", path).output) == yaml.safe_load(shown)


def test_what_a_local_cluster_makes_of_a_file_can_be_seen() -> None:
    """Somebody wonders why the autoscaler is so quick here."""
    shown = load_config(invoke("show", "--local", EU_WEST4).output)

    assert shown == make_local_config(load_config(EU_WEST4))


def test_every_value_is_shown_with_its_origin() -> None:
    """The answer to "who said that?"."""
    shown = json.loads(invoke("show", "--origin", "--json", EU_WEST4).output)

    group = "scale_groups.tpu_v5e_16"
    assert shown[f"{group}.max_slices"] == {"value": 4, "origin": "set in file"}
    assert shown[f"{group}.resources.cpu"] == {"value": 112, "origin": "accelerator table"}
    assert shown[f"{group}.scale_up_delay"] == {"value": "30s", "origin": "defaults.autoscaler"}
    assert shown[f"{group}.backoff"] == {"value": "5s", "origin": "built-in default"}
    assert shown["controller.gcp.zone"] == {
        "value": "europe-west4-b",
        "origin": "platform.gcp.default_zones",
    }
    line = next(
        line
        for line in invoke("show", "--origin", EU_WEST4).output.splitlines()
        if f"{group}.zones" in line
    )
    assert (
        " ".join(line.split())
        == f'{group}.zones ["europe-west4-b", "europe-west4-a"] platform.gcp.default_zones'
    )


def test_what_local_mode_decided_is_not_put_down_to_the_file() -> None:
    """It would be looked for there."""
    shown = json.loads(invoke("show", "--origin", "--local", "--json", EU_WEST4).output)

    assert shown["autoscaler.evaluation_interval"] == {"value": "500ms", "origin": "--local"}
    assert shown["controller.bundle_prefix"] == {"value": "", "origin": "--local"}
    assert shown["scale_groups.tpu_v5e_16.type"] == {"value": "local_vm", "origin": "--local"}
    assert shown["scale_groups.tpu_v5e_16.max_slices"]["origin"] == "set in file"
    assert shown["scale_groups.tpu_v5e_16.resources.cpu"]["origin"] == "accelerator table"
    assert shown["scale_groups.tpu_v5e_256.scale_down_delay"] == {
        "value": "30m",
        "origin": "set in file",
    }


def test_the_schema_knows_every_section_and_how_people_write_defaults() -> None:
    """An editor offers the default it finds there; PT10S would be refused."""
    schema = json.loads(invoke("schema").output)

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(schema["properties"]) >= {
        "platform",
        "defaults",
        "controller",
        "bootstrap",
        "autoscaler",
        "scale_groups",
    }
    assert (
        schema["$defs"]["AutoscalerDefaults"]["properties"]["evaluation_interval"]["default"]
        == "10s"
    )
    assert schema["$defs"]["GroupResources"]["properties"]["memory"]["default"] == "1000g"


def test_config_says_which_cluster_commands_use_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who wonders why a command went elsewhere asks this; it answers without any cluster."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("IRIS_USER", "ada")
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)

    def shown(*arguments: str) -> dict[str, tuple[str | None, str]]:
        assert run([*arguments, "config", "--json"]) == 0
        return {
            row["name"]: (row["value"], row["origin"])
            for row in json.loads(capsys.readouterr().out)
        }

    nothing = shown()
    assert nothing["cluster"][0] is None
    assert nothing["cluster"][1].startswith("no cluster: ")
    assert nothing["user"] == ("ada", "$IRIS_USER")
    assert nothing["state_directory"] == (str(tmp_path), "$IRIS_STATE_DIR")
    assert shown("--cluster", "tpus")["cluster"] == ("tpus", "--cluster")
    monkeypatch.setenv("IRIS_CLUSTER", "10.0.0.5:7233")
    assert shown()["cluster"] == ("10.0.0.5:7233", "$IRIS_CLUSTER")
    assert shown()["address"][0] == "10.0.0.5:7233"
