"""Names the commands of `iris`, and imports each one only when it is called."""

import difflib
import gc
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: command -> (module under iris.cli, attribute, one line for the help). Kept here so that the help
#: needs no imports.
Table = Mapping[str, tuple[str, str, str]]
JOB_COMMANDS: Table = {
    "submit": (
        "submit.command",
        "submit",
        "Run a command on the cluster, and follow it until it ends.",
    ),
    "jobs": ("jobs.commands", "jobs", "List jobs, the newest first."),
    "status": ("jobs.commands", "status", "Show a job and its tasks."),
    "logs": ("jobs.logs", "logs", "Show the output of a job's tasks."),
    "fetch": ("jobs.fetch", "fetch", "Fetch the output files of a job's tasks."),
    "exec": ("jobs.exec", "exec_", "Run a command next to a running task."),
    "port-forward": (
        "jobs.port_forward",
        "port_forward",
        "Forward ports of this machine to a running task.",
    ),
    "endpoints": (
        "jobs.endpoints",
        "endpoints",
        "List the addresses that a job's tasks have made known.",
    ),
    "profile": ("jobs.profile", "profile", "Profile a running Python program."),
    "wait": ("jobs.commands", "wait", "Wait until jobs have ended."),
    "cancel": ("jobs.commands", "cancel", "Cancel jobs."),
    "rerun": ("jobs.rerun", "rerun", "Submit a job again, or only its failed tasks."),
    "explain": ("jobs.commands", "explain", "Explain the state of a job."),
    "hold": (
        "jobs.commands",
        "hold",
        "Hold jobs: start none of their tasks until they are released.",
    ),
    "release": ("jobs.commands", "release", "Release held jobs."),
    "open": ("jobs.open", "open_", "Open a job's page in Temporal's Web UI."),
    "priority": ("jobs.commands", "priority", "Move jobs to another priority band."),
}
COMMANDS: Table = {
    **JOB_COMMANDS,
    "job": (
        "jobs.group",
        "job",
        "The commands above by the name of their noun: list, show, logs and so on.",
    ),
    "top": (
        "top",
        "top",
        "Show the cluster, its scale groups and your jobs, and keep them up to date.",
    ),
    "watch": ("watch", "watch", "Run a reading command again and again."),
    "schedule": (
        "submit.schedule",
        "schedule",
        "Start a job again and again, at times or in intervals.",
    ),
    "secret": (
        "secret",
        "secret",
        "Keep secrets for your jobs: sealed for the cluster before they leave this machine.",
    ),
    "cluster": ("cluster.commands", "cluster", "Start, stop, show and pause clusters."),
    "autoscaler": ("fleet.autoscaler", "autoscaler", "Show, pause and resume the autoscaler."),
    "group": (
        "fleet.group",
        "group",
        "Show scale groups: the kinds of slice that a cluster can have.",
    ),
    "slice": ("fleet.slice", "slice_", "List, show, drain and delete slices."),
    "host": ("fleet.host", "host", "List, cordon, uncordon and drain hosts, and log in to them."),
    "ssh-config": (
        "fleet.host_ssh",
        "print_ssh_config",
        "Print ssh's configuration for a cluster's machines over SSH.",
    ),
    "debug": ("cluster.debug", "debug", "Find faults in a cluster."),
    "controller": ("processes.commands", "controller", "Run a control plane."),
    "agent": ("processes.commands", "agent", "Run this machine as a host."),
    "pool-worker": (
        "processes.pool_worker",
        "pool_worker",
        "Run the calls of a Python program's pool; its jobs do this.",
    ),
    "config": ("which_cluster", "config", "Show which cluster and user commands use, and why."),
    "completion": (
        "completion",
        "completion",
        "Print the script that lets a shell complete commands and names.",
    ),
    "version": (
        "version",
        "show_version",
        "Show the versions of Iris here and in a cluster, and whether they fit.",
    ),
}
#: The names of other tools for some of them.
ALIASES = {"ps": "jobs", "kill": "cancel"}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    Args:
        table: its commands.
        aliases: other names of some of them.
    """

    def __init__(
        self, *args: Any, table: Table, aliases: Mapping[str, str] | None = None, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._table = table
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem  # only shells need it

        names = [
            CompletionItem(name, help=text)
            for name, (_, _, text) in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = self._aliases.get(cmd_name, cmd_name)
        if cmd_name not in self._table:
            return None
        module, attribute, _ = self._table[cmd_name]
        # imports make much and leave no garbage; looking for it takes a twentieth of their time
        gc.disable()
        try:
            command: click.Command = getattr(import_module(f"iris.cli.{module}"), attribute)
        finally:
            gc.freeze()  # what was imported is not looked at again
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self._table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in {*self._table, *self._aliases}:
            near = difflib.get_close_matches(args[0], self._table, n=1)
            ctx.fail(
                f"there is no command {args[0]!r}"
                + (f"; did you mean {near[0]!r}?" if near else "")
            )
        return super().resolve_command(ctx, args)
