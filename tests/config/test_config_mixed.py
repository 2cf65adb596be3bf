"""A configuration with machines over SSH beside those of Google Cloud: what is refused, and where
the key is.
"""

from pathlib import Path

import pytest

from iris.config import InvalidConfig, is_mixed, load_config, make_local_config, risks, served_kind
from iris.model.errors import InvalidValue
from iris.platforms.manual.settings import manual_settings

EXAMPLE = (Path(__file__).parents[2] / "examples" / "mixed.yaml").read_text()


def test_the_example_can_be_started_and_names_secrets_of_its_project() -> None:
    """The controller and the command that stops the cluster read the same versions of the
    secrets.
    """
    config = load_config(EXAMPLE)
    settings = manual_settings(config, "uid")

    assert (is_mixed(config), served_kind(config)) == (True, "gcp")
    assert (
        settings.known_hosts_secret == "projects/my-project/secrets/lab-known-hosts/versions/latest"
    )
    assert {host.key_secret for host in settings.all_hosts} == {
        "projects/my-project/secrets/lab-ssh-key/versions/latest"
    }
    assert [line for line in risks(config) if "no effect" in line] == []
    assert served_kind(make_local_config(config)) == "local"


@pytest.mark.parametrize(
    ("there", "here", "problem"),
    [
        (
            "key_file: gcp:lab-ssh-key",
            "key_file: ~/.ssh/id",
            "scale_groups.workstations.ssh_key_file: '~/.ssh/id' is not a secret, and the",
        ),
        (
            "    key_file: gcp:lab-ssh-key\n",
            "",
            "scale_groups.workstations.ssh_key_file: '' is not a secret, and the controller VM",
        ),
        (
            "    known_hosts: gcp:lab-known-hosts\n",
            "",
            "defaults.ssh.known_hosts: '~/.ssh/known_hosts' is not a secret, and the controller VM",
        ),
        (
            "  gcp:\n    port: 10000",
            "  temporal: {address: 't:7233', tls: true}\n  gcp:\n    port: 10000",
            "controller.temporal.tls: 'true' is not supported with manual_vm groups",
        ),
    ],
    ids=["a path", "no key", "a file of known hosts", "a service with TLS"],
)
def test_a_controller_that_could_not_reach_the_machines_is_refused(
    there: str, here: str, problem: str
) -> None:
    """`config check` and `start` say so before anything is paid for. On this machine the same file
    runs.
    """
    assert there in EXAMPLE
    config = load_config(EXAMPLE.replace(there, here))

    with pytest.raises(InvalidValue) as refused:
        served_kind(config)

    assert str(refused.value).startswith(problem)
    assert served_kind(make_local_config(config)) == "local"


@pytest.mark.parametrize(
    ("there", "here", "problem"),
    [
        (
            "zones: [lab-a]",
            "zones: [us-east5-a]",
            (
                "scale_groups.workstations.zones: 'us-east5-a' is a zone of Google Cloud; use"
                " another name, such as lab-a"
            ),
        ),
        (
            "zones: [lab-a]",
            "zones: [Lab]",
            "scale_groups.workstations.zones: 'Lab' is not a zone; use lower-case letters",
        ),
        (
            "gcp:lab-ssh-key",
            "gcp:lab/key",
            "scale_groups.workstations.ssh_key_file: 'gcp:lab/key' is not the name of a secret",
        ),
        (
            "gcp:lab-known-hosts",
            "'gcp:'",
            "defaults.ssh.known_hosts: 'gcp:' is not the name of a secret; write gcp:SECRET or",
        ),
    ],
)
def test_a_value_that_can_never_be_right_is_an_error(there: str, here: str, problem: str) -> None:
    """A zone tells whose slice it is, so the two must not be confused."""
    with pytest.raises(InvalidConfig) as refused:
        load_config(EXAMPLE.replace(there, here))

    assert any(line.startswith(problem) for line in refused.value.problems), refused.value.problems


def test_a_secret_of_google_is_an_error_without_google() -> None:
    """It would be taken for the name of a file."""
    text = "platform: {manual: {}}\ncontroller: {local: {}, bundle_prefix: 's3://b'}\n"
    group = "scale_groups: {g: {type: manual_vm, hosts: [a], ssh_key_file: 'gcp:key'}}\n"

    with pytest.raises(InvalidConfig) as refused:
        load_config(text + group)

    assert refused.value.problems == (
        (
            "scale_groups.g.ssh_key_file: 'gcp:key' is a secret of Google Cloud; write the path of"
            " a file, or use platform.gcp"
        ),
    )


def test_settings_of_ssh_without_effect_are_still_named_for_googles_groups() -> None:
    """They have an effect only for the machines beside."""
    config = load_config(EXAMPLE + "    ssh_user: nobody\n")

    (line,) = (line for line in risks(config) if "no effect" in line)
    assert line.startswith(
        "scale_groups.tpu_v5e_16.ssh_user: has no effect in this version, which reaches only"
        " machines of manual_vm"
    )
