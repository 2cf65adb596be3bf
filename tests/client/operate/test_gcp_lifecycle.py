"""A control plane on the fake Google whose machines do not boot: what is checked beforehand, what
is told, and what stays.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from iris.cli.main import run
from iris.client.connect.clusters import (
    ClusterRecord,
    ProcessRef,
    cluster_dir,
    read_config,
    write_record,
)
from iris.client.connect.identity import cluster_uid
from iris.client.connect.tunnel import close_tunnel, tunnel_log
from iris.client.operate.cluster_manager import ClusterManager
from iris.client.operate.gcp import controller as gcp_controller
from iris.client.operate.gcp import wait_ready
from iris.client.operate.gcp.controller import GcpController
from iris.config import load_config
from iris.model import store_paths
from iris.model.errors import InvalidValue, IrisError, Rejected, Unreachable
from iris.platforms.base import QuotaExceeded
from iris.platforms.gcp.controller_ops import ControllerMachine
from iris.platforms.gcp.controller_vm import insert_request
from iris.platforms.gcp.settings import gcp_settings
from iris.storage.object_store import Store
from tests.e2e.cluster import eventually
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long

BIN = Path(__file__).parents[2] / "fakes" / "google" / "bin"
SMOKE_TEST = Path(__file__).parents[3] / "scripts" / "smoke-test.py"
ZONE = "europe-west4-b"
CONFIG = """
name: NAME
platform:
  gcp:
    project_id: PROJECT
    default_zones: [europe-west4-b]
    endpoints: {tpu: "TPU", compute: "COMPUTE"}
controller: {image: controller:1, bundle_prefix: "STORE", gcp: {}}
defaults: {bootstrap: {image: agent:1}}
scale_groups:
  v5e: {type: tpu_vm, accelerator_variant: v5litepod-16}
"""
_numbers = itertools.count()


class Place:
    """A cluster in a project of its own, and whoever commands it."""

    def __init__(self, google: FakeGoogle, directory: Path) -> None:
        self.google = google
        self.directory = directory
        self.name = f"c{next(_numbers)}"
        self.machine = f"iris-{self.name}-controller"
        self.project = f"project-{self.name}"
        self.store = Store((directory / "store").as_uri(), create=True)
        text = (
            CONFIG.replace("NAME", self.name)
            .replace("PROJECT", self.project)
            .replace("STORE", self.store.url)
        )
        self.text = text.replace("TPU", google.tpu).replace("COMPUTE", google.compute)
        self.file = directory / "cluster.yaml"
        self.file.write_text(self.text)
        self.told: list[str] = []

    def controller(self, text: str = "") -> GcpController:
        written = text or self.text
        return GcpController(load_config(written), text=written, progress=self.told.append)

    def there_is(self) -> ControllerMachine:
        """Its control plane's machine, which never answers."""
        config, uid = load_config(self.text), asyncio.run(cluster_uid(self.store, self.name))
        settings = gcp_settings(config, uid, text=self.text)
        machine = ControllerMachine(settings, ZONE)
        machine.create(insert_request(settings, config.controller, str(uuid.uuid4())))
        return machine

    def refuse(self, words: str) -> None:
        """Whoever opens a tunnel is told so."""
        (self.directory / "refuse").write_text(words)

    def alive(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.google.alive(self.project)]


@pytest.fixture
def place(google: FakeGoogle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """With the fake `gcloud`; without patience for who does not answer."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("FAKE_GCLOUD", str(tmp_path))
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)
    monkeypatch.setattr(gcp_controller, "REMOTE_ANSWER_TIMEOUT", timedelta(seconds=2))
    place = Place(google, tmp_path)
    yield place
    close_tunnel(place.name)


@pytest.fixture
def without_gcloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on there is none."""
    return lambda: monkeypatch.setenv("PATH", str(tmp_path))


def test_a_start_that_could_not_be_watched_makes_nothing(
    place: Place, without_gcloud: Callable[[], None]
) -> None:
    """A machine would be made, and a quarter of an hour later its control plane blamed. Nor does a
    restart switch it off.
    """
    without_gcloud()
    with pytest.raises(Unreachable, match="gcloud"):
        place.controller().start()
    assert place.alive() == []
    place.there_is()
    for deed in (place.controller().restart, place.controller().reload):
        with pytest.raises(Unreachable, match="gcloud"):
            deed()
    assert "instances.reset" not in place.google.calls(match=place.project)
    assert "instances.setMetadata" not in place.google.calls(match=place.project)


async def test_who_looks_for_a_cluster_that_was_never_started_leaves_no_trace(place: Place) -> None:
    """A slip in `bundle_prefix` would make another cluster of the same name, to which nothing
    belongs.
    """
    words = f"no cluster {place.name} was ever started with bundle_prefix {place.store.url}"
    controller = place.controller()
    for look in (
        controller.discover,
        controller.status,
        controller.fetch_startup_logs,
        controller.restart,
        controller.stop,
    ):
        with pytest.raises(Unreachable, match=words):
            await asyncio.to_thread(look)
    for ask in (controller.plan_stop, controller.machines, controller.seen):
        with pytest.raises(Unreachable, match=words):
            await ask()
    assert await place.store.get(store_paths.cluster_uid(place.name)) is None


def test_a_cluster_that_is_there_is_not_new_and_is_not_stopped_by_who_found_it(
    place: Place,
) -> None:
    """By a program for a block, or by the smoke test: it may be the one that everybody works on."""
    place.there_is()
    words = rf"exists already: machine {place.machine} in {ZONE} \(RUNNING\); stop it with"
    with pytest.raises(Rejected, match=words), ClusterManager(load_config(place.file)).connect():
        raise AssertionError("it was found")
    ran = subprocess.run(
        [sys.executable, SMOKE_TEST, "--config", place.file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, "exists already" in ran.stderr) == (5, True), ran.stderr
    assert place.alive() == [place.machine]


def test_of_a_new_cluster_that_does_not_come_up_nothing_stays(place: Place) -> None:
    """Who wants it for a while only does not come back to look at it. Its console is told all the
    same.
    """
    place.google.say(
        place.machine, "startup-script: [iris-init] FAILED: could not pull controller:1\n"
    )
    with pytest.raises(
        IrisError,
        match=(
            r"did not come up: its machine could not be set up (.|\n)*could not pull controller:1$"
        ),
    ):
        place.controller().start(new=True)
    assert place.google.created("instance", place.project) != []
    assert place.alive() == []
    assert not cluster_dir(place.name).exists()


def test_of_a_new_cluster_that_google_refuses_the_refusal_is_told(place: Place) -> None:
    """Taking back what there is not must not stand before it."""
    place.google.fail(
        "instances.insert",
        403,
        details="quotaExceeded",
        message="Quota 'CPUS' exceeded.",
        match=place.project,
    )
    with pytest.raises(QuotaExceeded):
        place.controller().start(new=True)


def test_what_is_kept_is_the_configuration_that_the_cluster_has(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever only looks, or finds it, has a file that it may never get: the next restart by name
    would give it that.
    """
    place.there_is()
    other = place.text + "# another\n"
    place.refuse("ERROR: no")
    place.controller(other).discover()
    assert read_config(place.name) == place.text
    asyncio.run(place.controller(other).plan_stop())
    assert read_config(place.name) == place.text
    monkeypatch.setattr(wait_ready, "START_TIMEOUT", timedelta())
    with pytest.raises(IrisError, match="did not come up"):  # but it has it
        place.controller(other).restart()
    assert read_config(place.name) == other
    place.controller().discover()
    assert read_config(place.name) == other


def test_a_cluster_elsewhere_takes_no_name_of_a_simulation_that_has_jobs(place: Place) -> None:
    """Said before anything is made; what was kept of the other stays."""
    dead = ProcessRef(pid=2**22 + 1, created=0)
    record = ClusterRecord(
        name=place.name, address="127.0.0.1:1", store="file:///x", supervisor=dead
    )
    write_record(record)
    for deed in (place.controller().start, place.controller().stop):
        with pytest.raises(
            InvalidValue, match="is taken by a cluster on this machine that was stopped"
        ):
            deed()
    assert place.alive() == []


def test_a_stop_says_why_it_takes_a_control_plane_for_dead(place: Place) -> None:
    """It may be well, and the way to it broken: slices are then deleted without a word to what runs
    on them.
    """
    place.there_is()
    place.refuse("ERROR: (gcloud.compute.ssh) Reauthentication required.\n")
    place.controller().discover()
    eventually(lambda: "Reauthentication" in tunnel_log(place.name).read_text())
    plan = asyncio.run(place.controller().plan_stop())
    assert (plan.running, plan.answers, "Reauthentication required" in plan.silent) == (
        True,
        False,
        True,
    )
    place.controller().stop()
    (why,) = (told for told in place.told if "deleting its machines directly" in told)
    assert "Reauthentication required" in why
    assert place.alive() == []


def test_without_gcloud_nobody_is_asked_whether_to_stop_and_a_stop_deletes_directly(
    place: Place, without_gcloud: Callable[[], None]
) -> None:
    """What a stop would do cannot be known; who says --yes is not asked."""
    place.there_is()
    without_gcloud()
    with pytest.raises(
        Unreachable,
        match=r"no gcloud on PATH.*without the control plane, run: iris cluster stop c\d+ --yes$",
    ):
        asyncio.run(place.controller().plan_stop())
    assert run(["cluster", "stop", "--config", str(place.file)]) == 4
    assert place.alive() == [place.machine]
    assert run(["cluster", "stop", "--config", str(place.file), "--yes"]) == 0
    assert place.alive() == []


def test_what_a_machine_keeps_until_it_is_made_anew_is_told_each_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart with another machine type would look as if it had done that, and the next start as
    if all were as written.
    """
    machine = place.there_is()
    place.google.say(
        place.machine, "startup-script: [iris-init] FAILED: could not pull controller:1\n"
    )
    place.refuse("ERROR: no")
    monkeypatch.setattr(wait_ready, "START_TIMEOUT", timedelta())
    larger = place.text.replace("gcp: {}}", "gcp: {machine_type: n2-standard-8}}")
    words = (
        "until the cluster is stopped and started: controller.gcp.machine_type 'n2-standard-4', not"
        " 'n2-standard-8'"
    )
    for deed in (place.controller(larger).restart, place.controller(larger).start):
        place.told.clear()
        with pytest.raises(IrisError, match="did not come up"):
            deed()
        assert [told for told in place.told if words in told], place.told
    seen = machine.find()
    assert seen is not None
    assert (seen.config, seen.made_with["controller.gcp.machine_type"]) == (larger, "n2-standard-4")


def test_no_lines_of_the_console_are_none(place: Place) -> None:
    """Not all of them."""
    place.there_is()
    place.google.say(place.machine, "one\ntwo\n")
    controller = place.controller()
    assert [controller.fetch_startup_logs(lines) for lines in (0, 1, 9)] == ["", "two", "one\ntwo"]
