"""A job uses a secret, and the value is looked for wherever Iris keeps or shows anything."""

import hashlib
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

#: No other process of this machine has these: of the shell that starts the cluster, of a file, and
#: of the submitter's shell.
VALUE, IN_FILE, MINE = (f"hunter2-{what}-{uuid4().hex}" for what in ("env", "file", "mine"))
#: Ends with 0 if the program has both values; prints them whole, in two pieces, and on standard
#: error.
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster that was started from a shell with a token, and a file with a key beside its
    state. The last test stops it.
    """
    with a_home() as home:
        cluster = Cluster(home, options=("--cpu", "4", "--memory", "8g", "--hosts", "1"))
        (cluster.work / "key").write_text(f"{IN_FILE}\n")
        try:
            cluster.iris(
                "cluster",
                "start",
                "--local",
                "-d",
                "--name",
                "local",
                *cluster.options,
                within=240,
                OURS=VALUE,
            )
            yield cluster
        finally:
            try:
                cluster.iris("cluster", "stop", "local", "--yes", code=None)
            finally:
                cluster.clear()


def having(cluster: Cluster) -> set[Path]:
    """The files of the state directory that have a value: databases, logs, the store, records. Not
    the file with the key.
    """
    values = (VALUE.encode(), IN_FILE.encode(), MINE.encode())
    return files_with(files_of(cluster.home), *values) - {cluster.work / "key"}


def sealed(cluster: Cluster) -> list[str]:
    """The objects with sealed values in the store of the cluster, below the folder of their
    kind.
    """
    return [
        path.relative_to(folder).as_posix()
        for folder in cluster.home.rglob("sealed/local")
        for path in files_of(folder)
    ]


def shown(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("name", "value", "token", "key", "reference"),
    [
        ("of-the-host", VALUE, "HF_TOKEN=host-env:OURS", "KEY=host-file:{file}", "host-env:OURS"),
        ("of-the-submitter", MINE, "HF_TOKEN", "KEY=file:key", "sealed:job/ada/of-the-submitter"),
        ("named", MINE, "HF_TOKEN=env:OTHER", "KEY=secret:KEY", "sealed:job/ada/named"),
    ],
    ids=["of-the-host", "of-the-submitter", "named"],  # the values differ in each process
)
def test_the_value_of_a_secret_is_in_no_history_log_record_or_command_line(
    cluster: Cluster, name: str, value: str, token: str, key: str, reference: str
) -> None:
    """It is in the memory and the environment of the processes that use it, and nowhere else; also
    after the agent died.

    Those of the submitter are in the store, sealed, until the job ends.
    """
    directory = cluster.file(name)
    directory.mkdir()
    digest = hashlib.sha256(f"{value} {IN_FILE}".encode()).hexdigest()
    cluster.iris("secret", "set", "KEY", "--from-file", str(cluster.work / "key"))
    asked = (
        "--secret",
        token,
        "--secret",
        key.format(file=cluster.work / "key"),
        "--cpu",
        "1",
        "--workdir",
        str(directory),
    )
    program = (sys.executable, "-c", PROGRAM, digest)
    cluster.iris(
        "submit",
        "-n",
        name,
        "-d",
        *asked,
        "--",
        *program,
        cwd=cluster.work,
        HF_TOKEN=value,
        OTHER=value,
    )
    cluster.there_is(f"{name}/begun")
    assert [path.rpartition("/")[0] for path in sealed(cluster)] == ["user/ada"] + [
        f"job/ada/{name}"
    ] * (value == MINE)
    spoken = cluster.iris("exec", name, "--", "sh", "-c", "echo ${HF_TOKEN-none}").out.split()

    assert spoken == ["none"]
    assert value not in shown("ps", "-ef") + shown("ps", "axww")
    assert having(cluster) == set()
    assert value not in histories(cluster)

    host = cluster.only_host()
    cluster.kill("agent", host)
    eventually(lambda: cluster.pid("agent", host))
    (directory / "go").touch()
    cluster.iris("wait", name)

    assert cluster.status(name)["state"] == "SUCCEEDED"
    assert sorted(cluster.logs(name)) == ["again ***", "key ***", "token ***"]
    assert having(cluster) == set()
    history = histories(cluster)
    assert reference in history
    assert value not in history
    assert IN_FILE not in history
    assert sealed(cluster) == ["user/ada/KEY"]
    cluster.iris("secret", "rm", "KEY")
    assert sealed(cluster) == []


def test_a_job_that_fails_for_its_secret_names_it_and_ends(cluster: Cluster) -> None:
    """At once: not after a hundred attempts on other hosts. The last lines of a program that failed
    are masked, too.
    """
    failing = cluster.iris(
        "submit",
        "-n",
        "none",
        "--secret",
        "HF_TOKEN=host-env:NONE",
        "--cpu",
        "1",
        "--",
        "true",
        code=125,
    )
    own = cluster.iris(
        "submit",
        "-n",
        "own",
        "--secret",
        "K=host-env:TEMPORAL_API_KEY",
        "--cpu",
        "1",
        "--",
        "true",
        code=125,
    )
    cluster.iris(
        "submit",
        "-n",
        "loud",
        "--secret",
        "OURS",
        "--cpu",
        "1",
        "--",
        "sh",
        "-c",
        "echo $OURS; exit 3",
        code=125,
        OURS=MINE,
    )
    (task,) = cluster.status("none")["tasks"]

    assert "secret HF_TOKEN (host-env:NONE) cannot be used" in failing.err
    assert "credential" in own.err
    assert (task["attempt"], task["exit_code"]) == (1, 126)
    assert cluster.logs("loud", "--stream", "stdout") == ["***"]
    assert having(cluster) == set()
    assert MINE not in histories(cluster)
    assert sealed(cluster) == []


def test_submit_warns_of_a_secret_in_the_environment(cluster: Cluster) -> None:
    """Whoever reaches Temporal can read it there; the planted value shows that the search above
    finds such a thing.
    """
    planted = f"planted-{uuid4().hex}"
    ran = cluster.iris(
        "submit", "-n", "it", "--env", f"WANDB_API_KEY={planted}", "--cpu", "1", "--", "true"
    )

    assert "warning: WANDB_API_KEY " in ran.err
    assert "use --secret WANDB_API_KEY" in ran.err
    assert planted not in ran.err
    assert planted in histories(cluster)
    assert [
        path for path in cluster.home.rglob("*.sqlite*") if planted.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize(
    ("name", "secret", "value"),
    [("with-the-hosts", "OURS=host-env:OURS", VALUE), ("with-a-sealed", "OURS", MINE)],
    ids=["with-the-hosts", "with-a-sealed"],
)
def test_programs_and_processes_of_iris_that_need_no_secret_do_not_have_it(
    cluster: Cluster, name: str, secret: str, value: str
) -> None:
    """Only the processes that were started from the shell, and of the job only the program itself.
    Of a sealed value, also the agent and the control plane have nothing in their environments.
    """
    directory = cluster.file(name)
    directory.mkdir()
    os.mkfifo(directory / "go")
    # the shell itself: a child of a loop would be gone before its environment is read
    script = ": > begun; read line < go"
    asked = ("--secret", secret, "--cpu", "1", "--workdir", str(directory))
    cluster.iris("submit", "-d", "-n", name, *asked, "--", "sh", "-c", script, OURS=value)
    cluster.there_is(f"{name}/begun")
    have = {process.pid for process in cluster.processes() if value in str(process.environ())}
    shims = [
        process for process in cluster.processes() if "fork_server.py" in str(process.cmdline())
    ]
    (program,) = [process for process in cluster.processes() if script in process.cmdline()]
    (directory / "go").write_text("\n")
    cluster.iris("wait", name)

    assert program.pid in have
    assert shims
    assert not have & {process.pid for process in shims}
    started_from_the_shell = [
        psutil.Process(pid) for pid in have - {program.pid} if psutil.pid_exists(pid)
    ]
    assert all(
        "iris.cli.main" in str(each.cmdline()) or "temporal" in str(each.cmdline())
        for each in started_from_the_shell
    )
    assert not Path("/dev/shm/secrets").exists()


def test_after_the_stop_no_file_has_a_value(cluster: Cluster) -> None:
    """Of all the jobs above; a stopped server has written its database out."""
    cluster.stop()
    assert having(cluster) == set()
