"""Implements `iris watch`."""

import asyncio
import contextlib
import io
import time
from datetime import datetime, timedelta

import click

from iris.cli.common import DURATION, Command
from iris.cli.full_screen import full_screen

#: The commands that only read, with the verb of those that are nouns.
WATCHED = (
    *(
        "jobs",
        "ps",
        "status",
        "explain",
        "endpoints",
        "job list",
        "job show",
        "job explain",
        "group list",
        "host list",
        "host show",
    ),
    *("slice list", "slice show", "autoscaler status", "cluster status", "cluster list", "schedule list", "schedule show"),
)


@click.command(cls=Command, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-n", "--interval", type=DURATION, default="2s", show_default=True, help="Between the ends and the next runs.")
@click.argument("command", nargs=-1, required=True, metavar="COMMAND...")
@click.pass_context
def watch(ctx: click.Context, interval: timedelta, command: tuple[str, ...]) -> None:
    """Run a reading COMMAND of iris again and again, and show its output on the whole terminal. Ctrl-C ends it.

    \b
    iris watch jobs --user ada
    iris watch status train
    iris watch -n 10s host list
    """
    words = [word for word in command if not word.startswith("-")]
    if not {" ".join(words[:1]), " ".join(words[:2])} & {*WATCHED}:
        raise click.UsageError(f"cannot watch `iris {' '.join(command)}`; commands that only read are: {', '.join(WATCHED)}")
    cluster = ctx.find_root().obj["cluster"]
    arguments = [*(["--cluster", cluster] if cluster else []), *command]
    # Otherwise the loop of each run would stay open until the end of this command.
    asyncio.set_event_loop_policy(None)
    with full_screen(f"run `iris {' '.join(command)}` itself") as draw:
        while True:
            shown = _output(arguments)
            now = datetime.now().astimezone()
            draw(f"iris {' '.join(command)}  every {interval.total_seconds():g} s, {now:%H:%M:%S}\n\n{shown}")
            time.sleep(max(0.1, interval.total_seconds()))


class _Terminal(io.StringIO):
    """Collects output as it would be for the terminal."""

    def isatty(self) -> bool:
        return True


def _output(arguments: list[str]) -> str:
    """Runs a command, and returns what it prints on standard output and error."""
    from iris.cli.main import run  # which finds this command by its name

    said = _Terminal()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(arguments)
    if code == 130:
        raise KeyboardInterrupt
    return said.getvalue()
