"""Whoever reads the service's database finds no word of what users run."""

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_home

pytestmark = pytest.mark.long

#: Words of a user: in a command, an environment, a failure and a note to operators.
PLANTED = ("xylophone", "marimba", "glockenspiel", "vibraphone")


def a_key(name: str) -> str:
    return f"{name} {base64.b64encode(os.urandom(32)).decode()}\n"


@contextmanager
def a_cluster_beside_keys(name: str, *options: str) -> Iterator[tuple[Cluster, Path]]:
    """A cluster that is not started yet, and a file with a key of this name."""
    with a_home() as home:
        keys = home / "keys"
        keys.touch(0o600)
        keys.write_text(a_key(name))
        cluster = Cluster(home, options=options)
        try:
            yield cluster, keys
        finally:
            cluster.iris("cluster", "stop", "--yes", code=None, IRIS_PAYLOAD_KEYS=str(keys))
            cluster.clear()


def stored(home: Path) -> bytes:
    """All that the service keeps."""
    return b"".join(
        path.read_bytes() for path in (home / "clusters" / "local").glob("temporal.sqlite*")
    )


def test_with_keys_the_database_has_no_command_environment_or_reason() -> None:
    """And everything works as before, after a change of keys and a restart too; who has no key is
    told what is missing.
    """
    with a_cluster_beside_keys("first") as (cluster, keys):
        known = {"IRIS_PAYLOAD_KEYS": str(keys)}
        cluster.iris("cluster", "start", "--local", "-d", "--cpu", "4", within=240, **known)
        command = "echo xylophone $SOUND; echo >&2 'error: no glockenspiel'; exit 3"
        cluster.iris(
            "submit",
            "-q",
            "-n",
            "loud",
            "--env",
            "SOUND=marimba",
            "--",
            "bash",
            "-c",
            command,
            **known,
        )
        cluster.iris("wait", "loud", code=125, **known)
        host = cluster.iris("host", "list", "--json", **known).json[0]["id"]
        cluster.iris("host", "cordon", host, "--reason", "vibraphone", **known)

        assert "xylophone marimba" in cluster.iris("logs", "loud", **known).out
        assert "code 3" in cluster.iris("explain", "loud", **known).out
        assert "vibraphone" in cluster.iris("host", "list", **known).out
        unread = cluster.iris("status", "loud", code=5)
        assert "key 'first'" in unread.err
        assert "(cannot be read with the keys known here)" in cluster.iris("jobs", "--all").out

        keys.write_text(a_key("second") + keys.read_text())
        cluster.iris("cluster", "stop", "--yes", **known)
        cluster.iris("cluster", "start", "--local", "-d", "--cpu", "4", within=240, **known)
        host = cluster.iris("host", "list", "--json", **known).json[0]["id"]
        cluster.iris("host", "cordon", host, "--reason", "vibraphone", **known)
        cluster.iris("host", "uncordon", host, **known)
        assert "code 3" in cluster.iris("explain", "loud", **known).out
        cluster.iris("submit", "-q", "-n", "again", "--", "echo", "xylophone", **known)
        cluster.iris("wait", "again", **known)

        found = stored(cluster.home)
        assert b"binary/encrypted" in found
        assert b"second" in found
        assert [word for word in PLANTED if word.encode() in found] == []


def test_a_client_with_keys_that_the_cluster_has_not_breaks_nothing() -> None:
    """A shell has keys of another cluster. One unreadable signal failed a slice's workflow for
    ever, and its machine stayed.
    """
    with a_cluster_beside_keys("other", "--ephemeral", "--cpu", "4") as (cluster, keys):
        known = {"IRIS_PAYLOAD_KEYS": str(keys)}
        cluster.start()
        host = cluster.only_host()
        for command in (
            ("submit", "-d", "-n", "lost", "--", "true"),
            ("slice", "drain", host),
            ("autoscaler", "pause"),
        ):
            said = cluster.iris(*command, code=5, **known).err
            assert "key 'other'" in said, command
            assert "unset IRIS_PAYLOAD_KEYS" in said
        # And of one that does not ask first:
        sent = (
            "--input",
            "c2VjcmV0",
            "--input-base64",
            "--input-meta",
            "encoding=binary/encrypted",
        )
        cluster.temporal(
            "workflow", "signal", "--workflow-id", f"local/slice/{host}", "--name", "drain", *sent
        )
        assert cluster.iris("host", "cordon", host, code=None, **known).code != 0

        cluster.iris("submit", "-n", "fine", "--", "true")
        assert cluster.iris("slice", "show", host, "--json").json["state"] == "READY"
        cluster.iris("slice", "delete", host)
        cluster.stop()


def test_a_cluster_named_by_its_address_says_which_key_is_missing() -> None:
    """It "did not exist"."""
    with a_cluster_beside_keys("first", "--ephemeral") as (cluster, keys):
        known = {"IRIS_PAYLOAD_KEYS": str(keys)}
        cluster.iris("cluster", "start", "--local", "-d", "--ephemeral", within=240, **known)
        assert cluster.iris("--cluster", cluster.address, "jobs", **known).out == "no jobs\n"
        for name in ("", "/local"):
            said = cluster.iris("--cluster", cluster.address + name, "jobs", code=5).err
            assert "key 'first'" in said
        cluster.iris("submit", "-q", "-n", "long", "--", "sleep", "600", **known)
        refused = cluster.iris("cancel", "long", "--reason", PLANTED[0], code=2, **known).err
        assert "would be stored in plain text" in refused
        cluster.iris("cancel", "long", **known)
