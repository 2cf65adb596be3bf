"""Commands beside a running task, and looks into its processes, as users ask for them.

Needs the host's agent and the store; the control plane only to find out which host it is.
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

from iris import names
from iris.activities.talk import Talk
from iris.client.asking import reaching
from iris.client.client import IrisClient
from iris.client.clusters import ClusterRecord
from iris.errors import InvalidValue, IrisError, NotFound, Rejected, Unreachable
from iris.execs import CANNOT, EXEC_TASK, NOT_RUNNING, PROFILE_TASK, ExecEnd, ExecRequest, Frame, Kind, Profile, ProfileRequest
from iris.states import TaskState
from iris.store import STORE_ERRORS, Store
from iris.units import format_duration

#: An idle agent takes what its queue has at once.
TAKE_UP = timedelta(seconds=15)
#: The agent says twice a second that it is there; the SDK passes some of that on.
HEARTBEAT = timedelta(seconds=30)
#: A command may run as long as a job may: ten years. Temporal wants a number.
NO_TIMEOUT = timedelta(days=3650)
#: Beyond their time both need some to begin, and to bring to the store what they have found.
MARGIN = timedelta(minutes=2)
#: A client that says nothing for longer than the agent's patience (`activities.exec.SILENCE`) counts as gone.
ALIVE_EVERY = timedelta(seconds=10)
#: How long whoever leaves waits for the command to be ended.
LAST_WORDS = timedelta(seconds=5)
_ONCE = RetryPolicy(maximum_attempts=1)
T = TypeVar("T")


class Where(NamedTuple):
    """A task that runs, and its host."""

    job: str
    task: int
    host: str

    def __str__(self) -> str:
        return names.task_id(self.job, self.task)


class ExecClient(IrisClient):
    """One cluster, as somebody sees it who looks into running tasks."""

    async def locate(self, job: str, index: int | None = None) -> Where:
        """Where the task runs.

        Args:
            index: None: the only task of the job.

        Raises:
            NotFound: there is no such job, or it has no such task.
            Rejected: it does not run.
            InvalidValue: the job has several tasks.
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
        """The command, running; when this is left before its end, it is ended.

        Raises:
            Rejected: the task does not run there any more, or its host cannot do this.
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
        """What the task's Python processes do, in the format that was asked for.

        Raises:
            Rejected: it does not run there any more, has no Python process, or its host does not allow it.
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
        """An activity of no workflow, on the host itself."""
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
    """A command beside a task, from the client's side."""

    def __init__(
        self, handle: ActivityHandle[ExecEnd], store: Store, request: ExecRequest, where: Where, cluster: ClusterRecord
    ) -> None:
        self._handle = handle
        self._where = where
        self._cluster = cluster
        self._talk = Talk(store, request.session, says="in", alive_every=ALIVE_EVERY)
        self._speaking = asyncio.create_task(self._talk.speak())
        self._ending = asyncio.create_task(self._end())

    async def send(self, frame: Frame) -> None:
        """Say something to the command; waits while it has not taken what was said before."""
        await self._talk.say_in_turn(frame)

    def say(self, frame: Frame) -> None:
        """Say something small at once."""
        self._talk.say(frame)

    async def output(self) -> AsyncIterator[Frame]:
        """What the command prints, until it has ended and all is told.

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
        """How it ended, once it has.

        Raises:
            Rejected: the task did not run there any more.
            Unreachable: the host does not answer (any more).
        """
        return await asyncio.shield(self._ending)

    async def close(self) -> None:
        """End the command if it has not ended, and remove what was said."""
        if not self._ending.done():
            self._talk.say(Frame(Kind.HANG_UP))
            self._talk.finish()
            await asyncio.wait([self._ending], timeout=LAST_WORDS.total_seconds())
        if ended := self._ending.done():
            await self._talk.remove()
        for each in (self._speaking, self._ending):
            each.cancel()
        await asyncio.gather(self._speaking, self._ending, return_exceptions=True)
        if not ended:  # the agent will hear of it, one way or the other, and remove what was said when it has been silent
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
    """What the host answers.

    Raises:
        Rejected: it refuses.
        Unreachable: it does not.
    """
    try:
        return await handle.result()
    except ActivityFailureError as error:
        raise _told(error.cause, where) from None


def _told(cause: BaseException | None, where: Where) -> IrisError:
    """What the failure of such an activity means to whoever asked for it."""
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
    """An id that nobody else has."""
    return uuid.uuid4().hex
