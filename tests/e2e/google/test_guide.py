"""`docs/gcp.md` is typed in, and so is what README says of Google Cloud, on the fake Google and
with the file of the examples.

What Google does meanwhile stands in the guide as a comment (`# …`) in a block, and is done there:
`Google`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from iris.model import store_paths
from iris.platforms.gcp import labels as label_rules
from tests.e2e.cluster import a_home
from tests.e2e.google.cluster import GcpCluster, stopped_at_last
from tests.e2e.jobs.test_scheduling_guide import Step, ask, prints, steps
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
GUIDE, README = ROOT / "docs" / "gcp.md", ROOT / "README.md"
FILE = "examples/eu-west4.yaml"
KIND, ZONE, NEXT = "v5litepod-16", "europe-west4-b", "europe-west4-a"
#: For one command, in seconds: slices are made meanwhile, at the pace of the file.
PATIENCE = 150.0
#: Of the reader. It trains until the test has seen enough.
PROGRAM = """\
import os, pathlib, time

print("worker", os.environ["TPU_WORKER_ID"], "of a", os.environ["TPU_ACCELERATOR_TYPE"], flush=True)
while not pathlib.Path("{enough}").exists():
    time.sleep(0.1)
"""


def configuration(google: FakeGoogle, cluster: GcpCluster) -> str:
    """The file of the examples. Another than there is only what is the reader's own, project and
    bucket; where Google is; and the controller's port and the tasks' user, since all machines are
    this one.
    """
    text = (ROOT / FILE).read_text()
    endpoints = f'endpoints: {{tpu: "{google.tpu}", compute: "{google.compute}"}}'
    for there, here in {
        "project_id: my-project": f"project_id: {cluster.project}\n    {endpoints}",
        "gs://my-bucket-europe-west4/iris": (cluster.home / "store").as_uri(),
        "port: 10000": f"port: {cluster.port}",
        "cache_dir: /var/cache/iris": "cache_dir: /var/cache/iris\n    run_as: root",
    }.items():
        assert text.count(there) == 1, there
        text = text.replace(there, here)
    return text


class Google:
    """What Google does, by what the guide says of it."""

    def __init__(self, google: FakeGoogle, cluster: GcpCluster) -> None:
        self._google, self._cluster = google, cluster
        self.deeds: dict[str, Callable[[], None]] = {
            f"# Google preempts the slice and has no other in {ZONE}": self._preempt,
            f"# {ZONE} has capacity again": lambda: google.capacity(
                ZONE, KIND, None, project=cluster.project
            ),
            "# a slice without a workflow exists": self._leave_a_slice,
        }

    def _preempt(self) -> None:
        (node,) = self._cluster.nodes()
        hosts = [psutil.Process(host["pid"]) for host in self._google.hosts(node)]
        self._google.capacity(ZONE, KIND, 0, project=self._cluster.project)
        self._google.boot_time(10, NEXT)  # or nobody would see the slice on its way
        self._google.preempt(node)
        _, left = psutil.wait_procs(hosts, timeout=60)
        assert left == []
        (self._cluster.home / "enough").touch()

    def _leave_a_slice(self) -> None:
        uid = (self._cluster.home / "store" / store_paths.cluster_uid("eu-west4")).read_text()
        labels = {
            label_rules.UID: uid,
            label_rules.ROLE: "host",
            label_rules.SLICE: "iris-euw4-tpu-v5e-16-0a1b2c3d",
        }
        self._google.seed_foreign(
            labels[label_rules.SLICE], self._cluster.project, ZONE, labels=labels, foreign=False
        )


def told(
    document: str, deeds: dict[str, Callable[[], None]]
) -> Iterator[Step | Callable[[], None]]:
    """The guide's commands, and what Google does between them, in order."""
    lines = document.splitlines()
    assert [lines.count(deed) for deed in deeds] == [1] * len(deeds)
    happens = {lines.index(deed) + 1: does for deed, does in deeds.items()}
    for _, what in sorted(
        [*happens.items(), *((step.line, step) for step in steps(document))],
        key=lambda each: each[0],
    ):
        yield what


def readme() -> list[str]:
    """The commands of README's section on Google Cloud, without their comments."""
    section = README.read_text().partition("### On Google Cloud\n")[2].partition("\n### ")[0]
    return [step.command.partition(" #")[0].rstrip() for step in steps(section)]


def test_the_section_of_the_readme_is_a_part_of_the_guide() -> None:
    """So that whatever it says has been typed, in that order."""
    typed = iter([step.command for step in steps(GUIDE.read_text())])
    assert readme()
    assert [command for command in readme() if command not in typed] == []


def test_the_guide_to_google_cloud_does_what_it_says() -> None:
    """A cluster is started, loses the slice under a gang while the zone has no other, is validated,
    stopped and cleared away; and whoever types it in sees what it shows.
    """
    with FakeGoogle(boot=True) as google, a_home() as home:
        cluster = GcpCluster(home, google, "eu-west4")
        cluster.file("examples").mkdir()
        cluster.config = cluster.file(FILE)
        cluster.config.write_text(configuration(google, cluster))
        cluster.file("train.py").write_text(PROGRAM.format(enough=home / "enough"))
        cluster.file(".irisignore").touch()
        with stopped_at_last(cluster):
            for what in told(GUIDE.read_text(), Google(google, cluster).deeds):
                if not isinstance(what, Step):
                    what()
                    continue
                printed = ask(cluster, what, patience=PATIENCE)
                shown = "\n".join(what.output)
                assert prints(printed, what.output), (
                    f"{GUIDE.name}:{what.line}\n$ {what.command}\n--- the guide shows\n{shown}\n---"
                    f" it prints\n{printed}"
                )
            assert cluster.processes() == []
        assert google.alive(cluster.project) == []
        google.check(cluster.project)
        assert any(NEXT in path for path in google.created("node", cluster.project))
