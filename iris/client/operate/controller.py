"""The interface of a cluster's control plane on any platform. It starts, stops and inspects the
cluster.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from pydantic import Field

from iris.client.client import AsyncIrisClient
from iris.client.connect.tunnel import last_output
from iris.client.fleet.slices import SliceRow
from iris.model.errors import Unreachable
from iris.model.frozen import Frozen

#: How long Iris waits for a control plane to answer, unless the caller sets another time. If the
#: control plane does not answer when the cluster is stopped, Iris deletes the machines directly.
ANSWER_TIMEOUT = timedelta(seconds=6)
#: How long a control plane on another machine may take to answer. The tunnel to it may have to open
#: first.
REMOTE_ANSWER_TIMEOUT = timedelta(seconds=30)

#: Receives progress messages of long operations.
Progress = Callable[[str], None]


def no_progress(_: str) -> None:
    """Discards progress messages."""


class ControllerStatus(Frozen):
    """A control plane's state, as this machine sees it."""

    running: bool
    #: Whether the control plane answers.
    healthy: bool = False
    #: The address of the control plane's Temporal service, `host:port`; empty while the control
    #: plane does not run.
    address: str = ""


class StopPlan(Frozen):
    """The processes, slices and machines that are ended or deleted if a cluster is stopped."""

    name: str
    running: bool
    #: Whether stopping the cluster also deletes its jobs.
    ephemeral: bool = False
    #: True if the control plane answers: it then deletes the slices itself when the cluster is
    #: stopped. If False, Iris deletes the machines directly.
    answers: bool = False
    #: The reason why a control plane on another machine does not answer. Empty if it answers, or if
    #: Iris did not send it a request.
    silent: str = ""
    #: The number of jobs that have not ended.
    jobs: int = 0
    #: The ids of the slices that are deleted when the cluster stops.
    slices: tuple[str, ...] = ()
    #: The zones that could not be listed, with the error for each. Their slices and machines are
    #: unknown.
    unreachable: dict[str, str] = Field(default_factory=dict)
    #: The pids of the processes that are ended when the cluster is stopped.
    processes: tuple[int, ...] = ()
    #: True if the cluster does not run on this machine.
    elsewhere: bool = False
    #: The name of the machine that is deleted together with its disk when the cluster is stopped;
    #: empty if there is none.
    machine: str = ""


class ControllerProtocol(Protocol):
    """Operates a cluster's control plane on any platform. The constructor changes nothing."""

    def start(self, *, new: bool = False) -> str:
        """Starts the control plane, waits until it serves, and returns its address. Uses a control
        plane on another machine that exists already.

        Args:
            new: whether to refuse a control plane that exists already, and to remove a new one that
                does not come up.
        """
        ...

    def stop(self) -> None:
        """Deletes everything that the cluster has created, then stops it. The next stop completes
        an interrupted one.
        """
        ...

    async def plan_stop(self) -> StopPlan:
        """Lists the effects of a stop. Changes nothing."""
        ...

    def requests(self) -> dict[str, Any]:
        """Returns the platform requests of a start and of one slice per group, as the platform's
        JSON. Sends nothing.
        """
        ...

    def restart(self) -> str:
        """Replaces the control plane and returns its address. Slices and jobs continue."""
        ...

    def reload(self) -> str:
        """Applies this configuration to the running cluster and returns its address."""
        ...

    def discover(self) -> str | None:
        """Returns the address of the running cluster; None if it does not run."""
        ...

    def status(self) -> ControllerStatus:
        """Returns whether the control plane runs, and whether it answers."""
        ...

    def fetch_startup_logs(self, tail_lines: int = 100) -> str | None:
        """Returns the end of the control plane's log; None if there is no log."""
        ...


@runtime_checkable
class GivesUpMachines(Protocol):
    """A controller that can mark machines as lost for ever. Only the controller of machines over
    SSH can do this.
    """

    def give_up(self, machines: Collection[str]) -> None:
        """Marks machines as lost for ever: the next stop counts their slices as gone."""
        ...


async def answering_client(
    cluster: str, timeout: timedelta = ANSWER_TIMEOUT
) -> AsyncIrisClient | None:
    """Returns a client of the cluster if its scheduler and its autoscaler answer in time; None
    otherwise.
    """
    with contextlib.suppress(Unreachable):
        return await client_once_it_answers(cluster, timeout)
    return None


async def client_once_it_answers(
    cluster: str, timeout: timedelta = ANSWER_TIMEOUT
) -> AsyncIrisClient:
    """Returns a client of the cluster once its scheduler and its autoscaler have answered.

    Raises:
        Unreachable: the planners do not answer in time; the error has the reason.
    """
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            client = await AsyncIrisClient.connect(cluster)
            await asyncio.gather(client.autoscaler.status(), client.cluster.status())
            return client
    except TimeoutError:
        seconds = f"{timeout.total_seconds():g} s"
        raise Unreachable(
            f"the control plane of cluster {cluster} did not answer within"
            f" {seconds}{last_output(cluster)}"
        ) from None


def last_lines(text: str, count: int) -> str:
    """Returns the last lines of a text."""
    return "\n".join(text.splitlines()[-count:] if count else [])


async def status_of(name: str, discovered: Awaitable[str | None]) -> ControllerStatus:
    """Returns the status of a controller on another machine.

    Args:
        discovered: the address of its service; None if it does not run.
    """
    if (address := await discovered) is None:
        return ControllerStatus(running=False)
    healthy = await answering_client(name, REMOTE_ANSWER_TIMEOUT) is not None
    return ControllerStatus(running=True, healthy=healthy, address=address)


async def with_contents(plan: StopPlan, client: AsyncIrisClient) -> StopPlan:
    """Adds the control plane's own facts to the plan: the slices that it made, and the number of
    jobs that have not ended.
    """
    slices = tuple(row.id for row in await client.slices.list() if row.made)
    jobs = await client.jobs.count()
    return plan.model_copy(update={"answers": True, "jobs": jobs, "slices": slices})


async def delete_through(
    client: AsyncIrisClient, timeout: Callable[[SliceRow], timedelta], progress: Progress
) -> bool:
    """Lets the control plane delete the cluster's slices, after the grace period of their tasks.
    Returns whether all slices are gone.

    Args:
        timeout: a function that returns how long to wait for a slice.
    """

    def report(rows: Sequence[SliceRow]) -> None:
        if rows:
            shown = ", ".join(f"{row.id} {row.state}" for row in rows[:5]) + (
                " …" if len(rows) > 5 else ""
            )
            progress(f"deleting {len(rows)} slice(s): {shown}")

    with contextlib.suppress(Unreachable):
        left = await client.slices.delete_all("the cluster is being stopped", timeout, report)
        if left:
            progress(f"{len(left)} slice(s) still exist: {', '.join(row.id for row in left)}")
        return not left
    return False
