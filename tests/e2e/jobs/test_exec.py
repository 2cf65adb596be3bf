"""Looking into running tasks on a real cluster: commands beside them, profiles, what they use."""

import contextlib
import fcntl
import hashlib
import os
import pty
import struct
import subprocess
import sys
import termios

import psutil
import pytest

from tests.e2e.cluster import USER, Cluster, eventually, until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> str:
    """A job that runs: a Python process that computes."""
    program = """
import os, threading
open("looked.at", "w").close()
def inner():
    while not os.path.exists("looked.go"):
        sum(range(1000))
inner()
"""
    job = "looked-at"
    env = ["--env", "COLOUR=blue", "--memory", "256m", "--port", "http"]
    cluster.submit(job, "--cpu", "0.5", *env, "--", sys.executable, "-c", program)
    cluster.there_is("looked.at")
    return job


def commands(cluster: Cluster) -> list[list[str]]:
    """The command lines of all processes of the cluster."""
    found = []
    for process in cluster.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(process.cmdline())
    return found


def test_a_command_beside_a_task_has_its_environment_and_its_own_exit_code(
    cluster: Cluster, running: str
) -> None:
    """Streams apart, and bytes as they are."""
    ran = cluster.iris(
        "exec",
        running,
        "--",
        "sh",
        "-c",
        "echo $COLOUR $IRIS_TASK_ID; printf '\\377' >&1; exit 7",
        code=7,
    )
    assert ran.raw_out == f"blue {USER}/{running}:0\n".encode() + b"\xff"
    assert cluster.iris("exec", f"{running}:0", "--", "sh", "-c", "echo oops >&2").err == "oops\n"


def test_piped_input_reaches_the_command_whole_and_ends(cluster: Cluster, running: str) -> None:
    """`tar c . | iris exec … tar x`: all bytes, and the end; a loop over lines keeps its own with
    -n.
    """
    command = [sys.executable, "-m", "iris.cli.main", "exec"]
    env = {**os.environ, "IRIS_STATE_DIR": str(cluster.home), "IRIS_USER": USER}

    def given(*options: str) -> tuple[bytes, bytes]:
        ended = subprocess.run(
            [*command, *options, running, "--", "cat"],
            env=env,
            input=b"one\ntwo",
            capture_output=True,
            check=True,
            timeout=120,
        )
        return ended.stdout, ended.stderr

    assert given() == given("-i") == (b"one\ntwo", b"")
    assert given("-n") == (b"", b"")
    assert (
        "-i and -n exclude each other"
        in cluster.iris("exec", "-i", "-n", running, "--", "true", code=2).err
    )
    sent = os.urandom(3 * 1024 * 1024)
    ended = subprocess.run(
        [*command, running, "--", "sha256sum"],
        env=env,
        input=sent,
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert ended.stdout.decode().split()[0] == hashlib.sha256(sent).hexdigest()


def test_a_command_that_reads_nothing_of_endless_input_ends(cluster: Cluster, running: str) -> None:
    """The input waits in front of the command, and not for ever; and its writer learns that nobody
    reads.
    """
    command = (
        f"yes | {sys.executable} -m iris.cli.main exec {running} -- sh -c 'read line; echo $line;"
        " exit 7'"
    )
    env = {**os.environ, "IRIS_STATE_DIR": str(cluster.home), "IRIS_USER": USER}
    ended = subprocess.run(
        ["sh", "-c", command], env=env, capture_output=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"y\n", b"")


def test_a_shell_in_a_terminal_is_one(cluster: Cluster, running: str) -> None:
    """With its prompt, Ctrl-C for what runs in it, its size; and the own terminal is as before when
    it ends.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(IRIS_STATE_DIR=str(cluster.home), IRIS_USER=USER, PS1="> ")
        os.execv(
            sys.executable,
            [sys.executable, "-m", "iris.cli.main", "exec", running, "-it", "--", "sh", "-i"],
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    before = termios.tcgetattr(terminal)
    os.set_blocking(terminal, False)
    seen = b""

    def shows(words: bytes) -> bool:
        nonlocal seen
        with contextlib.suppress(OSError):  # nothing to read now, or ever again
            seen += os.read(terminal, 65536)
        return words in seen

    try:
        eventually(lambda: shows(b"# ") or shows(b"$ "))
        os.write(terminal, b"echo up-$COLOUR; sleep 1000\r")
        eventually(lambda: shows(b"up-blue"))
        seen = b""
        os.write(terminal, b"\x03")
        eventually(lambda: shows(b"# ") or shows(b"$ "))
        os.write(terminal, b"stty size; exit 3\r")
        eventually(lambda: shows(b"33 101"))
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 3
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(terminal)


def test_ctrl_c_ends_the_command_and_not_the_task(cluster: Cluster, running: str) -> None:
    """Once for the command; the second time nobody waits for it any more."""
    polite = cluster.begin("exec", running, "--", "sh", "-c", "echo up; exec sleep 1000")
    eventually(lambda: polite.out == "up\n")
    polite.interrupt()
    polite.ends(130)
    stubborn = cluster.begin(
        "exec",
        running,
        "--",
        "sh",
        "-c",
        "trap '' HUP; trap 'echo no' INT; echo up; while :; do sleep 0.1; done",
    )
    eventually(lambda: stubborn.out == "up\n")
    stubborn.interrupt()
    eventually(lambda: stubborn.out == "up\nno\n")
    stubborn.interrupt()
    stubborn.ends(130)
    assert cluster.status(running)["state"] == "RUNNING"
    eventually(
        lambda: not any("trap '' HUP" in word for words in commands(cluster) for word in words)
    )


def test_a_time_out_and_a_closed_pipe_end_the_command(cluster: Cluster, running: str) -> None:
    """`iris exec … | head` must not leave `yes` behind on the host."""
    ran = cluster.iris("exec", "--timeout", "1s", running, "--", "sleep", "1000", code=124)
    assert "ran longer than 1s" in ran.err
    command = f"{sys.executable} -m iris.cli.main exec {running} -- yes | head -1"
    env = {**os.environ, "IRIS_STATE_DIR": str(cluster.home), "IRIS_USER": USER}
    out = subprocess.run(
        ["sh", "-c", command], env=env, capture_output=True, check=True, timeout=120
    )
    assert out.stdout == b"y\n"
    eventually(lambda: not any(words[:1] == ["yes"] for words in commands(cluster)))


def test_whatever_cannot_be_looked_into_says_why(cluster: Cluster, running: str) -> None:
    """Not found, not running, several tasks: each with its exit code and what to do."""
    assert f"{USER}/lookd-at" in cluster.iris("exec", "lookd-at", "--", "true", code=3).err
    assert "0 to 0" in cluster.iris("exec", f"{running}:1", "--", "true", code=3).err
    cluster.iris("submit", "-n", "looked-done", "--", "true")
    assert "SUCCEEDED" in cluster.iris("exec", "looked-done", "--", "true", code=5).err
    assert "no program 'nonsense'" in cluster.iris("exec", running, "--", "nonsense", code=127).err
    cluster.submit(
        "looked-two", "--replicas", "2", "--cpu", "0.1", "--", "sh", "-c", until("looked-two.go")
    )
    try:
        assert (
            "name one of them, such as ada/looked-two:"
            in cluster.iris("exec", "looked-two", "--", "true", code=2).err
        )
        command = ["status", "looked-two", "--resources", "--json"]
        eventually(lambda: all(task["processes"] for task in cluster.iris(*command).json["usage"]))
        eventually(
            lambda: (
                [task["state"] for task in cluster.status("looked-two")["tasks"]]
                == ["RUNNING", "RUNNING"]
            )
        )
        assert "no Python process" in cluster.iris("profile", "looked-two:1", code=5).err
    finally:
        cluster.file("looked-two.go").touch()


def test_nothing_of_a_session_is_left_in_the_store(cluster: Cluster, running: str) -> None:
    """What was typed and printed is nobody's business afterwards."""
    cluster.iris("exec", running, "--", "echo", "secret")
    store = cluster.home / "clusters" / cluster.name
    assert not [
        path
        for path in store.rglob("exec/*/*/*/*")
        if path.is_file() and b"secret" in path.read_bytes()
    ]


def test_a_profile_shows_where_the_time_goes(cluster: Cluster, running: str) -> None:
    """A dump on the screen, a flame graph in a file."""
    assert "inner" in cluster.iris("profile", running).out
    ran = cluster.iris("profile", running, "--duration", "1s", "-o", "flames.svg")
    assert "flames.svg" in ran.err
    assert "<svg" in cluster.file("flames.svg").read_text()


def test_what_a_task_uses_shows_beside_what_it_asked_for(cluster: Cluster, running: str) -> None:
    """Is it too large for its host, or does it waste what others wait for?"""

    def used() -> dict[str, object] | None:
        (task,) = cluster.iris("status", running, "--resources", "--json").json["usage"]
        return dict(task) if task["cpu_percent"] else None

    task = eventually(used)
    memory, peak = task["memory_bytes"], task["peak_memory_bytes"]
    assert isinstance(memory, int)
    assert isinstance(peak, int)
    assert 0 < memory <= peak
    assert (task["task"], task["processes"], task["host"]) == (
        0,
        1,
        cluster.status(running)["tasks"][0]["host"],
    )
    shown = cluster.iris("status", running, "--resources").out
    assert "of 0.5" in shown
    assert "256 MiB" in shown
    assert "http=" in shown
    cluster.file("looked.go").touch()
    cluster.iris("wait", running)
    assert cluster.iris("status", running, "--resources", "--json").json["usage"] == []
