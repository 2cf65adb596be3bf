"""The shim's program when that is a container: what `shim.Process` is for a process. Loaded by the shims that have one.

Nothing but the standard library, as there; it is loaded by its name alone.
"""

# ruff: noqa: PTH118, PTH123
# As few imports as can be: there is a process of it for every task.

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: For an answer of the container engine, in seconds: looks at the orders wait for it. To start a container takes longest.
ANSWER, START = 5.0, 60.0
#: So long an engine that is away may still say how the program ended, in seconds: after a kill, and otherwise.
LAST_WORD, AWAY = 5.0, 600.0
REMOVED = "somebody has removed the container"


class Lost(Exception):
    """The engine has ended the program, or cannot say how it ended; nobody will know."""


class Container:
    """The program as a container that the agent has made, started and waited for by the engine's own API.

    The engine may hang or be started anew meanwhile: what is not answered is asked again, and to kill takes no engine.
    """

    def __init__(self, launch: dict[str, Any]) -> None:
        self.pid: int | None = None
        self._socket: str = launch["docker_socket"]
        self._id: str = launch["container"]
        self._path = f"/containers/{self._id}"
        #: The connection on which its end will be told, and what has been heard there.
        self._waiting: socket.socket | None = None
        self._heard = b""
        #: Whether the engine has gone away since it last took a question: it may have ended the program.
        self._away = False
        self._killed = False
        #: When the program was last seen by its number; None: it cannot be.
        self._seen: float | None = None
        self._state: dict[str, Any] = {}
        self._cgroups: list[str] = []
        self._peak = 0

    def start(self) -> tuple[str, int | None] | None:
        try:
            status, body = self._call("POST", f"{self._path}/start", START)
        except OSError as error:
            self.kill()  # it may have been started all the same
            return f"the container engine does not answer: {error}", None
        if status not in (204, 304):
            said = str(body.get("message", status))
            # The rest was looked at before: only the words of the command itself are the user's.
            users = any(words in said for words in ("argument list too long", "invalid argument", "exec format error"))
            return f"the container could not be started: {said}", 126 if users else None
        self.pid = self._inspect().get("Pid") or None
        self._seen = time.monotonic() if self._there() else None
        for line in _lines(f"/proc/{self.pid}", "cgroup"):
            _, controllers, path = line.split(":", 2)
            if not controllers or controllers == "memory":
                self._cgroups.append(f"/sys/fs/cgroup/{controllers}{path}")
        return None

    @property
    def wakes_by(self) -> list[socket.socket]:
        return [self._waiting] if self._waiting is not None else []

    def ended(self) -> int | None:
        """The exit status, negative for a signal; None while it runs, or the engine is away and does not say.

        Raises:
            Lost: see there.
        """
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            self._peak = max([self._peak, *(int(line) for cgroup in self._cgroups for line in _lines(cgroup, name))])
        waiting = self._waiting or self._wait_again()
        if waiting is None:
            return self._dead()
        try:
            while select.select([waiting.fileno()], [], [], 0)[0]:
                chunk = waiting.recv(65536)
                self._heard += chunk
                if not chunk:
                    break
            else:
                return self._dead()
        except OSError:  # it hung up
            self._heard = b""
        waiting.close()
        self._waiting = None
        status, said = _answer(self._heard)
        self._heard = b""
        if status == 404:
            raise Lost(REMOVED)
        if "StatusCode" not in said:
            self._away = True
            return None
        self._state = self._inspect()
        if not self._state and not self._killed:  # it is going away itself, and may have ended the program for that
            self._away = True
            return None
        code = int(said["StatusCode"])
        return 128 - code if 128 < code < 160 else code

    def _wait_again(self) -> socket.socket | None:
        """Ask to be told of its end; None: the engine does not take the question."""
        try:
            if self._away:
                state = self._inspect()
                if not state:
                    return None
                if not state["Running"] and not self._call("GET", "/info")[1].get("LiveRestoreEnabled"):
                    raise Lost("the container engine was stopped, and has ended the program")
            self._waiting, self._away = self._ask("POST", f"{self._path}/wait"), False
        except OSError:
            self._away = True
        return self._waiting

    def _dead(self) -> int | None:
        """That it was killed, if it was and is gone, and the engine has had its time to say so; None while it may still say.

        Raises:
            Lost: it is gone, and the engine stays away.
        """
        if self._seen is None or self._there():
            self._seen = self._seen and time.monotonic()
            return None
        gone = time.monotonic() - self._seen
        if self._killed and gone >= LAST_WORD:
            return -int(signal.SIGKILL)
        if gone >= AWAY:
            raise Lost("the container engine does not say how the program ended")
        return None

    def _there(self) -> bool:
        return any(self._id in line for line in _lines(f"/proc/{self.pid}", "cgroup"))

    def signal(self, number: int) -> None:
        """Signal its first process: from outside where that is allowed, as no engine that hangs can hinder that."""
        if self.pid is not None and self._there():
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)
                return
        with contextlib.suppress(OSError):
            self._call("POST", f"{self._path}/kill?signal={int(number)}")

    def kill(self) -> None:
        self._killed = True
        self.signal(signal.SIGKILL)

    def sweep(self) -> None:
        """Nothing of a container outlives it."""

    def forget(self) -> None:
        """The agent removes the container: its state is looked at until then."""

    def facts(self) -> tuple[bool, int]:
        return bool(self._state.get("OOMKilled")), self._peak

    def _inspect(self) -> dict[str, Any]:
        """Its state; empty: the engine does not say."""
        with contextlib.suppress(OSError):
            status, said = self._call("GET", f"{self._path}/json")
            if status == 404:
                raise Lost(REMOVED)
            return dict(said.get("State", {}))
        return {}

    def _ask(self, method: str, path: str, patience: float = ANSWER) -> socket.socket:
        """The connection on which the answer will come. HTTP/1.0: the answer ends where the connection does."""
        asking = socket.socket(socket.AF_UNIX)
        asking.settimeout(patience)
        try:
            asking.connect(self._socket)
            asking.sendall(f"{method} {path} HTTP/1.0\r\nHost: docker\r\nContent-Length: 0\r\n\r\n".encode())
        except OSError:
            asking.close()
            raise
        return asking

    def _call(self, method: str, path: str, patience: float = ANSWER) -> tuple[int, dict[str, Any]]:
        """(status, what it says)"""
        with self._ask(method, path, patience) as asking:
            answer = b""
            while chunk := asking.recv(65536):
                answer += chunk
        status, said = _answer(answer)
        if status is None:
            raise OSError("it hung up")
        return status, said


def _answer(answer: bytes) -> tuple[int | None, dict[str, Any]]:
    """(status, what it says) of an answer of the engine; (None, {}) when it is not one, or not whole."""
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
