"""Implements `iris watch COMMAND`, and the option `--watch` of reading commands."""

import asyncio
import contextlib
import io
import json
import re
import select
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import click

from iris.cli.command import Command
from iris.cli.main import run
from iris.cli.parameters import DURATION
from iris.cli.show.full_screen import full_screen
from iris.cli.show.terminal import can_redraw
from iris.model.errors import IrisError

#: The commands that `iris watch` can repeat. They change nothing.
WATCHED = (
    *("jobs", "ps", "status", "explain", "endpoints", "job list", "job show", "job explain"),
    *("group list", "host list", "host show", "slice list", "slice show", "autoscaler status"),
    *("cluster status", "cluster list", "schedule list", "schedule show", "usage"),
)
#: The pattern of durations and ages in a command's output. They are ignored when two outputs are
#: compared, because they change with time alone.
_AGES = re.compile(r"\b\d+(\.\d+)? ?(ms|s|m|h|d)\b")
#: The time between two updates of `--watch`.
INTERVAL = timedelta(seconds=2)


class Watchable(Command):
    """A command that shows state, with the options `--json` and `--watch`.

    With `--watch`, a terminal shows the output on the whole screen and keeps it up to date.
    If standard output is not a terminal, or with `--json`, the command prints the output again
    after each change.
    """

    def __init__(self, *args: object, **attributes: object) -> None:
        super().__init__(*args, **attributes)  # type: ignore[arg-type]
        text = (
            "Keep the output up to date until q or Ctrl-C; without a terminal or with --json, print"
            " it again after each change."
        )
        self.params.append(click.Option(["--watch"], is_flag=True, help=text))

    def invoke(self, ctx: click.Context) -> object:
        if not ctx.params.pop("watch"):
            return super().invoke(ctx)
        invoke = super().invoke

        def output(stream: io.StringIO) -> str:
            with contextlib.redirect_stdout(stream):
                invoke(ctx)
            return stream.getvalue()

        _leave_no_loops_open()
        as_json = bool(ctx.params["as_json"])
        if can_redraw(sys.stdout) and not as_json:
            _redraw(ctx.command_path, lambda: output(_Terminal()))
        else:
            with contextlib.suppress(KeyboardInterrupt):
                _print_changes(lambda: output(io.StringIO()), as_json=as_json)
        return None


@click.command(
    cls=Command, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option(
    "-n",
    "--interval",
    type=DURATION,
    default="2s",
    show_default=True,
    help="Time between the end of a run and the next run.",
)
@click.argument("command", nargs=-1, required=True, metavar="COMMAND...")
@click.pass_context
def watch(ctx: click.Context, interval: timedelta, command: tuple[str, ...]) -> None:
    """Run a reading COMMAND of iris again and again, and show its output on the whole terminal. q
    or Ctrl-C ends it.

    \b
    iris watch jobs --user ada
    iris watch status train
    iris watch -n 10s host list
    """
    words = [word for word in command if not word.startswith("-")]
    if not {" ".join(words[:1]), " ".join(words[:2])} & {*WATCHED}:
        raise click.UsageError(
            f"cannot watch `iris {' '.join(command)}`; commands that only read are:"
            f" {', '.join(WATCHED)}"
        )
    if "--watch" in command:
        raise click.UsageError(
            "`iris watch` runs the command again and again by itself; leave out --watch"
        )
    cluster = ctx.find_root().obj["cluster"]
    arguments = [*(["--cluster", cluster] if cluster else []), *command]
    _leave_no_loops_open()
    with full_screen(f"run `iris {' '.join(command)}` itself") as draw:
        while True:
            shown = _output(arguments)
            now = datetime.now().astimezone()
            draw(
                f"iris {' '.join(command)}  every {interval.total_seconds():g} s,"
                f" {now:%H:%M:%S}\n\n{shown}"
            )
            time.sleep(max(0.1, interval.total_seconds()))


def _leave_no_loops_open() -> None:
    """Closes the event loop of each run (see `OpenLoop`), because a watch has many runs."""
    asyncio.set_event_loop_policy(None)


class _Terminal(io.StringIO):
    """A stream that collects output and claims to be a terminal, so that the output is formatted
    for one.
    """

    def isatty(self) -> bool:
        return True


def _output(arguments: list[str]) -> str:
    """Runs a command, and returns its standard output and error."""
    said = _Terminal()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(arguments)
    if code == 130:
        raise KeyboardInterrupt
    return said.getvalue()


def _redraw(command: str, show: Callable[[], str]) -> None:
    """Shows the output on the whole terminal, and keeps it up to date.

    An error of the first run ends the command. A later error is shown.

    Args:
        show: runs the command once and returns its output.
    """
    text = show()
    with full_screen("") as draw:
        while True:
            now = datetime.now().astimezone()
            draw(f"{command}  every {INTERVAL.total_seconds():g} s, {now:%H:%M:%S}\n\n{text}")
            time.sleep(INTERVAL.total_seconds())
            try:
                text = show()
            except IrisError as error:
                text = f"error: {error}"


def _print_changes(show: Callable[[], str], *, as_json: bool) -> None:
    """Prints the output with the time, after each change that is not only one of ages.

    An error of the first run ends the command. A later error is printed once. Ends when the reader
    of standard output has closed it.

    Args:
        show: runs the command once and returns its output.
        as_json: print each output as one line of JSON.
    """
    printed = failed = None
    while True:
        try:
            text = show()
            if (state := text if as_json else without_ages(text)) != printed:
                click.echo(
                    json.dumps(json.loads(text))
                    if as_json
                    else f"{datetime.now().astimezone():%H:%M:%S}\n{text}"
                )
                printed, failed = state, None
        except IrisError as error:
            if printed is None:
                raise
            if str(error) != failed:
                failed = str(error)
                click.echo(f"error: {failed}", err=True)
        if _is_closed_within(INTERVAL):
            return


def without_ages(text: str) -> str:
    """Returns the text without durations, and without the widths of columns.

    Both change with time alone.
    """
    return " ".join(_AGES.sub("", text).split())


def _is_closed_within(time: timedelta) -> bool:
    """Waits for this time. Returns early with True if the reader of standard output closes it."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(time.total_seconds() * 1000))
