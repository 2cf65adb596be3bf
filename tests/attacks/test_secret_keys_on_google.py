"""Where the keys that open users' secrets are on Google Cloud: in a file on its machines, and in
nothing that a machine shows.
"""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.client.connect.secret_keys import new_keys, read_secret_keys
from iris.client.operate.gcp.dry_run import shown_requests
from iris.config import InvalidConfig, load_config
from iris.model.slice.keys import KEY_BYTES
from tests.attacks.test_payload_keys_on_google import CONFIG as WITH_PAYLOAD_KEYS
from tests.attacks.test_payload_keys_on_google import REFERENCE, scripts
from tests.fakes.metadata import FakeMetadata
from tests.fakes.secret_manager import TOKEN, FakeSecretManager
from tests.platforms.gcp.boots import Machine

KEYS = new_keys()
SECRET = "projects/my-project/secrets/iris-secret-keys/versions/latest"
CONFIG = WITH_PAYLOAD_KEYS.replace(REFERENCE, "\n  secret_keys: gcp:iris-secret-keys")
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


def keys_file(machine: Machine) -> Path:
    return machine.root / "etc/iris/secret.keys"


@pytest.mark.parametrize("role", SCRIPTS)
def test_machines_have_the_keys_in_a_file_and_show_them_nowhere(
    machine: Machine, role: str
) -> None:
    """Scripts are metadata, which every program of the machine may read. Iris itself reads the
    file.
    """
    console = machine.boot(SCRIPTS[role])
    assert console.code == 0, console.text

    assert f"IRIS_SECRET_KEYS={keys_file(machine)}" in machine.container
    assert read_secret_keys(keys_file(machine)).text == KEYS
    assert stat.S_IMODE(keys_file(machine).stat().st_mode) == 0o600
    calls = "\n".join(
        " ".join(words)
        for verb in ("run", "inspect", "pull", "image")
        for words in machine.calls(verb)
    )
    shown = SCRIPTS[role] + console.text + calls + machine.said("curled")
    assert [line for line in KEYS.splitlines() if line.split()[1] in shown] == []
    assert f"{SECRET}:access" in machine.said("curled")


def test_rotated_keys_arrive_without_a_new_container(
    machine: Machine, secrets: FakeSecretManager
) -> None:
    """Agents read the file at each use, so their programs need not notice."""
    assert machine.boot(SCRIPTS["host"]).code == 0
    secrets.values[SECRET] = new_keys()
    assert machine.boot(SCRIPTS["host"]).code == 0

    assert keys_file(machine).read_text() == secrets.values[SECRET]
    assert len(machine.calls("run")) == 1


def test_keys_that_the_machine_may_not_read_end_the_boot_and_old_ones_are_removed(
    machine: Machine, secrets: FakeSecretManager
) -> None:
    """A host without its keys would fail every job that has a secret; a host that is to have none
    keeps none.
    """
    assert machine.boot(SCRIPTS["host"]).code == 0
    assert (
        machine.boot(
            scripts(CONFIG.replace("\n  secret_keys: gcp:iris-secret-keys", ""))["host"]
        ).code
        == 0
    )
    assert not keys_file(machine).exists()
    secrets.values.clear()
    console = machine.boot(SCRIPTS["host"], 2)

    assert console.code == 1
    assert f"FAILED: could not read gcp:{SECRET}, the keys for users' secrets" in console.text


def test_requests_have_the_reference_and_the_scope_only() -> None:
    """The key itself in the file is refused: it would be in the metadata of all machines."""
    shown = json.dumps(shown_requests(load_config(CONFIG), CONFIG))

    assert f"gcp:{SECRET}" in shown
    assert "auth/cloud-platform" in shown
    with pytest.raises(
        InvalidConfig, match=r"controller.secret_keys: '\*\*\*' is not a reference to a secret"
    ):
        load_config(CONFIG.replace("gcp:iris-secret-keys", KEYS.split()[1]))
    other = CONFIG.replace(
        "gcp: {project_id: my-project, default_zones: [europe-west4-b]}", "manual: {}"
    )
    with pytest.raises(
        InvalidConfig, match="the control plane makes its keys for users' secrets itself"
    ):
        load_config(other)
