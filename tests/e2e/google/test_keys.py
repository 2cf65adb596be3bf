"""A cluster with keys on the fake Google, for payloads and for secrets: its machines look them up
in a fake Secret Manager.
"""

import os
from pathlib import Path

import pytest

from iris.client.connect.secret_keys import new_keys
from tests.attacks.test_encryption import a_key
from tests.e2e.cluster import a_home
from tests.e2e.google.cluster import GcpCluster, Running, stopped_at_last
from tests.fakes.google.client import FakeGoogle
from tests.fakes.secret_manager import FakeSecretManager

pytestmark = pytest.mark.long

SECRET = "projects/project-sealed/secrets/iris-keys/versions/latest"


class SealedCluster(GcpCluster):
    """One whose configuration names the keys, and whose commands have them."""

    def __init__(self, home: Path, google: FakeGoogle) -> None:
        super().__init__(home, google, "sealed")
        keys = "  payload_keys: gcp:iris-keys\n  secret_keys: gcp:iris-secret-keys\n"
        self.text = self.text.replace("controller:\n", f"controller:\n{keys}")
        self.config.write_text(self.text)
        self.keys = home / "keys"
        self.keys.touch(0o600)
        self.keys.write_text(a_key("first"))

    def begin(
        self, *arguments: str, cwd: Path | None = None, merged: bool = False, **env: str
    ) -> Running:
        return super().begin(
            *arguments, cwd=cwd, merged=merged, **{"IRIS_PAYLOAD_KEYS": str(self.keys), **env}
        )


def test_the_disk_of_a_controller_has_no_word_of_a_command_and_no_machine_shows_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller and the host read the same keys as the user's commands, or the job would not
    run.
    """
    with FakeSecretManager({}).started() as secrets, a_home() as home:
        # For the machines, which are started by the fake Google.
        monkeypatch.setenv("IRIS_SECRET_MANAGER", secrets.url)
        with (
            FakeGoogle(boot=True) as google,
            stopped_at_last(SealedCluster(home, google)) as cluster,
        ):
            secrets.values[SECRET] = cluster.keys.read_text()
            secrets.values[SECRET.replace("iris-keys", "iris-secret-keys")] = secret_keys = (
                new_keys()
            )
            cluster.start()
            asked = (
                "--env",
                "SOUND=marimba",
                "--secret",
                "TOKEN",
                "--",
                "sh",
                "-c",
                "echo $SOUND ${#TOKEN} $TOKEN; exit 3",
            )
            ran = cluster.iris(
                "submit", "-n", "loud", *asked, within=120, code=125, TOKEN="hunter2-of-a-user"
            )
            assert (ran.out, "code 3" in ran.err) == ("marimba 17 ***\n", True)

            files = [
                path
                for path in google.directory.rglob("*")
                if path.is_file() and not path.is_symlink()
            ]
            database = b"".join(
                path.read_bytes() for path in files if path.name.startswith("temporal.sqlite")
            )
            assert b"binary/encrypted" in database
            assert b"marimba" not in database
            key = cluster.keys.read_text().split()[1].encode()
            assert {
                path.name for path in files if os.access(path, os.R_OK) and key in path.read_bytes()
            } == {"payload.keys"}
            for line in secret_keys.splitlines():
                key = line.split()[1].encode()
                assert {
                    path.name
                    for path in files
                    if os.access(path, os.R_OK) and key in path.read_bytes()
                } == {"secret.keys"}
            assert [
                path
                for path in files
                if os.access(path, os.R_OK) and b"hunter2" in path.read_bytes()
            ] == []
            unread = cluster.iris("status", "loud", code=5, IRIS_PAYLOAD_KEYS="")
            assert "key 'first'" in unread.err
            cluster.iris("cluster", "stop", "--yes", within=180)
            assert google.alive(cluster.project) == []
