"""Decides which objects of a store no job needs any more.

Objects are deleted by folder: everything that one run of a job left, one pool, one bundle, or one
published report of a simulation. A folder is kept while any of its objects is young, and while a
job of the same family has not ended. A family is a job such as `ada/sweep` with all its child jobs.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from iris.model.store_paths import is_run

#: Matches the number at the end of the names that the second and later jobs of a worker pool have.
_LATER = re.compile(r"-[0-9]+$")


class Stored(NamedTuple):
    """An object in the store."""

    path: str
    #: The size in bytes.
    size: int
    modified: datetime


class Needed(NamedTuple):
    """The objects that live jobs and schedules need."""

    #: The first two parts of the ids of live jobs, `USER/NAME`, such as `ada/sweep`. A job and all
    #: its descendants have the same two parts.
    families: frozenset[str]
    #: The paths of the bundles that live jobs and schedules need.
    bundles: frozenset[str]
    #: The folders of the checkpoints that live jobs start from.
    checkpoints: frozenset[str]


class UnusedFolder(NamedTuple):
    """A folder of objects that no job needs any more."""

    #: The folder of the objects. For a bundle, it is the bundle's own path.
    folder: str
    paths: tuple[str, ...]
    #: The total size of the objects in bytes.
    size: int
    #: The time at which the youngest object of the folder was written.
    modified: datetime


def unused(
    stored: Iterable[Stored], needed: Needed, before: datetime, bundles_before: datetime
) -> list[UnusedFolder]:
    """Returns the folders that no job needs and whose objects are all old, the largest folder
    first.

    Args:
        before: objects that were written before this time are old.
        bundles_before: the same for bundles, which later jobs and jobs of other names may share.
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


def _folder_of(path: str) -> str:
    """Returns the folder with which the object is deleted; empty if Iris never deletes the
    object.
    """
    parts = path.split("/")
    match parts[0]:
        case "logs" | "outputs" | "checkpoints":
            run = next((place for place in range(3, len(parts) - 1) if is_run(parts[place])), None)
            return "/".join(parts[: run + 1]) if run is not None else ""
        case "bundles" if len(parts) == 2:
            return path
        case "exec" if len(parts) > 3:
            return "/".join(parts[:3])
        case "actors" if len(parts) > 2:
            return "/".join(parts[:2])
        case "agents" if len(parts) > 4:
            return "/".join(parts[:4])
        case "simulations" if len(parts) > 3:
            return "/".join(parts[:3])
        case "pools" if len(parts) > 5:
            return "/".join(parts[:5])
        case _:
            return ""


def is_needed(folder: str, needed: Needed) -> bool:
    """Returns whether jobs or schedules need the folder."""
    if folder in needed.bundles or folder in needed.checkpoints:
        return True
    kind, *parts = folder.split("/")
    if kind in ("exec", "simulations"):
        return False
    if kind == "actors":  # the name of the folder is a job's uid
        return any(
            parts[0].startswith(f"{family.replace('/', '-')}-") for family in needed.families
        )
    # the path is CLUSTER/pool/USER/NAME-TOKEN, or has USER/PARENT if a job owns the pool
    if kind == "pools":
        owner = "/".join(parts[2:4])
        # A pool's first job has the pool's NAME. Later ones have NAME-2, NAME-3, …
        pools = needed.families | {_LATER.sub("", family) for family in needed.families}
        return any(owner == family or owner.startswith(f"{family}-") for family in pools)
    return "/".join(parts[:2]) in needed.families
