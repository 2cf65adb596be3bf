"""A job uses a secret, and the value is looked for wherever Iris keeps or shows anything."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.e2e.cluster import Cluster, a_home, eventually
from tests.searches import files_of, files_with, histories

pytestmark = pytest.mark.long

#: No other process of this machine has these.
VALUE, IN_FILE = f"hunter2-env-{uuid4().hex}", f"hunter2-file-{uuid4().hex}"
#: Ends with 0 if the program has both values; prints them whole, in two pieces, and on standard error.
PROGRAM = """
import hashlib, os, pathlib, sys, time
token, key = os.environ["HF_TOKEN"], os.environ["KEY"]
found = hashlib.sha256(f"{token} {key}".encode()).hexdigest()
print("token", token, flush=True)
print("key", key, file=sys.stderr, flush=True)
print("again", token[:10], end="", flush=True)
pathlib.Path("begun").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
print(token[10:], flush=True)
sys.exit(0 if found == sys.argv[1] else 9)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster that was started from a shell with a token, and a file with a key beside its state."""
    with a_home() as home:
        cluster = Cluster(home, options=("--cpu", "4", "--memory", "8g", "--hosts", "1"))
        (cluster.work / "key").write_text(f"{IN_FILE}\n")
        try:
            cluster.iris("cluster", "start", "--local", "-d", "--name", "local", *cluster.options, within=240, OURS=VALUE)
            yield cluster
        finally:
            try:
                cluster.iris("cluster", "stop", "local", "--yes", code=None)
            finally:
                cluster.clear()


def having(cluster: Cluster) -> set[Path]:
    """The files of the state directory that have a value: databases, logs, the store, records. Not the file with the key."""
    return files_with(files_of(cluster.home), VALUE.encode(), IN_FILE.encode()) - {cluster.work / "key"}


def shown(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_value_of_a_secret_is_in_no_history_log_record_or_command_line(cluster: Cluster) -> None:
    """It is in the memory and the environment of the processes that use it, and nowhere else; also after the agent died."""
    digest = shown(sys.executable, "-c", f"import hashlib; print(hashlib.sha256(b'{VALUE} {IN_FILE}').hexdigest())").strip()
    asked = ("--secret", "HF_TOKEN=env:OURS", "--secret", f"KEY=file:{cluster.work / 'key'}")
    cluster.submit("train", *asked, "--cpu", "1", "--workdir", str(cluster.work), "--", sys.executable, "-c", PROGRAM, digest)
    cluster.there_is("begun")
    spoken = cluster.iris("exec", "train", "--", "sh", "-c", "echo ${HF_TOKEN-none}").out.split()

    assert spoken == ["none"]
    assert VALUE not in shown("ps", "-ef") + shown("ps", "axww")
    assert having(cluster) == set()
    assert VALUE not in histories(cluster)

    host = cluster.only_host()
    cluster.kill("agent", host)
    eventually(lambda: cluster.pid("agent", host))
    cluster.file("go").touch()
    cluster.iris("wait", "train")

    assert cluster.status("train")["state"] == "SUCCEEDED"
    assert sorted(cluster.logs("train")) == ["again ***", "key ***", "token ***"]
    assert having(cluster) == set()
    history = histories(cluster)
    assert "env:OURS" in history
    assert VALUE not in history
    assert IN_FILE not in history
    cluster.stop()
    assert having(cluster) == set()


def test_a_job_that_fails_for_its_secret_names_it_and_ends(cluster: Cluster) -> None:
    """At once: not after a hundred attempts on other hosts. The last lines of a program that failed are masked, too."""
    failing = cluster.iris("submit", "-n", "none", "--secret", "HF_TOKEN=env:NONE", "--cpu", "1", "--", "true", code=125)
    own = cluster.iris("submit", "-n", "own", "--secret", "K=env:TEMPORAL_API_KEY", "--cpu", "1", "--", "true", code=125)
    cluster.iris("submit", "-n", "loud", "--secret", "OURS", "--cpu", "1", "--", "sh", "-c", "echo $OURS; exit 3", code=125)
    (task,) = cluster.status("none")["tasks"]

    assert "secret HF_TOKEN (env:NONE) cannot be used: the agent of this host has no such variable" in failing.err
    assert "credential of the agent itself" in own.err
    assert (task["attempt"], task["exit_code"]) == (1, 126)
    assert cluster.logs("loud", "--stream", "stdout") == ["***"]
    assert having(cluster) == set()
    assert VALUE not in histories(cluster)


def test_submit_warns_of_a_secret_in_the_environment(cluster: Cluster) -> None:
    """Whoever reaches Temporal can read it there; the planted value shows that the search above finds such a thing."""
    planted = f"planted-{uuid4().hex}"
    ran = cluster.iris("submit", "-n", "it", "--env", f"WANDB_API_KEY={planted}", "--cpu", "1", "--", "true")

    assert "warning: WANDB_API_KEY looks like a secret" in ran.err
    assert "use --secret WANDB_API_KEY" in ran.err
    assert planted not in ran.err
    assert planted in histories(cluster)
    assert [path for path in cluster.home.rglob("*.sqlite*") if planted.encode() in path.read_bytes()]


def test_programs_and_processes_of_iris_that_need_no_secret_do_not_have_it(cluster: Cluster) -> None:
    """Only the processes that were started from the shell, and of the job only the program itself."""
    os.mkfifo(cluster.work / "go")
    script = ": > begun; read line < go"  # the shell itself: a child of a loop would be gone before its environment is read
    cluster.submit("with", "--secret", "OURS", "--cpu", "1", "--workdir", str(cluster.work), "--", "sh", "-c", script)
    cluster.there_is("begun")
    have = {process.pid for process in cluster.processes() if VALUE in str(process.environ())}
    shims = [process for process in cluster.processes() if "fork_server.py" in str(process.cmdline())]
    (program,) = [process for process in cluster.processes() if script in process.cmdline()]
    (cluster.work / "go").write_text("\n")
    cluster.iris("wait", "with")

    assert program.pid in have
    assert shims
    assert not have & {process.pid for process in shims}
    started_from_the_shell = [psutil.Process(pid) for pid in have - {program.pid} if psutil.pid_exists(pid)]
    assert all("iris.cli.main" in str(each.cmdline()) or "temporal" in str(each.cmdline()) for each in started_from_the_shell)
    assert not Path("/dev/shm/secrets").exists()
