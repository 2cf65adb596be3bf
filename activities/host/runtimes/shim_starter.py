"""Starts shims: the agent's side of the fork server."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from iris.activities.host.runtimes import fork_server

#: The time that the fork server has to answer, in seconds, and how often the agent wakes it in that time.
ANSWER, WAKES = 5.0, 25
#: A minimal Python: no site-packages, no user settings.
_FORK_SERVER = (sys.executable, "-I", "-S", fork_server.__file__)


class _ForkServer:
    """The fork server, which forks the shims."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # The agent's environment may hold secrets that no program may see, so the fork server gets none of it.
            command = [*_FORK_SERVER, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={}, start_new_session=True)
        self._socket.settimeout(ANSWER / WAKES)

    @property
    def pid(self) -> int:
        return self._process.pid

    def start_shim(self, directory: Path, keep: Sequence[int]) -> int:
        """Forks a shim for the attempt in this directory and returns its process number; 0: the attempt has or had a shim.

        Raises:
            OSError: the fork server is gone, or did not answer and was killed.
        """
        self._process.send_signal(signal.SIGCONT)  # a job may have stopped it
        socket.send_fds(self._socket, [os.fsencode(directory.absolute())], list(keep))
        for _ in range(WAKES):
            with suppress(TimeoutError):
                if not (answer := self._socket.recv(100)):
                    raise ConnectionResetError("the fork server is gone")
                return int(answer)
            self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        raise ConnectionResetError("the fork server did not answer")


_of_this_process: _ForkServer | None = None


def start_shim(directory: Path, keep: Sequence[int]) -> int:
    """Forks a shim with the running fork server. Starts a new fork server if there is none or it died."""
    global _of_this_process
    if _of_this_process is not None:
        with suppress(OSError):
            return _of_this_process.start_shim(directory, keep)
    _of_this_process = _ForkServer()
    return _of_this_process.start_shim(directory, keep)


def fork_server_pid() -> int:
    """Returns the pid of this process' fork server, or 0 if there is none."""
    return _of_this_process.pid if _of_this_process is not None else 0
