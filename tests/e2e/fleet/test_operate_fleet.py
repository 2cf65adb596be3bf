"""Operators at work on a cluster that makes its own machines: looking, pausing, draining,
reloading, restarting, stopping.
"""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, a_home, eventually, until

pytestmark = pytest.mark.long

CONFIG = """
name: fleet
platform: {local: {}}
autoscaler: {observe_interval: 2m}
defaults: {autoscaler: {scale_down_delay: 10m}}
scale_groups:
  cpus: {type: local_vm, min_slices: 1, max_slices: MOST, resources: {cpu: 4}, scale_down_delay: 1s}
  gpus: {type: local_vm, max_slices: 1, resources: {cpu: 8, device: "gpu:H100:8"}}
"""
GPU = ("--gpu", "H100x8", "--cpu", "1")


def a_config(directory: Path, *, most: int = 1, least: int = 1) -> str:
    """A file with so many slices of the group `cpus`."""
    file = directory / f"cluster-{least}-{most}.yaml"
    file.write_text(
        CONFIG.replace("MOST", str(most)).replace("min_slices: 1", f"min_slices: {least}")
    )
    return str(file)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Cluster]:
    """A host without accelerators, and on demand one with; every test leaves it like that, or with
    less.
    """
    with (
        a_home() as home,
        a_cluster("--config", a_config(home), "--ephemeral", name="fleet") as running,
    ):
        yield running


def slices(cluster: Cluster, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.iris("slice", "list", "--json", *options).json
    return found


def ready(cluster: Cluster, group: str) -> list[str]:
    """The slices of a group that take work."""
    return [each["id"] for each in slices(cluster, "--group", group, "--state", "ready")]


def test_a_paused_autoscaler_makes_nothing_and_everybody_is_told_why(fleet: Cluster) -> None:
    """The job waits, status and group list show it; after the resume it runs. The group is empty
    again afterwards.
    """
    fleet.iris("autoscaler", "pause", "--reason", "budget")
    shown = fleet.iris("autoscaler", "status", "--json").json
    assert shown["paused"] == f"budget (by {USER})"
    fleet.submit("paused", *GPU, "--", "true")
    (line,) = re.findall(r"^ *PAUSED .*$", fleet.iris("cluster", "status").out, re.MULTILINE)
    assert f"budget (by {USER})" in line
    assert [each["name"] for each in fleet.iris("group", "list", "--json").json] == ["cpus", "gpus"]
    eventually(lambda: fleet.iris("autoscaler", "status", "--json").json["waiting"], every=0.5)
    assert slices(fleet, "--group", "gpus") == []

    fleet.iris("autoscaler", "resume")
    fleet.iris("wait", "paused")
    assert f"for {USER}/paused" in fleet.iris("autoscaler", "status").out
    status = eventually(lambda: both_ready(fleet), every=0.3)
    assert status["blocked"] == {}
    assert status["missing_hosts"] == []
    assert status["autoscaler"] == {"paused": None, "closing": None, "unreachable": {}}


def both_ready(cluster: Cluster) -> dict[str, Any] | None:
    """The cluster's status, once the autoscaler has heard that a slice of each group takes work."""
    status: dict[str, Any] = cluster.iris("cluster", "status", "--json").json
    return status if status["slices"] == {"READY": 2} else None


def test_a_slice_that_is_drained_goes_when_what_runs_on_it_has_ended(fleet: Cluster) -> None:
    """What runs there is shown and not disturbed; the slice's story can be read after its end."""
    fleet.submit("works", *GPU, "--", "sh", "-c", f"touch works; {until('go')}")
    fleet.there_is("works")
    (slice_id,) = ready(fleet, "gpus")
    shown = fleet.iris("slice", "show", "gpus", "--json").json
    assert (shown["id"], shown["group"], shown["made"], shown["size"]) == (
        slice_id,
        "gpus",
        True,
        1,
    )
    assert [host["running"] for host in shown["hosts"]] == [[f"{USER}/works:0"]]
    said = fleet.iris("slice", "delete", slice_id, code=2).err
    assert f"Delete {slice_id}? {USER}/works:0 " in said

    assert (
        fleet.iris("slice", "drain", "gpus", "--reason", "repair").out
        == f"slice {slice_id} is being drained\n"
    )
    fleet.file("go").touch()
    fleet.iris("wait", "works")
    eventually(lambda: slices(fleet, "--group", "gpus") == [], every=0.5)
    assert [task["attempt"] for task in fleet.status("works")["tasks"]] == [1]
    story = fleet.iris("slice", "show", slice_id, "--json").json
    steps = [(step["state"], step["reason"]) for step in story["steps"]]
    assert steps[-3:] == [
        (state, f"repair (by {USER})") for state in ("DRAINING", "DELETING", "DELETED")
    ]
    assert slice_id in fleet.iris("slice", "drain", slice_id, code=3).err


def test_a_slice_that_is_deleted_is_replaced_if_its_group_needs_it_and_a_joined_one_is_nobodys_to_delete(
    fleet: Cluster,
) -> None:
    """What is named wrongly, or belongs to people, hinders nothing of the rest."""
    joining = fleet.begin("agent", "--join", "--run-as=root", "--host-id", "own", "--cpu", "1")
    eventually(lambda: "own" in fleet.host_ids(), every=0.3)
    (former,) = ready(fleet, "cpus")
    said = fleet.iris("slice", "delete", "own", "nothing", former, "--yes", code=5)
    assert said.out == f"slice {former} is being deleted\n"
    assert (
        "slice own joined by itself, so Iris has no machine to delete; stop its agents" in said.err
    )
    assert "slice nothing" in said.err
    joined = next(each for each in slices(fleet) if each["id"] == "own")
    assert (joined["state"], joined["made"], joined["group"], joined["hosts"]) == (
        "READY",
        False,
        None,
        ["own"],
    )
    joining.interrupt()
    joining.ends(code=None)
    (successor,) = eventually(
        lambda: [each for each in ready(fleet, "cpus") if each != former], every=0.3
    )
    assert successor.startswith("cpus-")


def test_a_reload_lets_a_cluster_grow_and_shrink_and_a_bad_file_changes_nothing(
    fleet: Cluster,
) -> None:
    """A dry run only says what would change; the limits that are gone give back what is idle."""
    there = fleet.home / "clusters" / "fleet" / "config.yaml"
    before = there.read_text()
    grown = a_config(fleet.work, least=2, most=2)
    assert (
        fleet.iris("cluster", "reload", "--config", grown, "--dry-run").out
        == "~ cpus: min_slices 1 → 2, max_slices 1 → 2\n"
    )
    bad = fleet.work / "bad.yaml"
    bad.write_text(CONFIG.replace("MOST", "many"))
    assert (
        "scale_groups.cpus.max_slices: 'many'"
        in fleet.iris("cluster", "reload", "--config", str(bad), code=5).err
    )
    assert there.read_text() == before

    fleet.iris("cluster", "reload", "--config", grown)
    eventually(lambda: len(ready(fleet, "cpus")) == 2, every=0.3)
    fleet.iris("cluster", "reload", "fleet", "--config", a_config(fleet.work))
    eventually(lambda: len(slices(fleet, "--group", "cpus")) == 1, every=0.3)
    assert there.read_text() == before


def test_a_restarted_control_plane_finds_slices_and_jobs_as_they_were(fleet: Cluster) -> None:
    """What runs does not notice."""
    fleet.submit("through", "--", "sh", "-c", f"touch through; {until('on')}")
    fleet.there_is("through")
    before, control = slices(fleet), fleet.pid("controller", "serve")
    fleet.iris("cluster", "restart")
    assert fleet.pid("controller", "serve") not in (None, control)
    assert slices(fleet) == before
    fleet.file("on").touch()
    fleet.iris("wait", "through")
    assert [task["attempt"] for task in fleet.status("through")["tasks"]] == [1]


def test_a_cleanup_deletes_machines_that_nobody_looks_after_and_no_others(fleet: Cluster) -> None:
    """Only shown, until somebody says that it is meant."""
    stray = fleet.home / "clusters" / "fleet" / "machines" / "stray"
    stray.mkdir()
    before = slices(fleet)
    assert "slice stray (FAILED) of cluster fleet" in fleet.iris("cluster", "cleanup").out
    (left,) = fleet.iris("cluster", "cleanup", "--json").json["left"]
    assert left == {
        "cluster": "fleet",
        "kind": "slice",
        "id": "stray",
        "zone": None,
        "state": "FAILED",
    }
    assert stray.exists()
    fleet.iris("cluster", "cleanup", "fleet", "--no-dry-run")
    assert not stray.exists()
    assert slices(fleet) == before
    assert fleet.iris("cluster", "cleanup", "--json").json["left"] == []


def test_a_dry_run_of_a_stop_names_everything_and_changes_nothing(fleet: Cluster) -> None:
    """Slices, jobs and processes, before somebody says yes."""
    there = [each["id"] for each in slices(fleet)]
    said = fleet.iris("cluster", "stop", "--dry-run").out
    assert said.splitlines()[:2] == ["would delete 1 slice(s), by the autoscaler", f"  {there[0]}"]
    assert str(fleet.pid("controller", "serve")) in said
    assert [each["id"] for each in slices(fleet)] == there


def test_a_stop_that_was_interrupted_is_finished_by_the_next_even_when_the_control_plane_is_dead() -> (
    None
):
    """The first one waits for a program that takes its time; the second finds nobody to ask, and
    deletes the machines itself.
    """
    with a_cluster("--cpu", "1") as cluster:
        command = f"trap 'touch told' TERM; touch runs; {until('go')}"
        cluster.submit("slow", "--", "sh", "-c", command)
        cluster.there_is("runs")
        first = cluster.begin("cluster", "stop", "--yes")
        cluster.there_is("told")
        first.interrupt()
        assert first.ends(code=130).out == ""
        assert re.search(r"^ *CLOSING ", cluster.iris("cluster", "status").out, re.MULTILINE)

        control = cluster.pid("controller", "serve")
        assert control is not None
        os.kill(control, signal.SIGSTOP)
        cluster.file("go").touch()
        second = cluster.begin("cluster", "stop", "--yes")
        eventually(lambda: "deleted local-cpu-" in second.err)
        os.kill(control, signal.SIGCONT)
        second.ends()
        assert "deleting its machines directly\n" in second.err
        assert cluster.processes() == []
        assert list((cluster.home / "clusters" / "local").glob("machines/*")) == []
        again = cluster.iris("cluster", "stop", "local", "--yes").out
        assert again == "cluster local did not run; nothing to delete\n"
