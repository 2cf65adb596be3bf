"""What an interrupted command still does before it ends."""

import subprocess
import sys

#: A command whose request is never answered. The user presses Ctrl-C, and again at the moment when
#: the first is reported.
IMPATIENT = """
import asyncio, io, os, signal, sys
from iris.cli.interrupts import created, run

class Terminal(io.StringIO):
    def write(self, text):
        if "Ctrl-C again" in text:
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)

async def command():
    loop = asyncio.get_running_loop()
    loop.call_later(0, os.kill, os.getpid(), signal.SIGINT)
    try:
        async with created(
            loop.create_future(), announce=print, what="job ada/a", look="iris status ada/a"
        ):
            pass
    except asyncio.CancelledError:
        print("0 of 1 jobs were submitted", file=sys.stderr)
        raise

sys.stderr = Terminal()
try:
    run(command())
except KeyboardInterrupt:
    print(sys.stderr.getvalue(), end="")
"""


def test_a_second_ctrl_c_just_after_the_first_keeps_no_message_from_the_user() -> None:
    """It broke off the command in the middle, and the count of the submitted jobs was missing."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPATIENT], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.splitlines() == [
        "waiting for the service's answer; Ctrl-C again does not wait",
        "job ada/a may have been accepted: the service did not answer; to find out, run:"
        " iris status ada/a",
        "0 of 1 jobs were submitted",
    ]
