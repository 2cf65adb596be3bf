"""Makes addresses of tasks known by name, and finds them."""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.connection import RPC_TIMEOUT
from iris.client.connect.rpc import Connection
from iris.client.jobs.find import resolve_id
from iris.concurrency import for_each
from iris.messages.job import Endpoints
from iris.model import names
from iris.model.errors import InvalidValue, NotFound, Rejected, Unreachable
from iris.model.job.endpoints import MOST, Endpoint
from iris.retrying import retry

#: The maximum time for which the registration of an endpoint is repeated while the service or the
#: control plane does not answer.
TIMEOUT = timedelta(minutes=2)
RETRY_INTERVAL = timedelta(seconds=0.5)
#: If a job has more tasks than it may have endpoints (`MOST`), its tasks register no more endpoints
#: once the history of the job has this number of events. The server accepts 10,000 signals for a
#: job; after that, signals of users and tasks would be lost.
MOST_EVENTS = 8_000
#: The maximum number of jobs whose endpoints are queried at the same time.
_AT_ONCE = 16


class EndpointsClient:
    """Registers and finds the endpoints of jobs. A job and its descendants share the names of
    endpoints.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def register(
        self,
        name: str,
        address: str | int,
        metadata: Mapping[str, str] = {},
        *,
        env: Mapping[str, str] = os.environ,
    ) -> Endpoint:
        """Makes an address of this task known until its attempt ends. Replaces an address that has
        this name.

        Args:
            address: `HOST:PORT`, or a port of this host.
            metadata: texts for the programs that look for the endpoint.

        Raises:
            Rejected: the name or the address is invalid, or the job has or had too many endpoints.
            Unreachable: the program does not run in a job, or its cluster does not answer.
        """
        endpoint = _own(name, _address(address, env), metadata, env)
        endpoint.check()
        if int(env[names.ENV_NUM_TASKS]) > MOST and await self._events(endpoint.job) >= MOST_EVENTS:
            raise Rejected(
                f"endpoint {name!r} is not registered: the tasks of job {endpoint.job} have sent it"
                f" too many messages; split the array into jobs of at most {MOST:,} tasks"
            )
        await self._send(endpoint)
        if not await self._is_there(endpoint):
            raise Rejected(
                f"endpoint {name!r} is not registered: either job {endpoint.job} has {MOST:,}"
                f" endpoints, the maximum, or this attempt of task {endpoint.task} has ended"
            )
        return endpoint

    async def withdraw(self, name: str, *, env: Mapping[str, str] = os.environ) -> None:
        """Withdraws an address of this task before its attempt ends.

        Raises:
            Unreachable: the program does not run in a job, or its cluster does not answer.
        """
        await self._send(_own(name, "", {}, env))

    async def list(self, prefix: str = "", job: str | None = None) -> Sequence[Endpoint]:
        """Returns the endpoints of a job and of the jobs below it whose names begin with the
        prefix.

        Args:
            job: the name of the job, or `USER/NAME`. None is the job in which this program runs. If
                the job has a parent, the search begins at the topmost parent.

        Raises:
            NotFound: there is no such job.
            InvalidValue: no job is named, and the program does not run in one.
            Unreachable: no control plane answers.
        """
        if job is None and (job := os.environ.get(names.ENV_JOB_ID)) is None:
            raise InvalidValue(
                "job", "", "is missing", "name a job: the program does not run in one"
            )
        root = names.root_id(await resolve_id(self._connection, job))

        async def of(job: str) -> tuple[Endpoint, ...]:
            try:
                return await self._endpoints(job)
            except NotFound:
                if job == root:
                    raise
                return ()  # the job was deleted meanwhile

        by_job = await for_each([root, *await self._below(root)], of, at_once=_AT_ONCE)
        found = [
            endpoint for some in by_job for endpoint in some if endpoint.name.startswith(prefix)
        ]
        return sorted(found, key=lambda endpoint: (endpoint.name, endpoint.job, endpoint.task))

    @retry(Unreachable, every=RETRY_INTERVAL, timeout=TIMEOUT)
    async def _send(self, endpoint: Endpoint) -> None:
        await self._connection.check_keys()
        with self._connection.rpc_errors():
            await self._workflow(endpoint.job).signal("endpoint_changed", endpoint)

    @retry(Unreachable, every=RETRY_INTERVAL, timeout=TIMEOUT)
    async def _events(self, job: str) -> int:
        with self._connection.rpc_errors():
            return (await self._workflow(job).describe()).history_length

    @retry(Unreachable, every=RETRY_INTERVAL, timeout=TIMEOUT)
    async def _is_there(self, endpoint: Endpoint) -> bool:
        return endpoint in await self._endpoints(endpoint.job)

    async def _below(self, root: str) -> Sequence[str]:
        """Returns the running jobs below the job: its children, their children, and so on."""
        query = f"{self._connection.list_query(names.KIND_JOB)} AND ExecutionStatus = 'Running'"
        beginning = f"{names.job_workflow(self._connection.record.name, root)}/"
        with self._connection.rpc_errors():
            found = self._connection.client.list_workflows(
                f"{query} AND WorkflowId STARTS_WITH '{beginning}'"
            )
            return [names.job_of_workflow(each.id) async for each in found]

    async def _endpoints(self, job: str) -> tuple[Endpoint, ...]:
        with self._connection.rpc_errors():
            try:
                answer = await self._workflow(job).query(
                    "endpoints", result_type=Endpoints, rpc_timeout=RPC_TIMEOUT
                )
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise NotFound(
                        f"there is no job {job}; `iris jobs --all` lists all jobs"
                    ) from None
                raise
            except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
                raise Unreachable(
                    f"the control plane of the cluster could not answer: {error}"
                ) from None
        found: tuple[Endpoint, ...] = answer.endpoints
        return found

    def _workflow(self, job: str) -> WorkflowHandle[Any, Any]:
        return self._connection.workflow(names.job_workflow(self._connection.record.name, job))


def _own(name: str, address: str, metadata: Mapping[str, str], env: Mapping[str, str]) -> Endpoint:
    if names.ENV_JOB_ID not in env:
        raise Unreachable(
            f"this program does not run in a job: {names.ENV_JOB_ID} is not set; only tasks have"
            " endpoints"
        )
    return Endpoint(
        name=name,
        address=address,
        metadata=dict(metadata),
        job=env[names.ENV_JOB_ID],
        task=int(env[names.ENV_TASK_INDEX]),
        attempt=int(env[names.ENV_ATTEMPT]),
    )


def _address(address: str | int, env: Mapping[str, str]) -> str:
    return (
        f"{env.get(names.ENV_HOST_ADDRESS) or '127.0.0.1'}:{address}"
        if isinstance(address, int)
        else address
    )
