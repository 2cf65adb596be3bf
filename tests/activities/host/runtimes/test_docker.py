"""The docker runtime with a real engine: what a program finds in its container, how it ends, and
that nothing is left.
"""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.activities.host.runtimes.container import rights
from iris.activities.host.runtimes.container.runtime import DockerRuntime, clear_host
from iris.activities.host.runtimes.shim import container as shim_container
from iris.activities.host.runtimes.shim import shim
from iris.model import names
from iris.model.host.resources import Device, DeviceKind, Resources
from tests import images
from tests.containers import HOST_ENV, Bench, containers, inspect, python
from tests.e2e.cluster import eventually

pytestmark = pytest.mark.docker

#: A program that handles SIGTERM: it says so, and ends when the file `go` is there, with a last
#: line.
SAVES = """
import os, signal, sys, time
def save(*_):
    print("saving", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
os.write(1, b"up\\n")  # a handler may not print within a `print`
while True:
    time.sleep(0.05)  # not `pause`, which a signal may come just before
"""


@pytest.fixture(scope="session")
def image() -> str:
    return images.docker_image()


@pytest.fixture
async def bench(tmp_path: Path, image: str) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "attempt", image)
    yield bench
    await bench.runtime.clear()
    assert containers(f"iris.key={bench.key}") == []


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -SEGV $$", -11)],
)
async def test_the_status_is_the_exit_code_or_minus_the_signal(
    bench: Bench, script: str, status: int
) -> None:
    """Users are told what their program did, so the two must not be mixed up; the engine does mix
    them.
    """
    ended = await bench.run("sh", "-c", script)

    assert (ended.status, ended.error, ended.fenced, ended.out_of_memory) == (
        status,
        "",
        False,
        False,
    )


async def test_output_is_there_byte_for_byte_and_the_streams_are_kept_apart(bench: Bench) -> None:
    """The engine's own logs would replace what is no text, and break long lines."""
    await bench.run(
        *python(
            "import os; os.write(1, bytes(range(256)) + b'x' * 300000); os.write(2, b'\\xff\\0')"
        )
    )

    assert (bench.directory / "stdout").read_bytes() == bytes(range(256)) + b"x" * 300000
    assert (bench.directory / "stderr").read_bytes() == b"\xff\0"


async def test_arguments_reach_the_program_as_they_are(bench: Bench) -> None:
    """A shell starts it, which must not take a user's words for its own."""
    words = ["a b", "$HOME", "`id`", "'", '"', ";", "", "\n", "*", "-e"]
    await bench.run(*python("import sys; print(sys.argv[1:])"), *words)

    assert bench.out == f"{words}\n"


async def test_the_image_has_its_own_environment_and_the_job_adds_to_it(bench: Bench) -> None:
    """The host's paths and locale mean nothing in an image, or something else."""
    await bench.run("env", env=bench.env(PATH=f"/venv/bin:{HOST_ENV['PATH']}", MODE="fast"))

    seen = dict(line.split("=", 1) for line in bench.out.splitlines())
    assert seen["PATH"] == f"/venv/bin:{images.PATH}"
    assert (seen["FLAVOUR"], seen["MODE"], seen[names.ENV_ATTEMPT_KEY]) == (
        "vanilla",
        "fast",
        bench.key,
    )
    assert "LANG" not in seen
    assert "TINI_KILL_PROCESS_GROUP" not in seen
    assert seen["HOME"] != HOST_ENV["HOME"]


@pytest.mark.parametrize(
    "name", ["init", "told", "program", "code", "pid", "line", "all", "group", "stat", "strays"]
)
async def test_a_variable_of_the_job_may_have_any_name(bench: Bench, name: str) -> None:
    """The shell that waits for the program in its container has variables, too."""
    await bench.run("env", env=bench.env(**{name: "mine"}))

    assert f"{name}=mine" in bench.out.splitlines()


async def test_secrets_reach_the_program_and_neither_the_engine_nor_any_file(bench: Bench) -> None:
    """The engine shows a container's environment to everybody who may ask it, and keeps it on the
    disk.
    """
    values = {
        "TOKEN": "hunter2-in-a-pipe",
        "KEY": "two\nlines $HOME `id` 'quoted' \"x\" \\\\",
        "BIG": "hunter2 " * 8000,
        "LANG": "grüße",
    }
    script = (
        "import os; print({name: os.environ[name] == value for name, value in"
        " eval(open('expected').read()).items()})"
    )
    (bench.work / "expected").write_text(repr({**values, "FLAVOUR": "vanilla"}))
    program = await bench.start(
        *python(f"{script}; print(os.environ['TOKEN'], flush=True); import time; time.sleep(1000)"),
        env=bench.env(TOKEN="default"),
        secrets=values,
    )
    await asyncio.to_thread(bench.says, "***\n")
    (container,) = containers(f"iris.key={bench.key}")
    (bench.work / "expected").unlink()

    assert bench.out == f"{dict.fromkeys([*values, 'FLAVOUR'], True)}\n***\n"
    assert "hunter2" not in str(inspect(container))
    files = [path for path in bench.directory.rglob("*") if path.is_file()]
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []
    assert not (bench.directory / shim.SECRETS).exists()
    program.stop(timedelta(0))
    await asyncio.wait_for(program.wait(), 60)


async def test_under_another_user_the_program_is_that_user_and_has_a_home(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is not root must be able to remove what its programs leave; and many of them
    want to leave it at home.
    """
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(os, "getgid", lambda: 4712)
    home = bench.directory / "home"
    home.mkdir()
    for path in (bench.directory, bench.work, home):
        os.chown(path, 4711, 4712)
    ended = await bench.run("sh", "-c", 'id -u; id -g; touch "$HOME/kept"')

    assert (ended.status, bench.out) == (0, "4711\n4712\n"), bench.err
    assert (home / "kept").exists()


async def test_whom_the_host_trusts_the_program_trusts_too(
    bench: Bench, image: str, tmp_path: Path
) -> None:
    """It is on the host's network, where a proxy may sign for all the world."""
    trusted = tmp_path / "ca.pem"
    trusted.write_text("a certificate\n")
    env = {"SSL_CERT_FILE": str(trusted)}
    bench.runtime = DockerRuntime(image, bench.task, "h0", "c", bench.directory, host_env=env)
    await bench.run("sh", "-c", 'cat "$SSL_CERT_FILE"', env=env)

    assert bench.out == "a certificate\n"


async def test_what_a_job_sets_itself_holds_against_host_and_image(bench: Bench) -> None:
    """It knows its image."""
    await bench.run("/usr/bin/env", env=bench.env(PATH="/opt/mine", FLAVOUR="mint", LANG="C"))

    assert {"PATH=/opt/mine", "FLAVOUR=mint", "LANG=C"} <= set(bench.out.splitlines())


async def test_the_program_is_looked_for_in_the_image(bench: Bench) -> None:
    """By the image's PATH: the host may have another program of that name, or none."""
    await bench.run("only-here", "now")

    assert bench.out == "here: vanilla now\n"


async def test_the_program_is_on_the_hosts_network(bench: Bench) -> None:
    """Ranks find each other under their hosts' addresses, and on ports that no one translates."""
    await bench.run("cat", "/proc/net/route")

    assert bench.out == Path("/proc/net/route").read_text()


async def test_the_attempts_files_and_the_configured_directories_are_the_hosts(
    bench: Bench, image: str, tmp_path: Path
) -> None:
    """What a program leaves there is kept, and what the cluster gives to containers is there."""
    mine = tmp_path / "project"
    (mine / "inner").mkdir(parents=True)
    (mine / "inner" / "run.sh").write_text(f"#!/bin/sh\npwd; echo kept > {bench.work}/left\n")
    (mine / "inner" / "run.sh").chmod(0o755)
    bench.runtime = DockerRuntime(
        image, bench.task, "h0", "c", bench.directory, mounts=[mine], host_env=HOST_ENV
    )
    await bench.run("./run.sh", workdir=mine / "inner")

    assert bench.out == f"{mine}/inner\n"
    assert (bench.work / "left").read_text() == "kept\n"


async def test_a_directory_of_the_host_is_refused_as_a_working_directory(
    bench: Bench, tmp_path: Path
) -> None:
    """Any user could otherwise have any directory of the host, with the rights of root."""
    (tmp_path / "secrets").mkdir()
    await bench.runtime.prepare()

    with pytest.raises(JobFault) as refused:
        await bench.runtime.launch(["true"], bench.env(), tmp_path / "secrets")
    assert (
        str(refused.value) == f"the working directory '{tmp_path}/secrets' is not in the image"
        f" {images.docker_image()!r}, and containers get no directory of the host that"
        " bootstrap.mounts does not list; take your files along with --workspace, or leave out"
        " --workdir"
    )


@pytest.mark.parametrize("workdir", ["/root", "/tmp", "/image/../root", "/"])
async def test_a_working_directory_mounts_nothing_of_the_host(bench: Bench, workdir: str) -> None:
    """The image has a directory of that name, too: that is the one that a container starts in."""
    await bench.runtime.prepare()
    launch = await bench.runtime.launch(["true"], bench.env(), Path(workdir))

    mounted = [Path(mount["Source"]) for mount in inspect(launch.container)["Mounts"]]
    assert mounted
    assert [path for path in mounted if not path.is_relative_to(bench.directory)] == []


async def test_a_configured_directory_that_a_host_lacks_is_no_fault_of_the_users(
    bench: Bench, image: str, tmp_path: Path
) -> None:
    """Another host may have it; and whoever runs this one learns which it lacks."""
    lacking = tmp_path / "not-mounted"
    bench.runtime = DockerRuntime(
        image, bench.task, "h0", "c", bench.directory, mounts=[lacking], host_env=HOST_ENV
    )
    await bench.runtime.prepare()

    with pytest.raises(
        HostFault, match=f"this host has no directory '{lacking}'; create it, or remove it"
    ):
        await bench.runtime.launch(["true"], bench.env(), bench.work)


@pytest.mark.parametrize(
    ("program", "workdir"), [("./only-here", "/image/bin"), ("image/bin/only-here", "/")]
)
async def test_a_working_directory_may_be_the_images(
    bench: Bench, program: str, workdir: str
) -> None:
    """Images bring their programs' own."""
    await bench.run(program, workdir=Path(workdir))

    assert bench.out == "here: vanilla \n"


@pytest.mark.parametrize("path", [None, "/srv/usr/sbin"])
async def test_a_path_is_the_hosts_only_as_a_whole(bench: Bench, path: str | None) -> None:
    """One that ends with the same letters is the job's own; with none at all the image's holds."""
    bench.runtime = DockerRuntime(
        images.docker_image(),
        bench.task,
        "h0",
        "c",
        bench.directory,
        host_env={"PATH": "/usr/sbin"},
    )
    await bench.run("/usr/bin/env", env={} if path is None else {"PATH": path})

    assert f"PATH={path or images.PATH}" in bench.out.splitlines()


@pytest.mark.parametrize(
    ("argv", "workdir", "code", "words"),
    [
        (("no-such", "x"), None, 127, "there is no program 'no-such' in the image 'iris-test:"),
        (("./no-such",), None, 127, "there is no program './no-such' in the image"),
        (("/image/bin",), None, 126, "'/image/bin' is not executable"),
        (("/image/no-program",), None, 126, "'/image/no-program' is not executable"),
        (
            ("true",),
            "/opt/nowhere",
            126,
            "the working directory '/opt/nowhere' is not in the image 'iris-test:",
        ),
        (
            ("true",),
            "/etc/passwd",
            126,
            "cannot run in the working directory '/etc/passwd': .*not a directory",
        ),
        (
            ("true",),
            "/etc/passwd/below",
            126,
            "cannot run in the working directory '/etc/passwd/below': .*not a directory",
        ),
        (
            ("true",),
            "not/absolute",
            126,
            "cannot run in the working directory 'not/absolute': .*absolute path",
        ),
    ],
)
async def test_what_cannot_be_started_is_refused_in_words(
    bench: Bench, argv: tuple[str, ...], workdir: str | None, code: int, words: str
) -> None:
    """An exit code of 127 alone leaves the user to guess."""
    await bench.runtime.prepare()

    with pytest.raises(JobFault, match=words) as refused:
        await bench.runtime.launch(argv, bench.env(), Path(workdir) if workdir else bench.work)
    assert refused.value.exit_code == code
    assert containers(f"iris.key={bench.key}") == []


async def test_an_image_whose_shell_cannot_run_is_the_jobs_failure(tmp_path: Path) -> None:
    """An image for another processor: no host would do better, and without the engine's words
    nobody could tell why.
    """
    foreign = tmp_path / "sh"
    foreign.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0\xb7\0\x01" + bytes(47))
    foreign.chmod(0o755)
    bench = Bench(tmp_path / "attempt", images.with_file(foreign, "/usr/bin/sh"))
    ended = await bench.run("true")
    await bench.runtime.clear()

    assert ended.status == 126
    assert "could not be started with the image's /bin/sh" in ended.error
    assert "exec format error" in ended.error.lower()


@pytest.mark.parametrize(
    ("message", "jobs"),
    [
        ('exec: "/bin/sh": permission denied: unknown', True),
        (
            (
                'error mounting "docker-init" to rootfs at "/sbin/docker-init": open o_path procfd:'
                " not a directory"
            ),
            True,
        ),
        ("mkdir /var/lib/docker/overlay2/x: no space left on device", False),
        ("error mounting: write /sys/fs/cgroup/memory.max: invalid argument", False),
        (
            "error creating overlay mount to /var/lib/docker/overlay2/x/merged: invalid argument",
            False,
        ),
        (
            'OCI runtime create failed: exec: "docker-init": executable file not found in $PATH',
            False,
        ),
        ("the daemon is shutting down", False),
    ],
)
def test_only_errors_about_the_job_are_the_jobs(message: str, jobs: bool) -> None:
    """Whatever else an engine refuses may work on another host."""
    assert shim_container.of_the_job(message) is jobs


async def test_a_program_that_uses_up_its_memory_is_told_so(tmp_path: Path, image: str) -> None:
    """Killed by SIGKILL says nothing: the user has to ask for more memory."""
    bench = Bench(tmp_path / "attempt", image, Resources(memory_bytes=48 * 1024**2))
    ended = await bench.run(*python("x = bytearray(10**9)"))
    await bench.runtime.clear()

    assert (ended.status, ended.out_of_memory) == (-signal.SIGKILL, True)


async def test_the_most_memory_it_had_is_known(bench: Bench) -> None:
    """Whoever has it can ask for less next time."""
    program = await bench.start(
        *python(
            "x = bytearray(90 * 2**20); print('full', flush=True); import time; time.sleep(600)"
        )
    )
    bench.says("full")
    program.stop(timedelta())
    ended = await asyncio.wait_for(program.wait(), 60)

    assert ended.peak_memory_bytes > 90 * 2**20


@pytest.mark.parametrize("argv", [("sleep", "1000"), ("sh", "-c", "echo up; sleep 1000; true")])
async def test_a_program_without_handlers_ends_when_it_is_asked_to(
    bench: Bench, argv: tuple[str, ...]
) -> None:
    """The first process of a container is spared signals that it does not handle, and would sit out
    its grace.
    """
    program = await bench.start(*argv)
    eventually(lambda: program.started)
    program.stop(timedelta(seconds=600))

    assert (await asyncio.wait_for(program.wait(), 60)).status == -signal.SIGTERM


async def test_all_of_a_program_hears_that_it_is_to_stop(bench: Bench) -> None:
    """`sh -c 'python train.py; …'` has the one that saves its state as a child."""
    saves = (
        "import signal, sys; signal.signal(15, lambda *_: None); signal.pthread_sigmask(0, [15]);"
        " print('up', flush=True); signal.sigwait([15]); print('saved', flush=True); sys.exit(3)"
    )
    script = f'trap "" TERM; python3 -c "{saves}"; exit $?'
    program = await bench.start("sh", "-c", script)
    bench.says("up")
    program.stop(timedelta(seconds=600))
    ended = await asyncio.wait_for(program.wait(), 60)

    assert (bench.out, ended.status) == ("up\nsaved\n", 3)


@pytest.mark.parametrize("session", [False, True], ids=["same session", "session of its own"])
async def test_a_program_in_a_wrapper_has_its_grace(bench: Bench, session: bool) -> None:
    """SIGTERM ends the wrapper at once, which is the first process of the program."""
    wrapper = f"import subprocess, sys; subprocess.run(sys.argv[1:], start_new_session={session})"
    program = await bench.start(*python(wrapper), *python(SAVES))
    await asyncio.to_thread(bench.says, "up")
    program.stop(timedelta(seconds=600))
    await asyncio.to_thread(bench.says, "saving")
    assert program.exit is None
    (bench.work / "go").touch()
    ended = await asyncio.wait_for(program.wait(), 60)

    assert (bench.out, ended.status, ended.cut) == ("up\nsaving\nsaved\n", -signal.SIGTERM, False)


async def test_what_is_left_of_a_program_after_its_grace_is_killed(bench: Bench) -> None:
    """And the exit status is that of the first process, not that of the container."""
    deaf = (
        "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    )
    program = await bench.start("sh", "-c", 'python3 -c "$0"; true', deaf)
    await asyncio.to_thread(bench.says, "up")
    program.stop(timedelta(seconds=0.5))
    ended = await asyncio.wait_for(program.wait(), 60)

    assert (ended.status, ended.cut) == (-signal.SIGTERM, True)


@pytest.mark.parametrize("status", [0, 3])
async def test_what_a_program_leaves_when_it_ends_may_finish_its_writing(
    bench: Bench, status: int
) -> None:
    """A helper without a handler, such as `tee`, gets no signal within the grace."""
    helper = "echo up; until [ -e go ]; do sleep 0.05; done; echo written"
    program = await bench.start("sh", "-c", f'sh -c "$0" & exit {status}', helper, grace=600)
    await asyncio.to_thread(eventually, program.first_end)
    await asyncio.to_thread(bench.says, "up")
    assert program.exit is None
    (bench.work / "go").touch()
    ended = await asyncio.wait_for(program.wait(), 60)

    assert (ended.status, ended.cut, bench.out) == (status, False, "up\nwritten\n")


async def test_a_daemon_that_a_program_leaves_does_not_hold_the_host(bench: Bench) -> None:
    """After the grace it gets SIGTERM, and then SIGKILL."""
    daemon = (
        "import signal, time; signal.signal(15, lambda *_: print('told', flush=True)); print('up',"
        " flush=True)\n"
    )
    daemon += "open('up', 'w')\nwhile True: time.sleep(0.05)"
    script = 'python3 -c "$0" & until [ -e up ]; do sleep 0.05; done'
    program = await bench.start("sh", "-c", script, daemon, grace=0.5)
    ended = await asyncio.wait_for(program.wait(), 60)

    assert (ended.status, ended.cut, bench.out) == (0, True, "up\ntold\n")


async def test_a_command_beside_a_program_does_not_hold_its_container(bench: Bench) -> None:
    """A shell that somebody has open in the container is no part of the program."""
    program = await bench.start(
        "sh", "-c", "echo up; until [ -e go ]; do sleep 0.05; done", grace=600
    )
    await asyncio.to_thread(bench.says, "up")
    (container,) = containers(f"iris.key={bench.key}")
    beside = ["docker", "exec", container, "sh", "-c", "sleep 1000 & echo ready; wait"]
    shell = await asyncio.create_subprocess_exec(*beside, stdout=asyncio.subprocess.PIPE)
    assert shell.stdout is not None
    assert await shell.stdout.readline() == b"ready\n"
    (bench.work / "go").touch()
    ended = await asyncio.wait_for(program.wait(), 60)
    await shell.communicate()

    assert (ended.status, ended.cut) == (0, False)


async def test_a_program_leads_a_process_group_of_its_own(bench: Bench) -> None:
    """Scripts clean up with `kill -- -$$`, which must reach what they have started and nothing of
    Iris.
    """
    ended = await bench.run(
        "sh", "-c", 'trap "exit 4" TERM; sleep 1000 & kill -- -$$; wait; exit 5'
    )

    assert (ended.status, bench.err) == (4, "")


async def test_a_program_that_will_not_stop_is_killed_after_its_grace(bench: Bench) -> None:
    """The host is promised to somebody else."""
    program = await bench.start("sh", "-c", 'trap "" TERM; echo up; while true; do sleep 0.1; done')
    bench.says("up")
    program.stop(timedelta(seconds=0.5))

    assert (await asyncio.wait_for(program.wait(), 60)).status == -signal.SIGKILL


async def test_a_program_whose_lease_runs_out_is_killed(bench: Bench) -> None:
    """The cluster may start it elsewhere from then on."""
    program = await bench.start("sleep", "1000", lease=1.0)
    ended = await asyncio.wait_for(program.wait(), 60)

    assert (ended.status, ended.fenced) == (-signal.SIGKILL, True)


async def test_a_container_whose_shim_was_killed_is_cleared_away(bench: Bench) -> None:
    """It runs on with nobody to mind it."""
    program = await bench.start("sleep", "1000")
    started = eventually(lambda: program.started)
    os.kill(started.shim, signal.SIGKILL)
    assert (await asyncio.wait_for(program.wait(), 60)).status is None

    await bench.runtime.clear()
    await bench.runtime.clear()

    assert containers(f"iris.key={bench.key}") == []
    assert started.pid is not None
    eventually(lambda: not Path(f"/proc/{started.pid}").exists())


async def test_the_containers_of_a_host_are_cleared_away_and_nothing_else(
    bench: Bench, tmp_path: Path, image: str
) -> None:
    """A host that lost its directory knows none of its attempts. What is another's it must not
    touch, even in the same cluster.
    """
    benches = {host: Bench(tmp_path / host / "attempt", image) for host in ("h0", "h1")}
    for host, each in benches.items():
        each.runtime = DockerRuntime(
            image, each.task, host, "shared-name", each.directory, host_env=HOST_ENV
        )
        await each.start("sleep", "1000")
    await clear_host("shared-name", "h0")
    await clear_host("other-name", "h1")

    assert [len(containers(f"iris.key={each.key}")) for each in benches.values()] == [0, 1]
    await clear_host("shared-name", "h1")
    assert containers("iris.cluster=shared-name") == []
    for each in benches.values():
        await asyncio.wait_for(each.program.wait(), 60)


async def test_containers_say_whose_they_are(bench: Bench) -> None:
    """`docker ps` on a host is where an operator looks first."""
    await bench.start("sleep", "1000")

    assert (
        len(
            containers(
                "iris.managed=true", "iris.host=h0", "iris.job=ada/train", "iris.task=ada/train:0"
            )
        )
        >= 1
    )


async def test_a_step_of_the_set_up_leaves_its_output_and_its_status_and_no_container(
    bench: Bench,
) -> None:
    """What it makes has to work in the image, so it is made there."""
    await bench.runtime.prepare()
    log = bench.directory / "build"
    statuses = [
        await bench.runtime.step(["sh", "-c", script], bench.env(), bench.work, log)
        for script in ("echo one; echo two >&2; touch made", "exit 4", "kill -9 $$")
    ]

    assert statuses == [0, 4, -9]
    assert log.read_text() == "one\ntwo\n"
    assert (bench.work / "made").exists()
    assert containers(f"iris.key={bench.key}") == []


async def test_a_step_that_is_cancelled_is_gone(bench: Bench) -> None:
    """The attempt's directory is removed next."""
    await bench.runtime.prepare()
    log = bench.directory / "build"
    step = asyncio.create_task(
        bench.runtime.step(["sh", "-c", "echo up; sleep 1000"], bench.env(), bench.work, log)
    )
    await asyncio.to_thread(eventually, lambda: log.exists() and "up" in log.read_text())
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step

    assert containers(f"iris.key={bench.key}") == []


async def test_a_step_of_no_known_command_is_refused(bench: Bench) -> None:
    """As for the program itself."""
    await bench.runtime.prepare()

    with pytest.raises(JobFault, match="there is no program 'uvx-of-nowhere'"):
        await bench.runtime.step(
            ["uvx-of-nowhere"], bench.env(), bench.work, bench.directory / "build"
        )


def tpu_bench(tmp_path: Path, image: str, names: Sequence[str] = ("accel0", "accel1")) -> Bench:
    """On a host with two chips, or what looks like them: all of it is /dev/null."""
    devices = tmp_path / "dev"
    for name in names:
        (devices / name).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(devices / name, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    tpu = Resources(
        cpu_millis=1000, device=Device(kind=DeviceKind.TPU, variant="v5litepod-4", count=2)
    )
    return Bench(tmp_path / "attempt", image, tpu, devices)


@pytest.mark.parametrize("chips", [("accel0", "accel1"), ("vfio/0", "vfio/11", "vfio/vfio")])
async def test_a_tpu_task_gets_the_chips_and_room_to_share(
    tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch, chips: Sequence[str]
) -> None:
    """Without these libtpu fails with words that nobody understands."""
    # Not every machine that runs the tests may give them away.
    monkeypatch.setattr(rights, "TPU_CAPABILITIES", ())
    monkeypatch.setattr(rights, "TPU_ULIMITS", ())
    bench = tpu_bench(tmp_path, image, chips)
    paths = [f"/dev/{name}" for name in chips]
    room = "import os; s = os.statvfs('/dev/shm'); print(s.f_frsize * s.f_blocks)"
    ended = await bench.run(
        "sh", "-c", f'ls {" ".join(paths)}; echo x > {paths[-1]} && python3 -c "{room}"'
    )
    await bench.runtime.clear()

    assert ended.status == 0, ended.error or bench.err
    assert bench.out.splitlines() == [*paths, str(100 * 1024**3)]


async def test_a_tpu_task_may_pin_its_memory(tmp_path: Path, image: str) -> None:
    """libtpu does, all of what it shares with the chips."""
    bench = tpu_bench(tmp_path, image)
    await bench.runtime.prepare()
    launch = await bench.runtime.launch(["true"], bench.env(), bench.work)
    asked = inspect(launch.container)["HostConfig"]
    await bench.runtime.clear()

    assert [(each["Name"], each["Hard"]) for each in asked["Ulimits"]] == [
        ("memlock", 64 * 1024**3)
    ]
    assert {cap.removeprefix("CAP_") for cap in asked["CapAdd"]} == {
        *rights.CAPABILITIES,
        "SYS_RESOURCE",
    }


@pytest.mark.parametrize("kind", list(DeviceKind))
async def test_a_host_that_only_pretends_to_have_accelerators_runs_the_task(
    tmp_path: Path, image: str, kind: DeviceKind
) -> None:
    """Local clusters do, to try things out."""
    bench = Bench(
        tmp_path / "attempt", image, Resources(device=Device(kind=kind, count=4)), devices=tmp_path
    )
    ended = await bench.run("true")
    await bench.runtime.clear()

    assert ended.status == 0


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (
            "unix:///nowhere/docker.sock",
            "no container engine: no program listens at the socket /nowhere/docker.sock; start docker there, or",
        ),
        ("tcp://10.0.0.1:2375", "which is not a socket on this host"),
    ],
)
async def test_a_host_without_an_engine_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, words: str
) -> None:
    """Another host may have one, so it is not the user's fault."""
    monkeypatch.setenv("DOCKER_HOST", address)
    bench = Bench(tmp_path / "attempt", "any")

    with pytest.raises(HostFault, match=words) as unable:
        await bench.runtime.prepare()
    assert unable.value.fault == "docker"
    await bench.runtime.clear()
    await clear_host("c", "h0")


def test_the_container_half_of_the_shim_needs_nothing_but_the_standard_library() -> None:
    """It is started without any site-packages."""
    beside = Path(shim.__file__).parent
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.append({str(beside)!r}); import container",
        ]
    )
    assert done.returncode == 0
