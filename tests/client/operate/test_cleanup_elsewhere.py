"""`iris cluster cleanup` of a cluster on Google Cloud whose control plane is gone, or does not
answer: what goes, what stays.
"""

import asyncio
import json
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from iris.cli.main import run
from iris.client.connect.identity import cluster_uid
from iris.platforms.gcp import labels as label_rules
from iris.storage.object_store import Store
from iris.worker_agents.local.temporal_server import temporal_binary
from tests.fakes.google.client import FakeGoogle

CONFIG = """
name: euw4
platform:
  gcp:
    project_id: PROJECT
    default_zones: [europe-west4-b, europe-west4-a]
    endpoints: {tpu: "TPU", compute: "COMPUTE"}
controller: {image: controller:1, bundle_prefix: "STORE", gcp: {}}
defaults: {bootstrap: {image: agent:1}}
scale_groups:
  v5e: {type: tpu_vm, accelerator_variant: v5litepod-16}
  cpu: {type: gce_vm, machine_type: n2-standard-8}
"""
ZONE = "europe-west4-b"


class Left:
    """A cluster in a project of its own, of which only things in the cloud are left."""

    def __init__(self, google: FakeGoogle, directory: Path) -> None:
        self.google = google
        self.project = f"p-{directory.name.replace('_', '-')[-20:]}"
        store = (directory / "store").as_uri()
        self.file = directory / "cluster.yaml"
        text = CONFIG.replace("PROJECT", self.project).replace("STORE", store)
        self.file.write_text(text.replace("TPU", google.tpu).replace("COMPUTE", google.compute))
        uid = asyncio.run(cluster_uid(Store(store, create=True), "euw4"))
        self.labels = {label_rules.UID: uid, label_rules.CLUSTER: "euw4", label_rules.ROLE: "host"}

    def there_is(
        self, name: str, kind: str = "node", *, foreign: bool = False, **labels: str
    ) -> None:
        """Something with these labels, or with the cluster's."""
        own = {**self.labels, label_rules.SLICE: name, label_rules.GROUP: "v5e"}
        told = {key.replace("_", "-"): value for key, value in labels.items()}
        given = told if foreign and label_rules.MANUAL not in told else own | told
        self.google.seed_foreign(name, self.project, ZONE, kind, given, foreign=foreign)

    def there_is_a_controller(self) -> None:
        labels = self.labels | {label_rules.ROLE: "controller"}
        self.google.seed_foreign(
            "iris-euw4-controller",
            self.project,
            ZONE,
            "instance",
            labels,
            foreign=False,
            state="RUNNING",
        )

    def names(self) -> list[str]:
        return sorted(
            each["path"].rpartition("/")[2] for each in self.google.resources(self.project)
        )

    def cleanup(self, *options: str) -> int:
        return run(["cluster", "cleanup", "--config", str(self.file), *options])


@pytest.fixture
def left(google: FakeGoogle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    """Without gcloud: no tunnel leads anywhere."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)
    return Left(google, tmp_path)


def test_without_a_control_plane_all_that_is_the_clusters_is_left_over_and_nothing_else(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another cluster of the same name, what has no label, and what somebody keeps for themselves
    stay.
    """
    left.there_is("ours-tpu")
    left.there_is("ours-vm", "instance")
    left.there_is("others", foreign=True, iris_uid="another", iris_cluster="euw4")
    left.there_is("unlabelled", foreign=True)
    left.there_is("kept", foreign=True, iris_manual="true")
    there_were = left.names()

    assert left.cleanup() == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in said[:-1]] == [
        ["would", "delete", "slice", "ours-tpu"],
        ["would", "delete", "slice", "ours-vm"],
    ]
    assert said[-1].endswith("add --no-dry-run")
    assert left.names() == there_were

    assert left.cleanup("--no-dry-run") == 0
    assert left.names() == ["kept", "others", "unlabelled"]
    capsys.readouterr()
    assert left.cleanup() == 0
    assert "would delete" not in capsys.readouterr().out
    left.google.check(left.project)


def test_of_a_control_plane_that_does_not_answer_nothing_is_taken_for_left_over(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its slices may be looked after all the same: it takes a word of somebody who knows that it is
    dead.
    """
    left.there_is("ours")
    left.there_is_a_controller()
    assert left.cleanup("--no-dry-run") == 4
    assert "if cluster euw4 will not run again, add --controller" in capsys.readouterr().err
    assert left.names() == ["iris-euw4-controller", "ours"]

    assert left.cleanup("--controller") == 0
    said = capsys.readouterr().out
    assert "would delete machine iris-euw4-controller in europe-west4-b" in said
    assert "would delete slice ours in europe-west4-b" in said
    assert left.cleanup("--controller", "--no-dry-run", "--json") == 0
    machine, ours = json.loads(capsys.readouterr().out)["left"]
    assert machine["state"] == "RUNNING"
    assert (machine["kind"], machine["id"], machine["zone"]) == (
        "machine",
        "iris-euw4-controller",
        ZONE,
    )
    assert (ours["kind"], ours["id"], ours["zone"]) == ("slice", "ours", ZONE)
    assert left.names() == []
    left.google.check(left.project)


async def test_a_service_that_has_not_this_cluster_does_not_say_what_is_left_over(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip in the namespace, or another server at the port: no workflow looks after any slice
    there, and all of them live.
    """
    left.there_is("ours")
    left.there_is_a_controller()
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary()
    ) as server:
        address = server.client.service_client.config.target_host
        text = left.file.read_text().replace(
            "gcp: {}}", f"gcp: {{}}, temporal: {{address: '{address}'}}}}"
        )
        left.file.write_text(text)
        assert await asyncio.to_thread(left.cleanup, "--no-dry-run") == 4
    said = capsys.readouterr().err
    assert (
        f"the service at {address}, namespace default, has no cluster euw4. So it is not known"
        in said
    )
    assert left.names() == ["iris-euw4-controller", "ours"]


def test_a_stop_asks_before_it_deletes_slices_whose_control_plane_is_gone(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    """They cost money, and may compute; and a zone that cannot be seen is said also when nothing
    else is there.
    """
    left.there_is("ours")
    stop = ["cluster", "stop", "--config", str(left.file)]
    assert run(stop) == 2
    assert (
        "Its control plane has no machine: its slices are deleted directly. There is no terminal"
        in capsys.readouterr().err
    )
    assert left.names() == ["ours"]
    assert run([*stop, "--yes"]) == 0
    assert left.names() == []
    capsys.readouterr()
    left.google.zone_down("europe-west4-a")
    try:
        assert run([*stop, "--dry-run"]) == 0
    finally:
        left.google.clear()
    first, second = capsys.readouterr().out.splitlines()
    assert first == "cluster euw4 does not run; nothing to delete in the zones that could be listed"
    assert second.startswith("zone europe-west4-a could not be listed: ")


def test_programs_are_told_the_same(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    """What there is, whether it was deleted, and what could not be looked at; nothing else on
    standard output.
    """
    left.there_is("ours", "instance")
    left.google.zone_down("europe-west4-a")
    try:
        assert left.cleanup("--controller", "--json") == 1
    finally:
        left.google.clear()
    said = json.loads(capsys.readouterr().out)
    assert said["left"] == [
        {"cluster": "euw4", "kind": "slice", "id": "ours", "zone": ZONE, "state": "ACTIVE"}
    ]
    assert (said["deleted"], list(said["unreachable"])) == (False, ["europe-west4-a"])
    assert left.cleanup("--json", "--no-dry-run") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["deleted"], [each["id"] for each in said["left"]], said["unreachable"]) == (
        True,
        ["ours"],
        {},
    )
    assert left.names() == []
    assert left.cleanup("--json") == 0
    assert json.loads(capsys.readouterr().out) == {"deleted": False, "left": [], "unreachable": {}}


def test_what_is_in_a_zone_that_cannot_be_listed_is_not_known(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control plane may be in it, and look after what is elsewhere: that goes when somebody
    says that it is dead. The zone is said all the same, with an exit code that a script sees.
    """
    left.there_is("ours")
    left.google.zone_down("europe-west4-a")
    try:
        assert left.cleanup("--no-dry-run") == 4
        assert left.names() == ["ours"]
        assert "So it is not known which of its slices are in use" in capsys.readouterr().err
        assert left.cleanup("--controller", "--no-dry-run") == 1
    finally:
        left.google.clear()
    assert "zone europe-west4-a could not be listed" in capsys.readouterr().err
    assert left.names() == []


def test_the_machine_of_a_control_plane_is_a_matter_of_clusters_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On this machine there is none."""
    assert run(["cluster", "cleanup", "--controller"]) == 5
    assert "--controller needs a cluster on Google Cloud" in capsys.readouterr().err
