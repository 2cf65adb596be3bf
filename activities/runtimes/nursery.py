"""The nursery: a process beside each agent that has shims ready. A new one is a fork of it, which costs a fifth of a new Python.

    python -I -S nursery.py DESCRIPTOR

The descriptor is a socket on which each message is an attempt's directory, with the descriptors that its shim has to keep open.
The answer is the shim's process number, or 0 when somebody has the directory's lock. A shim is of its own from its first moment:
it outlives the nursery, which ends with its agent. Nothing but the standard library, as in the shim.
"""

# ruff: noqa: PTH100, PTH120

import gc
import os
import signal
import socket
import sys
from types import ModuleType

#: Of a directory's name, and of descriptors with it.
LONGEST, MOST = 4096, 64


def main() -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    shim = __import__("shim")  # by its name alone: nothing of Iris is loaded here
    agent = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for shims
    gc.freeze()
    while True:
        directory, keep, _, _ = socket.recv_fds(agent, LONGEST, MOST)
        if not directory:
            return
        os.chdir(directory)
        lock = shim.locked()
        pid = 0
        if lock is not None:
            pid = os.fork()
            if pid == 0:
                agent.close()
                _be_a_shim(shim, lock)
            os.close(lock)  # the shim has it
        for descriptor in keep:
            os.close(descriptor)
        os.chdir("/")  # no directory is held that somebody may want to remove
        agent.send(str(pid).encode())


def _be_a_shim(shim: ModuleType, lock: int) -> None:
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        shim.main(lock)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
