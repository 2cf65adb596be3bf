"""The control plane's machine on the fake Google: made once, found again, told from others', and
deleted for good.
"""

import itertools
import uuid
from pathlib import Path

import pytest

from iris.client.connect.identity import cluster_uid
from iris.client.operate.gcp.controller import GcpController
from iris.config import ClusterConfig, load_config
from iris.model.errors import InvalidValue, Unreachable
from iris.platforms.base import BadConfig, QuotaExceeded, Unavailable
from iris.platforms.gcp import controller_ops
from iris.platforms.gcp.controller_ops import RUNNING, ControllerMachine
from iris.platforms.gcp.controller_vm import insert_request
from iris.platforms.gcp.labels import CONFIG_KEY, MANUAL, owner_labels
from iris.platforms.gcp.settings import GcpSettings, gcp_settings
from iris.storage.object_store import Store
from tests.fakes.google.client import FakeGoogle

EXAMPLE = (Path(__file__).parents[3] / "examples" / "eu-west4.yaml").read_text()
ZONE = "europe-west4-b"
_projects = (f"project-{number}" for number in itertools.count())


class Place:
    """A project, and one cluster's view of it."""

    def __init__(
        self, google: FakeGoogle, project: str = "", uid: str = "0123456789abcdef"
    ) -> None:
        self.google = google
        self.project = project or next(_projects)
        endpoints = f'endpoints: {{tpu: "{google.tpu}", compute: "{google.compute}"}}'
        self.text = EXAMPLE.replace(
            "project_id: my-project", f"project_id: {self.project}\n    {endpoints}"
        )
        self.config: ClusterConfig = load_config(self.text)
        self.settings: GcpSettings = gcp_settings(self.config, uid, text=self.text)
        self.told: list[str] = []
        self.machine = ControllerMachine(self.settings, ZONE, self.told.append)

    def create(self) -> None:
        self.machine.create(
            insert_request(self.settings, self.config.controller, str(uuid.uuid4()))
        )


@pytest.fixture
def place(google: FakeGoogle, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(controller_ops, "POLL_INTERVAL_S", 0.05)
    google.clear()
    return Place(google)


def test_a_machine_is_made_once_however_often_it_is_asked_for(place: Place) -> None:
    """Two people who start one cluster get one machine, and both find it."""
    assert place.machine.find() is None
    place.create()
    place.create()
    seen = place.machine.find()
    assert seen is not None
    assert (seen.name, seen.zone, seen.status) == ("iris-euw4-eu-west4-controller", ZONE, RUNNING)
    assert len(place.google.alive(place.project)) == 1


def test_answers_that_are_lost_leave_one_machine_and_then_none(place: Place) -> None:
    """What was done although nobody heard of it is found, not done twice."""
    place.google.commit_then_drop("instances.insert")
    place.create()
    place.google.fail("instances.get", 503, times=2)
    assert place.machine.find() is not None
    place.google.commit_then_drop("instances.delete")
    assert place.machine.delete() == ["iris-euw4-eu-west4-controller"]
    assert place.machine.find() is None
    assert place.machine.delete() == []
    place.google.check(place.project)
    assert any("retrying" in told for told in place.told)


def test_the_machine_of_another_cluster_of_the_same_name_is_neither_taken_nor_deleted(
    place: Place,
) -> None:
    """Two people call their clusters the same: the second one is told, and whatever it does, the
    first one's goes on.
    """
    place.create()
    other = Place(place.google, place.project, uid="fedcba9876543210")
    with pytest.raises(
        BadConfig, match=r"in europe-west4-b belongs to another cluster; delete it, or choose"
    ):
        other.machine.find()
    assert other.machine.delete() == []
    assert place.machine.find() is not None


def test_a_machine_that_somebody_keeps_for_himself_stays(place: Place) -> None:
    """The label says so, whatever else is on it."""
    labels = owner_labels(place.settings, "controller") | {MANUAL: "true"}
    place.google.seed_foreign("kept", place.project, ZONE, kind="instance", labels=labels)
    assert place.machine.find() is None
    assert place.machine.delete() == []


def test_a_control_plane_is_found_in_the_zone_where_it_was_made(place: Place) -> None:
    """Whoever changes the zone in the configuration does not get a second one, and can stop the
    first.
    """
    place.create()
    elsewhere = ControllerMachine(place.settings, "europe-west4-a")
    seen = elsewhere.find()
    assert seen is not None
    assert seen.zone == ZONE
    assert elsewhere.delete() == [seen.name]
    assert place.machine.find() is None


def test_a_zone_that_does_not_answer_may_have_the_control_plane(place: Place) -> None:
    """To take silence for absence would make a second one, with a state of its own."""
    place.create()
    place.google.zone_down(ZONE)
    elsewhere = ControllerMachine(place.settings, "europe-west4-a")
    with pytest.raises(
        Unavailable,
        match=f"cannot find the control plane of cluster eu-west4: zones do not answer: {ZONE}",
    ):
        elsewhere.find()
    place.google.zone_down(ZONE, down=False)
    place.google.zone_down("us-central1-a")

    seen = elsewhere.find()
    assert seen is not None
    assert seen.zone == ZONE


def test_another_configuration_reaches_the_machine_as_it_is_written(place: Place) -> None:
    """Its metadata is what the machine boots with, and what the running control plane follows;
    other keys stay.
    """
    place.create()
    before = place.machine.find()
    assert before is not None
    text = place.text + "# 'odd' \"text\" $HOME\r\n"
    settings = gcp_settings(load_config(text), place.settings.uid, text=text)
    request = insert_request(settings, place.config.controller, str(uuid.uuid4()))
    assert {item.key: item.value for item in request.instance_resource.metadata.items}[
        CONFIG_KEY
    ] == text
    place.machine.rebuild(before, request)
    place.machine.reset(before)
    after = place.machine.find()
    assert after is not None
    assert (after.name, after.status, after.build != before.build) == (before.name, RUNNING, True)


def test_a_quota_is_told_as_what_it_is(place: Place) -> None:
    """With the quota's name in it, so that somebody can ask for more."""
    words = "Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west4."
    place.google.fail("instances.insert", 403, details="quotaExceeded", message=words)
    with pytest.raises(QuotaExceeded, match="Quota 'CPUS' exceeded"):
        place.create()
    assert place.google.alive(place.project) == []


def test_what_would_be_asked_for_is_shown_without_asking_anybody() -> None:
    """No credentials, no store, no project: only what the configuration says."""
    shown = GcpController(load_config(EXAMPLE), text=EXAMPLE).requests()
    assert (
        shown["controller"]["instanceResource"]["machineType"]
        == "zones/europe-west4-b/machineTypes/n2-standard-4"
    )
    assert shown["slices"]["tpu_v5e_16"]["node"]["acceleratorType"] == "v5litepod-16"
    assert (
        shown["slices"]["tpu_v5e_16"]["node"]["metadata"]["iris-address"]
        == "unknown-before-the-start:10000"
    )
    assert set(shown["slices"]) == set(load_config(EXAMPLE).scale_groups)


def test_a_control_plane_that_is_not_on_google_is_refused() -> None:
    """A slip of who calls it, told before anything happens."""
    with pytest.raises(InvalidValue, match="is not on Google Cloud"):
        GcpController(load_config("platform: {local: {}}"))


async def test_a_cluster_has_one_uid_for_all_who_share_its_store_and_no_other_cluster_has_it(
    tmp_path: Path,
) -> None:
    """It is what tells our machines from others' when nobody else is left to ask."""
    store = Store(tmp_path.as_uri())
    first = await cluster_uid(store, "a")
    assert await cluster_uid(Store(tmp_path.as_uri()), "a") == first
    assert not await store.put_new("clusters/a/uid", b"another")
    assert await cluster_uid(store, "a") == first
    assert await cluster_uid(store, "b") != first


async def test_a_store_that_cannot_be_read_is_named_with_the_key_that_says_it(
    tmp_path: Path,
) -> None:
    """Without it nobody knows what is whose: nothing may be made or deleted."""
    store = Store(tmp_path.as_uri())
    (tmp_path / "clusters").write_text("a file in the place of a directory")
    with pytest.raises(Unreachable, match=r"cannot be used: .*see controller\.bundle_prefix"):
        await cluster_uid(store, "a")
