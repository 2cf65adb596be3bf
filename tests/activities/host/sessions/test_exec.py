"""Commands beside a task: with its environment, talked to through the store, and nothing of them
outlives the session.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import docker
import psutil
import pytest
from pydantic import ValidationError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from iris.activities.host.runtimes.base import Launch
from iris.activities.host.sessions.exec import Execs
from iris.activities.host.sessions.profile import Profiles
from iris.activities.host.sessions.store_stream import StoreStream
from iris.messages.exec import (
    ExecEnd,
    ExecRequest,
    Frame,
    FrameKind,
    ProfileFormat,
    ProfileRequest,
    decode,
    encode,
    size_frame,
)
from iris.model import names
from iris.storage.object_store import Store
from tests.e2e.cluster import eventually
from tests.images import docker_image

#: Tests of several processes must not take one another's commands for their own.
JOB, KEY = "ada/train", f"ada/train:0@1/{os.getpid()}"
PATIENCE = 90.0


class Beside(NamedTuple):
    """An attempt that runs here."""

    key: str
    attempt: int
    directory: Path
    launch: Launch
    pid: int | None


class Here:
    """A host on which one task runs, or none."""

    def __init__(self, attempt: Beside | None) -> None:
        self.attempt = attempt

    def running(self, job: str, index: int) -> Beside | None:
        return self.attempt if (job, index) == (JOB, 0) else None


async def becomes(look: Callable[[], bool]) -> None:
    """Wait until it is so."""
    await asyncio.to_thread(eventually, look, PATIENCE, 0.02)


class Side:
    """A client: what it says, and all it has heard."""

    def __init__(self, stream: StoreStream) -> None:
        self.stream = stream
        self.heard: dict[FrameKind, bytes] = {FrameKind.OUT: b"", FrameKind.ERR: b""}
        self._hearing: asyncio.Task[None] | None = None

    def listen(self) -> None:
        self._hearing = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        while (frames := await self.stream.receive()) is not None:
            for kind, data in frames:
                self.heard[kind] += data
            self.stream.acknowledge(self.stream.received)

    async def has_heard(self, words: bytes) -> None:
        await becomes(lambda: words in self.heard[FrameKind.OUT])

    async def ends(self, end: ExecEnd) -> ExecEnd:
        """All that was printed has been heard."""
        self.stream.expect(end.chunks)
        assert self._hearing is not None
        async with asyncio.timeout(PATIENCE):
            await self._hearing
        return end


class Bench:
    """A host with a task, and a store between it and its clients."""

    def __init__(self, store: Store, here: Here) -> None:
        self.store = store
        self.here = here
        self.execs = Execs(store, here, silence=timedelta(seconds=1), grace=timedelta(seconds=0.3))
        self._sessions = 0

    @contextlib.asynccontextmanager
    async def session(
        self, *argv: str, alive: bool = True, **how: Any
    ) -> AsyncIterator[tuple[Side, "asyncio.Task[ExecEnd]"]]:
        """A command that runs; the client's side, and its end to come."""
        self._sessions += 1
        request = ExecRequest(session=f"s{self._sessions}", job=JOB, index=0, argv=argv, **how)
        alive_every = timedelta(milliseconds=100) if alive else None
        side = Side(StoreStream(self.store, request.folder, writes="in", alive_every=alive_every))
        self.environment = ActivityEnvironment()
        running = asyncio.create_task(self.environment.run(self.execs.exec_task, request))
        writing = asyncio.create_task(side.stream.write())
        side.listen()
        try:
            yield side, running
        finally:
            for each in (running, writing):
                each.cancel()
            await asyncio.gather(running, writing, return_exceptions=True)

    async def run(
        self, *argv: str, given: bytes | None = None, **how: Any
    ) -> tuple[ExecEnd, bytes, bytes]:
        """(how it ended, standard output, standard error) of a command that ends by itself."""
        async with self.session(*argv, stdin=given is not None, **how) as (side, running):
            if given is not None:
                for at in range(0, len(given), 50_000):
                    await side.stream.send_in_turn(Frame(FrameKind.INPUT, given[at : at + 50_000]))
                await side.stream.send_in_turn(Frame(FrameKind.END_OF_INPUT))
            end = await side.ends(await asyncio.wait_for(running, PATIENCE))
            return end, side.heard[FrameKind.OUT], side.heard[FrameKind.ERR]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"file://{tmp_path / 'store'}", create=True)


@pytest.fixture
def bench(tmp_path: Path, store: Store) -> Bench:
    """The task is a process."""
    work = tmp_path / "work"
    work.mkdir()
    env = {"PATH": os.environ["PATH"], "COLOUR": "blue", names.ENV_ATTEMPT_KEY: KEY}
    launch = Launch(argv=("sleep", "1000"), env=env, cwd=str(work))
    return Bench(store, Here(Beside(KEY, 1, tmp_path, launch, None)))


def of_the_attempt() -> list[psutil.Process]:
    """The processes that carry the attempt's key."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if (
                process.environ().get(names.ENV_ATTEMPT_KEY) == KEY
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    return found


async def nothing_is_left() -> None:
    await becomes(lambda: not of_the_attempt())


# -- processes
# --------------------------------------------------------------------------------------------------


async def test_a_command_sees_the_tasks_environment_and_directory_and_its_streams_stay_apart(
    bench: Bench, tmp_path: Path
) -> None:
    """To look into a task is to stand where it stands."""
    end, out, err = await bench.run("sh", "-c", "echo $COLOUR; pwd; echo oops >&2; exit 7")
    assert (end.exit_code, end.reason) == (7, "")
    assert out.decode().split() == ["blue", str(tmp_path / "work")]
    assert err == b"oops\n"


async def test_a_signal_that_ends_the_command_shows_as_in_a_shell(bench: Bench) -> None:
    """128 and its number: scripts know that."""
    end, _, _ = await bench.run("sh", "-c", "kill -TERM $$")
    assert end.exit_code == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [(["no-such-program"], 127, "no program"), (["/etc/passwd"], 126, "is not executable")],
)
async def test_a_command_that_cannot_start_says_why_with_the_shells_code(
    bench: Bench, argv: list[str], code: int, words: str
) -> None:
    """It is a mistype of the user's, not trouble of the host's."""
    end, _, _ = await bench.run(*argv)
    assert end.exit_code == code
    assert words in end.reason


async def test_a_task_that_does_not_run_here_is_refused_in_clear_words(bench: Bench) -> None:
    """It may have ended since its host was asked for."""
    bench.here.attempt = None
    with pytest.raises(
        ApplicationError, match="task ada/train:0 does not run on this host"
    ) as caught:
        await bench.run("true")
    assert (caught.value.type, caught.value.non_retryable) == ("NotRunning", True)


async def test_input_and_output_of_any_bytes_and_size_pass_unchanged(bench: Bench) -> None:
    """More than fits into every buffer on the way, so that each side has to wait for the other."""
    data = os.urandom(3_000_000)
    end, out, _ = await bench.run("cat", given=data)
    assert (end.exit_code, out == data) == (0, True)


async def test_a_command_that_wants_no_input_and_gets_some_ends_well(bench: Bench) -> None:
    """`yes | iris exec -i … true`: its input is closed before it is read."""
    end, _, _ = await bench.run("true", given=b"y\n" * 500_000)
    assert end.exit_code == 0


async def test_a_terminal_has_the_size_it_was_given_and_hears_of_a_new_one(bench: Bench) -> None:
    """Editors and pagers draw by it."""
    script = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH]);"
        " signal.signal(signal.SIGWINCH, lambda *_: None);"
        " print(os.isatty(0), os.get_terminal_size()); sys.stdout.flush();"
        " signal.sigwait([signal.SIGWINCH]);"
        " print(os.environ['TERM'], os.get_terminal_size())"
    )
    async with bench.session(
        sys.executable, "-c", script, tty=True, stdin=True, rows=33, columns=101, term="vt100"
    ) as (
        side,
        running,
    ):
        await side.has_heard(b"columns=101, lines=33")
        side.stream.send(size_frame(50, 120))
        end = await side.ends(await asyncio.wait_for(running, PATIENCE))
    assert end.exit_code == 0
    assert side.heard[FrameKind.OUT].startswith(b"True os.terminal_size")
    assert b"vt100 os.terminal_size(columns=120, lines=50)\r\n" in side.heard[FrameKind.OUT]


async def test_ctrl_c_in_a_terminal_reaches_the_command_in_front_of_the_shell(bench: Bench) -> None:
    """As at any prompt: the terminal makes the signal of the byte, and the shell lives on."""
    async with bench.session("env", "PS1=ready", "sh", "-i", tty=True, stdin=True) as (
        side,
        running,
    ):
        # It says so itself: the shell could say it before the command is in front of it.
        side.stream.send(Frame(FrameKind.INPUT, b"sh -c 'echo up; sleep 1000'\n"))
        await side.has_heard(b"up\r\n")
        side.stream.send(Frame(FrameKind.INPUT, b"\x03"))
        await becomes(lambda: side.heard[FrameKind.OUT].count(b"ready") == 2)
        side.stream.send(Frame(FrameKind.INPUT, b"echo back $COLOUR\nexit 3\n"))
        end = await side.ends(await asyncio.wait_for(running, PATIENCE))
    assert end.exit_code == 3
    assert b"back blue" in side.heard[FrameKind.OUT]


async def test_a_signal_of_the_client_is_sent_to_the_command(bench: Bench) -> None:
    """Ctrl-C without a terminal."""
    async with bench.session(
        "sh", "-c", "trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.05; done"
    ) as (
        side,
        running,
    ):
        await side.has_heard(b"up")
        side.stream.send(Frame(FrameKind.SIGNAL, b"%d" % signal.SIGINT))
        end = await side.ends(await asyncio.wait_for(running, PATIENCE))
    assert (end.exit_code, side.heard[FrameKind.OUT]) == (5, b"up\ncaught\n")


STUBBORN = (
    "trap '' HUP INT TERM; setsid sleep 1000 & nohup sleep 1000 & echo up; while :; do sleep 0.05;"
    " done"
)


@pytest.mark.parametrize("how", ["hung up", "silent", "too long", "cancelled", "attempt over"])
async def test_whatever_ends_a_session_ends_all_that_it_has_started(
    bench: Bench, store: Store, how: str
) -> None:
    """Also what has left the session and hears no signal: nothing that was run beside a task may
    outlive its purpose.
    """
    settings = {"timeout": timedelta(seconds=1)} if how == "too long" else {}
    async with bench.session("sh", "-c", STUBBORN, alive=how != "silent", **settings) as (
        side,
        running,
    ):
        await side.has_heard(b"up")
        assert len(of_the_attempt()) >= 4
        if how == "hung up":
            side.stream.send(Frame(FrameKind.HANG_UP))
        elif how == "attempt over":
            bench.here.attempt = None
        elif how == "cancelled":
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        if how != "cancelled":
            end = await asyncio.wait_for(running, PATIENCE)
            assert end.exit_code == (124 if how == "too long" else 128 + signal.SIGKILL)
            reasons = {
                "hung up": "disconnected",
                "silent": "sent nothing",
                "too long": "ran longer",
                "attempt over": "has ended",
            }
            assert reasons[how] in end.reason
        await nothing_is_left()
    if how == "silent":
        assert await store.objects("exec/ada/s1/out") == []


async def test_what_a_command_leaves_running_ends_with_it(bench: Bench) -> None:
    """A background process would hold the device that the task needs for its next step."""
    end, out, _ = await bench.run("sh", "-c", "setsid sleep 1000 & echo $!")
    assert (end.exit_code, bool(out.strip())) == (0, True)
    await nothing_is_left()


#: Handles SIGHUP and SIGINT: it says so, and ends when the file `go` is there, with a last line.
#: SIGHUP ends a wrapper around it.
SAVES = """
import os, signal, sys, time
def save(*_):
    print("saving", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    print("saved", flush=True)
    open("saved", "w").close()
    sys.exit(3)
signal.signal(signal.SIGHUP, save)
signal.signal(signal.SIGINT, save)
os.write(1, b"up\\n")  # a handler may not print within a `print`
while True:
    time.sleep(0.05)  # not `pause`, which a signal may come just before
"""


def patient(bench: Bench) -> Bench:
    """With a long grace for commands."""
    bench.execs = Execs(
        bench.store, bench.here, silence=timedelta(seconds=60), grace=timedelta(seconds=60)
    )
    return bench


@pytest.mark.parametrize("how", ["hung up", "signal"])
async def test_a_command_in_a_wrapper_has_its_grace(bench: Bench, tmp_path: Path, how: str) -> None:
    """The signal ends the wrapper at once, and what it wraps still has to write."""
    async with patient(bench).session("sh", "-c", '"$0" -c "$1"; true', sys.executable, SAVES) as (
        side,
        running,
    ):
        await side.has_heard(b"up")
        hang_up = Frame(FrameKind.HANG_UP)
        side.stream.send(
            hang_up if how == "hung up" else Frame(FrameKind.SIGNAL, b"%d" % signal.SIGINT)
        )
        await side.has_heard(b"saving")
        (tmp_path / "work" / "go").touch()
        end = await asyncio.wait_for(running, PATIENCE)

    assert (tmp_path / "work" / "saved").exists()
    assert end.exit_code == 128 + (signal.SIGHUP if how == "hung up" else signal.SIGINT)


async def test_what_a_command_leaves_may_finish_its_writing(bench: Bench, tmp_path: Path) -> None:
    """`tee` or another helper in the background prints the last lines."""
    helper = "until [ -e go ]; do sleep 0.02; done; echo written"
    async with patient(bench).session("sh", "-c", 'sh -c "$0" & echo up; exit 3', helper) as (
        side,
        running,
    ):
        await side.has_heard(b"up")
        (tmp_path / "work" / "go").touch()
        end = await side.ends(await asyncio.wait_for(running, PATIENCE))

    assert (end.exit_code, side.heard[FrameKind.OUT]) == (3, b"up\nwritten\n")


async def test_a_command_does_not_outlive_the_agent_that_was_killed(
    bench: Bench, tmp_path: Path
) -> None:
    """`kill -9` of the agent: the task goes on, but to these no agent ever writes again."""
    script = f"""
import asyncio
from pathlib import Path
from iris.activities.host.runtimes.process.exec import ProcessCommand
from iris.activities.host.runtimes.base import Launch
from iris.messages.exec import ExecRequest
async def main():
    launch = Launch.model_validate_json(Path("launch").read_text())
    argv = ("sh", "-c", {STUBBORN!r})
    command = ProcessCommand(ExecRequest(session="s", job="a/b", index=0, argv=argv), launch)
    await command.start()
    async def tell(frame):
        print("said", flush=True)
    await command.run(tell)
asyncio.run(main())
"""
    assert bench.here.attempt is not None
    (tmp_path / "launch").write_text(bench.here.attempt.launch.model_dump_json())
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert agent.stdout is not None
    assert await asyncio.wait_for(agent.stdout.readline(), PATIENCE) == b"said\n"
    assert of_the_attempt()
    agent.kill()
    await agent.wait()
    await nothing_is_left()


async def test_a_client_that_does_not_read_holds_the_command_up_and_does_not_fill_the_store(
    bench: Bench, store: Store
) -> None:
    """`iris exec JOB -- yes | less`."""
    async with bench.session("yes") as (side, running):
        await side.has_heard(b"y\n")
        assert side._hearing is not None
        side._hearing.cancel()

        async def stored() -> int:
            return len(await store.objects("exec/ada/s1/out"))

        before, now = -1, await stored()
        while before != now:
            before, now = now, await asyncio.wait_for(_later(stored), PATIENCE)
        assert now < 60
        assert not running.done()
    await nothing_is_left()


async def _later(look: Any) -> Any:
    await asyncio.sleep(0.5)  # long against the time in which a chunk is written
    return await look()


async def test_a_client_that_does_not_wait_for_the_end_leaves_nothing_in_the_store(
    bench: Bench, store: Store
) -> None:
    """It cancels the activity when a busy host takes too long to end the command."""
    async with patient(bench).session("sh", "-c", "echo up; sleep 1000", alive=False) as (
        side,
        running,
    ):
        await side.has_heard(b"up")
        bench.environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await store.objects("exec/ada/s1/out") == await store.objects("exec/ada/s1/in") == []
    await nothing_is_left()


async def test_a_session_can_be_removed_from_the_store_whole_and_twice(
    bench: Bench, store: Store
) -> None:
    """What was said is nobody's business afterwards."""
    async with bench.session("echo", "secret") as (side, running):
        await side.ends(await running)
        assert await store.objects("exec/ada/s1/out")
    await side.stream.remove()  # now nothing is said any more
    assert await store.objects("exec/ada/s1/out") == await store.objects("exec/ada/s1/in") == []
    await store.delete(["exec/ada/s1/out/0000000000"])


def test_a_chunk_that_is_cut_off_or_foreign_is_no_chunk() -> None:
    """Half a frame must not be taken for a whole one."""
    chunk = encode([Frame(FrameKind.OUT, b"\x00\xff"), Frame(FrameKind.HANG_UP)])
    assert decode(chunk) == [Frame(FrameKind.OUT, b"\x00\xff"), Frame(FrameKind.HANG_UP)]
    assert decode(b"") == []
    for bad in (chunk[:4], chunk[:6], b"?\0\0\0\0"):
        with pytest.raises(ValueError, match=r"cut off|valid FrameKind"):
            decode(bad)


# -- containers
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    """A container that runs."""
    client = docker.from_env()
    env = {"COLOUR": "blue", names.ENV_ATTEMPT_KEY: KEY}
    made = client.containers.run(
        docker_image(),
        ["sleep", "1000"],
        detach=True,
        init=True,
        network_mode="host",
        environment=env,
        working_dir="/usr",
    )
    try:
        yield str(made.id)
    finally:
        made.remove(force=True)
        client.close()


@pytest.fixture
def boxed(tmp_path: Path, store: Store, container: str) -> Bench:
    """The task is a container."""
    launch = Launch(container=container, docker_socket="/var/run/docker.sock")
    return Bench(store, Here(Beside(KEY, 1, tmp_path, launch, None)))


@pytest.mark.docker
async def test_a_command_in_a_container_sees_what_the_program_sees(boxed: Bench) -> None:
    """Its files, its environment, its directory; and the two streams stay apart."""
    end, out, err = await boxed.run("sh", "-c", "echo $COLOUR $FLAVOUR; pwd; echo oops >&2; exit 7")
    assert (end.exit_code, end.reason) == (7, "")
    assert (out.decode().split(), err) == (["blue", "vanilla", "/usr"], b"oops\n")


@pytest.mark.docker
async def test_input_of_any_bytes_and_size_passes_through_a_container_unchanged(
    boxed: Bench,
) -> None:
    """And its end, too, else `cat` would wait for ever."""
    data = os.urandom(1_000_000)
    end, out, _ = await boxed.run("cat", given=data)
    assert (end.exit_code, out == data) == (0, True)


@pytest.mark.docker
async def test_a_terminal_in_a_container_is_one(boxed: Bench) -> None:
    """With its size, its kind, and a prompt that answers."""
    async with boxed.session(
        "sh", "-i", tty=True, stdin=True, rows=33, columns=101, term="vt100"
    ) as (side, running):
        script = "import os; print(os.environ['TERM'], os.get_terminal_size())"
        side.stream.send(Frame(FrameKind.INPUT, f'python3 -c "{script}"; exit 4\n'.encode()))
        end = await side.ends(await asyncio.wait_for(running, PATIENCE))
    assert end.exit_code == 4
    assert b"vt100 os.terminal_size(columns=101, lines=33)" in side.heard[FrameKind.OUT]


@pytest.mark.docker
async def test_a_program_that_the_image_has_not_got_is_the_users_mistype(boxed: Bench) -> None:
    """With the shell's code, as on the host."""
    end, out, _ = await boxed.run("no-such-program")
    assert end.exit_code in (126, 127)
    assert "no-such-program" in end.reason + out.decode()


@pytest.mark.docker
@pytest.mark.parametrize("how", ["hung up", "too long", "cancelled"])
async def test_a_command_in_a_container_ends_with_its_session(boxed: Bench, how: str) -> None:
    """The engine has no word for this; the container goes on."""
    own = len(of_the_attempt())
    settings = {"timeout": timedelta(seconds=1)} if how == "too long" else {}
    async with boxed.session(
        "sh", "-c", "trap '' HUP; sleep 1000 & echo up; while :; do sleep 0.05; done", **settings
    ) as (
        side,
        running,
    ):
        await side.has_heard(b"up")
        assert len(of_the_attempt()) > own
        if how == "hung up":
            side.stream.send(Frame(FrameKind.HANG_UP))
        if how == "cancelled":
            running.cancel()
        end = await asyncio.wait_for(asyncio.gather(running, return_exceptions=True), PATIENCE)
        assert how == "cancelled" or isinstance(end[0], ExecEnd)
        await becomes(lambda: len(of_the_attempt()) <= own)
    assert (await boxed.run("echo", "still here"))[1] == b"still here\n"


@pytest.mark.docker
async def test_a_command_in_a_wrapper_in_a_container_has_its_grace_and_no_more(
    boxed: Bench,
) -> None:
    """Hanging up ends the wrapper at once. What it wraps is killed after the grace, although the
    engine has forgotten it.
    """
    own = len(of_the_attempt())
    async with boxed.session("sh", "-c", 'python3 -c "$0"; true', SAVES) as (side, running):
        await side.has_heard(b"up")
        side.stream.send(Frame(FrameKind.HANG_UP))
        await side.has_heard(b"saving")
        end = await asyncio.wait_for(running, PATIENCE)
        await becomes(lambda: len(of_the_attempt()) <= own)

    assert end.exit_code == 128 + signal.SIGHUP


@pytest.mark.docker
async def test_what_a_command_leaves_in_a_container_may_finish_its_writing_and_no_more(
    boxed: Bench,
) -> None:
    """Neither a helper nor a daemon in the background is an orphan in the task's container for
    good.
    """
    own = len(of_the_attempt())
    helper = "until [ -e /tmp/go ]; do sleep 0.02; done; echo written >/tmp/written"
    async with patient(boxed).session(
        "sh", "-c", 'sh -c "$0" >/dev/null 2>&1 & echo up', helper
    ) as (side, running):
        await side.has_heard(b"up")
        assert (await boxed.run("touch", "/tmp/go"))[0].exit_code == 0
        await side.ends(await asyncio.wait_for(running, PATIENCE))
    assert (await boxed.run("cat", "/tmp/written"))[1] == b"written\n"
    boxed.execs = Execs(
        boxed.store, boxed.here, silence=timedelta(seconds=1), grace=timedelta(seconds=0.3)
    )
    await boxed.run("sh", "-c", "sleep 1000 >/dev/null 2>&1 &")

    await becomes(lambda: len(of_the_attempt()) <= own)


# -- profiles
# --------------------------------------------------------------------------------------------------

BUSY = (
    "def inner():\n    print('up', flush=True)\n    while True:\n        sum(range(1000))\ndef"
    " outer():\n    inner()\nouter()\n"
)


@pytest.fixture
async def busy(tmp_path: Path, store: Store) -> AsyncIterator[Profiles]:
    """A shell with a Python process below it, which computes."""
    (tmp_path / "busy.py").write_text(BUSY)
    program = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        f"{sys.executable} busy.py; true",
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert program.stdout is not None
    await program.stdout.readline()
    try:
        yield Profiles(store, Here(Beside(KEY, 1, tmp_path, Launch(), program.pid)))
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        await program.wait()


async def test_a_dump_shows_what_every_python_process_of_the_task_does(
    busy: Profiles, store: Store
) -> None:
    """Where does it hang? The first thing anybody wants to know."""
    found = await ActivityEnvironment().run(
        busy.profile_task, ProfileRequest(session="p", job=JOB, index=0)
    )
    seen = (await store.get(found.path) or b"").decode()
    assert len(found.pids) == 1
    assert re.search(r"inner \(busy\.py:[234]\)", seen)  # where it was just then
    assert "outer (busy.py:6)" in seen


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (ProfileFormat.FLAMEGRAPH, "<svg"),
        (ProfileFormat.SPEEDSCOPE, '"$schema"'),
        (ProfileFormat.RAW, "outer"),
    ],
)
async def test_a_recording_comes_in_the_format_that_was_asked_for(
    busy: Profiles, store: Store, form: ProfileFormat, words: str
) -> None:
    """Each for another tool."""
    request = ProfileRequest(
        session="p", job=JOB, index=0, format=form, duration=timedelta(seconds=1), rate=50
    )
    found = await ActivityEnvironment().run(busy.profile_task, request)
    seen = (await store.get(found.path) or b"").decode()
    assert words in seen
    assert "inner" in seen


@pytest.mark.docker
async def test_a_program_in_a_container_can_be_looked_into(tmp_path: Path, store: Store) -> None:
    """Its processes are processes of the host."""
    client = docker.from_env()
    made = client.containers.run(
        docker_image(), ["python3", "-c", BUSY], detach=True, init=True, network_mode="host"
    )
    try:
        await becomes(lambda: b"up" in made.logs())
        made.reload()
        profiles = Profiles(
            store, Here(Beside(KEY, 1, tmp_path, Launch(), made.attrs["State"]["Pid"]))
        )
        found = await ActivityEnvironment().run(
            profiles.profile_task, ProfileRequest(session="p", job=JOB, index=0)
        )
        assert b"outer (<string>" in (await store.get(found.path) or b"")
    finally:
        made.remove(force=True)
        client.close()


async def test_a_task_without_python_is_told_so(tmp_path: Path, store: Store) -> None:
    """A shell script cannot be looked into."""
    program = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        profiles = Profiles(store, Here(Beside(KEY, 1, tmp_path, Launch(), program.pid)))
        with pytest.raises(ApplicationError, match="no Python process runs in this task"):
            await ActivityEnvironment().run(
                profiles.profile_task, ProfileRequest(session="p", job=JOB, index=0)
            )
    finally:
        program.kill()
        await program.wait()


@pytest.mark.parametrize("session", ["../../bob/exec/1", "a/b", "", "..", "s1\n"])
def test_a_session_cannot_name_a_folder_elsewhere_in_the_store(session: str) -> None:
    """An agent writes to the folder of the session with rights on the whole store."""
    with pytest.raises(ValidationError, match="session"):
        ExecRequest(session=session, job=JOB, index=0, argv=("true",))
