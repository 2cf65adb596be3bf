"""What a configuration of Google Cloud permits that its author may not want."""

from pathlib import Path

import pytest

from iris.config import InvalidConfig, load_config, risks

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGEST = "sha256:" + 64 * "0"
CAREFUL = f"""
platform:
  gcp:
    project_id: my-project
    default_zones: [europe-west4-b]
    external_ips: false
    service_account: hosts@p.iam.gserviceaccount.com
controller:
  image: example.com/iris-controller@{DIGEST}
  bundle_prefix: gs://b
  gcp: {{service_account: controller@p.iam.gserviceaccount.com, iap: true}}
bootstrap: {{image: "example.com/iris-agent:1.2@{DIGEST}"}}
scale_groups:
  cpu: {{type: gce_vm, machine_type: n2-standard-8, max_slices: 1}}
"""


def told(text: str) -> list[str]:
    """Returns the keys that warnings name, in order. Each warning also names its remedy."""
    found = risks(load_config(text))
    assert [warning for warning in found if "; " not in warning] == []
    return [warning.partition(": ")[0] for warning in found]


def test_a_careful_configuration_has_no_warnings() -> None:
    """A warning that cannot be answered is soon ignored."""
    assert told(CAREFUL) == []


@pytest.mark.parametrize("account", ["", "default", "123456-compute@developer.gserviceaccount.com"])
def test_the_default_account_is_named_by_no_name_and_by_either_of_its_names(account: str) -> None:
    """It may change everything in many projects, and machines have the scope of all APIs: every job
    could.
    """
    hosts = CAREFUL.replace("hosts@p.iam.gserviceaccount.com", f'"{account}"')
    controller = CAREFUL.replace("controller@p.iam.gserviceaccount.com", f'"{account}"')

    assert told(hosts) == ["platform.gcp.service_account"]
    assert told(controller) == ["controller.gcp.service_account"]


@pytest.mark.parametrize(
    "boot",
    [
        "bootstrap: {secrets: ['gcp:*'], ",
        "defaults: {bootstrap: {secrets: ['gcp:*']}}\nbootstrap: {",
    ],
)
def test_jobs_that_get_a_token_for_all_apis_because_hosts_need_it_are_a_risk(boot: str) -> None:
    """The list of secrets does not limit a job that reads Secret Manager with such a token itself.
    Who accepts that says so.
    """
    secrets = CAREFUL.replace("bootstrap: {", boot)

    assert load_config(secrets).platform.gcp.scopes == ("cloud-platform",)
    assert told(secrets) == ["platform.gcp.scopes"]
    assert (
        told(
            secrets.replace(
                "external_ips: false", "external_ips: false\n    scopes: [cloud-platform]"
            )
        )
        == []
    )


def test_scopes_without_the_secrets_of_the_configuration_are_refused() -> None:
    """Each job with such a secret would fail on its host."""
    narrow = CAREFUL.replace(
        "external_ips: false", "external_ips: false\n    scopes: [devstorage.read_write]"
    )

    with pytest.raises(
        InvalidConfig,
        match=r"do not give access to Secret Manager, to which bootstrap\.secrets refer; add",
    ):
        load_config(
            narrow.replace("bootstrap: {", "bootstrap: {secrets: ['gcp:projects/p/secrets/s'], ")
        )


@pytest.mark.parametrize(
    "scope", ["https://www.googleapis.com/auth/devstorage.read_write", "Storage", ""]
)
def test_a_scope_is_written_by_its_name(scope: str) -> None:
    """Google refuses others only when the first slice is requested."""
    with pytest.raises(InvalidConfig, match="is not the name of a scope; write it without the URL"):
        load_config(
            CAREFUL.replace("external_ips: false", f'external_ips: false\n    scopes: ["{scope}"]')
        )


def test_hosts_with_the_controllers_account_are_a_risk() -> None:
    """The controller may create and delete machines; a job reaches the credentials of its host."""
    assert told(CAREFUL.replace("hosts@p", "controller@p")) == ["platform.gcp.service_account"]


def test_public_addresses_are_a_risk_also_if_nobody_asked_for_them() -> None:
    """Public addresses are the default, because machines without them need a prepared network."""
    assert told(CAREFUL.replace("    external_ips: false\n", "")) == ["platform.gcp.external_ips"]


@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("controller.image", f"example.com/iris-controller@{DIGEST}"),
        ("bootstrap.image", f":1.2@{DIGEST}"),
    ],
)
@pytest.mark.parametrize("tag", [":latest", ":1.2", "", "@sha256:0123"])
def test_an_image_without_a_digest_is_a_risk(key: str, written: str, tag: str) -> None:
    """Whoever can push to the registry can give every machine another program at its next boot."""
    image = written.partition("@")[0].partition(":1.2")[0]
    assert told(CAREFUL.replace(written, f"{image}{tag}")) == [key]


def test_a_cluster_on_this_machine_has_no_warnings() -> None:
    """It has no accounts, no addresses and no images of Iris."""
    assert risks(load_config(EXAMPLES / "local.yaml")) == ()
