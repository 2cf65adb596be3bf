"""Implements `iris completion`, and answers a shell that asks how a command line may go on.

A shell asks at each press of the key. So the names of a cluster's objects are kept for some
seconds, and where the place of a name is plain, the modules of the command are not imported: they,
and the client, take a third of a second.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    _resolve_context,
    _resolve_incomplete,
)

from iris.client.connect.identity import current_user
from iris.client.connect.paths import state_dir
from iris.model.names import ENV_CLUSTER, ENV_JOB_ID

#: The variable with which a shell asks.
VARIABLE = "_IRIS_COMPLETE"
#: How long names are kept: for the presses of one command line.
KEPT_S = 10.0
#: How long the cluster may take to answer. A shell waits for it.
PATIENCE_S = 2.0
#: The most names of a kind, the newest first.
MAX_NAMES = 200


class Kind(StrEnum):
    """What has names."""

    JOBS = "jobs"
    HOSTS = "hosts"
    GROUPS = "groups"
    SLICES = "slices"
    SCHEDULES = "schedules"
    MACHINES = "machines"
    CLUSTERS = "clusters"


#: Commands whose first argument is a name, for the answer without their modules; of the nouns, the
#: verbs.
_COMMANDS = {
    **dict.fromkeys(
        (
            *("status", "logs", "fetch", "exec", "port-forward", "endpoints", "profile"),
            *("wait", "cancel", "explain", "hold", "release", "open", "rerun", "priority"),
        ),
        Kind.JOBS,
    ),
    **dict.fromkeys(("host show", "host cordon", "host uncordon", "host drain"), Kind.HOSTS),
    "host remove": Kind.MACHINES,
    **dict.fromkeys(
        (f"schedule {verb}" for verb in ("show", "pause", "resume", "trigger", "delete")),
        Kind.SCHEDULES,
    ),
    **dict.fromkeys(("slice show", "slice drain", "slice delete"), Kind.SLICES),
    **dict.fromkeys(
        ("cluster stop", "cluster status", "cluster restart", "cluster reload", "cluster tunnel"),
        Kind.CLUSTERS,
    ),
}
_OPTIONS = {
    **{"--cluster": Kind.CLUSTERS, "--group": Kind.GROUPS, "--agent": Kind.HOSTS},
    **dict.fromkeys(
        ("--after", "--after-ok", "--after-any", "--after-fail", "--from-checkpoint"), Kind.JOBS
    ),
}
#: The arguments of commands that have names, for all other places.
_PARAMETERS = {
    **{"job": Kind.JOBS, "host": Kind.HOSTS, "slice_id": Kind.SLICES, "slices": Kind.SLICES},
    **{"cluster": Kind.CLUSTERS, "group": Kind.GROUPS, "agent": Kind.HOSTS},
    **{"schedule_id": Kind.SCHEDULES, "schedules": Kind.SCHEDULES, "machines": Kind.MACHINES},
    **dict.fromkeys(("after", "after_any", "after_fail", "from_checkpoint"), Kind.JOBS),
}


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, and the names of jobs,
    schedules, hosts and the like.

    \b
    eval "$(iris completion bash)"     in ~/.bashrc
    eval "$(iris completion zsh)"      in ~/.zshrc, after compinit
    iris completion fish > ~/.config/fish/completions/iris.fish
    """
    click.echo(_SHELLS[shell](ctx.find_root().command, {}, "iris", VARIABLE).source())


def answer(instruction: str) -> int:
    """Prints the completions that a shell asks for, and returns the exit code.

    Args:
        instruction: the value of the variable, such as `bash_complete`.
    """
    from iris.cli.main import cli  # which imports this module

    shell, _, verb = instruction.partition("_")
    if verb != "complete" or shell not in _SHELLS:
        return 1
    with contextlib.suppress(Exception):  # a shell would print it into the line that the user types
        click.echo(_SHELLS[shell](cli, {"obj": {}}, "iris", VARIABLE).complete())
    return 0


def kind_of(words: Sequence[str], incomplete: str) -> Kind | None:
    """Returns what may stand at the end of a command line, where that is plain; None: only the
    command itself knows.

    Args:
        words: the words before the last one, without `iris`.
        incomplete: the last word so far.
    """
    if "--" in words or incomplete.startswith("-"):
        return None
    if words and words[-1] in _OPTIONS:
        return _OPTIONS[words[-1]]
    words = list(words)
    while words and words[0] in ("--cluster", "--debug"):
        del words[: 2 if words[0] == "--cluster" else 1]
    if any(word.startswith("-") for word in words):
        return None  # the word may be the value of an option
    if words and words[0] == "job":
        return Kind.JOBS if words[1:2] == ["show"] else _COMMANDS.get(" ".join(words[1:2]))
    return _COMMANDS.get(" ".join(words[:1])) or _COMMANDS.get(" ".join(words[:2]))


def _without_watch(words: list[str], incomplete: str) -> list[str]:
    """Returns the words before the last one without `watch` and its options: what it runs is
    completed as if alone.
    """
    at = 0
    while words[at : at + 1] in (["--cluster"], ["--debug"]):
        at += 2 if words[at] == "--cluster" else 1
    if words[at : at + 1] != ["watch"]:
        return words
    end = at + 1
    while end < len(words) and words[end].startswith("-"):
        end += 2 if words[end] in ("-n", "--interval") else 1
    of_watch = end > len(words) or (end == len(words) and incomplete.startswith("-"))
    return words if of_watch else words[:at] + words[end:]


class _Names(ShellComplete):
    """Completes the names of a cluster's objects."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        args = _without_watch(args, incomplete)
        kind = kind_of(args, incomplete)
        if kind is None:
            ctx = _resolve_context(self.cli, self.ctx_args, self.prog_name, args)
            found, incomplete = _resolve_incomplete(ctx, args, incomplete)
            kind = _PARAMETERS.get(str(found.name)) if isinstance(found, click.Parameter) else None
            if kind is None:
                return found.shell_complete(ctx, incomplete)
        before, comma, start = incomplete.rpartition(
            ","
        )  # `--after` takes several names, and no name has a comma
        known = names_of(kind, _cluster(args))
        return [
            CompletionItem(f"{before}{comma}{name}", help=text)
            for name, text in known
            if name.startswith(start)
        ]


class _Bash(_Names, BashComplete):
    pass


class _Zsh(_Names, ZshComplete):
    pass


class _Fish(_Names, FishComplete):
    pass


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def _cluster(args: Sequence[str]) -> str | None:
    """Returns the cluster that a command line names, or the environment."""
    named = [args[index + 1] for index, word in enumerate(args[:-1]) if word == "--cluster"]
    named += [word.partition("=")[2] for word in args if word.startswith("--cluster=")]
    return named[-1] if named else os.environ.get(ENV_CLUSTER) or None


def names_of(kind: Kind, cluster: str | None) -> list[tuple[str, str]]:
    """Returns the names of a kind, each with a word about it. They may be some seconds old.

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


def _keep(file: Path, found: list[tuple[str, str]]) -> None:
    """Keeps the names for the next press of the key, if this machine lets it."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(found))
        part.replace(file)


def job_words(jobs: Sequence[str], user: str, within: str | None) -> list[str]:
    """Returns the shortest word that names each of the jobs: the name alone for the user's jobs,
    and in a job for its children.

    Args:
        within: the job in which the shell runs; None: in none.
    """
    children = {job.rpartition("/")[2] for job in jobs if job.rpartition("/")[0] == within}

    def word(job: str) -> str:
        owner, _, name = job.rpartition("/")
        return name if owner == within or (owner == user and name not in children) else job

    return [word(job) for job in jobs]


async def _ask(kind: Kind, cluster: str | None) -> list[tuple[str, str]]:
    from iris.client.client import AsyncIrisClient  # takes a third of a second

    own = f"{current_user()}/"
    try:
        async with asyncio.timeout(PATIENCE_S):
            client = await AsyncIrisClient.connect(cluster)
            match kind:
                case Kind.JOBS:
                    rows = await client.jobs.list(limit=MAX_NAMES)
                    words = job_words(
                        [row.id for row in rows], current_user(), os.environ.get(ENV_JOB_ID)
                    )
                    return [(word, row.state) for word, row in zip(words, rows, strict=True)]
                case Kind.SCHEDULES:
                    return [
                        (row.id.removeprefix(own), row.when)
                        for row in await client.schedules.list()
                    ]
                case Kind.HOSTS:
                    return [(view.host.id, "") for view in await client.hosts.list()]
                case Kind.MACHINES:
                    return [
                        (view.host.address, view.host.id)
                        for view in await client.hosts.list()
                        if view.host.address
                    ]
                case Kind.SLICES:
                    return [(row.id, row.state) for row in await client.slices.list()]
                case _:
                    settings = (await client.autoscaler.status()).settings
                    return (
                        [(group.name, str(group.offers)) for group in settings.groups]
                        if settings is not None
                        else []
                    )
    except TimeoutError:
        return []
