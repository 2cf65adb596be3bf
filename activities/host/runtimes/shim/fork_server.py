"""The fork server: a process beside each agent that forks shims. A fork takes a fifth of the time
of a new Python process.

    python -I -S fork_server.py DESCRIPTOR

The descriptor is a socket. Each message on it is the path of an attempt's directory, with the
descriptors that the shim has to keep open. If `SECRETS` follows the path, the first descriptor is
of a file with the program's secrets, which the shim reads and closes. The answer is the shim's pid,
or 0 if another process holds the directory's lock.

The fork server ends with its agent, and the shims outlive it. If a program kills its shim, the fork
server inherits the program's processes, and kills them when the agent sends `SWEEP`. This module
uses only the standard library, as the shim does.
"""

# ruff: noqa: PTH100, PTH120

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
from types import ModuleType

#: The maximum number of bytes of the directory's path in a message to the fork server, and the
#: maximum number of file descriptors in a message.
LONGEST, MOST = 4096, 64
#: The bytes after the directory's path in a message that starts a program with secrets. No path can
#: contain these bytes.
SECRETS = b"\0secrets"
#: The message that tells the fork server to kill the processes of programs that killed their shims.
#: The answer is 1 if no such process is left, and 0 otherwise.
SWEEP = b"\0sweep"
#: How long the fork server works on one message `SWEEP`, in seconds. It starts no programs during
#: this time.
SWEEP_S = 0.5


def main() -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    shim = __import__("shim")  # imported by its bare name, so that nothing of Iris is loaded
    for needed in ("output", "sweep", "user", "resource"):  # otherwise every shim would load them
        __import__(needed)
    agent = socket.socket(fileno=int(sys.argv[1]))
    wake, ended = os.pipe()
    for descriptor in (wake, ended):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(ended, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        # PR_SET_PDEATHSIG, linux/prctl.h: a stopped fork server also ends with its agent.
        prctl(1, signal.SIGKILL)
        # PR_SET_CHILD_SUBREAPER: this process inherits the processes of programs that killed their
        # shims.
        prctl(36, 1)
    shims: set[int] = set()
    gc.freeze()
    while True:
        readable, _, _ = select.select([agent.fileno(), wake], [], [])
        _reap(shims)
        if wake in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        if agent.fileno() not in readable:
            continue
        message, keep, _, _ = socket.recv_fds(agent, LONGEST + len(SECRETS), MOST)
        if not message:
            return
        if message == SWEEP:
            agent.send(b"%d" % _sweep(shim, shims))
            continue
        directory = message.removesuffix(SECRETS)
        os.chdir(directory)
        lock = shim.locked()
        pid = 0
        if lock is not None:
            pid = os.fork()
            if pid == 0:
                for descriptor in (agent.detach(), wake, ended):
                    os.close(descriptor)
                _be_a_shim(shim, lock, keep[0] if directory != message else None)
            shims.add(pid)
            os.close(lock)  # the shim has its own copy
        for descriptor in keep:
            os.close(descriptor)
        os.chdir("/")  # the attempt's directory may have to be removed
        agent.send(str(pid).encode())


def _reap(shims: set[int]) -> None:
    """Reaps the children that have ended. Before that, no other process gets their pids."""
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            shims.discard(pid)


def _sweep(shim: ModuleType, shims: set[int]) -> bool:
    """Kills all children that are not shims, because they belong to programs that killed their
    shims. Returns True if no such process is left.
    """
    deadline = shim.now() + SWEEP_S
    done: bool = __import__("sweep").sweep_others(
        shims, lambda: shim.now() >= deadline, lambda: _reap(shims)
    )
    return done


def _be_a_shim(shim: ModuleType, lock: int, secrets: int | None) -> None:
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        shim.main(lock, {} if secrets is None else shim.read_secrets(secrets))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
