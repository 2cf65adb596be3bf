"""Starts shims through the fork server, on the agent's side."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from iris.activities.host.runtimes.shim import fork_server

#: The time limit for an answer of the fork server, in seconds.
ANSWER = 5.0
#: The maximum number of SIGCONT signals that the agent sends to the fork server while it waits for
#: an answer. A job may have stopped the fork server, and the signal resumes it.
WAKES = 25
#: The time limit within which the processes of programs that killed their shims must end, in
#: seconds.
ESCAPED_WAIT = 10.0
#: The command that starts the fork server: a minimal Python without site-packages and user
#: settings.
_FORK_SERVER = (sys.executable, "-I", "-S", fork_server.__file__)


class _ForkServer:
    """The process that forks the shims, and the connection to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # The agent's environment may hold secrets that no program may see, so the fork server
            # gets none of it.
            command = [*_FORK_SERVER, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env={}, start_new_session=True
            )
        self._socket.settimeout(ANSWER / WAKES)

    @property
    def pid(self) -> int:
        return self._process.pid

    def start_shim(self, directory: Path, keep: Sequence[int], secrets: int | None) -> int:
        """Forks a shim for the attempt in this directory. Returns the shim's pid; 0 if the attempt
        has or had a shim.

        Args:
            secrets: the file with the program's secrets; None if it has no secrets.

        Raises:
            OSError: the fork server is gone, or did not answer and was killed.
        """
        message = os.fsencode(directory.absolute())
        if secrets is not None:
            message, keep = message + fork_server.SECRETS, [secrets, *keep]
        return self._ask(message, keep)

    def sweep(self) -> bool:
        """Kills the processes of programs that killed their shims. Returns True if no such process
        is left.

        Raises:
            OSError: as `start_shim`.
        """
        return bool(self._ask(fork_server.SWEEP))

    def end(self) -> None:
        """Ends the fork server. The shims that it has forked go on."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, message: bytes, descriptors: Sequence[int] = ()) -> int:
        self._process.send_signal(signal.SIGCONT)  # a job may have stopped it
        socket.send_fds(self._socket, [message], list(descriptors))
        for _ in range(WAKES):
            with suppress(TimeoutError):
                if not (answer := self._socket.recv(100)):
                    raise ConnectionResetError("the fork server is gone")
                return int(answer)
            self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        raise ConnectionResetError("the fork server did not answer")


_of_this_process: _ForkServer | None = None
#: Only the thread that holds this lock may send a message to the fork server.
_asking = threading.Lock()


def start_shim(directory: Path, keep: Sequence[int], secrets: Mapping[str, str]) -> int:
    """Forks a shim with the fork server, which is started if it does not run.

    Args:
        secrets: the values of further variables of the program. They are never in a file with a
            name.
    """
    global _of_this_process
    with _unnamed(secrets) as file, _asking:
        if _of_this_process is not None:
            with suppress(OSError):
                return _of_this_process.start_shim(directory, keep, file)
            _of_this_process.end()
        _of_this_process = _ForkServer()
        return _of_this_process.start_shim(directory, keep, file)


@atexit.register
def _end() -> None:
    if _of_this_process is not None:
        _of_this_process.end()


def end_escaped() -> None:
    """Kills the processes of programs that killed their shims. The fork server has inherited these
    processes. Returns when no such process is left, or when the rest hang in the kernel.
    """
    deadline = time.monotonic() + ESCAPED_WAIT
    while time.monotonic() < deadline:
        with _asking:
            try:
                if _of_this_process is None or _of_this_process.sweep():
                    return
            except OSError:  # the fork server was killed, and a new one has inherited no processes
                return


@contextmanager
def _unnamed(secrets: Mapping[str, str]) -> Iterator[int | None]:
    """Yields a file without a name that contains the secrets; None if there are no secrets. The
    file is in memory if the system supports that.
    """
    if not secrets:
        yield None
        return
    with (
        os.fdopen(os.memfd_create("secrets"), "wb")
        if sys.platform == "linux"
        else tempfile.TemporaryFile("wb") as file
    ):
        file.write(json.dumps(dict(secrets)).encode())
        file.flush()
        yield file.fileno()


def fork_server_pid() -> int:
    """Returns the pid of this process's fork server; 0 if it has none."""
    return _of_this_process.pid if _of_this_process is not None else 0
