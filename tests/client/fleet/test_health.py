"""What `iris debug health` finds wrong with a cluster whose service answers."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris.autoscaling.missing_hosts import MissingHost
from iris.client.client import AsyncIrisClient
from iris.client.operate.debugging import Check, Diagnostics
from iris.messages.autoscaler import AutoscalerStatus
from iris.model.errors import Unreachable
from tests.builders import at


async def health(polled: dict[str, str], status: AutoscalerStatus) -> dict[str, Check]:
    """Returns the checks by name.

    Args:
        polled: the queues that a process polls, and for what: workflows, activities or both.
    """

    async def pollers(queue: str, *, activities: bool = False) -> set[str]:
        return (
            {"1@controller"}
            if ("activities" if activities else "workflows") in polled.get(queue, "")
            else set()
        )

    async def answers() -> AutoscalerStatus:
        return status

    async def silent(*_: Any) -> Any:
        raise Unreachable("no answer")

    def no_calls() -> Any:
        raise Unreachable("no answer")

    client = SimpleNamespace(
        connection=SimpleNamespace(
            pollers=pollers, client=SimpleNamespace(namespace="default"), rpc_errors=no_calls
        ),
        record=SimpleNamespace(name="c"),
        autoscaler=SimpleNamespace(status=answers),
        cluster=SimpleNamespace(status=silent),
        hosts=SimpleNamespace(list=silent),
    )
    diagnostics = Diagnostics(cast(AsyncIrisClient, client))
    diagnostics._store = silent  # type: ignore[method-assign]
    return {each.name: each for each in await diagnostics.health()}


ALL = {"c/control": "workflows and activities", "c/planner": "workflows", "c/patient": "activities"}


@pytest.mark.parametrize("away", [None, *ALL])
async def test_each_queue_of_the_control_plane_must_be_polled(away: str | None) -> None:
    """Without the worker of the patient queue, jobs wait for ever whose scheduler was slow to
    answer once.
    """
    polled = {queue: kinds for queue, kinds in ALL.items() if queue != away}
    found = (await health(polled, AutoscalerStatus()))["control plane"]

    assert found.ok is (away is None)
    assert found.said == (
        "1 process(es) poll its task queues"
        if away is None
        else f"no process polls task queue {away}; see: iris debug logs"
    )


async def test_a_host_that_the_scheduler_lacks_fails_the_check_also_without_scale_groups() -> None:
    """Hosts that join by themselves belong to no group."""
    status = AutoscalerStatus(
        missing=(
            MissingHost(host_id="h1", incarnation="first", slice_id="s1", since=at(0), looks=2),
        )
    )
    found = (await health(ALL, status))["autoscaler"]

    assert not found.ok
    assert found.said.startswith("the scheduler does not have host h1 of slice s1")
    assert (await health(ALL, AutoscalerStatus()))["autoscaler"].ok
