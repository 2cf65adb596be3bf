"""Programs as processes: how they start, end, and are ended as a whole."""

import contextlib
import signal
import sys
from pathlib import Path

import psutil
import pytest

from iris.activities.runtimes.process import CannotStart, Program, start


async def started(tmp_path: Path, *command: str) -> Program:
    return await start(command, {"PATH": "/usr/bin:/bin"}, tmp_path, tmp_path / "out", tmp_path / "err")


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM)])
async def test_the_status_is_the_exit_code_or_minus_the_signal(tmp_path: Path, script: str, status: int) -> None:
    """Users are told what their program did, so the two must not be mixed up."""
    program = await started(tmp_path, "/bin/sh", "-c", script)

    assert await program.wait() == status


async def test_children_of_an_ended_program_do_not_outlive_it(tmp_path: Path) -> None:
    """A program that leaves a child behind would leave a device busy for the next task."""
    program = await started(tmp_path, "/bin/sh", "-c", "sleep 1000 & echo $!")
    await program.wait()

    child = int((tmp_path / "out").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        # Raises TimeoutExpired if it lives on.
        psutil.Process(child).wait(timeout=10)


async def test_the_two_streams_are_kept_apart_and_the_environment_is_the_given_one(tmp_path: Path) -> None:
    """What a program sees and says is its own: nothing of the agent's environment, nothing mixed."""
    script = "import os, sys; print(sorted(set(os.environ) - {'LC_CTYPE'})); print('oops', file=sys.stderr)"
    program = await start([sys.executable, "-c", script], {"ONLY": "this"}, tmp_path, tmp_path / "out", tmp_path / "err")

    assert await program.wait() == 0
    assert (tmp_path / "out").read_text() == "['ONLY']\n"
    assert (tmp_path / "err").read_text() == "oops\n"


@pytest.mark.parametrize(
    ("command", "exit_code", "says"),
    [
        (["no-such-program"], 127, "no program 'no-such-program'"),
        (["./notes.txt"], 126, "may be executed"),
        (["/bin/echo", "x" * 3_000_000], 126, "could not be started"),
    ],
)
async def test_a_program_that_cannot_start_says_why_with_the_shells_code(
    tmp_path: Path, command: list[str], exit_code: int, says: str
) -> None:
    """These are the user's to fix, and the codes are those that every shell uses."""
    (tmp_path / "notes.txt").write_text("no program")
    with pytest.raises(CannotStart, match=says) as caught:
        await started(tmp_path, *command)

    assert caught.value.exit_code == exit_code


async def test_a_missing_working_directory_is_named(tmp_path: Path) -> None:
    """Otherwise it would look as if the program were missing."""
    gone = tmp_path / "gone"
    with pytest.raises(CannotStart, match="gone"):
        await start(["/bin/true"], {}, gone, tmp_path / "out", tmp_path / "err")
