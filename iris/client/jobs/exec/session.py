"""Runs commands next to a running task and profiles its processes.

Needs the host's agent and the store. The control plane is needed only to find the task's host.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import BinaryIO, Generic, NamedTuple, TypeVar

from temporalio.client import ActivityFailureError, ActivityHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, TimeoutError, TimeoutType
from temporalio.service import RPCError

from iris.activities.host.sessions.store_stream import StoreStream
from iris.client.connect.rpc import Connection
from iris.client.jobs.client import JobsClient
from iris.client.jobs.status import task_of
from iris.messages.exec import (
    CANNOT,
    EXEC_TASK,
    NOT_RUNNING,
    PROFILE_TASK,
    ExecEnd,
    ExecRequest,
    Frame,
    FrameKind,
    Profile,
    ProfileRequest,
)
from iris.messages.port_forward import FORWARD_PORTS, ForwardEnd, ForwardRequest
from iris.model import names
from iris.model.errors import InvalidValue, IrisError, Rejected, Unreachable, first_line
from iris.model.states import TaskState
from iris.model.units import format_duration
from iris.storage.object_store import STORE_ERRORS, Store

#: The maximum time until an agent starts the activity of a session or a profile. An idle agent
#: starts it at once.
START_TIMEOUT = timedelta(seconds=15)
#: The time without a heartbeat after which an agent counts as lost. An agent sends two heartbeats a
#: second, and the SDK passes some of them to the service.
HEARTBEAT = timedelta(seconds=30)
#: The timeout of a command that has no time limit: ten years, because Temporal requires a number.
NO_TIMEOUT = timedelta(days=3650)
#: The time that is added to the timeout of a command or a profile, for its start and the upload of
#: its result.
MARGIN = timedelta(minutes=2)
#: The time between two keepalive messages of the client. It must be shorter than the time after
#: which the agent ends the session of a silent client (`SILENCE` in
#: `iris.activities.host.sessions.exec`).
ALIVE_EVERY = timedelta(seconds=10)
#: The maximum time that a client waits for the end of its command when it disconnects.
CLOSE_TIMEOUT = timedelta(seconds=5)
#: The maximum number of bytes of input that are read at once.
BLOCK = 64 * 1024
_ONCE = RetryPolicy(maximum_attempts=1)
#: The type of the error that an agent returns if its version does not have the requested activity.
_UNKNOWN_ACTIVITY = "NotFoundError"
T = TypeVar("T")
E = TypeVar("E", bound=ExecEnd | ForwardEnd)


class TaskLocation(NamedTuple):
    """A running task and its host."""

    job: str
    task: int
    host: str

    def __str__(self) -> str:
        return names.task_id(self.job, self.task)


class ExecClient:
    """Runs commands next to running tasks of one cluster, and profiles the tasks."""

    def __init__(self, connection: Connection, jobs: JobsClient) -> None:
        self._connection = connection
        self._jobs = jobs

    async def locate(
        self, job: str, index: int | None = None, run_id: str | None = None
    ) -> TaskLocation:
        """Finds the host of a running task.

        Args:
            index: the index of the task. None is the only task of the job.
            run_id: the run of the job. None is the latest run.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Rejected: the task does not run.
            InvalidValue: `index` is None and the job has several tasks.
        """
        status = await self._jobs.status(job, run_id, index)
        if index is None and len(status.tasks) > 1:
            running = [
                task.index
                for task in status.tasks
                if task.state in (TaskState.RUNNING, TaskState.BUILDING)
            ]
            example = names.task_id(job, running[0] if running else status.tasks[0].index)
            raise InvalidValue(
                "job", job, f"has {len(status.tasks)} tasks", f"name one of them, such as {example}"
            )
        task = status.tasks[0] if index is None else task_of(job, index, status.tasks)
        if (
            task.state not in (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)
            or task.host is None
        ):
            why = f": {task.reason}" if task.reason else ""
            raise Rejected(
                f"task {names.task_id(job, task.index)} does not run: it is {task.state}{why}"
            )
        return TaskLocation(job, task.index, task.host)

    @asynccontextmanager
    async def run(
        self, where: TaskLocation, request: ExecRequest
    ) -> AsyncIterator["Session[ExecEnd]"]:
        """Starts the command and yields its session. Ends the command if the block is left before
        the command ends.

        Raises:
            Rejected: the task no longer runs on that host, or the host cannot run commands.
            Unreachable: the host does not answer.
        """
        limit = request.timeout + MARGIN if request.timeout is not None else NO_TIMEOUT
        handle = await self._start(
            EXEC_TASK, request, ExecEnd, where, limit, f"{request.argv[0]} beside {where}"
        )
        async with self._session(handle, request, where) as session:
            yield session

    @asynccontextmanager
    async def forward(
        self, where: TaskLocation, request: ForwardRequest
    ) -> AsyncIterator["Session[ForwardEnd]"]:
        """Starts to connect ports of the task's host, and yields the session for
        `iris.client.jobs.exec.port_forward`.

        Raises:
            Rejected, Unreachable: as `run`.
        """
        summary = f"port {', '.join(request.ports)} of {where}"
        handle = await self._start(FORWARD_PORTS, request, ForwardEnd, where, NO_TIMEOUT, summary)
        async with self._session(handle, request, where) as session:
            yield session

    @asynccontextmanager
    async def _session(
        self, handle: ActivityHandle[E], request: ExecRequest | ForwardRequest, where: TaskLocation
    ) -> AsyncIterator["Session[E]"]:
        session = Session(handle, self._connection, request.folder, where)
        try:
            yield session
        finally:
            await session.close()

    async def profile(self, where: TaskLocation, request: ProfileRequest) -> tuple[bytes, Profile]:
        """Profiles the task's Python processes and returns the profile in the requested format.

        Raises:
            Rejected: the task no longer runs there, has no Python process, or its host does not
                allow profiling.
            Unreachable: the host or the store does not answer.
        """
        store = Store(self._connection.record.store)
        limit = request.duration + MARGIN
        handle = await self._start(
            PROFILE_TASK, request, Profile, where, limit, f"{request.format} of {where}"
        )
        try:
            with self._connection.rpc_errors():
                found = await _result(handle, where)
        except asyncio.CancelledError:
            with suppress(RPCError):
                await handle.cancel(reason="the client disconnected")
            raise
        try:
            profile = await store.get(found.path)
            await store.delete([found.path])
        except STORE_ERRORS as error:
            raise Unreachable(
                f"the store at {self._connection.record.store} does not answer: {first_line(error)}"
            ) from None
        if profile is None:
            raise Unreachable(
                f"the profile that host {where.host} stored is not in {store.url}; check that the"
                " host uses the same store"
            )
        return profile, found

    async def _start(
        self,
        name: str,
        request: ExecRequest | ProfileRequest | ForwardRequest,
        result: type[T],
        where: TaskLocation,
        limit: timedelta,
        summary: str,
    ) -> ActivityHandle[T]:
        """Starts an activity on the host's task queue, without a workflow."""
        queue = names.host_queue(self._connection.record.name, where.host)
        with self._connection.activity_start():
            return await self._connection.client.start_activity(
                name,
                request,
                id=names.session(self._connection.record.name, str(where), name, request.session),
                task_queue=queue,
                result_type=result,
                schedule_to_start_timeout=START_TIMEOUT,
                start_to_close_timeout=limit,
                heartbeat_timeout=HEARTBEAT,
                retry_policy=_ONCE,
                summary=summary,
            )


class Session(Generic[E]):
    """The client's side of a session with a task's host: a command that runs next to the task, or
    connections to the task.
    """

    def __init__(
        self, handle: ActivityHandle[E], connection: Connection, folder: str, where: TaskLocation
    ) -> None:
        self._handle = handle
        self._where = where
        self._connection = connection
        self._stream = StoreStream(
            Store(connection.record.store), folder, writes="in", alive_every=ALIVE_EVERY
        )
        self._sending = asyncio.create_task(self._stream.write())
        self._ending = asyncio.create_task(self._end())

    async def send(self, frame: Frame) -> None:
        """Sends a frame to the command. Waits until the command has read enough earlier frames."""
        await self._stream.send_in_turn(frame)

    async def feed(self, source: BinaryIO) -> None:
        """Sends all of a file to the command, and then the end of input. Hangs up if the file
        cannot be read.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            while data := await asyncio.to_thread(source.read, BLOCK):
                await self.send(Frame(FrameKind.INPUT, data))
            await self.send(Frame(FrameKind.END_OF_INPUT))
        except Exception:
            self.say(Frame(FrameKind.HANG_UP))
            raise

    def say(self, frame: Frame) -> None:
        """Sends a small frame without waiting."""
        self._stream.send(frame)

    async def output(self) -> AsyncIterator[Frame]:
        """Yields the command's output until the command has ended and all of its output is read.

        Raises:
            Unreachable: the store does not answer.
        """
        try:
            while (frames := await self._stream.receive()) is not None:
                for frame in frames:
                    yield frame
                self._stream.acknowledge(self._stream.received)
        except (ValueError, *STORE_ERRORS) as error:
            raise Unreachable(
                f"the store at {self._connection.record.store} does not answer: {first_line(error)}"
            ) from None

    async def end(self) -> E:
        """Waits until the command has ended and returns its result.

        Raises:
            Rejected: the task no longer ran there.
            Unreachable: the host does not answer.
        """
        return await asyncio.shield(self._ending)

    async def close(self) -> None:
        """Ends the command if it still runs, and removes the session's frames from the store."""
        if not self._ending.done():
            self._stream.send(Frame(FrameKind.HANG_UP))
            self._stream.finish()
            await asyncio.wait([self._ending], timeout=CLOSE_TIMEOUT.total_seconds())
        if ended := self._ending.done():
            await self._stream.remove()
        for each in (self._sending, self._ending):
            each.cancel()
        await asyncio.gather(self._sending, self._ending, return_exceptions=True)
        if not ended:
            with suppress(RPCError):  # the agent removes the chunks then
                await self._handle.cancel(reason="the client disconnected")

    async def _end(self) -> E:
        chunks = 0
        try:
            with self._connection.rpc_errors():
                end = await _result(self._handle, self._where)
            chunks = end.chunks
            return end
        finally:
            self._stream.expect(chunks)


async def _result(handle: ActivityHandle[T], where: TaskLocation) -> T:
    """Returns the result from the host."""
    try:
        return await handle.result()
    except ActivityFailureError as error:
        raise _user_error(error.cause, where) from None


def _user_error(cause: BaseException | None, where: TaskLocation) -> IrisError:
    """Converts the failure of an exec or profile activity to an error for the user."""
    match cause:
        case ApplicationError() if cause.type in (NOT_RUNNING, CANNOT):
            return Rejected(f"host {where.host}: {cause.message}")
        case TimeoutError(type=TimeoutType.SCHEDULE_TO_START):
            waited = format_duration(START_TIMEOUT)
            return Unreachable(
                f"host {where.host} did not start it within {waited}; check with `iris host list`"
                " that the host is there"
            )
        case TimeoutError(type=TimeoutType.HEARTBEAT):
            return Unreachable(f"host {where.host} stopped reporting")
        case TimeoutError():
            return Unreachable(f"host {where.host} did not finish in time")
        case ApplicationError(type=name) if name == _UNKNOWN_ACTIVITY:
            return Rejected(
                f"the agent of host {where.host} is older than this command; restart it with this"
                " version of Iris"
            )
        case ApplicationError():
            return IrisError(f"host {where.host}: {cause.message}")
    return Unreachable(f"host {where.host} ended it: its agent stopped, or it was cancelled")


def new_session() -> str:
    """Returns a unique session id."""
    return uuid.uuid4().hex
