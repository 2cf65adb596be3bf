"""Where the keys are with which a cluster on Google Cloud encrypts payloads: in a file on its
machines, and in nothing else.
"""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.client.connect.encryption import read_keys
from iris.client.operate.gcp.controller import GcpController
from iris.client.operate.gcp.dry_run import shown_requests
from iris.config import InvalidConfig, load_config
from iris.model.errors import InvalidValue
from iris.model.slice.keys import KEY_BYTES
from iris.platforms.gcp.settings import gcp_settings
from iris.platforms.gcp.startup import controller_script, host_script
from tests.attacks.test_encryption import a_key
from tests.fakes.metadata import FakeMetadata
from tests.fakes.secret_manager import TOKEN, FakeSecretManager
from tests.platforms.gcp.boots import Console, Machine
from tests.platforms.worlds import a_group, wanted

KEYS = f"# of our cluster\n{a_key('second')}{a_key('first')}"
SECRET = "projects/my-project/secrets/iris-keys/versions/latest"
REFERENCE = "\n  payload_keys: gcp:iris-keys"
CONFIG = f"""
platform: {{gcp: {{project_id: my-project, default_zones: [europe-west4-b]}}}}
controller:
  image: example.com/iris-controller:1
  bundle_prefix: gs://b{REFERENCE}
bootstrap: {{image: "example.com/iris-agent:1"}}
scale_groups:
  cpu: {{type: gce_vm, machine_type: n2-standard-8, max_slices: 1}}
"""


def scripts(config: str) -> dict[str, str]:
    settings = gcp_settings(load_config(config), "u-1", text=config, address="10.0.0.2:10000")
    host = host_script(settings, wanted(group=a_group(hosts=1))).replace("DEVICE=tpu", "DEVICE=''")
    return {
        "host": host,
        "controller": controller_script(
            settings, image="example.com/iris-controller:1", port=10000
        ),
    }


SCRIPTS = scripts(CONFIG)


@pytest.fixture
def secrets() -> Iterator[FakeSecretManager]:
    with FakeSecretManager({SECRET: KEYS}).started() as server:
        yield server


@pytest.fixture
def machine(tmp_path: Path, secrets: FakeSecretManager) -> Iterator[Machine]:
    with FakeMetadata().started() as metadata:
        metadata.set(attributes__iris_private_key="00" * KEY_BYTES)
        metadata.put(
            "instance/service-accounts/default/token",
            json.dumps({"access_token": TOKEN, "expires_in": 3599}),
        )
        yield Machine(
            tmp_path / "machine",
            metadata.url.removeprefix("http://"),
            chips=(),
            secrets=secrets.url,
        )


def boot(machine: Machine, role: str, tries: int = 5) -> Console:
    return machine.boot(SCRIPTS[role], tries)


def keys_file(machine: Machine) -> Path:
    return machine.root / "etc/iris/payload.keys"


@pytest.mark.parametrize("role", SCRIPTS)
def test_the_containers_of_a_machine_read_the_keys_that_it_has_looked_up(
    machine: Machine, role: str
) -> None:
    """Iris itself reads the file, so its mode and its form are right."""
    console = boot(machine, role)
    assert console.code == 0, console.text

    assert f"IRIS_PAYLOAD_KEYS={keys_file(machine)}" in machine.container
    assert f"{machine.root}/etc/iris:{machine.root}/etc/iris:ro" in machine.container
    assert list(read_keys(keys_file(machine)).keys) == ["second", "first"]
    assert stat.S_IMODE(keys_file(machine).stat().st_mode) == 0o600
    if role == "controller":
        assert f"10001:10001 {keys_file(machine)}" in machine.said("chowned")


@pytest.mark.parametrize("role", SCRIPTS)
def test_no_key_is_in_a_script_a_command_line_or_on_the_console(
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
    shown = SCRIPTS[role] + console.text + calls + machine.said("curled")
    assert [line for line in KEYS.splitlines()[1:] if line.split()[1] in shown] == []
    assert f"{SECRET}:access" in machine.said("curled")


def test_the_requests_of_a_start_have_the_reference_only() -> None:
    """And the scope that hosts need to read it."""
    shown = json.dumps(shown_requests(load_config(CONFIG), CONFIG))

    assert f"gcp:{SECRET}" in shown
    assert "auth/cloud-platform" in shown


def test_a_key_that_the_machine_may_not_read_ends_the_boot(
    machine: Machine, secrets: FakeSecretManager
) -> None:
    """Without its keys, a machine would store in plain text what was to be hidden."""
    secrets.values.clear()
    console = boot(machine, "controller", tries=2)

    assert console.code == 1
    assert f"FAILED: could not read gcp:{SECRET}, the payload keys" in console.text
    assert machine.calls("run") == []


def test_keys_of_the_last_boot_outlive_an_outage_of_secret_manager(
    machine: Machine, secrets: FakeSecretManager
) -> None:
    """A machine that was rebooted in it could read no job any more."""
    assert boot(machine, "host").code == 0
    secrets.fails = 99
    console = boot(machine, "host", tries=2)

    assert console.code == 0
    assert "using those of the last boot" in console.text
    assert keys_file(machine).read_text() == KEYS


def test_another_key_restarts_the_container_at_the_next_run_of_the_script(
    machine: Machine, secrets: FakeSecretManager
) -> None:
    """A process keeps the keys with which it started; the same keys keep the container and its
    programs.
    """
    assert [boot(machine, "host").code for _ in range(2)] == [0, 0]
    assert len(machine.calls("run")) == 1
    secrets.values[SECRET] = a_key("third") + KEYS
    assert boot(machine, "host").code == 0
    assert len(machine.calls("run")) == 2


def test_without_the_setting_a_machine_has_no_keys(machine: Machine) -> None:
    """Also one that had some: the old ones must not stay."""
    assert boot(machine, "host").code == 0
    assert machine.boot(scripts(CONFIG.replace(REFERENCE, ""))["host"]).code == 0

    assert not keys_file(machine).exists()
    assert not any("IRIS_PAYLOAD_KEYS" in word for word in machine.calls("run")[-1])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ("gcp:iris-keys", a_key("first").strip()),
            r"controller.payload_keys: '\*\*\*' is not a reference to a secret",
        ),
        (
            ("gcp: {project_id: my-project, default_zones: [europe-west4-b]}", "manual: {}"),
            "set IRIS_PAYLOAD_KEYS=FILE where you start",
        ),
        (
            ("project_id: my-project", "project_id: my-project, scopes: [devstorage.read_write]"),
            "do not give access to Secret Manager",
        ),
    ],
)
def test_a_setting_that_would_not_work_is_refused_by_the_check_of_the_file(
    change: tuple[str, str], problem: str
) -> None:
    """The key itself in the file would be in the metadata of all machines."""
    with pytest.raises(InvalidConfig, match=problem):
        load_config(CONFIG.replace(*change))


@pytest.mark.parametrize(
    ("config", "in_shell", "problem"),
    [
        (
            CONFIG.replace(REFERENCE, ""),
            True,
            "is only on this machine.*store the file in Secret Manager and set controller.payload",
        ),
        (
            CONFIG,
            False,
            (
                "is empty, and this machine could not read what the cluster"
                " encrypts.*IRIS_PAYLOAD_KEYS=FILE"
            ),
        ),
    ],
    ids=["only in the shell", "only on Google"],
)
@pytest.mark.parametrize("operation", ["start", "restart"])
def test_keys_on_one_side_only_are_refused_before_a_machine_is_made(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: str,
    in_shell: bool,
    problem: str,
    operation: str,
) -> None:
    """The machine of such a cluster ran, and no command could use it; or it stored all in plain
    text.
    """
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text(KEYS)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("IRIS_PAYLOAD_KEYS", str(file) if in_shell else "")
    temporal = "\n  temporal: {address: 't:7233'}"  # so that no gcloud is needed
    controller = GcpController(load_config(config.replace("gs://b", f"gs://b{temporal}")))

    with pytest.raises(InvalidValue, match=problem):
        getattr(controller, operation)()
