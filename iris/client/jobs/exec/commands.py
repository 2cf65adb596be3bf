"""Runs a command next to a running task, or profiles the task, and returns the whole result."""

import asyncio
import io
from collections.abc import Sequence
from datetime import timedelta
from typing import BinaryIO, NamedTuple

from iris.client.jobs.exec.session import ExecClient, TaskLocation, new_session
from iris.messages.exec import ExecRequest, FrameKind, ProfileFormat, ProfileRequest
from iris.model.errors import InvalidValue


class ExecResult(NamedTuple):
    """The result of a command that ran next to a task's program, on the host of the task."""

    exit_code: int
    stdout: str
    stderr: str
    #: The reason why the command could not be started or was stopped. Empty if the command ended by
    #: itself.
    reason: str


async def run_command(
    client: ExecClient,
    where: TaskLocation,
    command: Sequence[str],
    *,
    timeout: timedelta | None,
    input: bytes | str | BinaryIO | None,
) -> ExecResult:
    """Runs a command next to a task, and waits for its end.

    Args:
        timeout: the time after which the command is stopped. None lets it run until the attempt
            ends.
        input: the command's standard input. None is an empty input.

    Raises:
        OSError: the input file cannot be read.
        Rejected: the task does not run, or its host cannot run the command.
        Unreachable: the host or the store does not answer.
    """
    request = ExecRequest(
        session=new_session(),
        job=where.job,
        index=where.task,
        argv=tuple(command),
        stdin=input is not None,
        timeout=timeout,
    )
    given = input.encode() if isinstance(input, str) else input or b""
    source = io.BytesIO(given) if isinstance(given, bytes) else given
    written = {FrameKind.OUT: bytearray(), FrameKind.ERR: bytearray()}
    async with client.run(where, request) as session:
        feeding = asyncio.create_task(session.feed(source) if request.stdin else asyncio.sleep(0))
        try:
            async for kind, data in session.output():
                if kind in written:
                    written[kind] += data
            end = await session.end()
        finally:
            feeding.cancel()  # a command may end before it reads all of its input
        (failed,) = await asyncio.gather(feeding, return_exceptions=True)
        if isinstance(failed, Exception):
            raise failed
    out, err = (written[kind].decode(errors="replace") for kind in (FrameKind.OUT, FrameKind.ERR))
    return ExecResult(end.exit_code, out, err, end.reason)


def profile_format(format: str) -> ProfileFormat:
    """Returns the format of this name.

    Raises:
        InvalidValue: there is no such format.
    """
    if format not in list(ProfileFormat):
        raise InvalidValue(
            "format", format, "is not a format of profiles", f"write {', '.join(ProfileFormat)}"
        )
    return ProfileFormat(format)


async def profile_task(
    client: ExecClient, where: TaskLocation, format: ProfileFormat, duration: timedelta | None
) -> bytes:
    """Returns a profile of a task's Python processes.

    Args:
        duration: the time to sample. None is the default.

    Raises:
        Rejected: the task does not run, has no Python process, or its host does not allow it.
        Unreachable: the host or the store does not answer.
    """
    request = ProfileRequest(session=new_session(), job=where.job, index=where.task, format=format)
    if duration is not None:
        request = request.model_copy(update={"duration": duration})
    return (await client.profile(where, request))[0]
