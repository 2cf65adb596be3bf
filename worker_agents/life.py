"""Which life of the host it is: kept on its disk, so that an agent that is started again goes on with it."""

import contextlib
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from iris.files import write_whole
from iris.worker_agents.probe import new_incarnation

FILE = "life.json"


class _Life(BaseModel):
    """One life of a host."""

    model_config = ConfigDict(frozen=True)

    incarnation: str
    #: Which run of the machine it belongs to: nothing that ran in an earlier one runs now.
    boot: str


def of(directory: Path) -> str | None:
    """The incarnation of the life that has been begun here and not ended; None: there is none, or the machine was restarted."""
    with contextlib.suppress(OSError, ValidationError):
        found = _Life.model_validate_json((directory / FILE).read_bytes())
        if found.boot == _boot():
            return found.incarnation
    return None


def begin(directory: Path) -> str:
    """A new life: its incarnation."""
    begun = _Life(incarnation=new_incarnation(), boot=_boot())
    write_whole(directory / FILE, begun.model_dump_json())
    return begun.incarnation


def end(directory: Path) -> None:
    """The life is over: whoever comes next begins another."""
    (directory / FILE).unlink(missing_ok=True)


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{psutil.boot_time():.0f}"  # elsewhere than on Linux, where nobody sets it
