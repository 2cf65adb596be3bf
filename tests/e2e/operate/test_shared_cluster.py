"""Four people on one cluster with identities: two users, a viewer and an operator, on the official
server with a policy. Each sees the cluster, and is refused what is not theirs.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio.client import Client

from iris.access.keys import PrivateKey
from iris.access.tokens import private_key, sign_delegation, sign_token
from iris.client.access.identity_file import read_identity
from iris.client.connect.connection import data_converter
from iris.messages.slice import SliceInput
from iris.model import names
from iris.model.slice.keys import KEY_BYTES, key_file
from tests.e2e.cluster import Ran, Running, a_home, eventually
from tests.e2e.operate.production import OwnCluster
from tests.temporal_cluster import a_temporal_cluster

pytestmark = pytest.mark.production

#: The roles of the policy by name.
ROLES = {
    "control-plane": "control-plane",
    "host/first": "host",
    "ada": "user",
    "bob": "user",
    "eve": "viewer",
    "olga": "operator",
}
#: Who runs the processes of the cluster, by the first word of their commands.
OF_PROCESSES = {"controller": "control-plane", "agent": "host/first"}
#: Version 1.31 starts activities without a workflow, such as `iris exec`, only with this setting.
SETTINGS = {"activity.enableStandalone": True}
#: The exit code of a command that the cluster refuses.
REFUSED = 5


class Lab(OwnCluster):
    """A cluster with identities. Its processes have theirs, and commands have that of `someone`."""

    someone = "ada"

    @property
    def policy(self) -> Path:
        return self.home / "access.json"

    def identity(self, name: str) -> Path:
        return self.home / f"{name.replace('/', '-')}.json"

    def begin(
        self, *arguments: str, cwd: Path | None = None, merged: bool = False, **env: str
    ) -> Running:
        own = {
            "IRIS_IDENTITY": str(self.identity(OF_PROCESSES.get(arguments[0], self.someone))),
            "IRIS_ACCESS_POLICY": str(self.policy),
            "IRIS_USER": "",
        }
        if arguments[0] in OF_PROCESSES:
            own["IRIS_SECRET_KEYS"] = str(self.home / "secret.keys")
        return super().begin(*arguments, cwd=cwd, merged=merged, **{**own, **env})

    def as_(self, name: str, *arguments: str, code: int | None = 0) -> Ran:
        """Runs a command as somebody."""
        return self.iris(*arguments, code=code, IRIS_IDENTITY=str(self.identity(name)))

    def add(self, name: str, role: str) -> None:
        """Makes the key of somebody, and adds it to the policy."""
        file = str(self.identity(name))
        key = self.iris("user", "key", name, "--file", file, IRIS_CLUSTER="").out.strip()
        self.iris("user", "add", name, "--role", role, "--key", key)

    def key(self, name: str) -> PrivateKey:
        return read_identity(self.identity(name)).key


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The cluster with one host that joined."""
    with a_home() as home, ExitStack() as stack:
        lab = Lab(home, "lab", [""])
        stack.callback(lab.clear)
        (home / "secret.keys").touch(0o600)
        (home / "secret.keys").write_text(lab.iris("secret", "new-keys").out)
        lab.iris("cluster", "access", "--create", str(lab.policy), "--name", "lab")
        for name, role in ROLES.items():
            lab.add(name, role)
        now = datetime.now(UTC)
        token = sign_token(lab.key("control-plane"), "control-plane", "lab", now)
        options = {"policy": lab.policy, "token": token, "settings": SETTINGS}
        lab._addresses = stack.enter_context(a_temporal_cluster(**options)).service.addresses
        for name in ROLES:
            lab.iris("user", "key", "--file", str(lab.identity(name)))  # IRIS_CLUSTER names it
        lab.start()
        lab.join("first", "--cpu", "4", "--memory", "4g")
        yield lab


def test_each_user_submits_under_the_own_name_and_reads_the_own_logs(lab: Lab) -> None:
    """What a cluster is for."""
    for name in ("ada", "bob"):
        done = lab.as_(name, "submit", "-n", "hello", "--", "echo", f"I am {name}")
        assert f"{name}/hello SUCCEEDED" in done.err + done.out
        assert f"I am {name}" in lab.as_(name, "logs", "hello").out


def test_the_servers_say_who_somebody_is(lab: Lab) -> None:
    """A user sees the role and the key at once, also when something is refused."""
    for name in ("ada", "eve", "olga"):
        facts = lab.as_(name, "whoami", "--json").json
        assert (facts["name"], facts["role"]) == (name, ROLES[name])
        assert (facts["identities"], facts["accepted"]) == (True, True)
        assert facts["key"] == lab.key(name).id
    shown = lab.as_("olga", "cluster", "status").out
    assert "identities; you are olga (operator)" in shown


def test_a_viewer_sees_and_changes_nothing(lab: Lab) -> None:
    """A screen in the corridor, or a manager."""
    assert lab.as_("eve", "jobs", "--all").code == 0
    assert lab.as_("eve", "host", "list").code == 0
    refused = lab.as_("eve", "submit", "-n", "mine", "--", "true", code=REFUSED)
    assert "eve (viewer)" in refused.err
    assert "iris whoami" in refused.err


def test_a_user_sees_the_jobs_of_others_and_cannot_change_them(lab: Lab) -> None:
    """The purpose of identities."""
    lab.as_("ada", "submit", "-n", "long", "-d", "--", "sleep", "600")
    eventually(lambda: lab.as_("bob", "status", "ada/long", "--json").json["state"] == "RUNNING")

    for words in (
        ("cancel", "ada/long", "--yes"),
        ("hold", "ada/long"),
        ("priority", "ada/long", "batch"),
        ("exec", "ada/long", "--", "true"),
        ("host", "drain", "first"),
        ("cluster", "pause"),
    ):
        refused = lab.as_("bob", *words, code=None)
        assert refused.code == REFUSED, (words, refused)
        assert "bob (user)" in refused.err, words
    assert lab.as_("ada", "status", "long", "--json").json["state"] == "RUNNING"
    assert "sleep" not in lab.as_("bob", "status", "ada/long").out
    assert "sleep 600" in lab.as_("olga", "status", "ada/long").out
    lab.as_("ada", "cancel", "long")


def test_the_owner_and_an_operator_control_a_job(lab: Lab) -> None:
    """An operator helps when somebody is away."""
    lab.as_("ada", "submit", "-n", "stopped", "-d", "--", "sleep", "600")
    eventually(lambda: lab.as_("ada", "status", "stopped", "--json").json["state"] == "RUNNING")
    assert lab.as_("ada", "hold", "stopped").code == 0
    assert lab.as_("olga", "release", "ada/stopped").code == 0
    assert "ok" in lab.as_("ada", "exec", "stopped", "--", "echo", "ok").out
    assert lab.as_("olga", "cancel", "ada/stopped").code == 0
    assert lab.as_("olga", "host", "cordon", "first", "--reason", "dust").code == 0
    assert lab.as_("olga", "host", "uncordon", "first").code == 0


def test_a_job_with_an_identity_submits_child_jobs_and_nothing_else(lab: Lab) -> None:
    """A launcher is a job. Its key is of no use for the other jobs of its user."""
    iris = f"{sys.executable} -m iris.cli.main"
    other = lab.as_("ada", "submit", "-n", "other", "-d", "--", "sleep", "600")
    assert other.code == 0
    script = f"{iris} submit -n child -- echo I am the child; {iris} cancel ada/other; echo $?"
    done = lab.as_(
        "ada",
        *("submit", "-n", "top", "--cpu", "0.1", "--memory", "100m"),
        *("--secret", "IRIS_JOB_IDENTITY", "--", "sh", "-c", script),
    )

    assert "I am the child" in done.out
    assert lab.as_("ada", "status", "ada/top/child", "--json").json["state"] == "SUCCEEDED"
    assert str(REFUSED) in done.out.splitlines()
    assert "refuses job/ada/top" in done.out
    assert lab.as_("ada", "cancel", "other").code == 0


def test_a_job_without_an_identity_is_refused(lab: Lab) -> None:
    """Programs do by accident what nobody wants, and a dependency does it on purpose."""
    iris = f"{sys.executable} -m iris.cli.main"
    done = lab.as_("ada", "submit", "-n", "plain", "--", "sh", "-c", f"{iris} jobs; echo $?")

    assert str(REFUSED) in done.out.splitlines()


def test_another_name_than_that_of_the_key_is_refused(lab: Lab) -> None:
    """`IRIS_USER` is a label without identities, and a claim with them."""
    refused = lab.iris("submit", "--", "true", code=2, IRIS_USER="bob")
    assert "IRIS_USER: 'bob' is not the name of your identity, ada" in refused.err


def test_somebody_without_a_key_learns_how_to_get_one(lab: Lab) -> None:
    """The first command of a new member of the lab."""
    refused = lab.iris("jobs", code=REFUSED, IRIS_IDENTITY="")
    assert f"iris user key --cluster {lab.address}/NAME" in refused.err


def test_somebody_who_is_revoked_is_refused_within_seconds(lab: Lab) -> None:
    """A laptop was stolen. Nothing is restarted."""
    lab.add("mallory", "user")
    lab.as_("mallory", "user", "key", "--file", str(lab.identity("mallory")))
    eventually(lambda: lab.as_("mallory", "jobs", code=None).code == 0)
    lab.iris("user", "revoke", "mallory")

    eventually(lambda: lab.as_("mallory", "jobs", code=None).code == REFUSED)
    assert lab.as_("mallory", "whoami", code=REFUSED).code == REFUSED


async def start_slice(lab: Lab, slice_id: str) -> None:
    """Starts the workflow of a slice as the control plane."""
    token = sign_token(lab.key("control-plane"), "control-plane", "lab", datetime.now(UTC))
    client = await Client.connect(
        lab.address, api_key=token, tls=False, data_converter=data_converter()
    )
    await client.start_workflow(
        names.WORKFLOW_TYPES[names.KIND_SLICE],
        SliceInput(cluster="lab", id=slice_id),
        id=names.slice_workflow("lab", slice_id),
        task_queue=names.control_queue("lab"),
    )


def test_a_host_of_a_slice_serves_with_the_delegation_of_the_control_plane(lab: Lab) -> None:
    """The hosts that a control plane creates have no entry in the policy."""
    asyncio.run(start_slice(lab, "made"))
    secret = os.urandom(KEY_BYTES)
    public = private_key(secret).public
    delegation = sign_delegation(lab.key("control-plane"), "made", public, "lab")
    file = lab.home / "slice.key"
    file.write_text(key_file(secret.hex(), delegation))
    options = ("--slice", "made", "--key-file", str(file), "--dir", str(lab.home / "made"))
    lab.begin("agent", "--host-id", "made", "--run-as=root", *options, IRIS_IDENTITY="")

    eventually(lambda: "made" in lab.host_ids(), every=0.5)
    lab.as_("olga", "host", "cordon", "first")
    done = lab.as_("ada", "submit", "-n", "there", "--", "sh", "-c", "echo on $IRIS_HOST_ID")
    lab.as_("olga", "host", "uncordon", "first")
    assert "on made" in done.out
