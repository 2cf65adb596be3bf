"""Runs the shim's program as a container, with the same methods as `shim.Process`. Only the shims
of containers load this module.

This module uses only the standard library, as the shim does, and is imported by its bare name.
"""

# ruff: noqa: PTH101, PTH108, PTH118, PTH123
# As few imports as possible: every task has a process with this module.

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The timeouts of ordinary answers of the container engine, and of the start of a container, in
#: seconds. While the shim waits for an answer, it cannot check for new orders of the agent.
ANSWER, START = 5.0, 60.0
#: The time between two checks whether the container's processes have ended, in seconds.
LOOK = 1.0
#: The time between two checks after the program's first process has ended and others are left, in
#: seconds. Each check makes the container's shell look whether they have ended.
LOOK_OFTEN = 0.1
#: How long the shim waits for the container engine's report after a program that it killed is gone,
#: in seconds.
LAST_WORD = 5.0
#: How long the shim waits for the container engine's report after a program that it did not kill is
#: gone, in seconds. Without a report, nothing is known about how the program ended.
AWAY = 600.0
#: The error of a container that was removed while its program ran.
REMOVED = "somebody has removed the container"
#: Texts in the container engine's errors about a container that no host can start, because of the
#: image, or of the job's command, environment or working directory.
_OF_THE_JOB = (
    *("argument list too long", "invalid argument", "exec format error", 'exec: "/bin/sh"'),
    *(
        "is not a directory",
        "not a directory",
        "too many links",
        "too many levels of symbolic links",
        "chdir to cwd",
    ),
    *(
        "working directory",
        "cannot mount volume over existing file",
        "mount path must be absolute",
        "/proc/self/fd: no such file",
    ),
)
#: Texts in the container engine's errors about the host. An error with one of these texts is not a
#: fault of the job.
_OF_THE_HOST = (
    *(
        "cgroup",
        "no space left",
        "cannot allocate memory",
        "input/output error",
        "rlimit",
        "nvidia",
    ),
    *("read-only file system", "creating overlay mount"),
)
#: If a container could not start the program, the error shows at most this many bytes of the
#: container's own output.
_SAID = 300


class Lost(Exception):
    """The error if the container engine ended the program, or cannot report how it ended."""


class Container:
    """The program in a container that the agent created. The shim starts it and waits for it
    through the container engine's own API.

    The engine may hang or restart while the program runs. The shim repeats a request without an
    answer, and it can kill the program without the engine.

    Args:
        secrets_pipe: the pipe from which the container's shell reads the secrets. So the engine
            never gets them.
        code_pipe: the pipe into which the shell writes the exit code of the program's first
            process, if other processes are left.
        look_pipe: the pipe from which the shell reads lines. After each line, it looks whether
            processes are left.
        secrets: the values of the secrets, by the program's variables.
    """

    def __init__(
        self,
        launch: dict[str, Any],
        secrets_pipe: str,
        code_pipe: str,
        look_pipe: str,
        secrets: dict[str, str],
    ) -> None:
        self._secrets_pipe, self._secrets = secrets_pipe, secrets
        #: True once the program can receive signals.
        self._begun = False
        #: The signal that the program must get as soon as it can receive signals; 0 if there is
        #: none.
        self._pending = 0
        self._code, self._look = _pipe(code_pipe, 0o622), _pipe(look_pipe, 0o666)
        self.pid: int | None = None
        #: The exit status of the program's first process, negative for a signal; None while it
        #: runs.
        self.status: int | None = None
        #: True if other processes of the program were alive after its first process had ended, and
        #: were killed.
        self.cut = False
        #: True if the shim sent SIGTERM to processes of the program that were left after the first
        #: process had ended. The shim cannot see whether the signal interrupted them, so files that
        #: they were writing may be incomplete.
        self.torn = False
        self.look_interval = LOOK
        #: The reason why the container ended before the program began; empty if the program began.
        self.failed = ""
        self._socket: str = launch["docker_socket"]
        self._id: str = launch["container"]
        self._path = f"/containers/{self._id}"
        #: The connection on which the engine reports the end of the program; None while the shim
        #: has no such connection.
        self._waiting: socket.socket | None = None
        #: The bytes that were received so far on the connection `_waiting`.
        self._buffer = b""
        #: True if the last request for a report of the program's end failed. The engine may have
        #: been stopped, and may have ended the program.
        self._away = False
        self._killed = False
        #: The last time at which the program's process existed; None if the shim cannot see the
        #: process.
        self._seen: float | None = None
        self._state: dict[str, Any] = {}
        self._cgroups: list[str] = []
        self._peak = 0

    def start(self) -> tuple[str, int | None] | None:
        if self._secrets:
            self._offer_secrets()
        try:
            status, body = self._call("POST", f"{self._path}/start", START)
        except OSError as error:
            self.kill()  # the engine may have started it without an answer
            return f"the container engine does not answer: {error}", None
        if status not in (204, 304):
            content = str(body.get("message", status))
            return f"the container could not be started: {content}", 126 if of_the_job(
                content
            ) else None
        self.pid = self._inspect().get("Pid") or None
        self._seen = time.monotonic() if self._there() else None
        for line in _lines(f"/proc/{self.pid}", "cgroup"):
            _, controllers, path = line.split(":", 2)
            if not controllers or controllers == "memory":
                self._cgroups.append(f"/sys/fs/cgroup/{controllers}{path}")
        return None

    def _offer_secrets(self) -> None:
        """Makes the pipe for the secrets, and starts a thread that writes them for the first
        reader: the shell that becomes the program. So the secrets are never on a disk. A later
        reader finds no pipe.
        """
        os.mkfifo(self._secrets_pipe)
        os.chmod(self._secrets_pipe, 0o644)
        threading.Thread(target=self._write_secrets, daemon=True).start()

    def _write_secrets(self) -> None:
        lines = [f"export {name}={_quoted(value)}\n" for name, value in self._secrets.items()]
        # `open` waits for the reader.
        with (
            contextlib.suppress(OSError),
            open(self._secrets_pipe, "wb") as pipe,
        ):
            os.unlink(self._secrets_pipe)
            pipe.write(os.fsencode("".join(lines)))

    @property
    def wakes_by(self) -> list[int]:
        return [self._code, *([self._waiting.fileno()] if self._waiting is not None else [])]

    def over(self) -> bool:
        """Returns True if the container has ended; False if it runs, or the engine is away.

        Raises:
            Lost: the engine ended the program, or cannot report how it ended.
        """
        self._read_code()
        try:
            ended = self._ended()
        except Lost:
            if self.status is None:
                raise
            self.cut = True
            return True
        if ended is not None:
            self._read_code()  # the exit code may have come meanwhile
            if ended and not self._begun and not self._killed and not self._state.get("OOMKilled"):
                self.failed = (
                    f"the program could not be started with the image's /bin/sh{self._said()}"
                )
                self.status = ended if ended in (126, 127) else 126
            # If no process was killed, the container has the exit code of the first process.
            self.cut = self.status is not None and (self._killed or ended != self.status)
            self.status = ended if self.status is None else self.status
            return True
        if self.status is not None:
            with contextlib.suppress(OSError):  # the pipe is full
                os.write(self._look, b"\n")
        return False

    def _read_code(self) -> None:
        """Reads the lines of the container's shells: an empty line when the program begins, and the
        exit code of its first process if other processes are left.
        """
        with contextlib.suppress(OSError, ValueError):
            for line in os.read(self._code, 4096).splitlines():
                if not line:
                    self._begun = True
                    waiting, self._pending = self._pending, 0
                    if waiting:
                        self.signal(waiting)
                elif self.status is None and 0 <= (code := int(line)) < 256:
                    self.status, self.look_interval = _status(code), LOOK_OFTEN

    def _ended(self) -> int | None:
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            self._peak = max(
                [
                    self._peak,
                    *(int(line) for cgroup in self._cgroups for line in _lines(cgroup, name)),
                ]
            )
        waiting = self._waiting or self._wait_again()
        if waiting is None:
            return self._dead()
        try:
            while select.select([waiting.fileno()], [], [], 0)[0]:
                chunk = waiting.recv(65536)
                self._buffer += chunk
                if not chunk:
                    break
            else:
                return self._dead()
        except OSError:  # the engine closed the connection
            self._buffer = b""
        waiting.close()
        self._waiting = None
        status, content = _answer(self._buffer)
        self._buffer = b""
        if status == 404:
            raise Lost(REMOVED)
        if "StatusCode" not in content:
            self._away = True
            return None
        self._state = self._inspect()
        # If the engine is stopping, it may have ended the program.
        if not self._state and not self._killed:
            self._away = True
            return None
        return _status(int(content["StatusCode"]))

    def _wait_again(self) -> socket.socket | None:
        """Asks the engine to report the end of the program. Returns the connection, or None if the
        engine does not take the request.
        """
        try:
            if self._away:
                state = self._inspect()
                if not state:
                    return None
                if not state["Running"] and not self._call("GET", "/info")[1].get(
                    "LiveRestoreEnabled"
                ):
                    raise Lost("the container engine was stopped and ended the program")
            self._waiting, self._away = self._ask("POST", f"{self._path}/wait"), False
        except OSError:
            self._away = True
        return self._waiting

    def _dead(self) -> int | None:
        """Returns the status of a killed program that is gone, if the engine has not reported it in
        time; None while the engine may still report.
        Raises `Lost` if the program is gone and the engine stays away.
        """
        if self._seen is None or self._there():
            self._seen = self._seen and time.monotonic()
            return None
        gone = time.monotonic() - self._seen
        if self._killed and gone >= LAST_WORD:
            return -int(signal.SIGKILL)
        if gone >= AWAY:
            raise Lost("the container engine did not report how the program ended")
        return None

    def _there(self) -> bool:
        return any(self._id in line for line in _lines(f"/proc/{self.pid}", "cgroup"))

    def _said(self) -> str:
        """Returns the last line of the engine's init, with a colon before it. Only the engine has
        this line; the program's output does not go to the engine.
        """
        with contextlib.suppress(OSError):
            with self._ask("GET", f"{self._path}/logs?stdout=1&stderr=1&tail=1") as connection:
                answer = b""
                while chunk := connection.recv(65536):
                    answer += chunk
            block = answer.partition(b"\r\n\r\n")[2]
            if len(block) > 8:  # a head of eight bytes gives the stream and the length
                return ": " + block[8:][:_SAID].decode(errors="replace").strip()
        return ""

    def signal(self, number: int) -> None:
        """Signals the first process of the container: directly if the shim may do that, and
        otherwise through the engine, which may hang. All signals except SIGKILL wait until the
        program begins, because the shells that run before it do not pass signals on.
        """
        self.torn = self.torn or (number == signal.SIGTERM and self.status is not None)
        if not self._begun and number != signal.SIGKILL:
            self._pending = number
            return
        if self.pid is not None and self._there():
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)
                return
        with contextlib.suppress(OSError):
            self._call("POST", f"{self._path}/kill?signal={int(number)}")

    def kill(self) -> None:
        self._killed = True
        self.signal(signal.SIGKILL)

    def signal_strays(self, number: int) -> None:
        """Does nothing, because the container's shell signals these processes."""

    def forget(self) -> None:
        """Does nothing, because the agent removes the container."""

    def facts(self) -> tuple[bool, int]:
        return bool(self._state.get("OOMKilled")), self._peak

    def _inspect(self) -> dict[str, Any]:
        """Returns the container's state; empty if the engine does not report it."""
        with contextlib.suppress(OSError):
            status, content = self._call("GET", f"{self._path}/json")
            if status == 404:
                raise Lost(REMOVED)
            return dict(content.get("State", {}))
        return {}

    def _ask(self, method: str, path: str, patience: float = ANSWER) -> socket.socket:
        """Sends a request and returns the connection for the answer. With HTTP/1.0, the answer ends
        with the connection.
        """
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(patience)
        try:
            connection.connect(self._socket)
            connection.sendall(
                f"{method} {path} HTTP/1.0\r\nHost: docker\r\nContent-Length: 0\r\n\r\n".encode()
            )
        except OSError:
            connection.close()
            raise
        return connection

    def _call(self, method: str, path: str, patience: float = ANSWER) -> tuple[int, dict[str, Any]]:
        """Sends a request and returns (status, body)."""
        with self._ask(method, path, patience) as connection:
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        status, content = _answer(answer)
        if status is None:
            raise OSError("it closed the connection without a complete answer")
        return status, content


def of_the_job(message: str) -> bool:
    """Returns True if the engine's error is a fault of the job, so that no other host could start
    the container.
    """
    text = message.lower()
    return any(part in text for part in _OF_THE_JOB) and not any(
        part in text for part in _OF_THE_HOST
    )


def _pipe(name: str, mode: int) -> int:
    """Creates a pipe where the container finds it, and opens it."""
    os.mkfifo(name)
    # Every user of the container may use the pipe. The directory is closed to other users.
    os.chmod(name, mode)
    return os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def _status(code: int) -> int:
    """Returns the exit status, negative for a signal, for the exit code of a shell or an init."""
    return 128 - code if 128 < code < 160 else code


def _quoted(text: str) -> str:
    """Returns the text as one word of a shell, as `shlex.quote` does."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _answer(answer: bytes) -> tuple[int | None, dict[str, Any]]:
    """Parses an answer of the engine into (status, body); (None, {}) if it is malformed or
    incomplete.
    """
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        return int(head.split(None, 2)[1]), json.loads(body or b"{}")
    except (ValueError, IndexError):
        return None, {}


def _lines(directory: str, name: str) -> list[str]:
    try:
        with open(os.path.join(directory, name)) as file:
            return file.read().splitlines()
    except OSError:
        return []
