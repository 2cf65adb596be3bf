"""Classes of click commands and groups: what every command line of Iris checks and shows."""

import difflib
import gc
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


class Command(click.Command):
    """A command that refuses an option given twice, if the option takes one value.

    click would silently take the last value.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for param in given:
                once = isinstance(param, click.Option) and not (
                    param.multiple or param.is_flag or param.count
                )
                if once and given.count(param) > 1:
                    ctx.fail(
                        f"{max(param.opts, key=len)} was given {given.count(param)} times; give it"
                        " once"
                    )
        return super().parse_args(ctx, args)


class CommandGroup(click.Group):
    """A group whose help shows the whole first sentence of each command.

    click cuts the sentence at the width of the terminal.
    """

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, self.commands[name].get_short_help_str(limit=200))
                    for name in sorted(self.commands)
                ]
            )


class CommandPlace(NamedTuple):
    """The location of a command in the code, and its line in the help."""

    #: The module of the command, relative to `iris.cli`.
    module: str
    #: The name of the click command in the module.
    attribute: str
    #: The command's line in the help of its group. The help can be shown without an import of the
    #: command.
    help: str


class LazyGroup(click.Group):
    """A group that imports a command only when the command is called.

    Args:
        table: the group's commands by name, in the order of the help.
        aliases: further names of commands; the help does not show them.
    """

    def __init__(
        self,
        *args: Any,
        table: Mapping[str, CommandPlace],
        aliases: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self._table = table
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=place.help)
            for name, place in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._table.get(self._aliases.get(cmd_name, cmd_name))
        if place is None:
            return None
        # Imports create many objects and no garbage. The search for garbage would take a twentieth
        # of their time.
        gc.disable()
        try:
            module = import_module(f"iris.cli.{place.module}")
        finally:
            gc.freeze()  # the garbage collector never looks at the imported objects again
            gc.enable()
        command: click.Command = getattr(module, place.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in self._table.items()])

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
