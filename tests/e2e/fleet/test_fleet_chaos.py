"""A control plane that dies whenever it hurts most: what it was at goes on with the next one, and
ends the same.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.cluster import Cluster, Running, a_cluster, eventually, until

pytestmark = pytest.mark.long

CONFIG = """
name: chaos
platform: {local: {}}
autoscaler: {observe_interval: 1s}
scale_groups:
  plain: {type: local_vm, max_slices: 2, resources: {cpu: 2, memory: 4g}}
  accelerated: {type: local_vm, max_slices: 2, accelerator_variant: v5litepod-8}
"""
WANTS = {"plain": ("--cpu", "1"), "accelerated": ("--tpu", "v5litepod-8")}
#: A slice's life when nothing goes wrong with it. The control plane is killed in each of its states
#: but the last.
LIFE = ["REQUESTED", "PROVISIONING", "BOOTSTRAPPING", "READY", "DRAINING", "DELETING", "DELETED"]


class Chaos:
    """A cluster whose control plane is killed again and again, and the slices that it has by their
    groups.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.killed_in: list[str] = []
        self._command = psutil.Process(cluster.pid("controller", "serve")).cmdline()[3:]
        self._started: list[Running] = []

    def slices(self) -> dict[str, dict[str, Any]]:
        """What each slice that there ever was says of itself."""
        found = self.cluster.temporal("workflow", "list", "--query", "IrisKind = 'slice'")
        ids = [entry["execution"]["workflowId"].rpartition("/")[2] for entry in found]
        return {slice_id: self.cluster.query(f"slice/{slice_id}", "status") for slice_id in ids}

    def all_are(self, state: str) -> dict[str, dict[str, Any]]:
        """What the slices say, one of each group, once all of them are in this state."""

        def look() -> dict[str, dict[str, Any]]:
            # Nobody answers while the control plane is on its way.
            with suppress(subprocess.CalledProcessError):
                slices = self.slices()
                return (
                    slices
                    if [each["state"] for each in slices.values()] == [state] * len(WANTS)
                    else {}
                )
            return {}

        return eventually(look)

    def kill_in(self, state: str) -> dict[str, dict[str, Any]]:
        """`kill -9` every control plane once all slices are in this state; another one is started
        at once.
        """
        seen = self.all_are(state)
        self.kill()
        # Not the supervisor's: it waits longer each time for one that dies again and again.
        self._started.append(self.cluster.begin(*self._command))
        self.killed_in.append(state)
        return seen

    def kill(self) -> None:
        for process in self.cluster.processes():
            with suppress(psutil.Error):
                if {"controller", "serve"} <= set(process.cmdline()):
                    process.kill()
        for each in self._started:
            each.process.poll()  # no zombie stays

    @contextmanager
    def agents_sleep(self) -> Iterator[None]:
        """Agents exist by now, and say nothing meanwhile."""
        eventually(lambda: len(self.agents()) == len(WANTS), every=0.02)
        agents = self.agents()
        for agent in agents:
            agent.suspend()
        try:
            yield
        finally:
            for agent in agents:
                agent.resume()

    def agents(self) -> list[psutil.Process]:
        """Those of all slices of which there is anything on this machine."""
        return [
            each for slice_id in self.cluster.machines() for each in self.cluster.agents(slice_id)
        ]

    @contextmanager
    def platform_does_not_answer(self) -> Iterator[None]:
        """Nothing can be written where machines are asked for: there is a file in the place of the
        directory.
        """
        machines = self.cluster.home / "clusters" / self.cluster.name / "machines"
        machines.rmdir()
        machines.touch()
        try:
            yield
        finally:
            machines.unlink()
            machines.mkdir()


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    """Nothing runs yet, so that nothing is in the way of making the machines' directory fail."""
    file = tmp_path / "chaos.yaml"
    file.write_text(CONFIG)
    with a_cluster("--config", str(file), name="chaos") as cluster:
        yield Chaos(cluster)


def test_a_control_plane_killed_at_each_step_of_a_slices_life_and_restarted_gives_the_same_end(
    chaos: Chaos,
) -> None:
    """Two slices of two groups: each is made once, does its work once, and leaves nothing
    behind.
    """
    cluster = chaos.cluster
    with chaos.platform_does_not_answer():
        for group, wants in WANTS.items():
            runs_until_told = f"touch {group}.runs; {until('go')}"
            cluster.submit(group, *wants, "--", "sh", "-c", runs_until_told)
        slices = chaos.kill_in("REQUESTED")
    assert sorted(each["facts"]["group"] for each in slices.values()) == sorted(WANTS)
    with cluster.no_machine_starts():
        eventually(lambda: len(cluster.machines()) == len(WANTS))
        chaos.kill_in("PROVISIONING")
    with chaos.agents_sleep():
        chaos.kill_in("BOOTSTRAPPING")
    for group in WANTS:
        cluster.there_is(f"{group}.runs")
    chaos.kill_in("READY")
    # The control plane has just been killed: a command may find that it does not answer yet.
    eventually(
        lambda: cluster.iris("slice", "drain", *slices, "--reason", "chaos", code=None).code == 0
    )
    chaos.kill_in("DRAINING")
    with cluster.no_machine_starts():
        cluster.file("go").touch()
        chaos.kill_in("DELETING")
    ended = chaos.all_are("DELETED")

    assert chaos.killed_in == LIFE[:-1]
    assert sorted(ended) == sorted(slices), "created = deleted, and nothing else was"
    assert [[step["state"] for step in each["steps"]] for each in ended.values()] == [LIFE] * len(
        WANTS
    )
    assert [each["facts"]["fault"] for each in ended.values()] == [None] * len(WANTS)
    assert (cluster.machines(), chaos.agents(), cluster.hosts()) == ([], [], {})
    for job in WANTS:
        cluster.iris("wait", job)
        assert [task["attempt"] for task in cluster.status(job)["tasks"]] == [1]
    eventually(lambda: not cluster.query("autoscaler", "status")["slices"])
    acts = cluster.query("autoscaler", "status")["actions"]
    assert sorted((act["what"], act["slice_id"]) for act in acts) == sorted(
        ("scale_up", each) for each in slices
    )
