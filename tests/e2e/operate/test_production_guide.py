"""`docs/production.md` is typed in as it stands: every `bash` block from the set-up to the restore,
in one shell. It makes two Temporal servers on PostgreSQL with TLS, two control planes and a host.
"""

import os
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_home, eventually, free_port
from tests.temporal_cluster import as_postgres, initdb, postgres_bin

pytestmark = pytest.mark.production

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/production.md").read_text()
#: For one block.
PATIENCE = 300.0


def blocks(first: str, end: str) -> list[str]:
    """The `bash` blocks from one heading to another one."""
    part = PAGE[PAGE.index(f"\n## {first}\n") : PAGE.index(f"## {end}\n")]
    return re.findall(r"```bash\n(.*?)```", part, re.DOTALL)


class Shell:
    """A shell into which blocks are typed, one after the other. Its first error ends it."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        self.home = home
        self._said = home / "said"
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                ["bash", "-euo", "pipefail"],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                cwd=ROOT,
                env=env,
                text=True,
                start_new_session=True,
            )

    def type(self, text: str) -> str:
        """Types a block, waits until it has ended, and returns what it printed."""
        assert self._process.stdin is not None
        before, end = len(self._said.read_text()), f"-- end of {hash(text)}"
        self._process.stdin.write(f"{text}\necho '{end}'\n")
        self._process.stdin.flush()

        def ended() -> bool:
            return end in self._said.read_text() or self._process.poll() is not None

        eventually(ended, within=PATIENCE)
        printed = self._said.read_text()[before:]
        assert end in printed, f"{text}\nprints\n{printed[-4000:]}"
        return printed

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def a_database(directory: Path) -> Iterator[int]:
    """PostgreSQL, whose superuser needs no password on this machine; yields its port."""
    data, port = directory / "postgres", free_port()
    directory.chmod(0o711)
    subprocess.run(
        initdb(data, "postgres"), check=True, capture_output=True, cwd="/", **as_postgres()
    )
    options = ["--unix_socket_directories=", "--max_connections=300", "--fsync=off"]
    server = subprocess.Popen(
        [postgres_bin() / "postgres", "-D", data, "-p", str(port), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        **as_postgres(),
    )

    def serves() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        eventually(serves)
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def shell() -> Iterator[Shell]:
    with a_home() as home, a_database(home) as port:
        dropped = ("IRIS_", "TEMPORAL_", "PG", "SQL_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        own = {
            "HOME": str(home),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", f"{Path.home()}/.cache"),
            "PGHOST": "127.0.0.1",
            "PGPORT": str(port),
            "PGUSER": "postgres",
            "IRIS_USER": "ada",
        }
        typed = Shell(home, {**env, **own})
        try:
            yield typed
        finally:
            typed.close()
            Cluster(home).clear()


def open_secrets(directory: Path) -> list[str]:
    """The files with keys, passwords, backups or logs that other users of the machine can read."""
    patterns = ("*.key", "*.keys", "server.env", "*.dump", "store")
    found = [path for pattern in patterns for path in directory.glob(pattern)]
    assert len(found) == 9
    return [path.name for path in found if path.stat().st_mode & 0o077]


def test_the_page_makes_a_cluster_and_restores_an_older_backup(shell: Shell) -> None:
    """Each block succeeds, so a job runs before the restore and after it. A client without a
    certificate is refused, and other users of the machine cannot read a secret.
    """
    setting_up, restoring = blocks("Set up", "Backups"), blocks("Backups", "Upgrades")
    assert (len(setting_up), len(restoring)) == (9, 2)

    printed = [shell.type(block) for block in setting_up]
    assert any("ada/hello SUCCEEDED" in each for each in printed)
    with (
        pytest.raises(ssl.SSLError),
        socket.create_connection(("127.0.0.2", 7233)) as plain,
        ssl._create_unverified_context().wrap_socket(plain) as connection,
    ):
        connection.recv(1)  # TLS 1.3 refuses a client without a certificate with the first answer

    shell.type(restoring[0])
    assert open_secrets(shell.home / "production") == []
    assert "SUCCEEDED" in shell.type(restoring[1])
    (look,) = blocks("Runbooks", "IrisControlPlaneDown")
    assert "answers at 127.0.0.2:7233" in shell.type(look)
