"""What Iris keeps on a machine is its user's alone: other users of the machine find nothing there,
whatever the umask says.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.cluster import Cluster, a_home, until
from tests.searches import command_lines, files_of, files_with

pytestmark = pytest.mark.long

#: The value of a variable that a job gets. No other process of this machine has it.
VALUE = f"hunter2-in-the-clear-{uuid4().hex}"


@contextmanager
def a_state(umask: int) -> Iterator[Cluster]:
    """A cluster that does not run yet; its state directory is there, and open to everybody."""
    with a_home() as home:
        home.chmod(0o777)
        cluster = Cluster(home, options=("--cpu", "4", "--memory", "8g"), umask=umask)
        try:
            yield cluster
        finally:
            try:
                cluster.iris("cluster", "stop", "local", "--yes", code=None)
            finally:
                cluster.clear()


def kept(cluster: Cluster) -> Iterator[Path]:
    """The state directory and all that Iris keeps below it; not what tests and programs have made
    there.
    """
    yield cluster.home
    for folder, folders, files in os.walk(cluster.home):
        if Path(folder) == cluster.home:
            folders[:] = [
                each for each in folders if each != "work" and not each.startswith("command-")
            ]
        if Path(folder).parent.name == "attempts":
            folders[:] = [each for each in folders if each not in ("work", "outputs")]
        yield from (Path(folder, name) for name in (*folders, *files))


def open_to_others(cluster: Cluster) -> list[str]:
    """What others may use of it, each with its mode."""
    found = []
    for path in kept(cluster):
        with suppress(FileNotFoundError):  # removed since
            if (mode := path.lstat().st_mode) & 0o077 and not stat.S_ISLNK(mode):
                found.append(f"{stat.filemode(mode)} {path.relative_to(cluster.home)}")
    return found


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_nothing_that_a_cluster_keeps_is_open_to_others(umask: int) -> None:
    """The database and the files of attempts have what was given with `--env`, which is where
    passwords are.
    """
    with a_state(umask) as cluster:
        cluster.start()
        (cluster.work / "pyproject.toml").write_text("[tool.none]\n")
        (cluster.work / "train.sh").write_text(
            f"echo kept > $IRIS_OUTPUT_DIR/result; touch {cluster.work}/begun\n"
        )
        script = f". ./train.sh; echo done; {until(str(cluster.work / 'go'))}"
        cluster.submit(
            "train", "--env", f"PASSWORD={VALUE}", "--cpu", "1", "--", "sh", "-c", script
        )
        cluster.there_is("begun")
        cluster.iris("exec", "train", "--", "true")

        found = {path.name for path in files_with(files_of(cluster.home), VALUE.encode())}
        assert found & {"launch.json", "state.json", "temporal.sqlite", "temporal.sqlite-wal"}
        assert [line for line in command_lines() if VALUE in line] == []
        assert open_to_others(cluster) == []

        cluster.file("go").touch()
        cluster.iris("wait", "train")
        assert cluster.logs("train", "--stream", "stdout") == ["done"]
        cluster.iris("fetch", "train", "-o", str(cluster.work / "fetched"))
        assert open_to_others(cluster) == []
        cluster.stop()
        assert open_to_others(cluster) == []


def test_what_others_may_read_is_closed_when_the_cluster_starts() -> None:
    """Nobody looks at the modes of what is there already, such as a copy of the directory."""
    with a_state(0o022) as cluster:
        cluster.start()
        cluster.iris(
            "submit", "-n", "old", "--env", f"PASSWORD={VALUE}", "--cpu", "1", "--", "echo", "done"
        )
        cluster.stop()
        for path in kept(cluster):
            path.chmod(0o777 if path.is_dir() else 0o666)

        cluster.start()

        assert open_to_others(cluster) == []
        assert cluster.logs("old") == ["done"]


@pytest.mark.parametrize("umask", [0o000, 0o027])
def test_programs_have_the_umask_of_whoever_started_the_cluster(umask: int) -> None:
    """What a program leaves in a directory that several people share, the others have to be able to
    read.
    """
    with a_state(umask) as cluster:
        cluster.start()
        shared, script = cluster.file("shared"), f"mkdir shared; umask; touch begun; {until('go')}"
        cluster.submit(
            "it",
            "--setup",
            "umask",
            "--cpu",
            "1",
            "--workdir",
            str(cluster.work),
            "--",
            "sh",
            "-c",
            script,
        )
        cluster.there_is("begun")
        beside = cluster.iris("exec", "it", "--", "sh", "-c", "umask").out
        cluster.file("go").touch()
        cluster.iris("wait", "it")

        assert cluster.logs("it", "--stream", "stdout") == [f"{umask:04o}"]
        assert f"{umask:04o}" in cluster.logs("it", "--build")
        assert beside.strip() == f"{umask:04o}"
        assert stat.S_IMODE(shared.stat().st_mode) == 0o777 & ~umask
        script = cluster.file("train.sh")
        script.write_text("stat -c %a . code\n")
        asked = ("-n", "files", "--cpu", "1", "--file", f"{script}:code/train.sh")
        ran = cluster.iris("submit", *asked, "--", "sh", "code/train.sh")
        assert ran.out.splitlines()[-2:] == [f"{0o777 & ~umask:o}"] * 2
