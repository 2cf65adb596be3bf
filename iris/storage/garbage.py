"""Decides which objects of a store no job needs any more. Pure.

Objects are deleted by folders: all that one run of a job has left, one pool, one bundle. A folder
is kept while any of its objects is young, and while a job of the same family lives: the job
`ada/sweep`, and all that belong to it.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

#: How the id of a run begins: `names.short_run`.
_RUN = re.compile("[0-9a-f]{8}-[0-9a-f]{4}")

#: How the names of a pool's later workers' jobs end.
_LATER = re.compile(r"-[0-9]+$")


class Stored(NamedTuple):
    """An object in the store."""

    path: str
    #: In bytes.
    size: int
    modified: datetime


class Needed(NamedTuple):
    """What jobs that have not ended, and schedules, need of the store."""

    #: The first two parts of the ids of live jobs: `ada/sweep`.
    families: frozenset[str]
    #: The paths of bundles.
    bundles: frozenset[str]
    #: The folders of checkpoints from which live jobs start.
    checkpoints: frozenset[str]


class UnusedFolder(NamedTuple):
    """Objects that no job needs any more."""

    #: Their folder; of a bundle, its own path.
    folder: str
    paths: tuple[str, ...]
    #: In bytes.
    size: int
    #: When the youngest of them was written.
    modified: datetime


def unused(
    stored: Iterable[Stored], needed: Needed, before: datetime, bundles_before: datetime
) -> list[UnusedFolder]:
    """Returns the folders of which all objects were written before a time, and which no job needs,
    the largest first.

    Args:
        bundles_before: the time for bundles, which jobs of other names and later jobs may share.
    """
    folders: dict[str, list[Stored]] = {}
    for each in stored:
        if (folder := _folder_of(each.path)) and not is_needed(folder, needed):
            folders.setdefault(folder, []).append(each)
    found = []
    for folder, objects in folders.items():
        newest = max(each.modified for each in objects)
        if newest < (bundles_before if folder.startswith("bundles/") else before):
            size = sum(each.size for each in objects)
            found.append(
                UnusedFolder(folder, tuple(sorted(each.path for each in objects)), size, newest)
            )
    return sorted(found, key=lambda each: (-each.size, each.folder))


def is_run(folder: str) -> bool:
    """Returns whether the name of a folder in a job's folder is that of one of its runs. Others
    belong to its child jobs.
    """
    return _RUN.fullmatch(folder) is not None


def _folder_of(path: str) -> str:
    """Returns the folder with which the object is deleted; empty: Iris has not made it, or it is
    never deleted.
    """
    parts = path.split("/")
    match parts[0]:
        case "logs" | "outputs" | "checkpoints":
            run = next((place for place in range(3, len(parts) - 1) if is_run(parts[place])), None)
            return "/".join(parts[: run + 1]) if run is not None else ""
        case "bundles" if len(parts) == 2:
            return path
        case "exec" | "actors" if len(parts) > 2:
            return "/".join(parts[:2])
        case "agents" if len(parts) > 4:
            return "/".join(parts[:4])
        case "pools" if len(parts) > 5:
            return "/".join(parts[:5])
        case _:
            return ""


def is_needed(folder: str, needed: Needed) -> bool:
    """Returns whether what jobs and schedules need is in the folder."""
    if folder in needed.bundles or folder in needed.checkpoints:
        return True
    kind, *parts = folder.split("/")
    if kind == "actors":  # whose folder is named by a job's uid
        return any(
            parts[0].startswith(f"{family.replace('/', '-')}-") for family in needed.families
        )
    if kind == "pools":  # CLUSTER/pool/USER/NAME-TOKEN, or USER/PARENT of a job's pool
        owner = "/".join(parts[2:4])
        # The first workers have the pool's NAME, later ones NAME-2, and so on.
        pools = needed.families | {_LATER.sub("", family) for family in needed.families}
        return any(owner == family or owner.startswith(f"{family}-") for family in pools)
    return "/".join(parts[:2]) in needed.families
