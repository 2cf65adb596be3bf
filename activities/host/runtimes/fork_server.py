"""The fork server: a process beside each agent that forks shims. A fork costs a fifth of starting Python anew.

    python -I -S fork_server.py DESCRIPTOR

The descriptor is a socket. Each message on it is an attempt's directory, with the descriptors that its shim has to keep open. If
`SECRETS` follows the directory, the first descriptor is of a file with the program's secrets, which the shim reads and closes.
The answer is the shim's process number, or 0 if another process holds the directory's lock. A shim is independent from its
start: it outlives the fork server, which ends with its agent. This module uses only the standard library, as the shim does.
"""

# ruff: noqa: PTH100, PTH120

import ctypes
import gc
import os
import signal
import socket
import sys
from types import ModuleType

#: The most bytes of a directory's name, and the most descriptors in a message.
LONGEST, MOST = 4096, 64
#: Follows the directory in a message that has secrets. No path can have it.
SECRETS = b"\0secrets"


def main() -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    shim = __import__("shim")  # imported by its bare name, so that nothing of Iris is loaded
    for needed in ("shim_output", "shim_sweep", "shim_user", "resource"):  # otherwise every shim would load them
        __import__(needed)
    agent = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the shims
    if sys.platform == "linux":  # a stopped fork server ends with its agent, too
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, linux/prctl.h
    gc.freeze()
    while True:
        message, keep, _, _ = socket.recv_fds(agent, LONGEST + len(SECRETS), MOST)
        if not message:
            return
        directory = message.removesuffix(SECRETS)
        os.chdir(directory)
        lock = shim.locked()
        pid = 0
        if lock is not None:
            pid = os.fork()
            if pid == 0:
                agent.close()
                _be_a_shim(shim, lock, keep[0] if directory != message else None)
            os.close(lock)  # the shim has its own copy
        for descriptor in keep:
            os.close(descriptor)
        os.chdir("/")  # keeps no directory in use that may have to be removed
        agent.send(str(pid).encode())


def _be_a_shim(shim: ModuleType, lock: int, secrets: int | None) -> None:
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        shim.main(lock, {} if secrets is None else shim.read_secrets(secrets))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
