"""What an agent that died leaves behind: programs without a parent, and directories that say whose they were."""

import base64
import contextlib
import shutil
from collections.abc import Callable, Container, Mapping
from datetime import datetime
from pathlib import Path
from typing import Self

import psutil
from pydantic import BaseModel, ValidationError

from iris import names


class AttemptState(BaseModel):
    """The state file in an attempt's directory: what another agent needs to know of an attempt it finds."""

    key: str
    #: The activity's task token, in base64: whoever has it can complete the attempt.
    token: str
    started_at: datetime

    @classmethod
    def of(cls, key: str, token: bytes, started_at: datetime) -> Self:
        return cls(key=key, token=base64.b64encode(token).decode(), started_at=started_at)

    @property
    def task_token(self) -> bytes:
        return base64.b64decode(self.token)


def find(attempts: Path) -> list[tuple[Path, AttemptState]]:
    """The attempts whose directories are still here; a directory without a readable state never had a program."""
    found = []
    for directory in sorted(attempts.glob("*")):
        try:
            state = AttemptState.model_validate_json((directory / "state.json").read_bytes())
        except (OSError, ValidationError):
            shutil.rmtree(directory, ignore_errors=True)
            continue
        found.append((directory, state))
    return found


def kill_on(hosts: Container[str]) -> list[psutil.Process]:
    """Kill every program of an attempt on these hosts, wherever it moved to: their machines are gone. Returns those killed."""
    return _kill(lambda environment: names.ENV_ATTEMPT_KEY in environment and environment.get(names.ENV_HOST_ID) in hosts)


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
