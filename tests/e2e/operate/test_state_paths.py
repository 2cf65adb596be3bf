"""A cluster whose state lies in a directory with an unusual name."""

import pytest

from tests.e2e.cluster import Cluster, a_home

pytestmark = pytest.mark.long

#: What is special to a shell, an address, sqlite, and Python's formats.
UNUSUAL = 'Zoë\'s "100%" #1? & {x} sp%20ace'


def test_a_cluster_lives_below_a_directory_of_any_name() -> None:
    """A path goes into addresses, command lines and the name of a database: nothing of it may be
    read as something else.
    """
    with a_home() as top:
        home = top / UNUSUAL
        home.mkdir()
        cluster = Cluster(home, options=("--cpu", "4", "--memory", "8g"))
        try:
            cluster.start()
            project = cluster.work / "a project"
            project.mkdir()
            (project / "pyproject.toml").write_text(
                '[project]\nname = "toy"\nversion = "1"\ndependencies = []\n'
            )
            (project / "main.py").write_text(
                "import os, pathlib, sys\n"
                "pathlib.Path(os.environ['IRIS_OUTPUT_DIR'], 'kept').write_text('weights')\n"
                "print(pathlib.Path(sys.prefix).is_relative_to(os.environ['VIRTUAL_ENV']))\n"
            )
            cluster.iris(
                "submit",
                "-n",
                "train",
                "--cpu",
                "1",
                "--",
                "python",
                "main.py",
                cwd=project,
                within=120,
            )
            assert cluster.logs("train", "--stream", "stdout") == ["True"]
            cluster.iris("fetch", "train", "-o", "fetched")
            assert cluster.file("fetched/kept").read_text() == "weights"

            cluster.stop()
            cluster.start()

            assert cluster.logs("train", "--stream", "stdout") == ["True"]
            assert cluster.status("train")["state"] == "SUCCEEDED"
            cluster.submit("again", "--cpu", "1", "--", "echo", "two")
            cluster.iris("wait", "again")
            assert cluster.logs("again") == ["two"]
            cluster.stop()
            assert cluster.processes() == []
            assert [path.name for path in top.iterdir()] == [UNUSUAL]
            assert {
                path.name for path in home.iterdir() if not path.name.startswith("command-")
            } <= {"work", "clusters", "cache"}
        finally:
            try:
                cluster.iris("cluster", "stop", "local", "--yes", code=None)
            finally:
                cluster.clear()
