"""A lab's machines and Google's in one cluster: the controller on the fake Google reaches real
`sshd` processes.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster import a_home, eventually
from tests.e2e.google.cluster import GcpCluster, stopped_at_last
from tests.fakes.google.client import FakeGoogle
from tests.fakes.secret_manager import FakeSecretManager
from tests.sshd import Machine, machines, user

#: Packages are sent to three machines, all of which are this one, as are Google's.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "mixed.yaml"
SECRETS = "projects/{project}/secrets/{name}/versions/latest"


class MixedCluster(GcpCluster):
    """The cluster of the example's file with the reader's own values. Tasks have the agent's user:
    all machines are this one.
    """

    def __init__(
        self,
        home: Path,
        google: FakeGoogle,
        name: str,
        lab: list[Machine],
        secrets: FakeSecretManager,
    ) -> None:
        super().__init__(home, google, name)
        endpoints = {"tpu": google.tpu, "compute": google.compute, "secret_manager": secrets.url}
        known = lab[0].key.parent / "known_hosts"
        for secret, file in {"lab-ssh-key": lab[0].key, "lab-known-hosts": known}.items():
            secrets.values[SECRETS.format(project=self.project, name=secret)] = file.read_text()
        text = EXAMPLE.read_text()
        for there, here in {
            "name: mixed": f"name: {name}",
            "project_id: my-project": (
                f"project_id: {self.project}\n    endpoints: {json.dumps(endpoints)}"
            ),
            "    scale_down_delay: 10m": (
                "    scale_down_delay: 1h\n    scale_up_delay: 0s\n"
                "    evaluation_interval: 500ms\n    observe_interval: 1s"
            ),
            "user: iris": f"user: {user()}",
            "port: 22": f"port: {lab[0].port}",
            "    jump_host: iris@gateway.lab.example.org\n": "",
            "bootstrap:": "bootstrap:\n  run_as: root",
            "gs://my-bucket-europe-west4/iris": (home / "store").as_uri(),
            "port: 10000": f"port: {self.port}",
            "[10.0.0.11, 10.0.0.12, 10.0.0.13]": json.dumps([each.address for each in lab]),
        }.items():
            assert text.count(there) == 1, there
            text = text.replace(there, here)
        self.text = text
        self.config.write_text(text)


@contextmanager
def a_mixed_cluster(
    google: FakeGoogle, name: str, first: int
) -> Iterator[tuple[MixedCluster, list[Machine]]]:
    """A cluster that does not run yet, and the three machines of its lab."""
    with (
        a_home() as home,
        a_home() as place,
        machines(place / "lab", 3, first, same_port=True) as lab,
        FakeSecretManager({}, token="").started() as secrets,
        stopped_at_last(MixedCluster(home, google, name, lab, secrets)) as cluster,
    ):
        yield cluster, lab


def test_a_gang_runs_in_the_lab_beside_a_tpu_slice_and_the_stop_leaves_neither_a_trace(
    google: FakeGoogle, sshd: None
) -> None:
    """One scheduler chooses between both, and says of both where its machines are."""
    with a_mixed_cluster(google, "mixed", first=81) as (cluster, lab):
        before = [each.left() for each in lab]
        cluster.start()

        go = cluster.file("go")
        program = (
            f"echo begin $IRIS_TASK_INDEX; while [ ! -e {go} ]; do sleep 0.1; done; echo end"
            " $IRIS_TASK_INDEX"
        )
        in_lab = (
            "--replicas",
            "3",
            "--gang-by",
            "scale-group",
            "--constraint",
            "scale-group=workstations",
        )
        gang = cluster.begin("submit", "-n", "gang", *in_lab, "--", "sh", "-c", program)
        eventually(lambda: gang.out.count("begin") == 3, within=300)
        tpu = cluster.iris(
            "submit",
            "-n",
            "tpu",
            "--tpu",
            "v5litepod-16",
            "--",
            "sh",
            "-c",
            "echo worker $TPU_WORKER_ID",
            within=300,
        )
        assert all(f"worker {each}" in tpu.out for each in range(4)), tpu.out

        assert "7 host(s)" in cluster.iris("cluster", "status").out
        scaling = cluster.iris("autoscaler", "status").out
        assert "workstations" in scaling
        assert "tpu_v5e_16" in scaling
        waits = cluster.iris(
            "submit",
            "-d",
            "-n",
            "waits",
            "--constraint",
            "zone=lab-a",
            "--cpu",
            "200",
            "--",
            "true",
        )
        assert waits.code == 0
        explained = cluster.iris("explain", "waits").out
        assert "workstations" in explained, explained
        cluster.iris("cancel", "waits")

        hosts = {task["host"] for task in cluster.status("gang")["tasks"]}
        assert len(hosts) == 3
        go.touch()
        ended = gang.ends()
        assert ended.out.count("end") == 3
        assert [task["attempt"] for task in cluster.status("gang")["tasks"]] == [1, 1, 1]

        cluster.iris("cluster", "stop", "--yes", within=480)
        assert google.alive(cluster.project) == []
        google.check(cluster.project)
        assert [each.left() for each in lab] == before
        assert [each.processes() for each in lab] == [[], [], []]
        assert cluster.processes() == []
