"""`docs/manual.md` is typed in, on real `sshd` processes, from nothing but the machines' addresses
to the stop of the cluster.
"""

from pathlib import Path

import pytest

from tests.e2e.jobs.test_scheduling_guide import ask, prints, steps
from tests.e2e.ssh.test_over_ssh import a_lab

#: Packages are sent to three machines, all of which are this one.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

GUIDE = Path(__file__).parents[3] / "docs" / "manual.md"
PATIENCE = 240.0


def test_the_guide_of_machines_over_ssh_does_what_it_says(sshd: None) -> None:
    """A reader with machines of their own sees what it shows, and the machines are as they were
    before.
    """
    with a_lab(4, first=131) as (cluster, lab):
        lab[3].stop()
        before = [each.left() for each in lab]
        key = lab[0].key
        store = cluster.home.parent / "store"
        store.mkdir()
        stands_for = {
            "iris@10.0.0.[11-14]": f"127.0.0.[131-134]:{lab[0].port}",
            "--key ~/.ssh/iris": f"--key {key} --known-hosts {key.parent / 'known_hosts'}",
            "/srv/iris/lab": str(store),
            **{f"10.0.0.1{number}": f"127.0.0.13{number}" for number in range(1, 5)},
            "port 22 ": f"port {lab[0].port} ",
        }
        for step in steps(GUIDE.read_text()):
            printed = ask(cluster, step, stands_for, PATIENCE)
            assert prints(printed, step.output), f"line {step.line}: {step.command}\n{printed}"
            if step.command.startswith("iris cluster init"):
                with (cluster.work / "lab.yaml").open(
                    "a"
                ) as file:  # the tasks have the agent's user: all machines are this one
                    file.write("\nbootstrap:\n  run_as: root\n")
        assert cluster.processes() == []
        assert [each.left() for each in lab] == before
