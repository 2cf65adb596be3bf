"""Keeps the host's current incarnation and its machine's key on its disk, so that a restarted agent
continues with them.
"""

import contextlib
import secrets
from pathlib import Path

import psutil
from pydantic import ValidationError

from iris.model.frozen import Frozen
from iris.model.slice.keys import KEY_BYTES, public_key
from iris.storage.files import write_whole
from iris.worker_agents.host.probe import new_incarnation

FILE = "incarnation.json"
#: The name of the file with the private key of a machine that a user brought.
KEY_FILE = "host.key"


class _Record(Frozen):
    """The record of a host's current incarnation."""

    incarnation: str
    #: The id of the machine's boot in which the incarnation began. After another boot, no program
    #: of the incarnation runs any more.
    boot: str


def of(directory: Path) -> str | None:
    """Returns the incarnation that was begun here and not ended; None: there is none, or the
    machine was restarted.
    """
    with contextlib.suppress(OSError, ValidationError):
        found = _Record.model_validate_json((directory / FILE).read_bytes())
        if found.boot == _boot():
            return found.incarnation
    return None


def begin(directory: Path) -> str:
    """Begins a new incarnation and returns its name."""
    begun = _Record(incarnation=new_incarnation(), boot=_boot())
    write_whole(directory / FILE, begun.model_dump_json())
    return begun.incarnation


def end(directory: Path) -> None:
    """Ends the incarnation. The next agent begins another one."""
    (directory / FILE).unlink(missing_ok=True)


def machine_key(directory: Path) -> str:
    """Returns the private key of this host's machine, which is made at the first call. Slices know
    the machine by it.

    Raises:
        OSError: the file cannot be read or written.
    """
    with contextlib.suppress(FileNotFoundError, ValueError):
        key = (directory / KEY_FILE).read_text()
        public_key(key)
        return key
    key = secrets.token_hex(KEY_BYTES)
    write_whole(directory / KEY_FILE, key, 0o600)
    return key


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{psutil.boot_time():.0f}"  # other systems than Linux, where the value does not change
