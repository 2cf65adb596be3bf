"""Finds the attempts of earlier agents: attempts that this agent continues, and attempts whose
records it cannot read.

If a record cannot be read, for instance because another version of Iris wrote it, the agent does
not know whether the server still waits for the attempt. So it kills the program, reports the
attempt as lost, and moves its directory to the host's quarantine, where people find its logs and
outputs. Only the newest few directories stay there, and none while the disk is low. If the attempt
had a user of its own, its uid stays reserved as long as the directory exists.
"""

import base64
import json
import logging
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.cleanup import leftover_processes, links
from iris.activities.host.runtimes.cleanup.leftover_processes import (
    KILL_WAIT,
    QUARANTINE,
    STATE,
    AttemptFile,
)
from iris.activities.host.runtimes.container import engine
from iris.activities.host.runtimes.process import cgroups, job_users
from iris.activities.host.runtimes.program import MOST_LAUNCH, Program
from iris.activities.host.runtimes.shim import shim
from iris.model import names
from iris.storage.files import make_private

logger = logging.getLogger(__name__)

#: The maximum number of directories in the host's quarantine, one for each attempt whose record
#: could not be read. The oldest directories are deleted.
MOST_KEPT = 5


class LostAttempt(NamedTuple):
    """An attempt in quarantine, because its record cannot be read."""

    #: The activity's task token, with which the attempt is reported as lost.
    token: bytes
    directory: Path


class Remains(NamedTuple):
    """The attempts that earlier agents of this host left."""

    attempts: list[tuple[Path, AttemptFile]]
    lost: list[LostAttempt]


def find(attempts: Path) -> Remains:
    """Returns the attempts whose directories still exist.

    Kills the processes of an attempt whose record cannot be read, and moves its directory to the
    quarantine. Removes a directory without a record, because no program was started there.
    """
    found = Remains([], [])
    for directory in sorted(attempts.glob("*")):
        try:
            state = AttemptFile.model_validate_json(links.read(directory / STATE, MOST_LAUNCH))
            found.attempts.append((directory, state))
        except FileNotFoundError:
            # The attempt has a program only if its job removed the record.
            _kill(directory, _key(directory, {}))
            _remove(directory)
        except (OSError, ValidationError) as error:
            found.lost.extend(_set_aside(directory, error))
    return found


def empty_quarantine(attempts: Path, keep: int = 0) -> bool:
    """Removes all quarantined attempts except the newest.

    Args:
        attempts: the directory of the host's attempts.
        keep: the number of attempts that stay.

    Returns:
        True if anything was removed.
    """
    newest = sorted(
        (attempts.parent / QUARANTINE).glob("*"),
        key=lambda each: each.name.rpartition("-")[2],
        reverse=True,
    )
    for directory in newest[keep:]:
        logger.warning("the quarantined attempt in %s is removed", directory)
        _remove(directory)
    return bool(newest[keep:])


def _set_aside(directory: Path, error: OSError | ValidationError) -> list[LostAttempt]:
    """Kills the processes of the attempt and moves its directory to the quarantine. Returns the
    attempt if its token is known.
    """
    record = _parsed(directory / STATE)
    _kill(directory, _key(directory, record))
    quarantine = directory.parent.parent / QUARANTINE
    kept = quarantine / f"{directory.name}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    try:
        make_private(quarantine)
        directory.rename(kept)
    except OSError as fault:
        logger.error(
            "the attempt in %s has an unreadable record and cannot be moved: %s", directory, fault
        )
        return []
    logger.error(
        "the record of an attempt could not be read: %s: %s; its program was killed; its output is"
        " in %s: copy what you need, then delete that directory",
        *(kept / STATE, _problem(error), kept),
    )
    empty_quarantine(directory.parent, MOST_KEPT)
    with suppress(ValueError):
        match record:
            case {"token": str(token)}:
                return [LostAttempt(base64.b64decode(token), kept)]
    return []


def _kill(directory: Path, key: str) -> None:
    """Kills the processes of the attempt: those below its shim, with its key, in its containers,
    and of its user.
    """
    stop = threading.Event()
    patience = threading.Timer(KILL_WAIT.total_seconds(), stop.set)
    patience.start()
    with suppress(OSError):
        Program(directory).kill(stop)
    patience.cancel()
    launch = _parsed(directory / shim.LAUNCH)
    if key:
        leftover_processes.end({key})
        groups = launch.get("cgroups")
        cgroups.remove(
            key,
            *(
                each
                for each in (groups if isinstance(groups, list) else ())
                if isinstance(each, str)
            ),
        )

    def belongs(labels: dict[str, str]) -> bool:
        return labels.get(engine.LABEL_DIRECTORY) == str(directory) or (
            bool(key) and labels.get(engine.LABEL_KEY) == key
        )

    try:
        engine.sweep([f"{engine.LABEL_MANAGED}=true"], belongs)
    except HostFault as error:  # without an engine there are no containers
        if launch.get("container"):
            logger.error("the container of the attempt in %s may still run: %s", directory, error)
    with suppress(OSError):  # the attempt's files are gone
        if (owner := job_users.owner_of(directory)) is not None:
            job_users.end_user(owner)


def _key(directory: Path, record: dict[str, Any]) -> str:
    """Returns the attempt's key from its record or from the environment of its program; empty if
    neither contains the key.
    """
    match record:
        case {"task": {"key": str(key)}}:
            return key
    match _parsed(directory / shim.LAUNCH):
        case {"env": {names.ENV_ATTEMPT_KEY: str(key)}}:
            return key
    return ""


def _parsed(file: Path) -> dict[str, Any]:
    """Returns the JSON object in the file; an empty object if the file has none."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(links.read(file, MOST_LAUNCH))
        return found if isinstance(found, dict) else {}
    return {}


def _problem(error: OSError | ValidationError) -> str:
    """Returns the problem with the record, without the record's values, which may be secrets."""
    if isinstance(error, OSError):
        return str(error)
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


def _remove(directory: Path) -> None:
    try:
        job_users.remove(directory)
    except Exception:  # the directory stays, and the search continues
        logger.exception("the remains of an attempt in %s could not be removed", directory)
