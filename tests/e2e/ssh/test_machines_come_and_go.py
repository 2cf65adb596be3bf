"""Machines over SSH join a running cluster and leave it, on real `sshd` processes: `iris host add |
remove`.
"""

import pytest

from iris.config import load_config
from tests.e2e.cluster import PATIENCE, eventually
from tests.e2e.ssh.test_over_ssh import a_lab, configuration

#: Packages are sent to each machine.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_a_machine_joins_runs_a_task_and_leaves_as_it_was(sshd: None) -> None:
    """Also if the removal is killed and run again. The task that ran there runs elsewhere."""
    with a_lab(2, first=91) as (cluster, lab):
        first, second = lab
        file = configuration(cluster.home.parent, lab[:1], least=1)
        written, before = file.read_text(), second.left()
        cluster.iris("cluster", "start", "--config", str(file), within=2 * PATIENCE)

        added = cluster.iris("host", "add", second.address, "--config", str(file))
        assert f'+    hosts: ["{first.address}", {second.address}]' in added.out
        assert f"{second.address} is in scale group workstations" in added.out
        assert load_config(file).scale_groups["workstations"].min_slices == 2

        go = cluster.file("go")
        cores = str(next(iter(cluster.hosts().values()))["resources"]["cpu_millis"] // 1000)
        program = f"echo begin; while [ ! -e {go} ]; do sleep 0.1; done; echo end"
        job = cluster.begin(
            "submit", "-n", "both", "--replicas", "2", "--cpu", cores, "--", "sh", "-c", program
        )
        eventually(lambda: job.out.count("begin") == 2)

        interrupted = cluster.begin(
            "host", "remove", second.address, "--config", str(file), "--yes"
        )
        eventually(lambda: "deleting slice" in interrupted.err)
        interrupted.process.kill()
        interrupted.ends(code=None)
        assert load_config(file).scale_groups["workstations"].retiring_hosts == (second.address,)
        removed = cluster.iris("host", "remove", second.address, "--config", str(file), "--yes")

        assert f"{second.address} is removed" in removed.out
        assert file.read_text() == written
        assert (second.left(), second.processes()) == (before, [])
        go.touch()
        assert job.ends().out.count("end") == 2
        assert len(cluster.hosts()) == 1
