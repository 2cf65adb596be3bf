"""Drawing on the whole terminal: it is given back as it was."""

import os
import signal
import subprocess
import sys
import termios

import pytest

WAITS = """
import asyncio, contextlib, time
from iris.cli.show.full_screen import full_screen

async def show():
    with full_screen("") as draw:
        draw("shown")
        {wait}

with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(show())
"""


@pytest.mark.parametrize("wait", ["time.sleep(100)", "await asyncio.sleep(100)"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_gives_the_terminal_back(
    wait: str, number: signal.Signals
) -> None:
    """Else the shell goes on upon the other screen, on which nothing wraps or scrolls back."""
    leader, follower = os.openpty()
    # Which has no part in what a user asked to watch.
    environment = {
        **os.environ,
        "TERM": "xterm",
        "CI": "true",
    }
    program = [sys.executable, "-c", WAITS.format(wait=wait)]
    with subprocess.Popen(
        program, stdout=follower, stderr=subprocess.PIPE, env=environment
    ) as watching:
        os.close(follower)
        shown = b""
        try:
            while b"shown" not in shown:
                shown += os.read(leader, 4096)
            watching.send_signal(number)
            assert watching.wait() == 0
            shown += os.read(leader, 4096)
        finally:
            watching.kill()
            os.close(leader)

    assert shown.endswith(b"\x1b[?7h\x1b[?1049l")


@pytest.mark.parametrize("wait", ["time.sleep(100)", "await asyncio.sleep(100)"])
@pytest.mark.parametrize("keys", [b"q", b"xQ"])
def test_q_ends_the_command_and_the_terminal_echoes_again(wait: str, keys: bytes) -> None:
    """As in `top`, `less` and `htop`. What is typed before it does not appear on the screen."""
    leader, follower = os.openpty()
    before = termios.tcgetattr(follower)
    program = [sys.executable, "-c", WAITS.format(wait=wait)]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        program, stdin=follower, stdout=follower, stderr=subprocess.PIPE, env=environment
    ) as watching:
        shown = b""
        try:
            while b"shown" not in shown:
                shown += os.read(leader, 4096)
            os.write(leader, keys)
            assert watching.wait(60) == 0
            shown += os.read(leader, 4096)
            assert termios.tcgetattr(follower) == before
        finally:
            watching.kill()
            os.close(leader)
            os.close(follower)

    assert b"x" not in shown.partition(b"shown")[2]
    assert shown.endswith(b"\x1b[?7h\x1b[?1049l")
