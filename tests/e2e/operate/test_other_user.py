"""Jobs with users of their own on a real cluster: what Iris does beside a program works as for
programs of the agent's user.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.activities.host.runtimes.process.job_users import has_processes
from tests.e2e.cluster import Cluster, Running, a_cluster, a_home, eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users"),
]

PYTHON = "/usr/bin/python3"
PROGRAM = """
import os, time
print("uid", os.getuid(), flush=True)
open(os.environ["IRIS_OUTPUT_DIR"] + "/left", "w").write("here")
def inner():
    while not os.path.exists("go"):
        sum(range(1000))
inner()
print("end", flush=True)
raise SystemExit(7)
"""
CONFIG = """
name: apart
platform: {{local: {{}}}}
bootstrap: {{run_as: {first}-{last}}}
scale_groups:
  host: {{type: local_vm, resources: {{cpu: 2}}, min_slices: 1, max_slices: 1}}
"""
FIRST = 300_000 + os.getpid() % 10_000 * 100
UIDS = range(FIRST, FIRST + 100)


@pytest.fixture
def jobs() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="iris-jobs-", dir="/var/tmp"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def joined(cluster: Cluster, jobs: Path) -> Running:
    """An agent that runs jobs as other users, of a host that takes work."""
    ways = [
        "--jobs-dir",
        str(jobs),
        "--run-as",
        f"{UIDS[0]}-{UIDS[-1]}",
        "--attribute",
        "apart=true",
        "--cpu",
        "2",
    ]
    agent = cluster.begin("agent", "--join", "--host-id", "apart", *ways)
    eventually(lambda: "apart" in cluster.hosts(), every=0.3)
    return agent


@pytest.mark.skipif(not Path(PYTHON).exists(), reason="needs a Python that every user can run")
def test_logs_exec_profiles_adoption_and_outputs_work_for_a_job_with_a_user_of_its_own(
    jobs: Path,
) -> None:
    """The agent is killed meanwhile: the next one finds the program, its files and its user by what
    lies on the disk.
    """
    with a_cluster("--hosts", "1", "--ephemeral") as cluster:
        agent = joined(cluster, jobs)
        project = cluster.file("project")
        project.mkdir()
        (project / "train.py").write_text(PROGRAM)
        where = ["--workspace", str(project), "--constraint", "apart = true"]
        cluster.submit("own", *where, "--", PYTHON, "train.py")
        eventually(lambda: "uid" in cluster.iris("logs", "own").out, every=0.3)
        uid = int(cluster.iris("logs", "own").out.split()[1])
        assert uid in UIDS
        for again in (False, True):
            if again:
                agent.process.send_signal(signal.SIGKILL)
                agent.process.wait()
                agent = joined(cluster, jobs)
            ran = cluster.iris(
                "exec", "own", "--", "sh", "-c", "id -u; touch by-exec; echo x > /dev/stderr"
            )
            assert (ran.out, ran.err) == (f"{uid}\n", "x\n")
            assert "inner" in cluster.iris("profile", "own").out
        (files,) = (jobs / "attempts").iterdir()
        assert (files / "work" / "by-exec").stat().st_uid == uid
        cluster.iris("exec", "own", "--", "touch", "go")
        assert cluster.iris("wait", "own", code=None).code != 0
        (task,) = cluster.status("own")["tasks"]
        assert (task["attempt"], task["exit_code"], task["host"]) == (1, 7, "apart")
        assert cluster.iris("logs", "own").out == f"uid {uid}\nend\n"
        cluster.iris("fetch", "own")
        assert [path.read_text() for path in cluster.file("own-outputs").rglob("left")] == ["here"]
        eventually(lambda: list((jobs / "attempts").iterdir()) == [])
        assert not has_processes(uid)

        cluster.submit("long", *where, "--", "sh", "-c", "echo up; sleep 1000 & wait")
        eventually(lambda: "up" in cluster.iris("logs", "long").out, every=0.3)
        cluster.iris("cancel", "long")
        cluster.iris("wait", "long", code=None)
        eventually(lambda: list((jobs / "attempts").iterdir()) == [])
        assert not any(map(has_processes, UIDS))


def test_an_agent_that_cannot_run_jobs_as_other_users_says_what_to_do(jobs: Path) -> None:
    """It does not run them as root instead."""
    (jobs / "closed").mkdir(0o700)
    with a_cluster("--hosts", "1", "--ephemeral") as cluster:
        said = cluster.iris(
            "agent",
            "--join",
            "--host-id",
            "apart",
            "--jobs-dir",
            str(jobs / "closed" / "jobs"),
            code=5,
        ).err

    assert f"{jobs}/closed is closed to other users" in said
    assert "--run-as root" in said


def test_jobs_of_a_local_cluster_have_its_user_by_default() -> None:
    """They work in the person's own directories, on the person's own machine."""
    with a_cluster("--hosts", "1", "--ephemeral") as cluster:
        cluster.submit("plain", "--", "sh", "-c", "id -u")
        cluster.iris("wait", "plain")
        assert cluster.iris("logs", "plain").out == f"{os.geteuid()}\n"


def test_jobs_of_a_local_cluster_have_users_of_their_own_if_its_configuration_says_so() -> None:
    """So a configuration can be tried on one machine. Nothing is left of a slice that is deleted
    under a running job.
    """
    attempts = Path("/var/lib/iris-jobs/attempts")
    with a_home() as home:
        config = home / "apart.yaml"
        config.write_text(CONFIG.format(first=UIDS[0], last=UIDS[-1]))
        cluster = Cluster(home, "apart", ["--config", str(config)])
        try:
            cluster.start()
            cluster.submit("own", "--workdir", "/", "--", "sh", "-c", "id -u; sleep 1000")
            eventually(lambda: cluster.iris("logs", "own").out != "", every=0.3)
            uid = int(cluster.iris("logs", "own").out)
            assert uid in UIDS
            assert [
                path.stat().st_gid for path in attempts.iterdir() if path.stat().st_gid in UIDS
            ] == [uid]
        finally:
            cluster.iris("cluster", "stop", "apart", "--yes", code=None)
            cluster.clear()
        eventually(lambda: not any(path.stat().st_gid in UIDS for path in attempts.iterdir()))
        assert not any(map(has_processes, UIDS))
