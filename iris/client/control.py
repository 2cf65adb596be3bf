"""What a cluster's control plane is to whoever starts, stops and looks at it, wherever it runs."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from iris.client.scaling import FleetClient, SliceRow
from iris.client.tunnel import last_words
from iris.errors import Unreachable
from iris.workflows.messages import Snapshot, SnapshotPage

#: How long a control plane may take to say that it is there; without it machines are deleted directly.
ANSWER = timedelta(seconds=6)

Tell = Callable[[str], None]


def nobody(_: str) -> None:
    """Nobody wants to be told."""


class ControllerStatus(BaseModel):
    """A control plane, seen from outside."""

    model_config = ConfigDict(frozen=True)

    running: bool
    #: Whether it answers.
    healthy: bool = False
    #: `host:port` of its Temporal service; empty while it does not run.
    address: str = ""


class StopPlan(BaseModel):
    """What a stop would do."""

    model_config = ConfigDict(frozen=True)

    name: str
    running: bool
    #: Whether its jobs are forgotten with it.
    ephemeral: bool = False
    #: Whether the control plane answers, and so gives the slices back itself; else machines are deleted directly.
    answers: bool = False
    #: Why one elsewhere does not; empty: it does, or is not asked.
    silent: str = ""
    #: Jobs that have not ended.
    jobs: int = 0
    #: Slices that are given back, by id.
    slices: tuple[str, ...] = ()
    #: Zones that could not be looked at, and why: what is there is not known.
    unreachable: dict[str, str] = Field(default_factory=dict)
    #: Processes that are stopped.
    processes: tuple[int, ...] = ()
    #: Whether it is not on this machine.
    elsewhere: bool = False
    #: The machine that is deleted with all that is on its disk; empty: none.
    machine: str = ""


class ControllerProtocol(Protocol):
    """A cluster's control plane, wherever it runs. Nothing happens before one of these is called."""

    def start(self, *, new: bool = False) -> str:
        """Start it and wait until it serves; its address. One elsewhere that is there already is found.

        Args:
            new: one that is there already is refused, and nothing stays of one that does not come up.
        """
        ...

    def stop(self) -> None:
        """Give back everything the cluster has made, then stop it. What was begun is finished by the next stop."""
        ...

    async def plan_stop(self) -> StopPlan:
        """What a stop would do. Changes nothing."""
        ...

    def requests(self) -> dict[str, Any]:
        """What a platform would be asked for by the start and for a slice of each group, as its own JSON. Asks nobody."""
        ...

    def restart(self) -> str:
        """Another control plane in the place of this one; slices and jobs live on. Its address."""
        ...

    def reload(self) -> str:
        """Let the running cluster have this configuration; its address."""
        ...

    def discover(self) -> str | None:
        """The address of the running cluster; None: it does not run."""
        ...

    def status(self) -> ControllerStatus:
        """Whether it runs, and whether it answers."""
        ...

    def fetch_startup_logs(self, tail_lines: int = 100) -> str | None:
        """The end of what it has said; None: nothing."""
        ...


async def answering(cluster: str, patience: timedelta = ANSWER) -> FleetClient | None:
    """A client of the cluster, if both of its planners answer within some seconds."""
    with contextlib.suppress(Unreachable):
        return await answered(cluster, patience)
    return None


async def answered(cluster: str, patience: timedelta = ANSWER) -> FleetClient:
    """The same.

    Raises:
        Unreachable: they do not, and why.
    """
    try:
        async with asyncio.timeout(patience.total_seconds()):
            client = await FleetClient.connect(cluster)
            snapshot = client.ask_scheduler("snapshot", SnapshotPage(limit=0), Snapshot)
            await asyncio.gather(client.autoscaler(), snapshot)
            return client
    except TimeoutError:
        seconds = f"{patience.total_seconds():g} s"
        raise Unreachable(f"nobody answers for cluster {cluster} within {seconds}{last_words(cluster)}") from None


def last_lines(said: str, count: int) -> str:
    """The end of a text."""
    return "\n".join(said.splitlines()[-count:] if count else [])


async def give_back(client: FleetClient, patience: timedelta, tell: Tell) -> bool:
    """Let the cluster give back its slices, what runs on them having its grace; whether none is left."""

    def tell_left(rows: Sequence[SliceRow]) -> None:
        if rows:
            shown = ", ".join(f"{row.id} {row.state}" for row in rows[:5]) + (" …" if len(rows) > 5 else "")
            tell(f"giving back {len(rows)} slice(s): {shown}")

    with contextlib.suppress(Unreachable):
        left = await client.close_down("the cluster is being stopped", patience, tell_left)
        if left:
            tell(f"{len(left)} slice(s) are still there after {patience.seconds // 60} minutes")
        return not left
    return False
