"""Runs the shim's program as a container, as `shim.Process` does as a process. Only the shims of
containers load it.

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

#: The timeouts of the engine's answers, in seconds. The shim checks no orders while it waits. The
#: start of a container takes longest.
ANSWER, START = 5.0, 60.0
#: The time between two calls of `over`, in seconds: as a rule, and while processes are left whose
#: end nobody reports.
LOOK, LOOK_OFTEN = 1.0, 0.1
#: The time that an engine that is away has to report the end of the program, in seconds: after a
#: kill, and otherwise.
LAST_WORD, AWAY = 5.0, 600.0
REMOVED = "somebody has removed the container"
#: Parts of the engine's errors for a container that no host can start, because of the image or of
#: what the job names: its command, its environment or its working directory, …
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
#: … unless the error also has one of these, which are about the host.
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
#: The most bytes of what a container said that are shown, when it could not start the program.
_SAID = 300


class Lost(Exception):
    """The engine ended the program, or cannot report how it ended."""


class Container:
    """The program as a container that the agent created. The shim starts it and waits for it
    through the engine's own API.

    The engine may hang or restart in between. The shim repeats a request without an answer, and it
    can kill the program without the engine.

    Args:
        secrets_pipe: where the container's shell reads the secrets, if there are any. The engine
            never has them.
        code_pipe: where it writes the exit code of the program's first process, if others are left,
            and …
        look_pipe: … where it reads lines, each of which lets it look whether there still are any.
        secrets: the values by the program's variables.
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
        #: True once the program can get signals, and the signal that waits for it.
        self._begun, self._pending = False, 0
        self._code, self._look = _pipe(code_pipe, 0o622), _pipe(look_pipe, 0o666)
        self.pid: int | None = None
        #: The exit status of the first process, negative for a signal; None while it runs.
        self.status: int | None = None
        #: True if processes that the first one left were killed.
        self.cut = False
        #: True if they were told to end. Nobody sees whether one of them handled that.
        self.torn = False
        self.look_interval = LOOK
        #: The reason why the container ended before the program began; empty: the program began.
        self.failed = ""
        self._socket: str = launch["docker_socket"]
        self._id: str = launch["container"]
        self._path = f"/containers/{self._id}"
        #: The connection on which the engine reports the end, and the bytes received on it so far.
        self._waiting: socket.socket | None = None
        self._buffer = b""
        #: True if the engine went away since it last took a request. It may have ended the program.
        self._away = False
        self._killed = False
        #: The time at which the program's pid was last seen; None: the pid cannot be seen.
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
        """Makes the pipe for the secrets, and has a thread write them for the first reader, which
        is the shell that becomes the program. Nothing is on a disk, and a later reader finds no
        pipe.
        """
        os.mkfifo(self._secrets_pipe)
        os.chmod(self._secrets_pipe, 0o644)
        threading.Thread(target=self._write_secrets, daemon=True).start()

    def _write_secrets(self) -> None:
        lines = [f"export {name}={_quoted(value)}\n" for name, value in self._secrets.items()]
        # Waits for the reader.
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
        """Returns True if the container has ended; False also while the engine is away and does not
        report.

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
            self._read_code()  # it may have come meanwhile
            if ended and not self._begun and not self._killed and not self._state.get("OOMKilled"):
                self.failed = (
                    f"the program could not be started with the image's /bin/sh{self._said()}"
                )
                self.status = ended if ended in (126, 127) else 126
            # Otherwise it ends with the exit code of the first process.
            self.cut = self.status is not None and (self._killed or ended != self.status)
            self.status = ended if self.status is None else self.status
            return True
        if self.status is not None:
            with contextlib.suppress(OSError):  # the pipe is full
                os.write(self._look, b"\n")
        return False

    def _read_code(self) -> None:
        """Reads what the container's shells say: an empty line when the program begins, and the
        exit code of its first process if others are left.
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
        # The engine is stopping, and may have ended the program.
        if not self._state and not self._killed:
            self._away = True
            return None
        return _status(int(content["StatusCode"]))

    def _wait_again(self) -> socket.socket | None:
        """Asks the engine to report the end of the program; None: the engine does not take the
        request.
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
        """Returns the status of a killed program that is gone once the engine had its time to
        report; None while it may still report.

        Raises:
            Lost: the program is gone, and the engine stays away.
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
        """Returns what the engine's init has said, which only the engine has: the program's output
        goes elsewhere.
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
        """Signals the first process of the container. Signals it directly where permitted, because
        an engine that hangs cannot prevent that. Any signal but SIGKILL waits until the program
        begins: the shells before it do not pass signals on.
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
        """Does nothing: the container's shell does so."""

    def forget(self) -> None:
        """Does nothing: the agent removes the container after it has read the state."""

    def facts(self) -> tuple[bool, int]:
        return bool(self._state.get("OOMKilled")), self._peak

    def _inspect(self) -> dict[str, Any]:
        """Returns the container's state; empty: the engine does not report it."""
        with contextlib.suppress(OSError):
            status, content = self._call("GET", f"{self._path}/json")
            if status == 404:
                raise Lost(REMOVED)
            return dict(content.get("State", {}))
        return {}

    def _ask(self, method: str, path: str, patience: float = ANSWER) -> socket.socket:
        """Sends a request and returns the connection for the answer. HTTP/1.0 makes the answer end
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
            raise OSError("it hung up")
        return status, content


def of_the_job(message: str) -> bool:
    """Returns True if the engine refuses a container because of the job, so that no other host
    could start it.
    """
    text = message.lower()
    return any(part in text for part in _OF_THE_JOB) and not any(
        part in text for part in _OF_THE_HOST
    )


def _pipe(name: str, mode: int) -> int:
    """Creates a pipe where the container finds it, and opens it."""
    os.mkfifo(name)
    os.chmod(name, mode)  # any user of the container may use it; the directory keeps others out
    return os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def _status(code: int) -> int:
    """Returns the exit status, negative for a signal, by the code that a shell or an init gives."""
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
