"""The examples that use Iris from Python run as their users run them, each on the cluster that it
starts.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, Running, a_home, eventually

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def here() -> Iterator[Cluster]:
    """An empty state directory; nothing of it runs afterwards."""
    with a_home() as home:
        cluster = Cluster(home, "demo")
        try:
            yield cluster
            assert cluster.processes() == [], "the example has left processes"
        finally:
            cluster.clear()


def run(here: Cluster, example: str, *arguments: str) -> str:
    """Runs an example to its end, and returns what it has printed."""
    env = {**os.environ, "IRIS_STATE_DIR": str(here.home), "IRIS_USER": "ada"}
    command = [sys.executable, EXAMPLES / example, *arguments]
    ran = subprocess.run(
        command, env=env, cwd=here.work, capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_example_of_a_cluster_shows_how_jobs_share_a_host(here: Cluster) -> None:
    """The scenarios of the scheduling seed: jobs in pairs, a small job that overtakes, a timeout
    without a host.
    """
    said = run(here, "cluster_example.py")

    assert "the job raised: division by zero" in said
    assert "4 jobs of 2 cores: at most 2 ran at the same time" in said
    assert "the large job waits: needs 10000 cpu" in said
    assert "the job is UNSCHEDULABLE: " in said
    assert said.endswith("all examples have passed\n")


def test_the_demo_runs_a_job_of_each_kind_and_ends_with_ctrl_c(here: Cluster) -> None:
    """Meanwhile other programs can use its cluster."""
    env = {
        **os.environ,
        "IRIS_STATE_DIR": str(here.home),
        "IRIS_USER": "ada",
        "PYTHONUNBUFFERED": "1",
    }
    demo = Running([sys.executable, str(EXAMPLES / "demo_cluster.py")], env, here.work, here.home)
    eventually(lambda: "Ctrl-C stops the cluster" in demo.out or demo.process.poll() is not None)

    states = {job["id"]: job["state"] for job in here.iris("jobs", "--all", "--json").json}
    assert states.pop("ada/too-large") == "PENDING"
    assert states.pop("ada/diverges") == "FAILED"
    assert set(states.values()) == {"SUCCEEDED"}
    assert here.iris("logs", "square-2").out == "squaring 2\n"
    demo.process.send_signal(signal.SIGINT)
    demo.ends()


def test_the_tour_runs_from_top_to_bottom_and_prints_what_it_shows(tmp_path: Path) -> None:
    """A notebook is read more often than it is run: its outputs are those of this version, and name
    nothing of a machine.
    """
    tour = EXAMPLES / "tour.ipynb"
    script = EXAMPLES.parent / "scripts" / "run-tour.py"
    command = [sys.executable, script, "--output", tmp_path / "tour.ipynb"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr

    assert printed(tmp_path / "tour.ipynb") == printed(tour), "run `make tour`"
    assert re.findall(r"/(?:root|home|tmp|Users|var)/[^\s\"]*", tour.read_text()) == []


def printed(notebook: Path) -> list[str]:
    """What each cell prints and returns, without the addresses of pages. HTML has the ids of
    hosts.
    """

    def text(output: dict[str, Any]) -> str:
        full = "".join(output["text"] if "text" in output else output["data"]["text/plain"])
        return re.sub(
            r"cluster python-[0-9a-f]{8}, (\w+), http://127.0.0.1:\d+/[^\s>]+", r"\1", full
        )

    return [
        "".join(map(text, cell.get("outputs", ())))
        for cell in json.loads(notebook.read_text())["cells"]
    ]
