"""`iris exec`"""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from datetime import timedelta

import click

from iris.cli.common import DURATION, cluster_option, job_and_task, utf8, with_client
from iris.client.client import IrisClient
from iris.client.execs import ExecClient, Session, new_session
from iris.errors import InvalidValue
from iris.execs import ExecEnd, ExecRequest, Frame, Kind, size_frame

#: What is read from the standard input at once, in bytes.
BLOCK = 64 * 1024
#: In characters: a command travels through the service, which is no place for data.
MAX_COMMAND = 64 * 1024
#: Our own exit code after Ctrl-C, said twice.
INTERRUPTED = 130
#: Rows and columns of a terminal that has none.
DEFAULT_SIZE = (24, 80)


@click.command("exec")
@click.option("-i", "--stdin", "with_input", is_flag=True, help="Pass on what is typed or piped in.")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Give it a terminal: this one.")
@click.option("--timeout", type=DURATION, help="End it after this time, such as 60s; exits with 124.")
@cluster_option
@click.argument("job", metavar="JOB[:TASK]")
@click.argument("command", nargs=-1, required=True)
@click.pass_context
def exec_(
    ctx: click.Context, job: str, command: tuple[str, ...], with_input: bool, terminal: bool, timeout: timedelta | None
) -> int:
    """Run COMMAND beside a running task, with its environment, directory and limits; its exit code is this command's.

    \b
    iris exec train -- nvidia-smi
    iris exec train:3 -it -- bash
    """
    if sum(len(word) for word in command) > MAX_COMMAND:
        raise InvalidValue("command", command[0], "is too long with its arguments", "put it into a file that the command reads")
    if terminal and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("-t wants a terminal, and this is none; leave it out")
    job_id, task = job_and_task(job)
    rows, columns = _size() if terminal else DEFAULT_SIZE

    async def work(user: IrisClient) -> ExecEnd:
        client = ExecClient.of(user)
        where = await client.locate(job_id, task)
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
        async with client.exec(where, request) as session:
            return await _talk(session, with_input=with_input, terminal=terminal)

    end = with_client(ctx, work)
    if end.reason:
        click.echo(f"error: {end.reason}", err=True)
    return end.exit_code


async def _talk(session: Session, *, with_input: bool, terminal: bool) -> ExecEnd:
    """Pass everything on, both ways, until the command has ended."""
    loop = asyncio.get_running_loop()
    talking = asyncio.current_task()
    assert talking is not None
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:  # it does not mind the first
            talking.cancel()
        interrupted = True
        session.say(Frame(Kind.SIGNAL, b"%d" % signal.SIGINT))

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
                out = sys.stderr.buffer if kind is Kind.ERR else sys.stdout.buffer
                out.write(data)
                out.flush()
            return await session.end()
    except asyncio.CancelledError:
        talking.uncancel()
        await session.close()
        return ExecEnd(exit_code=INTERRUPTED, reason="interrupted")
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _size() -> tuple[int, int]:
    """Rows and columns of this terminal, whatever the environment says of it."""
    size = os.get_terminal_size(sys.stdout.fileno())
    return size.lines or DEFAULT_SIZE[0], size.columns or DEFAULT_SIZE[1]


def _read(session: Session, loop: asyncio.AbstractEventLoop) -> None:
    """Send what comes in. In a thread, which may hang in its reading when all else is over: a file cannot be waited for."""
    while True:
        data = os.read(sys.stdin.fileno(), BLOCK)
        frame = Frame(Kind.INPUT, data) if data else Frame(Kind.END_OF_INPUT)
        try:
            asyncio.run_coroutine_threadsafe(session.send(frame), loop).result()
        except (RuntimeError, asyncio.CancelledError):  # all else is over
            return
        if not data:
            return


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the command, Ctrl-C too; afterwards the terminal is as it was."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
