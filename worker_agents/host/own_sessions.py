"""Refuses sessions whose request is about another task than the id of their activity."""

from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from iris.messages.exec import CANNOT, ExecRequest, ProfileRequest
from iris.messages.port_forward import ForwardRequest
from iris.model import names


class OwnSessions(Interceptor):
    """Refuses a session (a command in a running task, a profile of it, or a forwarded port) whose
    request names another task than the id of the session's activity does.

    Temporal's servers with Iris's access control (`server/`) let only the owner of a task start an
    activity whose id begins with that task. They cannot check the request, which may be encrypted.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return _Checked(next, self._cluster)


class _Checked(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, cluster: str) -> None:
        super().__init__(next)
        self._cluster = cluster

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        for request in input.args:
            if isinstance(request, ExecRequest | ProfileRequest | ForwardRequest):
                self._check(request)
        return await super().execute_activity(input)

    def _check(self, request: ExecRequest | ProfileRequest | ForwardRequest) -> None:
        info = activity.info()
        task = names.task_id(request.job, request.index)
        own = names.session(self._cluster, task, info.activity_type, request.session)
        if info.activity_id != own:
            raise ApplicationError(
                f"the request is about task {task}, but its activity has the id {info.activity_id}",
                type=CANNOT,
                non_retryable=True,
            )
