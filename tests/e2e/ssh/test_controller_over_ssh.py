"""A control plane on a machine over SSH, on real `sshd` processes: clients are elsewhere, and reach
it through a tunnel.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.attacks.test_sockets import listed, named, sockets_of
from tests.e2e.cluster import PATIENCE, Cluster, a_home, eventually
from tests.e2e.ssh.test_over_ssh import configuration, tunnels_of
from tests.sshd import Machine, machines

#: Packages are sent to two machines, both of which are this one.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def with_controller(file: Path, machine: Machine, port: int) -> Path:
    """The same cluster with its control plane on that machine, which has the hosts' key at the same
    path as the clients.
    """
    text = file.read_text()
    assert text.count("local: {}") == 1
    file.write_text(text.replace("local: {}", f"manual: {{host: {machine.address}, port: {port}}}"))
    return file


@contextmanager
def a_lab(count: int, first: int, port: int) -> Iterator[tuple[Cluster, list[Machine], Path]]:
    """Machines, of which the first has the control plane and the others are hosts; and a client
    that has not started it yet.
    """
    with a_home() as home, machines(home / "lab", count, first, same_port=True) as lab:
        cluster = Cluster(home / "state", "lab")
        file = with_controller(configuration(home, lab[1:], least=count - 1), lab[0], port)
        try:
            yield cluster, lab, file
        finally:
            cluster.iris("cluster", "stop", "lab", "--config", str(file), "--yes", code=None)
            cluster.clear()


def test_a_control_plane_on_another_machine_serves_two_clients_and_leaves_nothing_after_the_stop(
    sshd: None,
) -> None:
    """A job survives the reboot of the control plane's machine and a restart, and another client
    needs only the file.
    """
    with a_lab(2, first=81, port=31_481) as (cluster, lab, file):
        before = [each.left() for each in lab]
        started = cluster.iris("cluster", "start", "--config", str(file), within=4 * PATIENCE)
        assert f"started on {lab[0].address}" in started.err
        assert "1 of 1 hosts" in started.err

        go = cluster.file("go")
        program = f"echo begin; while [ ! -e {go} ]; do sleep 0.1; done; echo end"
        job = cluster.begin("submit", "-n", "long", "--", "sh", "-c", program)
        eventually(lambda: "begin" in job.out)

        kept = lab[0].home / ".iris-controller/lab/state/clusters/lab/cluster.json"
        record = json.loads(kept.read_text())
        found = named(
            sockets_of(lab[0].processes()), record["address"], record["ui"].removeprefix("http://")
        )
        assert found == listed("so has yours with `controller.local`:")
        assert tunnels_of(lab[1]) == listed("through which its agent reaches the control plane:")
        reached = named(sockets_of(cluster.processes()))
        assert reached == listed("whose commands reach the control plane over SSH has three:")

        lab[0].power_off()
        lab[0].start()
        cluster.iris("cluster", "start", "--config", str(file), within=4 * PATIENCE)
        pid = next(
            each.pid
            for each in lab[0].processes()
            if {"controller", "serve"} <= set(each.cmdline())
        )
        file.write_text(f"{file.read_text()}scheduler:\n  preemption: false\n")
        cluster.iris("cluster", "reload", "lab", "--config", str(file))
        place = lab[0].home / ".iris-controller" / "lab"
        (place / "runtime" / "digest").write_text("of another version\n")
        (place / "runtime.tgz").mkdir()
        failed = cluster.iris("cluster", "restart", "lab", code=None, within=4 * PATIENCE)
        assert failed.code != 0
        assert pid in [each.pid for each in lab[0].processes()], (
            "a failed upload leaves the control plane running"
        )
        (place / "runtime.tgz").rmdir()
        cluster.iris("cluster", "restart", "lab", within=4 * PATIENCE)
        assert pid not in [each.pid for each in lab[0].processes()]
        assert "priority preemption is off" in cluster.iris("cluster", "status", "lab").out
        go.touch()
        # A program whose control plane was away for more than a minute, as on a busy machine, has
        # begun again.
        assert job.ends(within=2 * PATIENCE).out.endswith("begin\nend\n")

        other = Cluster(cluster.home.parent / "other", "lab")
        status = json.loads(other.iris("cluster", "status", "--config", str(file), "--json").out)
        assert (status["state"], status["hosts"]) == ("RUNNING", 1)
        other.clear()

        cluster.iris("cluster", "stop", "lab", "--yes", within=2 * PATIENCE)
        assert [each.left() for each in lab] == before
        assert [each.processes() for each in lab] == [[], []]
