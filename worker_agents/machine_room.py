"""The machine room of a local cluster: what the local platform has written down as wanted, it makes so.

It lives in the supervisor, the parent of all agents, and knows nothing but the directory: so it does not matter who asks, nor
whether a control plane runs. When it stops, its agents stop, and the wishes stay: like machines after a power cut they come back
with the next room.
"""

import asyncio
import contextlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import psutil
from pydantic import ValidationError

from iris.activities import leftovers
from iris.client.clusters import ProcessRef
from iris.files import write_whole
from iris.hosts import Host
from iris.machines import MachineState, SliceRequest
from iris.platforms.local import DELETE, LOCAL_ADDRESS, MACHINES, RoomReport, Unreadable, homes, read_request, reported
from iris.worker_agents.children import Child, Restarts

logger = logging.getLogger(__name__)

LOOK_EVERY = timedelta(seconds=0.1)
#: An agent gives its programs their grace (30 s by default) before it ends.
AGENT_STOP = timedelta(seconds=45)
#: Before a directory that could not be removed is tried again.
REMOVE_AGAIN = timedelta(seconds=5)
#: A directory that is being removed.
GOING = ".gone-"

Command = Callable[[SliceRequest, Host], list[str]]


class Machines(RoomReport):
    """What runs of a slice, for the platform and for the next room."""

    agents: dict[str, ProcessRef]


class MachineRoom:
    """Keeps the agents of all slices that a directory asks for."""

    def __init__(
        self,
        directory: Path,
        command: Command,
        logs: Path,
        *,
        restarts: Restarts | None = None,
        patience: timedelta = AGENT_STOP,
    ) -> None:
        """
        Args:
            directory: the local platform's.
            command: the command line of the agent that is this host of the slice.
            logs: where each agent has `<host id>.log`.
            patience: how long an agent may take to stop before it is killed.
        """
        self._dir = directory
        self._command = command
        self._logs = logs
        self._restarts = restarts or Restarts()
        self._patience = patience

    async def run(self, stop: asyncio.Event) -> None:
        """Do what the directory says until the stop; then stop all agents, and forget nothing."""
        self.clear()
        slices: dict[Path, _Slice] = {}
        async with asyncio.TaskGroup() as lives:
            try:
                while not stop.is_set():
                    self._look(slices, lives)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), LOOK_EVERY.total_seconds())
            finally:
                for each in slices.values():
                    each.end.set()

    def _look(self, slices: "dict[Path, _Slice]", lives: asyncio.TaskGroup) -> None:
        """Begin what is new, end what is not wanted any more, forget what has ended."""
        there = homes(self._dir)
        for home in there:
            if home not in slices:
                slices[home] = _Slice(home, self._command, self._logs, self._restarts, self._patience)
                slices[home].life = lives.create_task(slices[home].live())
        for home, each in list(slices.items()):
            if each.life is not None and each.life.done():
                del slices[home]
            elif home not in there or (home / DELETE).exists():
                each.end.set()

    def clear(self) -> None:
        """Kill what a room has left that was killed itself, and remove what was coming or going then."""
        self._dir.mkdir(parents=True, exist_ok=True)
        for path in self._dir.glob(".*"):
            shutil.rmtree(path, ignore_errors=True)
        left = [process for home in homes(self._dir) for process in _left_of(home)]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, leftovers.KILL_WAIT.total_seconds())


class _Slice:
    """The agents of one slice."""

    def __init__(self, home: Path, command: Command, logs: Path, restarts: Restarts, patience: timedelta) -> None:
        #: Somebody wants it deleted, or the room closes.
        self.end = asyncio.Event()
        self.life: asyncio.Task[None] | None = None
        self._home = home
        self._command = command
        self._logs = logs
        self._restarts = restarts
        self._patience = patience
        self._agents: dict[str, ProcessRef] = {}
        self._size = 0

    async def live(self) -> None:
        """Keep the agents until the end; then remove the directory, if that is what is wanted."""
        try:
            request = read_request(self._home)
        except FileNotFoundError:
            return
        except Unreadable as error:
            logger.warning("%s", error)
            await self.end.wait()
        else:
            if not (self._home / DELETE).exists():
                await self._keep(request)
        if (self._home / DELETE).exists():
            await self._remove()

    async def _keep(self, request: SliceRequest) -> None:
        self._size = request.group.hosts
        hosts = request.group.slice_hosts(request.slice_id, request.zone, address=LOCAL_ADDRESS)
        agents = [Child(host.id, self._command(request, host), self._logs / f"{host.id}.log") for host in hosts]
        try:
            async with asyncio.TaskGroup() as keepers:
                for agent in agents:
                    keepers.create_task(agent.keep(self.end, self._restarts, self._write))
        finally:
            await asyncio.gather(*(agent.stop(self._patience) for agent in agents))
            # A program that has left its process group does not outlive its machine either.
            await asyncio.to_thread(leftovers.kill_on, {host.id for host in hosts}, self._home)

    def _write(self, agent: Child) -> None:
        """Put down what runs. ACTIVE once every agent has been started: that one dies later is no news of the machines."""
        if agent.process is None or (ref := ProcessRef.of(agent.process.pid)) is None:
            return
        self._agents[agent.name] = ref
        try:
            complete = len(self._agents) == self._size or reported(self._home) is MachineState.ACTIVE
            state = MachineState.ACTIVE if complete else MachineState.CREATING
            write_whole(self._home / MACHINES, Machines(state=state, agents=self._agents).model_dump_json())
        except (OSError, Unreadable) as error:
            logger.warning("what runs of %s could not be written down: %s", self._home.name, error)

    async def _remove(self) -> None:
        """At one blow for whoever looks."""
        try:
            going = Path(tempfile.mkdtemp(prefix=GOING, dir=self._home.parent))
            self._home.rename(going / self._home.name)
            await asyncio.to_thread(shutil.rmtree, going, ignore_errors=True)
        except OSError as error:
            logger.warning("%s could not be removed, trying again: %s", self._home, error)
            await asyncio.sleep(REMOVE_AGAIN.total_seconds())


def _left_of(home: Path) -> Iterable[psutil.Process]:
    try:
        machines = Machines.model_validate_json((home / MACHINES).read_bytes())
    except (OSError, ValidationError):
        return
    for ref in machines.agents.values():
        if ref.alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                yield psutil.Process(ref.pid)
