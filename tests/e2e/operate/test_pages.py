"""The quick start and the how-tos are typed in, like the guides. A block that begins with a file's
name is there first.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.e2e.cluster import PATIENCE, USER, Cluster, a_home
from tests.e2e.jobs.test_scheduling_guide import ask, prints, steps, type_in

pytestmark = pytest.mark.long

DOCS = Path(__file__).parents[3] / "docs"


@contextmanager
def newcomer() -> Iterator[Cluster]:
    """Somebody without any cluster, who must leave nothing behind."""
    with a_home() as home:
        cluster = Cluster(home)
        try:
            yield cluster
            assert cluster.processes() == []
        finally:
            cluster.clear()


def write_files(cluster: Cluster, guide: Path) -> None:
    """Writes the files that a page shows."""
    for name, text in re.findall(
        r"```(?:yaml|python|csv)\n# (\S+)\n(.*?)```", guide.read_text(), re.DOTALL
    ):
        cluster.file(name).write_text(text)


@pytest.mark.parametrize(
    "page",
    [
        *("index", "how-to/tpu-gang", "how-to/spot", "how-to/why-waiting", "how-to/sweep"),
        *("how-to/quotas", "arrays"),
    ],
)
def test_a_page_does_what_it_says(page: str) -> None:
    """A newcomer who types a page in sees what it shows, and leaves no process behind."""
    guide = DOCS / f"{page}.md"
    with newcomer() as cluster:
        write_files(cluster, guide)
        type_in(cluster, guide)


def test_the_page_about_simulations_has_the_pictures_that_it_makes() -> None:
    """Its numbers are those that a reader gets, and the pictures are of the same simulation. To
    renew the pictures, type the page in and copy them from its folder.
    """
    guide = DOCS / "how-to" / "what-if.md"
    with newcomer() as cluster:
        write_files(cluster, guide)
        # Simulations only compute, for minutes if the machine is slow and has other work.
        type_in(cluster, guide, patience=5 * PATIENCE)
        for name, made in {
            "waits": "report/waits.svg",
            "queue-and-use": "report/queue-and-use.svg",
            "quota": "quotas/waits.svg",
        }.items():
            picture = DOCS / "pictures" / f"what-if-{name}.svg"
            assert picture.read_text() == cluster.file(made).read_text()
        # Python's tracker of shared memory notices the end of the command a moment later.
        psutil.wait_procs(cluster.processes(), timeout=20)


def test_the_page_of_own_machines_does_what_it_says() -> None:
    """Its agent runs in a terminal of its own, until the cluster has ended."""
    guide = DOCS / "how-to" / "own-machines.md"
    (joins,) = re.findall(r"```bash\niris (.*)\n```", guide.read_text())
    with newcomer() as cluster:
        first, *others = steps(guide.read_text())
        assert prints(ask(cluster, first), first.output)
        # As root, tasks would get uids that may not enter the test's directory.
        agent = cluster.begin(*joins.split(), "--run-as=root", "--dir", str(cluster.home / "desk"))
        *looks, stop = others
        for step in looks:
            assert prints(printed := ask(cluster, step), step.output), printed
        agent.process.terminate()
        agent.ends()
        assert prints(printed := ask(cluster, stop), stop.output), printed


def test_the_cells_of_the_notebook_run() -> None:
    """As one program; a notebook shows the job at the end of the first cell."""
    cells = re.findall(
        r"```python\n(.*?)```", (DOCS / "how-to" / "notebook.md").read_text(), re.DOTALL
    )
    with newcomer() as cluster:
        cluster.file("cells.py").write_text("\n".join(cells))
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("IRIS_", "TEMPORAL_"))
        }
        env = {**inherited, "IRIS_STATE_DIR": str(cluster.home), "IRIS_USER": USER}
        ran = subprocess.run(
            [sys.executable, "cells.py"],
            cwd=cluster.work,
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines()[:2] == ["0.2", "[0.2, 0.4]"]
