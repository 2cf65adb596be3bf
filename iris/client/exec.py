"""Runs commands next to a running task and profiles its processes.

Needs the host's agent and the store. The control plane is needed only to find the task's host.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import NamedTuple, TypeVar

from temporalio.client import ActivityFailureError, ActivityHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, TimeoutError, TimeoutType
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.host.store_stream import StoreStream
from iris.client.client import IrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.rpc import reaching
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
from iris.model import names
from iris.model.errors import InvalidValue, IrisError, NotFound, Rejected, Unreachable
from iris.model.states import TaskState
from iris.model.units import format_duration
from iris.storage.object_store import STORE_ERRORS, Store

#: An idle agent takes an activity from its queue at once.
TAKE_UP = timedelta(seconds=15)
#: The agent heartbeats twice a second; the SDK passes on some of these heartbeats.
HEARTBEAT = timedelta(seconds=30)
#: A command may run as long as a job: ten years. Temporal requires a number.
NO_TIMEOUT = timedelta(days=3650)
#: Added to the timeout of a command or a profile: time to start it and to upload its result.
MARGIN = timedelta(minutes=2)
#: Must be shorter than the time after which the agent takes a silent client for gone (`iris.activities.host.exec.SILENCE`).
ALIVE_EVERY = timedelta(seconds=10)
#: How long a client that leaves waits for its command to end.
LAST_WORDS = timedelta(seconds=5)
_ONCE = RetryPolicy(maximum_attempts=1)
T = TypeVar("T")


class Where(NamedTuple):
    """A running task and its host."""

    job: str
    task: int
    host: str

    def __str__(self) -> str:
        return names.task_id(self.job, self.task)


class ExecClient(IrisClient):
    """A connection to one cluster, for commands in running tasks and profiles of them."""

    async def locate(self, job: str, index: int | None = None) -> Where:
        """Finds the host of a running task.

        Args:
            index: None: the only task of the job.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Rejected: the task does not run.
            InvalidValue: `index` is None and the job has several tasks.
        """
        status = await self.status(job)
        if index is None and len(status.tasks) > 1:
            running = [task.index for task in status.tasks if task.state in (TaskState.RUNNING, TaskState.BUILDING)]
            example = names.task_id(job, running[0] if running else 0)
            raise InvalidValue("job", job, f"has {len(status.tasks)} tasks", f"name one of them, such as {example}")
        if (index or 0) >= len(status.tasks):
            raise NotFound(f"job {job} has no task {index}; its tasks are 0 to {len(status.tasks) - 1}")
        task = status.tasks[index or 0]
        if task.state not in (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING) or task.host is None:
            why = f": {task.reason}" if task.reason else ""
            raise Rejected(f"task {names.task_id(job, task.index)} does not run: it is {task.state}{why}")
        return Where(job, task.index, task.host)

    @asynccontextmanager
    async def exec(self, where: Where, request: ExecRequest) -> AsyncIterator["Session"]:
        """Starts the command and yields its session. Ends the command if the block is left before the command ends.

        Raises:
            Rejected: the task no longer runs on that host, or the host cannot run commands.
            Unreachable: the host does not answer.
        """
        limit = request.timeout + MARGIN if request.timeout is not None else NO_TIMEOUT
        handle = await self._started(EXEC_TASK, request, ExecEnd, where, limit, f"{request.argv[0]} beside {where}")
        session = Session(handle, Store(self.cluster.store), request, where, self.cluster)
        try:
            yield session
        finally:
            await session.close()

    async def profile(self, where: Where, request: ProfileRequest) -> tuple[bytes, Profile]:
        """Profiles the task's Python processes and returns the profile in the requested format.

        Raises:
            Rejected: the task no longer runs there, has no Python process, or its host does not allow profiling.
            Unreachable: the host or the store does not answer.
        """
        store = Store(self.cluster.store)
        limit = request.duration + MARGIN
        handle = await self._started(PROFILE_TASK, request, Profile, where, limit, f"{request.format} of {where}")
        try:
            async with reaching(self.cluster):
                found = await _result(handle, where)
        except asyncio.CancelledError:
            with suppress(RPCError):
                await handle.cancel(reason="its client has left")
            raise
        try:
            seen = await store.get(found.path)
            await store.delete([found.path])
        except STORE_ERRORS as error:
            raise Unreachable(f"the store at {self.cluster.store} does not answer: {error}") from None
        if seen is None:
            raise Unreachable(f"what host {where.host} saw is not in the store at {self.cluster.store}: do they use the same?")
        return seen, found

    async def _started(
        self, name: str, request: ExecRequest | ProfileRequest, result: type[T], where: Where, limit: timedelta, summary: str
    ) -> ActivityHandle[T]:
        """Starts an activity on the host's task queue, without a workflow."""
        queue = names.host_queue(self.cluster.name, where.host)
        async with reaching(self.cluster):
            try:
                return await self._client.start_activity(
                    name,
                    request,
                    id=f"{queue}/{name}/{request.session}",
                    task_queue=queue,
                    result_type=result,
                    schedule_to_start_timeout=TAKE_UP,
                    start_to_close_timeout=limit,
                    heartbeat_timeout=HEARTBEAT,
                    retry_policy=_ONCE,
                    summary=summary,
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.UNIMPLEMENTED:
                    raise
                where_to = f"the Temporal service at {self.cluster.address}"
                raise Rejected(f"{where_to} is too old: it cannot start an activity by itself, as 1.32 can") from None


class Session:
    """The client's side of a command that runs next to a task."""

    def __init__(
        self, handle: ActivityHandle[ExecEnd], store: Store, request: ExecRequest, where: Where, cluster: ClusterRecord
    ) -> None:
        self._handle = handle
        self._where = where
        self._cluster = cluster
        self._talk = StoreStream(store, request.session, says="in", alive_every=ALIVE_EVERY)
        self._speaking = asyncio.create_task(self._talk.speak())
        self._ending = asyncio.create_task(self._end())

    async def send(self, frame: Frame) -> None:
        """Sends a frame to the command. Waits while the command has not consumed enough of the frames before it."""
        await self._talk.say_in_turn(frame)

    def say(self, frame: Frame) -> None:
        """Sends a small frame without waiting."""
        self._talk.say(frame)

    async def output(self) -> AsyncIterator[Frame]:
        """Yields the command's output until the command has ended and all of its output is read.

        Raises:
            Unreachable: the store does not answer.
        """
        try:
            while (frames := await self._talk.hear()) is not None:
                for frame in frames:
                    yield frame
                self._talk.took(self._talk.heard)
        except (ValueError, *STORE_ERRORS) as error:
            raise Unreachable(f"the store at {self._cluster.store} does not answer: {error}") from None

    async def end(self) -> ExecEnd:
        """Waits until the command has ended and returns its result.

        Raises:
            Rejected: the task no longer ran there.
            Unreachable: the host does not answer, or no longer does.
        """
        return await asyncio.shield(self._ending)

    async def close(self) -> None:
        """Ends the command if it still runs, and removes the session's frames from the store."""
        if not self._ending.done():
            self._talk.say(Frame(FrameKind.HANG_UP))
            self._talk.finish()
            await asyncio.wait([self._ending], timeout=LAST_WORDS.total_seconds())
        if ended := self._ending.done():
            await self._talk.remove()
        for each in (self._speaking, self._ending):
            each.cancel()
        await asyncio.gather(self._speaking, self._ending, return_exceptions=True)
        if not ended:  # the agent notices that the client is gone and removes the frames after its `SILENCE`
            with suppress(RPCError):
                await self._handle.cancel(reason="its client has left")

    async def _end(self) -> ExecEnd:
        chunks = 0
        try:
            async with reaching(self._cluster):
                end: ExecEnd = await _result(self._handle, self._where)
            chunks = end.chunks
            return end
        finally:
            self._talk.expect(chunks)


async def _result(handle: ActivityHandle[T], where: Where) -> T:
    """Returns the result from the host.

    Raises:
        Rejected: the host refuses.
        Unreachable: the host does not answer.
    """
    try:
        return await handle.result()
    except ActivityFailureError as error:
        raise _told(error.cause, where) from None


def _told(cause: BaseException | None, where: Where) -> IrisError:
    """Converts the failure of an exec or profile activity to an error for the user."""
    match cause:
        case ApplicationError() if cause.type in (NOT_RUNNING, CANNOT):
            return Rejected(f"host {where.host}: {cause.message}")
        case TimeoutError(type=TimeoutType.SCHEDULE_TO_START):
            waited = format_duration(TAKE_UP)
            return Unreachable(
                f"host {where.host} did not take it up within {waited}; `iris host list` shows whether it is there"
            )
        case TimeoutError(type=TimeoutType.HEARTBEAT):
            return Unreachable(f"nothing is heard of host {where.host} any more")
        case TimeoutError():
            return Unreachable(f"host {where.host} took too long")
        case ApplicationError():
            return IrisError(f"host {where.host}: {cause.message}")
    return Unreachable(f"host {where.host} has ended it: its agent stops, or it was cancelled")


def new_session() -> str:
    """Returns a unique session id."""
    return uuid.uuid4().hex
