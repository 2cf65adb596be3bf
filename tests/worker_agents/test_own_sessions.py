"""A session is beside the task in its id, whatever its request says."""

from dataclasses import replace
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from iris.messages.exec import CANNOT, EXEC_TASK, PROFILE_TASK, ExecRequest, ProfileRequest
from iris.messages.port_forward import FORWARD_PORTS, ForwardRequest
from iris.model import names
from iris.worker_agents.host.own_sessions import OwnSessions

RAN = "the activity ran"
REQUESTS: dict[str, Any] = {
    EXEC_TASK: ExecRequest(session="s", job="bob/train", index=0, argv=("id",)),
    PROFILE_TASK: ProfileRequest(session="s", job="bob/train", index=0),
    FORWARD_PORTS: ForwardRequest(session="s", job="bob/train", index=0, ports=("80",)),
}


class _Activity(ActivityInboundInterceptor):
    def __init__(self) -> None:
        pass

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return RAN


async def run(activity_type: str, activity_id: str, *arguments: object) -> str:
    """Runs an activity on a host of cluster `lab`."""
    inbound = OwnSessions("lab").intercept_activity(_Activity())
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info, activity_type=activity_type, activity_id=activity_id
    )
    call = ExecuteActivityInput(fn=run, args=arguments, executor=None, headers={})
    return await environment.run(inbound.execute_activity, call)


@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_session_is_beside_the_task_in_its_id(kind: str) -> None:
    """Temporal's servers let ada start only activities whose id begins with a task of hers."""
    request = REQUESTS[kind]
    own = names.session("lab", "bob/train:0", kind, "s")
    wrong = [
        names.session("lab", "ada/train:0", kind, "s"),
        names.session("lab", "bob/train:1", kind, "s"),
        names.session("other", "bob/train:0", kind, "s"),
        names.session("lab", "bob/train:0", kind, "t"),
        names.session("lab", "bob/train:0", "run_task", "s"),
        "1",
    ]

    assert await run(kind, own, request) == RAN
    for each in wrong:
        with pytest.raises(ApplicationError) as refused:
            await run(kind, each, request)
        assert refused.value.type == CANNOT


async def test_other_activities_are_not_sessions() -> None:
    """The ids of tasks and of pings say nothing about an owner."""
    assert await run("run_task", "1", "a task") == RAN
