"""What an agent that died leaves behind: programs that run on, and directories that say whose they are."""

import base64
import contextlib
import shutil
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import psutil
from pydantic import BaseModel, Field, ValidationError

from iris import names
from iris.activities.runtimes import engine, shim
from iris.activities.runtimes.base import HostUnable
from iris.activities.runtimes.program import Program
from iris.files import write_whole
from iris.jobs import TaskOutcome
from iris.workflows.messages import RunTask

STATE = "state.json"
#: What was killed with SIGKILL is gone within moments.
KILL_WAIT = timedelta(seconds=10)


class AttemptState(BaseModel):
    """The state file in an attempt's directory: all that another agent needs to go on with an attempt it finds."""

    task: RunTask
    #: The activity's task token, in base64: whoever has it can complete the attempt.
    token: str
    taken_at: datetime
    #: The ports it was given, by their names.
    ports: dict[str, int] = Field(default_factory=dict)
    #: Who ended the attempt before its program did has put down here the outcome it then has.
    verdict: TaskOutcome | None = None
    #: The server has the outcome or does not want it: what is left to do is to bring logs and outputs into the store.
    told: bool = False

    @classmethod
    def of(cls, task: RunTask, token: bytes, taken_at: datetime) -> Self:
        return cls(task=task, token=base64.b64encode(token).decode(), taken_at=taken_at)

    @property
    def task_token(self) -> bytes:
        return base64.b64decode(self.token)

    def write(self, directory: Path) -> None:
        """Whole or not at all.

        Raises:
            OSError: the disk is full, or the directory gone.
        """
        # The token is a secret, and so may be what is in the environment.
        write_whole(directory / STATE, self.model_dump_json(), mode=0o600)


def find(attempts: Path) -> list[tuple[Path, AttemptState]]:
    """The attempts whose directories are still here; a directory without a readable state never had a program."""
    found = []
    for directory in sorted(attempts.glob("*")):
        try:
            state = AttemptState.model_validate_json((directory / STATE).read_bytes())
        except (OSError, ValidationError):
            shutil.rmtree(directory, ignore_errors=True)
            continue
        found.append((directory, state))
    return found


def kill_on(hosts: Collection[str], directory: Path) -> None:
    """Kill every program of an attempt on these hosts, wherever it moved to: their machines are gone.

    Args:
        directory: below which the attempts of these hosts had their directories.
    """
    killed = _kill(lambda environment: names.ENV_ATTEMPT_KEY in environment and environment.get(names.ENV_HOST_ID) in hosts)
    psutil.wait_procs(killed, KILL_WAIT.total_seconds())
    if _had_containers(directory):
        for host in hosts:
            with contextlib.suppress(HostUnable):  # an engine that is gone has no containers
                engine.sweep([f"{engine.LABEL_HOST}={host}"])


def _had_containers(directory: Path) -> bool:
    for launch in directory.rglob(shim.LAUNCH):
        with contextlib.suppress(OSError, ValidationError):
            if Program(launch.parent).launch.container:
                return True
    return False


def kill(keys: set[str]) -> int:
    """Kill every process that carries one of these attempt keys, whatever session or group it moved to. Returns how many."""
    return len(_kill(lambda environment: environment.get(names.ENV_ATTEMPT_KEY) in keys))


def _kill(meant: Callable[[Mapping[str, str]], bool]) -> list[psutil.Process]:
    killed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if meant(process.environ()):
                process.kill()
                killed.append(process)
    return killed
