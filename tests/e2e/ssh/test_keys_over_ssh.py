"""A cluster over SSH with keys for payloads and secrets: its control plane and its host are
machines of real `sshd` processes.
"""

import asyncio
import stat
from pathlib import Path

import psutil
import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from iris.client.connect.connection import data_converter
from iris.client.connect.encryption import read_keys
from iris.messages.job import JobInput
from iris.model import names
from tests.attacks.test_encryption import a_key
from tests.builders import a_spec
from tests.e2e.cluster import PATIENCE, eventually
from tests.e2e.ssh.test_controller_over_ssh import a_lab
from tests.sshd import Machine

#: Packages are sent to two machines, both of which are this one.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PORT = 31_484


def files_with(lab: list[Machine], text: str) -> list[Path]:
    """The files on the machines that have this text."""
    files = [
        path
        for each in lab
        for path in each.home.rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    return [path for path in files if text.encode() in path.read_bytes()]


async def start_of_a_stranger(file: Path, payload_keys: Path) -> str:
    """Starts a job at the Temporal service of the cluster, as another user of the machine may who
    even has the keys that encrypt. Returns the type of its failure.
    """
    client = await Client.connect(
        f"127.0.0.1:{PORT}", data_converter=data_converter(read_keys(payload_keys))
    )
    planted = await client.start_workflow(
        "JobWorkflow",
        JobInput(cluster="lab", spec=a_spec(name="planted", command=("touch", str(file)))),
        id=names.job_workflow("lab", a_spec(name="planted").id),
        task_queue=names.control_queue("lab"),
    )
    with pytest.raises(WorkflowFailureError) as failed:
        await planted.result()
    assert isinstance(failed.value.cause, ApplicationError)
    return failed.value.cause.type or ""


def test_a_cluster_over_ssh_encrypts_with_the_keys_of_the_shell_that_started_it(sshd: None) -> None:
    """The database has no word of a user's command, and no machine shows the key outside of the
    file in Iris's directory.
    """
    with a_lab(2, first=84, port=PORT) as (cluster, lab, file):
        before = [each.left() for each in lab]
        keys = cluster.file("keys")
        keys.touch(0o600)
        keys.write_text(a_key("first"))
        known = {"IRIS_PAYLOAD_KEYS": str(keys)}
        started = cluster.iris(
            "cluster", "start", "--config", str(file), within=4 * PATIENCE, **known
        )
        assert "1 of 1 hosts" in started.err

        go = cluster.file("go")
        command = (
            f"test $SOUND = marimba && echo begun xylo$1; while [ ! -e {go} ]; do sleep 0.1; done;"
            " exit 3"
        )
        asked = (
            "submit",
            "-n",
            "loud",
            "--env",
            "SOUND=marimba",
            "--",
            "sh",
            "-c",
            command,
            "sh",
            "phone",
        )
        job = cluster.begin(*asked, **known)
        eventually(lambda: "begun xylophone" in job.out)
        found = files_with(lab, keys.read_text().split()[1])
        assert [path.name for path in found] == ["payload.keys"] * 2
        assert [stat.S_IMODE(path.stat().st_mode) for path in found] == [0o600] * 2
        processes = [
            word for each in psutil.process_iter(["cmdline"]) for word in each.info["cmdline"] or ()
        ]
        assert [word for word in processes if keys.read_text().split()[1] in word] == []
        go.touch()
        job.ends(code=125)
        assert "code 3" in cluster.iris("explain", "loud", **known).out

        database = [
            path
            for path in lab[0].home.rglob("temporal.sqlite*")
            if b"binary/encrypted" in path.read_bytes()
        ]
        assert database
        stored = b"".join(path.read_bytes() for path in lab[0].home.rglob("temporal.sqlite*"))
        assert [word for word in (b"marimba", b"phone") if word in stored] == []

        # The control plane has made the keys for secrets itself, on its machine; the host has them
        # from it.
        show = ("--secret", "TOKEN", "--", "sh", "-c", "echo ${#TOKEN} $TOKEN")
        assert cluster.iris("submit", *show, TOKEN="hunter2-of-a-user", **known).out == "17 ***\n"
        (own,) = [
            path
            for path in files_with(lab, "")
            if path.name == "secret.keys" and "clusters" in path.parts
        ]
        first = own.read_text().split()[1]
        assert [path.name for path in files_with(lab, first)] == ["secret.keys"] * 2
        rotated = cluster.iris("secret", "rotate", "--json", **known).json
        assert rotated["file"] == str(own)
        assert cluster.iris("submit", *show, TOKEN="hunter2-of-a-user", **known).out == "17 ***\n"
        eventually(
            lambda: [path.name for path in files_with(lab[1:], own.read_text())] == ["secret.keys"]
        )
        assert files_with(lab, "hunter2") == []

        # So with the key for messages, of which the machine that started the cluster has a copy.
        copy = cluster.home / "clusters" / "lab" / "message.key"
        found = files_with(lab, copy.read_text())
        assert [path.name for path in found] == ["message.key"] * 2
        assert [stat.S_IMODE(path.stat().st_mode) for path in (copy, *found)] == [0o600] * 3
        assert asyncio.run(start_of_a_stranger(cluster.file("planted"), keys)) == "Refused"
        assert not cluster.file("planted").exists()

        assert "key 'first'" in cluster.iris("status", "loud", code=5).err
        refused = cluster.iris("cluster", "restart", "lab", code=2)
        assert "IRIS_PAYLOAD_KEYS: ''" in refused.err

        cluster.iris("cluster", "stop", "lab", "--yes", within=2 * PATIENCE, **known)
        assert [each.left() for each in lab] == before
