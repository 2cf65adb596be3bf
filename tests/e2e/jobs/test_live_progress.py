"""Commands in a real terminal: the block below the output of a submit, `top` and `watch`, and what
they leave.
"""

import codecs
import contextlib
import os
import pty
import sys

import pytest

from tests.e2e.cluster import USER, Cluster, eventually, until
from tests.screen import Screen

pytestmark = pytest.mark.long


class InTerminal:
    """`iris ARGUMENTS…` in a terminal of its own."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self.screen = Screen()
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(cluster.work)
            os.environ.pop("CI", None)
            os.environ.update(IRIS_STATE_DIR=str(cluster.home), IRIS_USER=USER, TERM="xterm")
            os.execv(sys.executable, [sys.executable, "-m", "iris.cli.main", *arguments])
        os.set_blocking(self._terminal, False)

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def shows(self, text: str) -> bool:
        """Whether this is on the screen now."""
        with contextlib.suppress(OSError):  # nothing to read now, or ever again
            while data := os.read(self._terminal, 65536):
                self.screen.feed(self._decoder.decode(data))
        return any(text in line for line in self.screen.lines)

    def ends(self) -> int:
        """Waits for its end and returns its exit code."""
        ended = eventually(self._ended, every=0.05)
        self.shows("")
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(ended[1])

    def _ended(self) -> tuple[int, int] | None:
        self.shows("")  # a full terminal would stop it
        ended = os.waitpid(self._pid, os.WNOHANG)
        return ended if ended[0] else None


def test_a_terminal_shows_the_state_below_the_output_and_keeps_only_the_output(
    cluster: Cluster,
) -> None:
    """From the queue to the end; afterwards the screen is as if there had been no block."""
    cluster.submit("in-the-way", "--cpu", "4", "--", "sh", "-c", until("way.go"))
    program = f"echo hello; {until('live.go')}; echo bye"
    submit = InTerminal(
        cluster, "submit", "--no-workspace", "-n", "live", "--cpu", "4", "--", "sh", "-c", program
    )
    eventually(lambda: submit.shows(f"{USER}/live  queued"))
    cluster.file("way.go").touch()
    eventually(
        lambda: (
            submit.shows(f"{USER}/live  running on {cluster.only_host()}") and submit.shows("hello")
        )
    )
    cluster.file("live.go").touch()
    assert submit.ends() == 0
    *head, hello, bye, end = submit.screen.lines
    assert head[0] == f"submitted {USER}/live"
    assert (hello, bye, submit.screen.column) == ("hello", "bye", 0)
    assert end.startswith(f"{USER}/live SUCCEEDED after ")
    assert not any("running on" in line for line in head)


def test_ctrl_c_leaves_the_job_and_a_clean_terminal(cluster: Cluster) -> None:
    """The block is gone, and the commands with which the user comes back are there."""
    submit = InTerminal(
        cluster, "submit", "--no-workspace", "-n", "left-alone", "--", "sh", "-c", until("alone.go")
    )
    eventually(lambda: submit.shows("running on"))
    submit.type(b"\x03")
    assert submit.ends() == 130
    assert not submit.shows("running on")
    assert not submit.shows("^C")
    assert submit.shows(f"detached; {USER}/left-alone continues")
    cluster.file("alone.go").touch()
    cluster.iris("wait", "left-alone")


def test_top_and_watch_follow_a_job_and_leave_the_terminal_as_it_was(cluster: Cluster) -> None:
    """They draw on the screen beside the shell's, show what changes, and end with q or Ctrl-C
    without an error.
    """
    cluster.submit("watched", "--no-workspace", "--", "sh", "-c", until("watched.go"))
    top, watch = (
        InTerminal(cluster, "top", "-n", "200ms"),
        InTerminal(cluster, "watch", "-n", "200ms", "status", "watched"),
    )
    option = InTerminal(cluster, "status", "watched", "--watch")
    eventually(lambda: top.shows(f"cluster {cluster.name}: ") and top.shows(f"{USER}/watched"))
    eventually(lambda: watch.shows("iris status watched") and watch.shows("RUNNING"))
    eventually(lambda: option.shows("iris status  every 2 s") and option.shows("RUNNING"))
    cluster.file("watched.go").touch()
    for each, key in ((top, b"q"), (watch, b"\x03"), (option, b"q")):
        eventually(lambda each=each: each.shows("SUCCEEDED"))  # type: ignore[misc]
        each.type(key)
        assert each.ends() == 0
        assert [line for line in each.screen.lines if line != "^C"] == []
