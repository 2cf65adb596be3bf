"""Implements `iris completion`, and answers a shell that asks how a command line may go on.

click finds the option or the argument at the end of the line, and calls its `shell_complete`
callback. For that, it imports the module of the command, and so the client, which takes a third of
a second at each press of the key. So the usual places of names are found without the command.
"""

import contextlib
import os
from collections.abc import Sequence

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
)

from iris.cli.name_completion import Kind, matching
from iris.model.names import ENV_CLUSTER

#: The environment variable that a shell sets when it asks for completions.
VARIABLE = "_IRIS_COMPLETE"
#: The kind of object that each command's arguments name.
ARGUMENTS = {
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
        (
            *("cluster stop", "cluster status", "cluster restart", "cluster reload"),
            *("cluster tunnel", "cluster dashboard"),
        ),
        Kind.CLUSTERS,
    ),
}
#: The kind of object that the value of each option names, in all commands.
_OPTIONS = {
    **{"--cluster": Kind.CLUSTERS, "--group": Kind.GROUPS, "--agent": Kind.HOSTS},
    **dict.fromkeys(
        ("--after", "--after-ok", "--after-any", "--after-fail", "--from-checkpoint"), Kind.JOBS
    ),
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


def answer(cli: click.Command, instruction: str) -> int:
    """Prints the completions that a shell asks for, and returns the exit code.

    Args:
        cli: the command `iris`.
        instruction: the value of the environment variable, such as `bash_complete`.
    """
    shell, _, verb = instruction.partition("_")
    if verb != "complete" or shell not in _SHELLS:
        return 1
    with contextlib.suppress(Exception):  # the shell would print a message into the user's line
        click.echo(_SHELLS[shell](cli, {"obj": {}}, "iris", VARIABLE).complete())
    return 0


def kind_of(words: Sequence[str], incomplete: str) -> Kind | None:
    """Returns the kind of name at the end of a command line, if it is clear without the command.

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
        return None  # the incomplete word may be the value of an option
    if words and words[0] == "job":
        return Kind.JOBS if words[1:2] == ["show"] else ARGUMENTS.get(" ".join(words[1:2]))
    return ARGUMENTS.get(" ".join(words[:1])) or ARGUMENTS.get(" ".join(words[:2]))


class _Names(ShellComplete):
    """Completes the names of objects, such as jobs, without importing the command. Completes all
    other words as click does, which imports the command.
    """

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        args = _without_watch(args, incomplete)
        cluster = self.ctx_args["obj"]["cluster"] = _cluster(args)
        kind = kind_of(args, incomplete)
        if kind is None:
            return super().get_completions(args, incomplete)
        return matching(kind, cluster, incomplete)


class _Bash(_Names, BashComplete):
    pass


class _Zsh(_Names, ZshComplete):
    pass


class _Fish(_Names, FishComplete):
    pass


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def _without_watch(words: list[str], incomplete: str) -> list[str]:
    """Returns the words without `watch` and its options, so that the watched command is completed.

    Returns them unchanged if the incomplete word belongs to `watch` itself.
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


def _cluster(args: Sequence[str]) -> str | None:
    """Returns the cluster that the command line or the environment names."""
    named = [args[index + 1] for index, word in enumerate(args[:-1]) if word == "--cluster"]
    named += [word.partition("=")[2] for word in args if word.startswith("--cluster=")]
    return named[-1] if named else os.environ.get(ENV_CLUSTER) or None
