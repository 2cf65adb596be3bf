"""The keeper: a process beside each agent that outlives it by a moment, and ends what it left running.

An agent that dies by `kill -9` cannot end its programs; running on, they would run beside their successors. The keeper holds a
pipe from the agent. When that closes, the agent is gone, and every process that carries the key of one of its attempts is killed.

    python -m iris.worker_agents.keeper ATTEMPTS_DIRECTORY
"""

import os
import signal
import sys
from pathlib import Path

from iris.activities import leftovers


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its agent, not with the terminal
    while os.read(sys.stdin.fileno(), 1):
        pass
    keys = {state.key for _, state in leftovers.find(Path(sys.argv[1]))}
    if keys:
        # Twice: a process may have been started while the list was read.
        leftovers.kill(keys)
        leftovers.kill(keys)


if __name__ == "__main__":
    main()
