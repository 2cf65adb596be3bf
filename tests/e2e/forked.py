"""Runs commands of `iris` in processes that are forked from one which has imported their modules.

The CPU time of a command is nearly all imports, and the tests of real clusters run hundreds of
commands. A forked command has its own environment, directory, session, signals and files, as one
that is started anew has; what `/proc` shows as its command line and environment is the server's.
Some tests need a command that is started anew: see `can_fork`.
"""

import atexit
import contextlib
import functools
import io
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

#: These start a process that a test knows by its command line.
LASTING = ("agent", "controller", "port-forward", "watch", "top")
#: Python reads these when it starts.
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_")


def can_fork(arguments: Sequence[str], env: Mapping[str, str]) -> bool:
    """Returns whether the command ends with what the cluster answers, and Python would start with
    the same settings.
    """

    def settings(env: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in env.items() if key.startswith(READ_AT_START)}

    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    starts = "cluster" in own and "start" in own and "-d" not in own
    lasts = starts or not set(LASTING).isdisjoint(own)
    return not lasts and settings(env) == settings(_env())


class Forked:
    """A command that runs in a forked process; the methods are those of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        umask: int = -1,
    ) -> None:
        self.args = ["iris", *arguments]
        self.returncode: int | None = None
        self._answers = socket.socket(socket.AF_UNIX)
        self._answers.connect(str(_server()))
        request = {"arguments": [*arguments], "env": {**env}, "cwd": str(cwd), "umask": umask}
        message = json.dumps(request).encode() + b"\n"
        files = [stdout.fileno(), stderr.fileno()]
        sent = socket.send_fds(self._answers, [message], files)
        if sent < len(message):  # else the command may have ended, and the server closed the socket
            self._answers.sendall(message[sent:])
        self.pid = int(self._answer())

    def _answer(self) -> bytes:
        """Returns the next line from the server: the pid, and later the exit code."""
        line = b""
        while not line.endswith(b"\n"):
            read = self._answers.recv(1)
            assert read, "the server of forked commands has ended"
            line += read
        return line

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                self.returncode = int(self._answer())
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._answers.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        self._answers.close()


def _env() -> dict[str, str]:
    """Returns the environment of the server: that of the tests, with compiled modules."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@functools.cache
def _server() -> Path:
    """Starts the server of this process, once. Returns the path of its socket."""
    directory = Path(tempfile.mkdtemp(prefix="iris-forks-"))
    path = directory / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(listener.fileno())],
            stdin=subprocess.PIPE,  # its end is the server's
            env=_env(),
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )

    @atexit.register
    def stop() -> None:
        with process:
            process.stdin and process.stdin.close()
        shutil.rmtree(directory, ignore_errors=True)

    return path


# -- the server
# --------------------------------------------------------------------------------------------------


def _serve(listener: socket.socket) -> None:
    """Forks a process for each request until standard input ends."""
    from iris.cli.registry import COMMANDS

    for module in {module for module, _, _ in COMMANDS.values()} | {"main"}:
        import_module(f"iris.cli.{module}")
    import_module("iris.client.client")
    commands: dict[int, socket.socket] = {}
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        for source in (sys.stdin, listener, woken):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if sys.stdin in ready:
                return
            if woken in ready:
                woken.recv(4096)
                _report(commands)
            if listener in ready:
                client, _ = listener.accept()
                if (pid := _fork(client)) is None:
                    client.close()
                else:
                    commands[pid] = client
                    _answer(client, pid)


def _fork(client: socket.socket) -> int | None:
    """Returns the pid of the command; None: its client ended before it had sent its request."""
    message, files, _, _ = socket.recv_fds(client, 65536, 2)
    while not message.endswith(b"\n") and (rest := client.recv(65536)):
        message += rest
    pid = os.fork() if message.endswith(b"\n") else None
    if pid == 0:
        try:
            _become(json.loads(message), *files)
        finally:
            os._exit(1)
    for file in files:
        os.close(file)
    return pid


def _report(commands: dict[int, socket.socket]) -> None:
    """Tells the clients of the commands that have ended their exit codes."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with commands.pop(ended[0]) as client:
                _answer(client, os.waitstatus_to_exitcode(ended[1]))


def _answer(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the client has ended
        client.sendall(b"%d\n" % number)


def _become(request: dict[str, object], out: int, err: int) -> NoReturn:
    """Runs the command in this process, which becomes what one that is started anew would be."""
    from iris.cli.main import main

    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["umask"] != -1:
        os.umask(int(str(request["umask"])))
    os.chdir(str(request["cwd"]))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(dict(request["env"]))  # type: ignore[call-overload]
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            os.fdopen(number, "rb" if number == 0 else "wb", closefd=False),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=number == 2,
        )
        for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr))
    )
    sys.argv = ["iris", *list(request["arguments"])]  # type: ignore[call-overload]
    sys.path[0] = str(request["cwd"])
    main()
    raise SystemExit


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
