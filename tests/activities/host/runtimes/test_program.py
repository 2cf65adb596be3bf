"""A program under its shim: its true end, what ends it, and what is left of it, whatever becomes of
the agent.
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from iris.activities.host.runtimes.base import Launch
from iris.activities.host.runtimes.program import Exit, Program, Started
from iris.activities.host.runtimes.shim import shim
from iris.activities.host.runtimes.shim.starter import fork_server_pid
from tests.e2e.cluster import alive, eventually
from tests.small_disk import small_disk

PATIENCE = 90.0
HOUR = 3600.0
#: Starts a program in the directory it is given, as an agent does, says so, and waits to be killed.
AGENT = """
import sys, time
from pathlib import Path
from iris.activities.host.runtimes.shim import shim
from iris.activities.host.runtimes.base import Launch
from iris.activities.host.runtimes.program import Program
launch = Launch(argv=sys.argv[2:], env={"PATH": "/usr/bin:/bin"}, cwd=sys.argv[1])
Program(Path(sys.argv[1])).start(launch, shim.now() + 3600)
print("started", flush=True)
time.sleep(1000)
"""
#: Does the same, and orders the program to stop when its file `up` is there.
STOPPING_AGENT = AGENT.replace(
    'print("started", flush=True)',
    """while not Path(sys.argv[1], "up").exists():
    time.sleep(0.02)
from datetime import timedelta
Program(Path(sys.argv[1])).stop(timedelta(hours=1))
print("stopped", flush=True)""",
)
#: A program that handles SIGTERM: it says so, and ends when the file `go` is there, with a last
#: line.
SAVES = """
import os, pathlib, signal, sys, time
def save(*_):
    print("saving", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
pathlib.Path("up").touch()
while True:
    time.sleep(0.05)  # not `pause`, which a signal may come just before
"""
#: A wrapper that SIGTERM ends at once, around that program.
WRAPPED = ("sh", "-c", '"$0" -c "$1"; true', sys.executable, SAVES)
#: No user of the machine has it.
UID = 4_000_000 + os.getpid()


def begun(directory: Path, *argv: str, lease: float = HOUR, **changes: Any) -> Program:
    """A program that has been told to start."""
    program = Program(directory)
    settings = {"argv": argv, "env": {"PATH": "/usr/bin:/bin"}, "cwd": str(directory)}
    program.start(Launch(**settings | changes), shim.now() + lease)
    return program


async def end_of(program: Program) -> Exit:
    return await asyncio.wait_for(program.wait(), PATIENCE)


async def running(program: Program) -> Started:
    await asyncio.to_thread(eventually, lambda: program.started is not None, PATIENCE, 0.01)
    assert program.started is not None
    return program.started


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -SEGV $$", -11), ("exit 255", 255)],
)
async def test_a_program_has_its_true_exit_status(
    tmp_path: Path, command: str, status: int
) -> None:
    """Codes and signals are told apart."""
    assert (await end_of(begun(tmp_path, "sh", "-c", command))).status == status


async def test_output_is_kept_byte_for_byte(tmp_path: Path) -> None:
    """Whatever it is, and each stream by itself."""
    await end_of(begun(tmp_path, "sh", "-c", r"printf 'a\0\377\r'; printf 'b' >&2"))

    assert ((tmp_path / "stdout").read_bytes(), (tmp_path / "stderr").read_bytes()) == (
        b"a\0\xff\r",
        b"b",
    )


@pytest.mark.parametrize(
    ("changes", "said", "status"),
    [
        ({"argv": ("no-such-program",)}, "there is no program 'no-such-program' on this host", 127),
        ({"argv": ("/etc/passwd",)}, "'/etc/passwd' is not executable", 126),
        (
            {"cwd": "/no/such/place"},
            "the working directory '/no/such/place' does not exist on this host",
            126,
        ),
        pytest.param(
            {"cwd": "/no/such/place", "uid": UID},
            "the working directory '/no/such/place' does not exist on this host",
            126,
            marks=pytest.mark.skipif(
                os.geteuid() != 0, reason="only root can start processes of other users"
            ),
        ),
        ({"argv": ("true", "x" * 3_000_000)}, "'true' could not be started", 126),
    ],
    ids=["missing", "not executable", "no directory", "no directory of another user", "too long"],
)
async def test_a_program_that_cannot_be_started_says_why(
    tmp_path: Path, changes: dict[str, Any], said: str, status: int
) -> None:
    """With the shell's exit code for the case."""
    ended = await end_of(begun(tmp_path, "true", **changes))

    assert (ended.status, said in ended.error) == (status, True)


async def test_a_program_has_the_usual_signals_and_an_empty_input(tmp_path: Path) -> None:
    """The shim's own handling of signals is none of its business."""
    look = (
        "import signal, sys; print(signal.getsignal(15), signal.getsignal(1),"
        " signal.pthread_sigmask(0, []), sys.stdin.read())"
    )
    await end_of(begun(tmp_path, sys.executable, "-c", look))

    assert (tmp_path / "stdout").read_text().split() == ["0", "0", "set()"]


async def test_nothing_outlives_a_program(tmp_path: Path) -> None:
    """Children in sessions of their own, and theirs, whose parents are gone."""
    family = (
        "(setsid sh -c 'sleep 1000 & echo $! >> pids; sleep 1000' & echo $! >> pids); sleep 0.3;"
        " echo done"
    )
    await end_of(begun(tmp_path, "sh", "-c", family))

    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert (len(pids), [pid for pid in pids if alive(pid)]) == (2, [])


async def test_a_program_that_is_stopped_has_its_grace(tmp_path: Path) -> None:
    """SIGTERM first; one that heeds it ends as it likes."""
    program = begun(
        tmp_path, "sh", "-c", "trap 'exit 7' TERM; touch up; while :; do sleep 0.02; done"
    )
    await asyncio.to_thread(eventually, (tmp_path / "up").exists, PATIENCE, 0.01)
    program.stop(timedelta(hours=1))

    assert (await end_of(program)).status == 7


@pytest.mark.parametrize(
    "first", [timedelta(hours=1), timedelta(seconds=0.2)], ids=["cut short", "used up"]
)
async def test_a_program_that_does_not_stop_is_killed(tmp_path: Path, first: timedelta) -> None:
    """When its grace is over, or when somebody has no more patience."""
    program = begun(tmp_path, "sh", "-c", "trap '' TERM; touch up; while :; do sleep 0.02; done")
    await asyncio.to_thread(eventually, (tmp_path / "up").exists, PATIENCE, 0.01)
    program.stop(first)
    if first > timedelta(minutes=1):
        program.stop(timedelta(0))

    assert (await end_of(program)).status == -signal.SIGKILL


async def test_a_program_whose_lease_runs_out_is_killed(tmp_path: Path) -> None:
    """Without anybody's help: the agent may be gone, or cut off from its cluster."""
    ended = await end_of(begun(tmp_path, "sleep", "1000", lease=0.5))

    assert (ended.status, ended.fenced) == (-signal.SIGKILL, True)


async def test_a_lease_that_is_renewed_in_time_keeps_the_program(tmp_path: Path) -> None:
    """It ends by itself, well after the first lease would have run out."""
    program = begun(tmp_path, "sh", "-c", "sleep 2; exit 5", lease=1)
    program.keep_until(shim.now() + HOUR)

    assert (await end_of(program)).status == 5


async def test_a_program_outlives_the_agent_that_started_it(tmp_path: Path) -> None:
    """Another one waits for it, stops it, and hears its true end."""
    command = ["sh", "-c", "trap 'exit 9' TERM; touch up; while :; do sleep 0.02; done"]
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT, str(tmp_path), *command, stdout=asyncio.subprocess.PIPE
    )
    assert agent.stdout is not None
    assert await agent.stdout.readline() == b"started\n"
    await asyncio.to_thread(eventually, (tmp_path / "up").exists, PATIENCE, 0.01)
    agent.kill()
    await agent.wait()

    found = Program(tmp_path)
    assert alive((await running(found)).pid or 0)
    found.stop(timedelta(hours=1))
    assert (await end_of(found)).status == 9


async def test_a_program_starts_once_however_often_its_shim_is_started(tmp_path: Path) -> None:
    """An agent that died in between must not have run it twice."""
    program = begun(tmp_path, "sh", "-c", "echo once")
    await end_of(program)
    await end_of(begun(tmp_path, "sh", "-c", "echo once"))

    assert (tmp_path / "stdout").read_text() == "once\n"


async def test_a_program_whose_shim_was_killed_has_an_unknown_end(tmp_path: Path) -> None:
    """Nobody invents an exit code; whoever asks clears it away by other means."""
    program = begun(tmp_path, "sleep", "1000")
    started = await running(program)
    os.kill(started.shim, signal.SIGKILL)

    assert (await end_of(program), await end_of(Program(tmp_path))) == (Exit(), Exit())
    psutil.Process(started.pid).kill()


async def test_a_program_that_opens_its_output_again_loses_nothing(tmp_path: Path) -> None:
    """Shell scripts write to /dev/stdout; a file would begin anew each time."""
    program = (
        "echo one; echo two > /dev/stdout; echo three; echo four | tee /dev/stderr; echo five >"
        " /dev/stdout; echo six"
    )
    assert (await end_of(begun(tmp_path, "sh", "-c", program))).status == 0

    assert (tmp_path / "stdout").read_text() == "one\ntwo\nthree\nfour\nfive\nsix\n"
    assert (tmp_path / "stderr").read_text() == "four\n"


async def test_much_output_at_once_is_all_there_when_the_program_has_ended(tmp_path: Path) -> None:
    """Also what lay in the pipe when it ended."""
    await end_of(begun(tmp_path, "sh", "-c", "head -c 30000000 /dev/zero; printf end"))

    assert (tmp_path / "stdout").stat().st_size == 30_000_003


async def test_a_full_disk_swallows_output_but_neither_the_program_nor_its_end(
    tmp_path: Path,
) -> None:
    """Room for the end was taken before; and whoever looks learns how much is missing."""
    with small_disk(tmp_path / "small", 2_000) as disk:
        ended = await end_of(begun(disk, "sh", "-c", "head -c 5000000 /dev/zero && exit 6"))

        assert ended.status == 6
        assert ended.lost_output + (disk / "stdout").stat().st_size == 5_000_000


# -- secrets
# --------------------------------------------------------------------------------------------------

VALUES = {"A": "hunter2-in-a-pipe", "B": "two\nlines 'quoted' \"x\"", "C": "\udcff-not-utf-8"}


async def test_a_program_gets_its_secrets_and_no_file_has_them(tmp_path: Path) -> None:
    """The launch is a file that stays as long as the program runs, and another agent reads it."""
    program = Program(tmp_path)
    script = (
        "import os, pathlib; pathlib.Path(os.environ['OUT']).write_text(ascii([os.environ[name] for"
        " name in 'ABC']))"
    )
    env = {"A": "default", "OUT": str(tmp_path / "seen")}
    program.start(
        Launch(argv=(sys.executable, "-c", script), env=env, cwd=str(tmp_path)),
        shim.now() + HOUR,
        secrets=VALUES,
    )

    assert (await end_of(program)).status == 0
    assert (tmp_path / "seen").read_text() == ascii(list(VALUES.values()))
    assert "hunter2" not in (tmp_path / shim.LAUNCH).read_text()


async def test_a_secret_is_masked_in_the_output_wherever_the_program_cuts_it(
    tmp_path: Path,
) -> None:
    """Before the output is in any file: the log, the last lines in a job's reason and the disk of
    the host are all clean.
    """
    program = Program(tmp_path)
    script = (
        "printf 'it is %s.\\n' \"$A\"; printf hunter2- >&2; sleep 0.2; printf in-a-pi >&2; sleep"
        " 0.2; printf 'pe' >&2; echo rest"
    )
    program.start(
        Launch(argv=("sh", "-c", script), env={"PATH": "/usr/bin:/bin"}, cwd=str(tmp_path)),
        shim.now() + HOUR,
        secrets=VALUES,
    )
    await end_of(program)

    assert (tmp_path / "stdout").read_text() == "it is ***.\nrest\n"
    assert (tmp_path / "stderr").read_text() == "***"
    assert VALUES["A"].encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


async def test_secrets_survive_the_death_of_the_fork_server_and_the_agent_keeps_no_file_open(
    tmp_path: Path,
) -> None:
    """Another fork server reads them from the beginning; and whoever can look at the agent's
    descriptors finds nothing.
    """
    (tmp_path / "first").mkdir()
    await end_of(begun(tmp_path / "first", "true"))
    psutil.Process(fork_server_pid()).kill()
    program = Program(tmp_path)
    program.start(
        Launch(
            argv=("sh", "-c", 'test "$A" = hunter2-in-a-pipe'),
            env={"PATH": "/bin"},
            cwd=str(tmp_path),
        ),
        shim.now() + HOUR,
        secrets=VALUES,
    )

    assert (await end_of(program)).status == 0
    descriptors = [
        str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()
    ]
    assert [name for name in descriptors if "memfd:secrets" in name] == []


def says(directory: Path, text: str) -> bool:
    """Returns whether the program has printed it."""
    output = directory / "stdout"
    return output.exists() and text in output.read_text()


async def becomes(look: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, look, PATIENCE, 0.01)


@pytest.mark.parametrize(
    "wrapper",
    [
        WRAPPED,
        (
            sys.executable,
            "-c",
            "import subprocess, sys; subprocess.run(sys.argv[1:])",
            sys.executable,
            "-c",
            SAVES,
        ),
        pytest.param(
            ("sh", "-c", 'trap "exit 15" TERM; setsid "$0" -c "$1" & wait', sys.executable, SAVES),
            marks=pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
        ),
        pytest.param(
            (
                *(
                    sys.executable,
                    "-c",
                    "import subprocess, sys; subprocess.run(sys.argv[1:], start_new_session=True)",
                ),
                *(sys.executable, "-c", SAVES),
            ),
            marks=pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
        ),
    ],
    ids=["shell", "launcher", "shell that ends by itself", "launcher of another session"],
)
async def test_a_program_in_a_wrapper_has_its_grace(tmp_path: Path, wrapper: Sequence[str]) -> None:
    """SIGTERM ends the wrapper at once, and the program behind it saves its state."""
    program = begun(tmp_path, *wrapper)
    await becomes((tmp_path / "up").exists)
    first = (await running(program)).pid
    program.stop(timedelta(hours=1))
    await becomes(lambda: says(tmp_path, "saving") and not alive(first or 0))
    assert program.exit is None
    (tmp_path / "go").touch()
    ended = await end_of(program)

    assert (abs(ended.status or 0), ended.cut) == (signal.SIGTERM, False)
    assert says(tmp_path, "saved")


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
async def test_a_wrapped_program_of_another_user_has_its_grace(tmp_path: Path) -> None:
    """Where jobs have users of their own, the agent signals and kills what it does not own."""
    # The directories above `tmp_path` are closed to others.
    with tempfile.TemporaryDirectory() as made:
        open_to_all, attempt = Path(made), tmp_path / "attempt"
        attempt.mkdir()
        open_to_all.chmod(0o777)
        saves = "trap 'echo saving; until [ -e go ]; do sleep 0.02; done; echo saved; exit 3' TERM"
        script = f"{saves}; touch up; while :; do sleep 0.02; done"
        program = begun(
            attempt, "sh", "-c", 'sh -c "$0"; true', script, cwd=made, uid=UID, groups=()
        )
        await becomes((open_to_all / "up").exists)
        program.stop(timedelta(hours=1))
        await becomes(lambda: says(attempt, "saving"))
        assert program.exit is None
        (open_to_all / "go").touch()
        ended = await end_of(program)

    assert (ended.status, says(attempt, "saved")) == (-signal.SIGTERM, True)


async def test_what_is_left_of_a_program_after_its_grace_is_killed(tmp_path: Path) -> None:
    """The wrapper heeds SIGTERM and what it wraps does not. The host is promised to another job."""
    deaf = (
        "import pathlib, signal; signal.signal(15, signal.SIG_IGN); pathlib.Path('up').touch();"
        " signal.pause()"
    )
    program = begun(
        tmp_path, "sh", "-c", '"$0" -c "$1" & echo $! > pid; wait', sys.executable, deaf
    )
    await becomes((tmp_path / "up").exists)
    program.stop(timedelta(seconds=0.3))
    ended = await end_of(program)

    assert (ended.status, ended.cut) == (-signal.SIGTERM, True)
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_the_grace_of_a_wrapped_program_survives_the_agent_that_gave_it(
    tmp_path: Path,
) -> None:
    """An agent that was killed meanwhile takes nothing away; the next one hears the end."""
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        STOPPING_AGENT,
        str(tmp_path),
        *WRAPPED,
        stdout=asyncio.subprocess.PIPE,
    )
    assert agent.stdout is not None
    assert await agent.stdout.readline() == b"stopped\n"
    agent.kill()
    await agent.wait()
    found = Program(tmp_path)
    await becomes(lambda: says(tmp_path, "saving"))
    (tmp_path / "go").touch()

    assert ((await end_of(found)).status, says(tmp_path, "saved")) == (-signal.SIGTERM, True)


@pytest.mark.parametrize("status", [0, 3])
async def test_what_a_program_leaves_when_it_ends_may_finish_its_writing(
    tmp_path: Path, status: int
) -> None:
    """A helper without a handler, such as `tee` or a process that stores a checkpoint, gets no
    signal within the grace.
    """
    helper = "touch up; until [ -e go ]; do sleep 0.02; done; echo written"
    program = begun(tmp_path, "sh", "-c", f'sh -c "$0" & exit {status}', helper, grace=HOUR)
    await becomes(lambda: program.first_end() is not None and (tmp_path / "up").exists())
    assert program.exit is None
    (tmp_path / "go").touch()
    ended = await end_of(program)

    assert (ended.status, ended.cut, says(tmp_path, "written")) == (status, False, True)


async def test_a_daemon_that_a_program_leaves_does_not_hold_the_host(tmp_path: Path) -> None:
    """After the grace it gets SIGTERM, as at any other end, and then SIGKILL."""
    daemon = (
        "import pathlib, signal, time; signal.signal(15, lambda *_: print('told', flush=True));"
        " pathlib.Path('up').touch()\nwhile True: time.sleep(0.05)"
    )
    script = '"$0" -c "$1" & echo $! > pid; until [ -e up ]; do sleep 0.02; done'
    program = begun(tmp_path, "sh", "-c", script, sys.executable, daemon, grace=0.3)
    ended = await end_of(program)

    assert (ended.status, ended.cut, says(tmp_path, "told")) == (0, True, True)
    assert not alive(int((tmp_path / "pid").read_text()))


#: Runs a program as on a system that has neither subreapers nor /proc, and kills what it leaves.
ELSEWHERE = """
import os, signal, sys, time
import shim, sweep

shim._PRCTL, sweep._PROC = None, "/none"
class Output:
    def pipe(self, _): return os.open(os.devnull, os.O_WRONLY)
launch = {"cgroups": [], "argv": ["sh", "-c", "sleep 1000 & echo $! > pid"]}
launch |= {"env": dict(os.environ), "cwd": os.getcwd(), "umask": -1}
program = shim.Process(launch, Output())
program.start()
while program.status is None:
    program.over()
assert not program.over()
program.kill()
"""


async def test_what_a_program_has_left_is_killed_on_other_systems_too(tmp_path: Path) -> None:
    """On macOS, the shim knows only the group of its program."""
    env = {**os.environ, "PYTHONPATH": str(Path(shim.__file__).parent)}
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ELSEWHERE, cwd=tmp_path, env=env
    )

    assert await ran.wait() == 0
    left = int((tmp_path / "pid").read_text())
    await becomes(lambda: not alive(left))


async def test_what_a_program_has_left_can_be_stopped(tmp_path: Path) -> None:
    """A cancellation does not wait for the rest of the grace, and the exit status stays."""
    script = '"$0" -c "$1" & until [ -e up ]; do sleep 0.02; done'
    program = begun(tmp_path, "sh", "-c", script, sys.executable, SAVES, grace=HOUR)
    await becomes(program.first_end)
    program.stop(timedelta(hours=1))
    await becomes(lambda: says(tmp_path, "saving"))
    (tmp_path / "go").touch()

    assert ((await end_of(program)).status, says(tmp_path, "saved")) == (0, True)


async def test_what_a_program_has_left_ends_with_its_lease(tmp_path: Path) -> None:
    """The cluster may start the task elsewhere. The exit status is known, and stays."""
    program = begun(tmp_path, "sh", "-c", "sleep 1000 & echo $! > pid", lease=0.5, grace=HOUR)
    ended = await end_of(program)

    assert (ended.status, ended.fenced) == (0, False)
    assert not alive(int((tmp_path / "pid").read_text()))
