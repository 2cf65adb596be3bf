"""Implements `iris exec`."""

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import stat
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from datetime import timedelta

import click

from iris.cli.command import Command
from iris.cli.job_names import job_and_task, named_job
from iris.cli.parameters import DURATION, cluster_option, task_argument, utf8
from iris.cli.run import with_client
from iris.cli.show.terminal import unguarded
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import job_and_run
from iris.client.jobs.exec.session import BLOCK, Session, new_session
from iris.messages.exec import ExecEnd, ExecRequest, Frame, FrameKind, size_frame
from iris.model.errors import InvalidValue

#: The maximum length of a command in characters. The command goes through the Temporal service,
#: which is not meant for large data.
MAX_COMMAND = 64 * 1024
#: The exit code of `iris exec` after the second Ctrl-C: 128 plus the number of SIGINT, as in
#: shells.
INTERRUPTED = 130
#: The rows and columns of the task's terminal if the user has no terminal.
DEFAULT_SIZE = (24, 80)


@click.command(cls=Command, name="exec")
@click.option(
    "-i",
    "--stdin",
    "with_input",
    is_flag=True,
    help="Pass standard input to COMMAND; a pipe or a file is passed anyway.",
)
@click.option(
    "-n",
    "--no-stdin",
    "no_input",
    is_flag=True,
    help="Pass no standard input, as for use in a loop that reads its own.",
)
@click.option("-t", "--tty", "terminal", is_flag=True, help="Run COMMAND in a terminal.")
@click.option(
    "--timeout", type=DURATION, help="End COMMAND after this time, such as 60s; exits with 124."
)
@cluster_option
@task_argument
@click.argument("command", nargs=-1, required=True)
@click.pass_context
def exec_(
    ctx: click.Context,
    job: str,
    command: tuple[str, ...],
    with_input: bool,
    no_input: bool,
    terminal: bool,
    timeout: timedelta | None,
) -> int:
    """Run COMMAND next to a running task, with the task's environment, directory and limits. Exits
    with COMMAND's exit code.

    \b
    iris exec train -- nvidia-smi
    iris exec train:3 -it -- bash
    tar c src | iris exec train -- tar x
    """
    if with_input and no_input:
        raise click.UsageError("-i and -n exclude each other")
    with_input = with_input or (not no_input and _is_given_input())
    if sum(len(word) for word in command) > MAX_COMMAND:
        raise InvalidValue(
            "command",
            command[0],
            "is too long with its arguments",
            "put it into a file that the command reads",
        )
    if terminal and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("-t needs a terminal on standard input and output; leave it out")
    named, number = job_and_run(job)
    _, task = job_and_task(named)
    rows, columns = _size() if terminal else DEFAULT_SIZE

    async def work(client: AsyncIrisClient) -> ExecEnd:
        job_id = await named_job(client, job)
        where = await client.exec.locate(job_id, task, await client.jobs.run(job_id, number))
        request = ExecRequest(
            session=new_session(),
            job=where.job,
            index=where.task,
            argv=tuple(utf8(word) for word in command),
            stdin=with_input,
            tty=terminal,
            term=os.environ.get("TERM", "xterm"),
            rows=rows,
            columns=columns,
            timeout=timeout,
        )
        async with client.exec.run(where, request) as session:
            return await _talk(session, with_input=with_input, terminal=terminal)

    end = with_client(ctx, work)
    if end.reason:
        click.echo(f"error: {end.reason}", err=True)
    return end.exit_code


async def _talk(session: Session[ExecEnd], *, with_input: bool, terminal: bool) -> ExecEnd:
    """Copies input and output until the command has ended, and returns how it ended."""
    loop = asyncio.get_running_loop()
    talking = asyncio.current_task()
    assert talking is not None
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:  # the command has ignored the first Ctrl-C
            talking.cancel()
        interrupted = True
        session.say(Frame(FrameKind.SIGNAL, b"%d" % signal.SIGINT))

    def resized() -> None:
        session.say(size_frame(*_size()))

    loop.add_signal_handler(signal.SIGINT, interrupt)
    if terminal:
        loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        with _raw() if terminal and with_input else contextlib.nullcontext():
            if with_input:
                threading.Thread(target=_read, args=(session, loop), daemon=True).start()
            async for kind, data in session.output():
                # The program may use the whole terminal, as with ssh: it may be an editor.
                out = unguarded(sys.stderr if kind is FrameKind.ERR else sys.stdout).buffer
                out.write(data)
                out.flush()
            return await session.end()
    except asyncio.CancelledError:
        talking.uncancel()
        await session.close()
        return ExecEnd(exit_code=INTERRUPTED, reason="interrupted")
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _is_given_input() -> bool:
    """Returns whether standard input is a file, a pipe or a socket.

    An example is `iris exec train -- sh < script`.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # it is closed
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _size() -> tuple[int, int]:
    """Returns the rows and columns of this terminal. Ignores the variables LINES and COLUMNS."""
    size = os.get_terminal_size(sys.stdout.fileno())
    return size.lines or DEFAULT_SIZE[0], size.columns or DEFAULT_SIZE[1]


def _read(session: Session[ExecEnd], loop: asyncio.AbstractEventLoop) -> None:
    """Sends standard input to the session.

    Runs in a thread, because reading a file cannot be awaited. It may still block when the session
    has ended.
    """
    while True:
        data = os.read(sys.stdin.fileno(), BLOCK)
        frame = Frame(FrameKind.INPUT, data) if data else Frame(FrameKind.END_OF_INPUT)
        try:
            asyncio.run_coroutine_threadsafe(session.send(frame), loop).result()
        except (RuntimeError, concurrent.futures.CancelledError):  # the session is over
            return
        if not data:
            return


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Lets the terminal send every key to the command, also Ctrl-C, while the block runs."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
