"""Runs the agents of a local cluster's slices, as the requests of the local platform ask.

The requests are files in one directory, and this module knows nothing else, so it works without a
control plane. It runs in the supervisor, the parent of all agents. When the supervisor stops, its
agents stop and the requests stay: the next supervisor starts the agents again, like machines after
a power cut.
"""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import psutil
from pydantic import ValidationError

from iris.activities.host.runtimes.cleanup import leftover_processes, trees
from iris.activities.host.runtimes.process import job_users
from iris.client.connect.clusters import ProcessRef
from iris.concurrency import pause
from iris.model.host.hosts import Host
from iris.model.slice.provisioning import MachineState, SliceRequest
from iris.platforms.local import (
    DELETE,
    HOSTS,
    MACHINES,
    MachineReport,
    Unreadable,
    homes,
    read_request,
    reported,
    simulated_hosts,
)
from iris.processes.children import RESTARTS, Child, Restarts
from iris.storage.files import write_whole

logger = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=0.1)
#: The time limit for the end of an agent, which first gives its programs their grace period (30 s
#: by default) to stop.
AGENT_STOP_TIMEOUT = timedelta(seconds=45)
#: The delay before another try to remove a directory.
REMOVE_RETRY_DELAY = timedelta(seconds=5)
#: The beginning of the name of a directory that is being removed.
REMOVED_PREFIX = ".gone-"

Command = Callable[[SliceRequest, Host], list[str]]
#: A function that returns the command line of one process for all hosts of a slice, or None if each
#: host has a process of its own.
SliceCommand = Callable[[SliceRequest], list[str] | None]


class LocalMachines(MachineReport):
    """The record of a slice's running agents. The local platform reads it, and so does the
    supervisor that replaces one that was killed.
    """

    #: The process of each agent, by host id. If all agents share one process, it is recorded by
    #: slice id.
    agents: dict[str, ProcessRef]


class MachineSupervisor:
    """Starts and stops the agents of all slices that the files in a directory request."""

    def __init__(
        self,
        directory: Path,
        command: Command,
        logs: Path,
        *,
        restarts: Restarts = RESTARTS,
        patience: timedelta = AGENT_STOP_TIMEOUT,
        umask: int = -1,
        slice_command: SliceCommand = lambda _: None,
    ) -> None:
        """Creates the manager of one directory.

        Args:
            directory: the local platform's directory.
            command: returns the command line of the agent for this host of the slice.
            logs: the directory in which each agent has `<host id>.log`.
            patience: the time that an agent has to stop before it is killed.
            umask: the umask of the agents' programs; -1: this process's.
            slice_command: for slices whose hosts share a process, which has `<slice id>.log`.
        """
        self._dir = directory
        self._command = command
        self._slice_command = slice_command
        self._logs = logs
        self._restarts = restarts
        self._patience = patience
        self._umask = umask

    async def run(self, stop: asyncio.Event) -> None:
        """Runs the requested agents until the stop. Then stops all agents and keeps the
        requests.
        """
        self.clear()
        slices: dict[Path, _Slice] = {}
        async with asyncio.TaskGroup() as runs:
            try:
                while not stop.is_set():
                    self._reconcile(slices, runs)
                    await pause(stop, POLL_INTERVAL)
            finally:
                for each in slices.values():
                    each.end.set()

    def _reconcile(self, slices: "dict[Path, _Slice]", runs: asyncio.TaskGroup) -> None:
        """Starts requested slices, ends slices that are to be deleted, and forgets slices that have
        ended.
        """
        requested = homes(self._dir)
        for home in requested:
            if home not in slices:
                slices[home] = _Slice(home, self._children, self._restarts, self._patience)
                slices[home].task = runs.create_task(slices[home].run())
        for home, each in list(slices.items()):
            if each.task is not None and each.task.done():
                del slices[home]
            elif home not in requested or (home / DELETE).exists():
                each.end.set()

    def _children(self, request: SliceRequest) -> list[Child]:
        """Returns the processes of a slice: one for each host, or one for all of them."""
        hosts = simulated_hosts(request)
        together = self._slice_command(request)
        if together is None:
            return [
                Child(host.id, self._command(request, host), self._log(host.id), umask=self._umask)
                for host in hosts
            ]
        self._logs.mkdir(parents=True, exist_ok=True)
        for host in hosts:
            with contextlib.suppress(FileExistsError):
                # Each host's log is found by its name.
                self._log(host.id).symlink_to(self._log(request.slice_id).name)
        return [Child(request.slice_id, together, self._log(request.slice_id), umask=self._umask)]

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def clear(self) -> None:
        """Kills the agents that a killed supervisor left behind, and removes the directories that
        it was creating or removing.
        """
        self._dir.mkdir(parents=True, exist_ok=True)
        for path in self._dir.glob(".*"):
            trees.remove(path)
        left = [process for home in homes(self._dir) for process in _leftover_agents(home)]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, leftover_processes.KILL_WAIT.total_seconds())


class _Slice:
    """Runs the agents of one slice."""

    def __init__(
        self,
        home: Path,
        children: Callable[[SliceRequest], list[Child]],
        restarts: Restarts,
        patience: timedelta,
    ) -> None:
        #: Set when the slice has to be deleted, or when the supervisor stops.
        self.end = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._home = home
        self._children = children
        self._restarts = restarts
        self._patience = patience
        self._agents: dict[str, ProcessRef] = {}
        self._size = 0

    async def run(self) -> None:
        """Keeps the agents running until the end. Then removes the directory, if the slice has to
        be deleted. No program of its hosts runs any more then.
        """
        try:
            request = read_request(self._home)
        except FileNotFoundError:
            return
        except Unreadable as error:
            logger.warning("%s", error)
            await self.end.wait()
            await self._kill_programs({home.name for home in (self._home / HOSTS).glob("*")})
        else:
            try:
                if not (self._home / DELETE).exists():
                    await self._keep(request)
            finally:
                await self._kill_programs({host.id for host in simulated_hosts(request)})
        if (self._home / DELETE).exists():
            await self._remove()

    async def _kill_programs(self, hosts: set[str]) -> None:
        """Kills what runs on these hosts, for example a program that left its process group, or one
        that an earlier supervisor has left. It must not outlive its machine.
        """
        await asyncio.to_thread(leftover_processes.kill_on, hosts, self._home)

    async def _keep(self, request: SliceRequest) -> None:
        agents = self._children(request)
        self._size = len(agents)
        try:
            async with asyncio.TaskGroup() as keepers:
                for agent in agents:
                    keepers.create_task(agent.keep(self.end, self._write, restarts=self._restarts))
        finally:
            await asyncio.gather(*(agent.stop(self._patience) for agent in agents))

    def _write(self, agent: Child) -> None:
        """Records the running agents. The slice is ACTIVE once every agent was started, and stays
        so if an agent dies later.
        """
        if agent.process is None or (ref := ProcessRef.of(agent.process.pid)) is None:
            return
        self._agents[agent.name] = ref
        try:
            complete = (
                len(self._agents) == self._size or reported(self._home) is MachineState.ACTIVE
            )
            state = MachineState.ACTIVE if complete else MachineState.CREATING
            write_whole(
                self._home / MACHINES,
                LocalMachines(state=state, agents=self._agents).model_dump_json(),
            )
        except (OSError, Unreadable) as error:
            logger.warning(
                "the agents of slice %s could not be recorded: %s", self._home.name, error
            )

    async def _remove(self) -> None:
        """Removes the slice's directory. The rename makes it disappear at once for readers."""
        try:
            for attempt in self._home.glob("hosts/*/attempts/*"):
                await asyncio.to_thread(job_users.remove_files, attempt)
            removed = Path(tempfile.mkdtemp(prefix=REMOVED_PREFIX, dir=self._home.parent))
            self._home.rename(removed / self._home.name)
            await asyncio.to_thread(trees.remove, removed)
        except OSError as error:
            logger.warning("%s could not be deleted, trying again: %s", self._home, error)
            await asyncio.sleep(REMOVE_RETRY_DELAY.total_seconds())


def _leftover_agents(home: Path) -> Iterable[psutil.Process]:
    try:
        machines = LocalMachines.model_validate_json((home / MACHINES).read_bytes())
    except (OSError, ValidationError):
        return
    for ref in machines.agents.values():
        if ref.alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                yield psutil.Process(ref.pid)
