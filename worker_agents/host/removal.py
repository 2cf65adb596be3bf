"""Removes what the jobs of a host have left, before its agent's directory is removed: `python -m`
this HOST DIRECTORY.

The agent has ended. It ends its programs itself, unless it was killed.
"""

import sys
from pathlib import Path

from iris.activities.host.runtimes.cleanup import leftover_processes
from iris.activities.host.runtimes.process import job_users


def remove_remains(host: str, directory: Path) -> None:
    """Kills the programs of the host's attempts, and removes the attempts with their files.

    Args:
        directory: that of the host's agent.
    """
    leftover_processes.kill_on({host}, directory)
    for attempt in (
        *directory.glob("attempts/*"),
        *directory.glob(f"{leftover_processes.QUARANTINE}/*"),
    ):
        job_users.remove(attempt)


if __name__ == "__main__":
    remove_remains(sys.argv[1], Path(sys.argv[2]))
