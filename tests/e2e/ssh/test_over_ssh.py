"""A cluster of machines over SSH from its start to its stop, on real `sshd` processes: the control
plane is on this machine.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from iris.config import load_config
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.settings import manual_settings
from tests.attacks.test_sockets import listed, named, sockets_of
from tests.e2e.cluster import PATIENCE, Cluster, a_home, eventually
from tests.platforms.worlds import MANUAL_KIND, a_group, wanted
from tests.sshd import Machine, machines, user

#: Packages are sent to three machines, all of which are this one.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "manual.yaml"


def configuration(home: Path, lab: list[Machine], *, least: int) -> Path:
    """The example's file with the reader's own values: machines, user, key, known keys and store;
    the group of GPUs is left out.

    The tasks have the agent's user, because all machines are this one.
    """
    text, _, _ = EXAMPLE.read_text().partition("\n  gpus:")
    key = lab[0].key
    for there, here in {
        "[10.0.0.11, 10.0.0.12, 10.0.0.13]": json.dumps([each.address for each in lab]),
        "min_slices: 3": f"min_slices: {least}",
        "user: iris": f"user: {user()}\n    port: {lab[0].port}",
        "key_file: ~/.ssh/iris": f"key_file: {key}",
        "known_hosts: ~/.ssh/known_hosts": f"known_hosts: {key.parent / 'known_hosts'}",
        "file:///srv/iris/lab": (home / "store").as_uri(),
    }.items():
        assert text.count(there) == 1, there
        text = text.replace(there, here)
    file = home / "manual.yaml"
    file.write_text(text + "\nbootstrap:\n  run_as: root\n")
    return file


@contextmanager
def a_lab(count: int, first: int) -> Iterator[tuple[Cluster, list[Machine]]]:
    """Machines, and the state directory of a cluster that does not run yet; afterwards it does not
    run either.
    """
    with a_home() as home, machines(home / "lab", count, first, same_port=True) as lab:
        cluster = Cluster(home / "state", "lab")
        try:
            yield cluster, lab
        finally:
            cluster.iris("cluster", "stop", "lab", "--yes", code=None)
            cluster.clear()


def agents(machine: Machine) -> list[psutil.Process]:
    """The agents that run on a machine."""
    found = []
    for each in machine.processes():
        with suppress(psutil.Error):
            if "agent" in each.cmdline():
                found.append(each)
    return found


def tunnels_of(machine: Machine) -> dict[str, int]:
    """Returns how many sockets of each name a host has, besides that of sshd itself."""
    found = {
        each
        for each in sockets_of([*machine.processes(), *machine.sshd()])
        if each.ip != machine.address
    }
    return named(found)


def test_a_gang_of_three_machines_outlives_an_agent_and_nothing_is_left_after_the_stop(
    sshd: None,
) -> None:
    """One attempt on three machines, every line, and machines as they were before."""
    with a_lab(3, first=61) as (cluster, lab):
        file = configuration(cluster.home.parent, lab, least=3)
        before = [each.left() for each in lab]
        started = cluster.iris("cluster", "start", "--config", str(file), within=2 * PATIENCE)
        assert "3 of 3 hosts" in started.err
        assert "cluster lab is ready" in started.out

        go = cluster.file("go")
        program = (
            f"echo begin $IRIS_TASK_INDEX of $IRIS_NUM_TASKS; while [ ! -e {go} ]; do sleep 0.1;"
            " done; echo end"
        )
        gang = cluster.begin(
            "submit",
            "-n",
            "gang",
            "--replicas",
            "3",
            "--gang-by",
            "scale-group",
            "--",
            "sh",
            "-c",
            program,
        )
        eventually(lambda: gang.out.count("begin") == 3)
        (agent,) = agents(lab[0])
        agent.kill()
        eventually(lambda: agents(lab[0]) not in ([], [agent]))
        go.touch()
        ended = gang.ends()
        assert ended.out.count("begin") == ended.out.count("end") == 3
        tasks = cluster.status("gang")["tasks"]
        assert [task["attempt"] for task in tasks] == [1, 1, 1]
        assert len({task["host"] for task in tasks}) == 3

        record = json.loads((cluster.home / "clusters/lab/cluster.json").read_text())
        own = named(
            sockets_of(cluster.processes()), record["address"], record["ui"].removeprefix("http://")
        )
        assert own == listed("so has yours with `controller.local`:")
        assert [tunnels_of(each) for each in lab] == [
            listed("through which its agent reaches the control plane:")
        ] * 3

        cluster.iris("cluster", "stop", "lab", "--yes")
        assert [each.left() for each in lab] == before
        assert [each.processes() for each in lab] == [[], [], []]


def test_a_gang_runs_again_after_the_reboot_of_a_machine_and_survives_a_cut_tunnel(
    sshd: None,
) -> None:
    """The reboot ends a program, which is a fault of the infrastructure: it costs the user nothing.
    A cut tunnel ends none.
    """
    with a_lab(3, first=64) as (cluster, lab):
        file = configuration(cluster.home.parent, lab, least=3)
        before = [each.left() for each in lab]
        cluster.iris("cluster", "start", "--config", str(file), within=2 * PATIENCE)
        go = cluster.file("go")
        program = f"echo begin $IRIS_TASK_INDEX; while [ ! -e {go} ]; do sleep 0.1; done; echo end"
        gang = cluster.begin(
            "submit",
            "-n",
            "gang",
            "--replicas",
            "3",
            "--gang-by",
            "scale-group",
            "--",
            "sh",
            "-c",
            program,
        )
        eventually(lambda: gang.out.count("begin") == 3)

        lab[0].power_off()
        lab[0].start()
        eventually(lambda: gang.out.count("begin") == 6, within=2 * PATIENCE)
        tasks = cluster.status("gang")["tasks"]
        assert [task["attempt"] for task in tasks] == [2, 2, 2]  # it has no retries of failures
        assert len({task["host"] for task in tasks}) == 3

        lab[1].stop()
        go.touch()  # its agent cannot report the end of its task before it has another tunnel
        lab[1].start()
        assert gang.ends(within=2 * PATIENCE).out.count("end") == 3
        assert [task["attempt"] for task in cluster.status("gang")["tasks"]] == [2, 2, 2]

        cluster.iris("cluster", "stop", "lab", "--yes")
        assert [each.left() for each in lab] == before
        assert [each.processes() for each in lab] == [[], [], []]


def test_machines_that_cannot_be_used_are_named_and_the_others_are_used(sshd: None) -> None:
    """A start needs one machine, a stop none: it says which machines may still have a slice, and
    the next one finishes it.
    """
    with a_lab(2, first=71) as (cluster, lab):
        used, down = lab
        file = configuration(cluster.home.parent, lab, least=1)
        for each in lab:
            each.stop()
        refused = cluster.iris("cluster", "start", "--config", str(file), code=1)
        assert "cluster lab is not started: it has no machine that can be used" in refused.err
        assert refused.err.count("Connection refused") == 2
        assert cluster.processes() == []

        used.start()
        started = cluster.iris("cluster", "start", "--config", str(file), within=2 * PATIENCE)
        assert f"machine {down.address} cannot be used: port {down.port} " in started.err
        assert "1 of 1 hosts" in started.err
        assert cluster.iris("submit", "--", "echo", "works").out == "works\n"

        (slice_id,) = cluster.slices()
        used.stop()
        stopped = cluster.iris("cluster", "stop", "lab", "--yes", code=1)
        assert f"1 machine(s) did not answer and may still have slice {slice_id}" in stopped.err
        assert f"{used.address}: port {used.port} " in stopped.err
        assert cluster.processes() == []

        used.start()
        misspelt = cluster.iris("cluster", "stop", "lab", "--yes", "--give-up", "nowhere", code=2)
        assert "'nowhere'" in misspelt.err
        assert used.address in misspelt.err
        again = cluster.iris("cluster", "stop", "lab", "--yes", code=1)
        assert f"--give-up {down.address}" in again.err
        assert used.left() == []
        assert used.processes() == []
        cluster.iris("cluster", "stop", "lab", "--yes", "--give-up", down.address)


def test_a_running_cluster_gives_a_machine_up_when_it_stops(sshd: None) -> None:
    """Its slice counts as gone, so nothing waits for the machine that will not come back."""
    with a_lab(2, first=76) as (cluster, lab):
        file = configuration(cluster.home.parent, lab, least=2)
        started = cluster.iris("cluster", "start", "--config", str(file), within=2 * PATIENCE)
        assert "2 of 2 hosts" in started.err
        lab[1].power_off()

        stopped = cluster.iris("cluster", "stop", "lab", "--yes", "--give-up", lab[1].address)
        assert stopped.out == "cluster lab is stopped\n"
        assert lab[0].left() == []


def test_a_job_that_waits_for_an_exhausted_pool_says_who_has_its_machines(sshd: None) -> None:
    """One machine is in use here, one belongs to another cluster, and one is down: no other machine
    will come by itself.
    """
    with a_lab(3, first=81) as (cluster, lab):
        used, theirs, down = lab
        file = configuration(cluster.home.parent, lab, least=1)
        other = manual_settings(load_config(file), "another cluster's uid")
        hosts = {
            "workstations": tuple(
                host for host in other.all_hosts if host.address == theirs.address
            )
        }
        group = a_group("workstations", **MANUAL_KIND)
        leased = ManualPlatform(other.model_copy(update={"hosts": hosts})).create_slice(
            wanted("theirs", group, cluster="other")
        )
        asyncio.run(leased)
        down.stop()

        started = cluster.iris("cluster", "start", "--config", str(file), within=2 * PATIENCE)
        assert f"machine {theirs.address} cannot be used: " in started.err
        cores = str(next(iter(cluster.hosts().values()))["resources"]["cpu_millis"] // 1000)
        cluster.submit("first", "--cpu", cores, "--", "sleep", "1000")
        cluster.submit("second", "--cpu", cores, "--", "true")
        why = (
            f"workstations no machine is free (1 of 3 serve this cluster, {theirs.address}: is"
            f" leased to cluster other, {down.address}: port {down.port} is not reached: Connection"
            " refused)"
        )
        eventually(lambda: why in cluster.iris("explain", "second").out)
        assert (
            why.removeprefix("workstations ") in cluster.iris("autoscaler", "status", "--json").out
        )

        stopped = cluster.iris("cluster", "stop", "lab", "--yes", "--give-up", down.address)
        assert stopped.out == "cluster lab is stopped\n"
        assert used.left() == []
        assert ".iris-host" in theirs.left()
