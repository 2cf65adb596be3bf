"""Where the credentials of an external Temporal service are: on the machines, and in nothing that
is shown or sent.
"""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from temporalio.envconfig import ClientConfig

from iris.cli.main import cli
from iris.client.operate.gcp.dry_run import shown_requests
from iris.config import InvalidConfig, load_config
from iris.model.slice.keys import KEY_BYTES
from iris.platforms.gcp.settings import gcp_settings
from iris.platforms.gcp.startup import controller_script, host_script
from tests.fakes.metadata import FakeMetadata
from tests.fakes.secret_manager import TOKEN, FakeSecretManager
from tests.platforms.gcp.boots import Console, Machine
from tests.platforms.worlds import a_group, wanted

API_KEY = "eyJhbGciOiJFUzI1NiJ9.planted'\"$HOME\\n.key"
CERT = "-----BEGIN CERTIFICATE-----\nplanted+certificate=\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nplanted/key\n-----END PRIVATE KEY-----\n"
CA = "-----BEGIN CERTIFICATE-----\nplanted-authority\n-----END CERTIFICATE-----\n"
PLANTED = ("planted", TOKEN)
TEMPORAL = """
    tls: true
    api_key: gcp:temporal-key
    client_cert: gcp:projects/other-project/secrets/temporal-cert
    client_key: gcp:projects/other-project/secrets/temporal-private/versions/3
    server_ca: file:/etc/ours/ca.pem
    server_name: temporal.internal
"""
CONFIG = f"""
platform: {{gcp: {{project_id: my-project, default_zones: [europe-west4-b]}}}}
controller:
  image: example.com/iris-controller:1
  bundle_prefix: gs://b
  temporal:
    address: team.a1b2c.tmprl.cloud:7233
    namespace: team.a1b2c
{TEMPORAL}
bootstrap: {{image: "example.com/iris-agent:1"}}
scale_groups:
  cpu: {{type: gce_vm, machine_type: n2-standard-8, max_slices: 1}}
"""
SETTINGS = gcp_settings(
    load_config(CONFIG),
    "u-1",
    text=CONFIG,
    address="team.a1b2c.tmprl.cloud:7233",
    namespace="team.a1b2c",
)
SCRIPTS = {
    "host": host_script(SETTINGS, wanted(group=a_group(hosts=1))),
    "controller": controller_script(SETTINGS, image="example.com/iris-controller:1", port=10000),
}


@pytest.fixture
def secrets() -> Iterator[FakeSecretManager]:
    values = {
        "projects/my-project/secrets/temporal-key/versions/latest": f"{API_KEY}\n",
        "projects/other-project/secrets/temporal-cert/versions/latest": CERT,
        "projects/other-project/secrets/temporal-private/versions/3": KEY,
    }
    with FakeSecretManager(values).started() as server:
        yield server


@pytest.fixture
def machine(tmp_path: Path, secrets: FakeSecretManager) -> Iterator[Machine]:
    with FakeMetadata().started() as metadata:
        metadata.set(attributes__iris_private_key="00" * KEY_BYTES)
        metadata.put(
            "instance/service-accounts/default/token",
            json.dumps({"access_token": TOKEN, "expires_in": 3599}),
        )
        machine = Machine(
            tmp_path / "machine",
            metadata.url.removeprefix("http://"),
            chips=(),
            secrets=secrets.url,
        )
        machine.has("etc/ours/ca.pem")
        (machine.root / "etc/ours/ca.pem").write_text(CA)
        yield machine


def profile(machine: Machine) -> Path:
    return machine.root / "etc/iris/temporal.toml"


def boot(machine: Machine, role: str, tries: int = 5) -> Console:
    script = SCRIPTS[role].replace("DEVICE=tpu", "DEVICE=''")
    return machine.boot(script, tries)


@pytest.mark.parametrize("role", SCRIPTS)
def test_the_containers_of_a_machine_connect_with_the_credentials_that_it_has_looked_up(
    machine: Machine, role: str
) -> None:
    """Temporal's own library reads the profile that the script has written."""
    console = boot(machine, role)
    assert console.code == 0, console.text

    options = machine.container
    assert f"TEMPORAL_CONFIG_FILE={profile(machine)}" in options
    assert f"{machine.root}/etc/iris:{machine.root}/etc/iris:ro" in options
    settings = ClientConfig.load_client_connect_config(
        config_file=str(profile(machine)), override_env_vars={}
    )
    assert (settings["target_host"], settings["namespace"]) == (
        "team.a1b2c.tmprl.cloud:7233",
        "team.a1b2c",
    )
    assert settings["api_key"] == API_KEY
    tls = settings["tls"]
    assert (tls.client_cert, tls.client_private_key) == (
        CERT.strip().encode(),
        KEY.strip().encode(),
    )
    assert (tls.server_root_ca_cert, tls.domain) == (CA.strip().encode(), "temporal.internal")


@pytest.mark.parametrize("role", SCRIPTS)
def test_no_value_is_in_a_script_a_command_line_or_on_the_console(
    machine: Machine, role: str
) -> None:
    """Scripts are metadata, which every program of the machine may read, and consoles are kept by
    Google.
    """
    console = boot(machine, role)

    calls = "\n".join(
        " ".join(words)
        for verb in ("run", "inspect", "pull", "image")
        for words in machine.calls(verb)
    )
    for planted in PLANTED:
        assert planted not in SCRIPTS[role] + console.text + calls + machine.said("curled")
    assert "temporal-key/versions/latest:access" in machine.said("curled")
    assert stat.S_IMODE(profile(machine).stat().st_mode) == 0o600
    if role == "controller":
        assert f"10001:10001 {profile(machine)}" in machine.said("chowned")


def test_the_requests_of_a_start_have_references_only() -> None:
    """They are shown by `--dry-run` and kept by Google as long as the machine exists."""
    shown = json.dumps(shown_requests(load_config(CONFIG), CONFIG))

    assert "gcp:projects/my-project/secrets/temporal-key/versions/latest" in shown
    assert all(planted not in shown for planted in PLANTED)


def test_a_secret_that_the_machine_may_not_read_is_named_on_its_console(
    machine: Machine, secrets: FakeSecretManager
) -> None:
    """The person who starts the cluster sees only the console; Google's message says what is
    missing.
    """
    del secrets.values["projects/my-project/secrets/temporal-key/versions/latest"]
    console = boot(machine, "controller", tries=2)

    assert console.code == 1
    assert "not found or has no versions" in console.text
    assert (
        "FAILED: could not read gcp:projects/my-project/secrets/temporal-key/versions/latest"
        in console.text
    )
    assert machine.calls("run") == []


def test_a_secret_manager_that_does_not_answer_at_once_is_asked_again(
    machine: Machine, secrets: FakeSecretManager
) -> None:
    """A boot must not fail because of one call."""
    secrets.fails = 3
    assert boot(machine, "host").code == 0
    assert API_KEY in profile(machine).read_text()


def test_credentials_of_the_last_boot_outlive_an_outage_of_secret_manager(
    machine: Machine, secrets: FakeSecretManager
) -> None:
    """A machine that was rebooted in it had lost them, and its containers could not connect any
    more.
    """
    assert boot(machine, "host").code == 0
    secrets.fails = 99
    console = boot(machine, "host", tries=2)

    assert console.code == 0
    assert "using the credentials of the last boot" in console.text
    assert API_KEY in profile(machine).read_text()


def test_a_new_value_restarts_the_container_at_the_next_run_of_the_script(
    machine: Machine, secrets: FakeSecretManager
) -> None:
    """A process keeps the key with which it connected; the same value keeps the container and its
    programs.
    """
    assert [boot(machine, "host").code for _ in range(2)] == [0, 0]
    assert len(machine.calls("run")) == 1
    secrets.values["projects/my-project/secrets/temporal-key/versions/latest"] = (
        "another planted key"
    )
    assert boot(machine, "host").code == 0
    assert len(machine.calls("run")) == 2


@pytest.mark.parametrize("key", ["api_key", "client_cert", "client_key", "server_ca"])
@pytest.mark.parametrize(
    "value",
    ["planted-value", "12345678", "{planted: value}", "'gcp:'", "gcp:planted/value", "env:PLANTED"],
)
def test_a_value_in_the_place_of_a_reference_is_refused_and_not_shown(
    tmp_path: Path, key: str, value: str
) -> None:
    """The error may be in the log of a pipeline. The file itself would be in the metadata of all
    machines.
    """
    lines = [line for line in CONFIG.splitlines() if not line.strip().startswith(f"{key}:")]
    lines.insert(lines.index("    tls: true"), f"    {key}: {value}")
    file = tmp_path / "cluster.yaml"
    file.write_text("\n".join(lines))
    ran = CliRunner().invoke(cli, ["cluster", "config", "check", str(file)])

    assert isinstance(ran.exception, InvalidConfig), ran.output
    assert (
        f"controller.temporal.{key}: '***' is not a reference to a secret; write gcp:SECRET"
        in str(ran.exception)
    )
    assert value not in str(ran.exception)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("    tls: true\n", ""), "would send credentials in the clear; set tls: true"),
        (
            (
                "    client_key: gcp:projects/other-project/secrets/temporal-private/versions/3\n",
                "",
            ),
            "belong together",
        ),
        (
            ("project_id: my-project", "project_id: my-project, scopes: [devstorage.read_write]"),
            "do not give access to Secret Manager",
        ),
        (
            ("gcp: {project_id: my-project, default_zones: [europe-west4-b]}", "manual: {}"),
            "does not work with platform.manual",
        ),
    ],
)
def test_credentials_that_would_not_be_used_safely_are_refused(
    change: tuple[str, str], problem: str
) -> None:
    """Silently ignored, they would be sent in the clear or not at all."""
    with pytest.raises(InvalidConfig, match=problem):
        load_config(CONFIG.replace(*change))


def test_a_service_without_credentials_gets_no_profile(machine: Machine) -> None:
    """Also on a machine that had one: the old key must not stay."""
    assert boot(machine, "host").code == 0
    plain = gcp_settings(
        load_config(CONFIG.replace(TEMPORAL, "")), "u-1", text="", address="x:7233"
    )
    script = host_script(plain, wanted(group=a_group(hosts=1))).replace("DEVICE=tpu", "DEVICE=''")
    assert machine.boot(script).code == 0

    assert not profile(machine).exists()
    assert not any("TEMPORAL_CONFIG_FILE" in word for word in machine.calls("run")[-1])
