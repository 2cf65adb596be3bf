"""The parent process of a command that runs beside a program. It ends all of the command's
processes on request, or when the agent is gone.

    python -I -m iris.activities.host.runtimes.shim.exec DESCRIPTOR

The descriptor is a socket to the agent. The agent sends one line of JSON with the command, and then
one byte for each signal. SIGKILL kills all processes below the shim. The shim answers with one line
that gives the result of the start. When the last process has ended, it sends one line with the exit
status of the first process. Processes that the first process leaves have the grace to end, and are
then killed. Standard input, output and error belong to the command. If the command has a terminal,
they are the terminal.
"""

import contextlib
import ctypes
import fcntl
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import termios
from typing import Any

from iris.activities.host.runtimes.shim import shim, start_errors
from iris.activities.host.runtimes.shim import user as shim_user

#: The name in error messages of the host on which the command runs.
HERE = "the host of the task"


class CommandProcess(shim.Process):
    """Runs a command as `shim.Process` runs a program, but with this process's standard input,
    output and error, and with a terminal if the agent requests one.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        super().__init__(order)
        self._tty: bool = order["tty"]
        self._joins: list[str] = order["cgroups"]
        #: The cgroups whose processes are killed at the end. There are none, because the task's
        #: program runs in the same cgroups.
        self._cgroups = []

    def start(self) -> tuple[str, int] | None:
        argv, env, cwd = self._launch["argv"], self._launch["env"], self._launch["cwd"]
        gone = f"the task's directory {cwd!r} is gone", 126
        if fault := start_errors.fault_of(argv, env, cwd, HERE):
            return fault
        try:
            # The command has a session of its own, which the terminal, if any, controls.
            shim_user.let_open(self._launch, 0, 1, 2)
            self._popen = subprocess.Popen(
                argv,
                env=env,
                cwd=shim_user.root_cwd(self._launch),
                start_new_session=True,
                preexec_fn=self._enter,
                umask=self._launch["umask"],
            )
            self.pid = self._popen.pid
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            missing = isinstance(error, FileNotFoundError) and error.filename == cwd
            if missing or (
                isinstance(error, subprocess.SubprocessError) and shim_user.lost_cwd(self._launch)
            ):
                return gone
            return start_errors.why(error, argv, env, cwd, HERE)
        return None

    def _enter(self) -> None:
        for cgroup in self._joins:
            shim_user.join(cgroup)
        if self._tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        shim_user.become(self._launch)


def main() -> None:
    agent = socket.socket(fileno=int(sys.argv[1]))
    order, orders = b"", b""
    while b"\n" not in order:
        if not (piece := agent.recv(1 << 20)):
            return  # the agent ended before it sent the order
        order += piece
    order, _, orders = order.partition(b"\n")
    if sys.platform == "linux":
        # PR_SET_CHILD_SUBREAPER, linux/prctl.h: this process inherits the command's orphans.
        ctypes.CDLL(None).prctl(36, 1)
    wake, signalled = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(signalled, False)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    # The shim ends with its command. Signals are handled and not ignored, because the command would
    # inherit ignored signals.
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    wanted = json.loads(order)
    command = CommandProcess(wanted)
    failed = command.start()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # so that the other ends see when the command closes them
        os.dup2(nothing, descriptor)
    if failed is not None:
        _send(agent, {"error": failed[0], "status": failed[1]})
        return
    _send(agent, {"pid": command.pid})
    _see_through(command, agent, wake, orders, wanted["grace"])
    _send(agent, {"status": command.status})


def _see_through(
    command: CommandProcess, agent: socket.socket, wake: int, orders: bytes, grace: float
) -> None:
    """Carries out the agent's orders until no process of the command is left."""
    gone, due, last = False, math.inf, 0
    while not command.over():
        if command.status is not None and due == math.inf:
            due = shim.now() + grace
            # The first process may be a wrapper that did not pass its last signal on.
            if last and command.status == -last:
                command.signal_strays(last)
        for number in orders:
            if number == signal.SIGKILL:
                command.kill()
            else:
                last = number
                command.signal(number)
        if gone or shim.now() >= due:
            command.kill()
        orders = b""
        patience = max(0.0, min(command.look_interval, due - shim.now()))
        readable, _, _ = select.select([wake] if gone else [wake, agent.fileno()], [], [], patience)
        if wake in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        if agent.fileno() in readable:
            orders = _hear(agent)
            gone = not orders


def _hear(agent: socket.socket) -> bytes:
    try:
        return agent.recv(4096)
    except OSError:
        return b""


def _send(agent: socket.socket, what: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        agent.sendall(json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
