"""Kills the processes that a dead agent left, and defines the record by which another agent
continues an attempt.
"""

import base64
import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import psutil
from pydantic import BaseModel, Field, ValidationError

from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.cleanup import links
from iris.activities.host.runtimes.container import engine
from iris.activities.host.runtimes.program import Program
from iris.activities.host.runtimes.shim import shim
from iris.messages.task import RunTask
from iris.model import names
from iris.model.job.attempts import TaskOutcome

#: The name of the file in an attempt's directory that contains the attempt's record
#: (`AttemptFile`).
STATE = "state.json"
#: The name of the directory to which an agent moves attempts whose records it cannot read. It is
#: beside the directory of the host's attempts.
QUARANTINE = "quarantine"
#: The time limit within which processes must end after SIGKILL.
KILL_WAIT = timedelta(seconds=10)


class AttemptFile(BaseModel):
    """The record file in an attempt's directory. It contains everything that another agent needs to
    continue the attempt.
    """

    task: RunTask
    #: The activity's task token, in base64. It is a secret, because anyone who has it can complete
    #: the attempt.
    token: str
    taken_at: datetime
    #: The attempt's ports, by name.
    ports: dict[str, int] = Field(default_factory=dict)
    #: The UUIDs of the attempt's GPUs.
    gpus: tuple[str, ...] = ()
    #: The outcome that was decided before the program ended; None if none was decided.
    verdict: TaskOutcome | None = None
    #: True if no report of the outcome is left to make (`lifecycle.State.SETTLED`). Then only the
    #: upload of logs and outputs is left.
    told: bool = False
    #: The trace context that the program gets in its variable `TRACEPARENT`; empty if the attempt
    #: has no trace.
    trace: str = ""

    @classmethod
    def of(cls, task: RunTask, token: bytes, taken_at: datetime, trace: str = "") -> Self:
        encoded = base64.b64encode(token).decode()
        return cls(task=task, token=encoded, taken_at=taken_at, trace=trace)

    @property
    def task_token(self) -> bytes:
        return base64.b64decode(self.token)

    def write(self, directory: Path) -> None:
        """Writes the file atomically.

        Raises:
            OSError: the disk is full, or the directory is gone.
        """
        # The token is a secret, and the environment may hold secrets.
        links.write(directory / STATE, self.model_dump_json())


def kill_on(hosts: Collection[str], directory: Path) -> None:
    """Kills all programs of the attempts on hosts that do not exist any more.

    Args:
        hosts: the ids of the hosts.
        directory: the directory that contains the directories of these hosts' attempts.
    """
    attempts = list(_attempts(directory))
    for attempt in attempts:
        with contextlib.suppress(OSError):
            Program(attempt).kill()  # also kills processes that the search below does not find
    killed = _kill(
        lambda environment: (
            names.ENV_ATTEMPT_KEY in environment and environment.get(names.ENV_HOST_ID) in hosts
        )
    )
    psutil.wait_procs(killed, KILL_WAIT.total_seconds())
    if any(map(_had_container, attempts)):
        for host in hosts:
            with contextlib.suppress(HostFault):  # without an engine there are no containers
                engine.sweep([f"{engine.LABEL_HOST}={host}"])


def _attempts(directory: Path) -> Iterator[Path]:
    """Yields the attempts' directories below this directory. Does not search the directories of
    attempts, quarantined attempts and caches, because jobs may have created directories there.
    """
    for folder, folders, _ in os.walk(directory):
        if Path(folder).name == "attempts":
            yield from (
                Path(folder, name)
                for name in folders
                if os.path.lexists(Path(folder, name, shim.LAUNCH))
            )
            folders.clear()
        skipped = {"cache", QUARANTINE} if "attempts" in folders else {"cache"}
        folders[:] = [name for name in folders if name not in skipped]


def _had_container(attempt: Path) -> bool:
    with contextlib.suppress(OSError, ValidationError):
        return bool(Program(attempt).launch.container)
    return False


def kill(keys: set[str]) -> int:
    """Kills every process whose environment has one of these attempt keys. Returns the number of
    killed processes.
    """
    return len(_kill(lambda environment: environment.get(names.ENV_ATTEMPT_KEY) in keys))


def end(keys: set[str]) -> None:
    """Repeats `kill` until no such process is left, but not longer than `KILL_WAIT`: the others
    then hang in the kernel.
    """
    deadline = time.monotonic() + KILL_WAIT.total_seconds()
    while killed := _kill(lambda environment: environment.get(names.ENV_ATTEMPT_KEY) in keys):
        left = deadline - time.monotonic()
        psutil.wait_procs(killed, max(0.0, left))
        if left <= 0:
            return


def _kill(matches: Callable[[Mapping[str, str]], bool]) -> list[psutil.Process]:
    killed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if matches(process.environ()):
                process.kill()
                killed.append(process)
    return killed
