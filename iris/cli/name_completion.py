"""Completes the names of a cluster's objects for a shell: jobs, hosts, slices and so on.

A shell asks at each press of the completion key, and prints whatever the command writes. So names
are kept for some seconds, and the cluster has little time to answer.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from iris.client.connect.identity import current_user
from iris.client.connect.paths import state_dir
from iris.model.names import ENV_JOB_ID

#: The number of seconds for which names are cached: about the time to type one command line.
KEPT_S = 10.0
#: The maximum number of seconds to wait for the cluster. The shell is blocked in the meantime.
PATIENCE_S = 2.0
#: The maximum number of jobs that a completion offers. It offers the newest jobs.
MAX_JOBS = 200


class Kind(StrEnum):
    """The kinds of object whose names can be completed."""

    JOBS = "jobs"
    HOSTS = "hosts"
    GROUPS = "groups"
    SLICES = "slices"
    SCHEDULES = "schedules"
    MACHINES = "machines"
    CLUSTERS = "clusters"


#: A function for the parameter `shell_complete` of click's options and arguments.
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def names_of(kind: Kind) -> Completion:
    """Returns a callback that completes an option or argument with the names of a kind."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return matching(kind, ctx.find_root().obj.get("cluster"), incomplete)

    return complete


def matching(kind: Kind, cluster: str | None, incomplete: str) -> list[CompletionItem]:
    """Returns the words that an incomplete word can become.

    `--after` takes several names, separated by commas. Only the last one is completed.

    Raises:
        IrisError: the cluster does not answer.
    """
    before, comma, start = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{name}", help=text)
        for name, text in known_names(kind, cluster)
        if name.startswith(start)
    ]


def known_names(kind: Kind, cluster: str | None) -> list[tuple[str, str]]:
    """Returns the names of a kind, each with a note about the object. They may be seconds old.

    Raises:
        IrisError: the cluster does not answer.
    """
    if kind is Kind.CLUSTERS:
        return [
            (path.parent.name, "") for path in sorted(state_dir().glob("clusters/*/cluster.json"))
        ]
    within = (
        f"-{quote(job, safe='')}"
        if kind is Kind.JOBS and (job := os.environ.get(ENV_JOB_ID))
        else ""
    )
    kept = state_dir() / "completions" / quote(cluster or "-", safe="") / f"{kind}{within}.json"
    with contextlib.suppress(OSError, ValueError):
        if 0 <= time.time() - kept.stat().st_mtime < KEPT_S:
            return [(str(name), str(text)) for name, text in json.loads(kept.read_text())]
    found = asyncio.run(_ask(kind, cluster))
    _keep(kept, found)
    return found


def job_words(jobs: Sequence[str], user: str, within: str | None) -> list[str]:
    """Returns the shortest word that names each of the jobs.

    The name alone names a job of the user, and in a job, one of its children.

    Args:
        within: the job in which the shell runs, if it runs in one.
    """
    children = {job.rpartition("/")[2] for job in jobs if job.rpartition("/")[0] == within}

    def word(job: str) -> str:
        owner, _, name = job.rpartition("/")
        return name if owner == within or (owner == user and name not in children) else job

    return [word(job) for job in jobs]


def _keep(file: Path, found: list[tuple[str, str]]) -> None:
    """Keeps the names for the next press of the key. Does nothing if they cannot be written."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(found))
        part.replace(file)


async def _ask(kind: Kind, cluster: str | None) -> list[tuple[str, str]]:
    """Returns the names and notes that the cluster has now; none if it takes too long."""
    from iris.client.client import AsyncIrisClient  # takes a third of a second

    own = f"{current_user()}/"
    try:
        async with asyncio.timeout(PATIENCE_S):
            client = await AsyncIrisClient.connect(cluster)
            match kind:
                case Kind.JOBS:
                    jobs = await client.jobs.list(limit=MAX_JOBS)
                    ids = [row.id for row in jobs]
                    words = job_words(ids, current_user(), os.environ.get(ENV_JOB_ID))
                    return [(word, row.state) for word, row in zip(words, jobs, strict=True)]
                case Kind.SCHEDULES:
                    schedules = await client.schedules.list()
                    return [(row.id.removeprefix(own), row.when) for row in schedules]
                case Kind.HOSTS:
                    return [(view.host.id, "") for view in await client.hosts.list()]
                case Kind.MACHINES:
                    hosts = [view.host for view in await client.hosts.list()]
                    return [(host.address, host.id) for host in hosts if host.address]
                case Kind.SLICES:
                    return [(row.id, row.state) for row in await client.slices.list()]
                case _:
                    settings = (await client.autoscaler.status()).settings
                    groups = settings.groups if settings is not None else ()
                    return [(group.name, str(group.offers)) for group in groups]
    except TimeoutError:
        return []
