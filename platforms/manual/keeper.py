"""Turns leased machines into hosts: installs the agent, opens the tunnel, and starts the agent
whenever it does not run.

Each machine has a task of its own, so a machine that hangs delays no other. The task does what it
finds undone on the machine, so the same steps continue after a restart of the control plane, of the
agent or of the machine.
"""

import asyncio
import base64
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import asyncssh

from iris.model.slice.provisioning import SliceRequest
from iris.platforms.manual.connections import Connections, MachineFault, UnusableMachine
from iris.platforms.manual.leases import Fault, HostState, agent_command, encoded, script, state_of
from iris.platforms.manual.runtime import MACHINE, PYTHON, Runtime
from iris.platforms.manual.settings import HostAccess, ManualSettings

logger = logging.getLogger(__name__)

#: The time limit within which the control plane must pack the agent's packages, also on a slow
#: disk.
PACK_LIMIT = timedelta(minutes=2)
#: The time limit for sending the packages over a slow connection.
UPLOAD_LIMIT = timedelta(minutes=5)
#: The time limit for unpacking the agent's packages on a machine. It allows for a slow disk.
INSTALL_LIMIT = timedelta(minutes=3)
COMMAND_LIMIT = timedelta(seconds=15)
#: The time limit for the start of an agent. The new agent may have to wait for the end of an
#: earlier one.
START_LIMIT = timedelta(seconds=30)
#: The maximum number of machines on which the agent is installed at the same time. Each machine
#: needs its own upload.
MAX_INSTALLING = 8
#: The longest pause between two visits of a machine with a fault. Each visit tries again to start
#: the agent.
MAX_DELAY = timedelta(minutes=1)
#: The number of an agent's starts, and the period in which they count. An agent that was started
#: this often in the period and does not run has a fault.
MAX_STARTS, STARTS_COUNT = 3, timedelta(minutes=2)
#: The number of characters from the end of an agent's output that the reason of a failed start
#: shows.
SHOWN = 300
#: The time for which a machine on which a slice could not start gets no other slice.
AVOIDED = timedelta(minutes=5)


class HostKeeper:
    """Installs and starts the agents on the machines of one cluster's slices.

    Args:
        pack: makes the packages that machines get. It blocks.
        payload_keys: the content of the file with the keys with which the cluster encrypts
            payloads; empty if the cluster does not encrypt them.
        secret_keys: returns the present content of the file with the keys that open users' secrets;
            empty if there is no such file.
        message_key: the content of the file with the key that authenticates the cluster's messages;
            empty if nothing authenticates them.
        command: returns the command line of the agent on a machine. Its arguments are those of
            `iris.platforms.manual.leases.agent_command`.
    """

    def __init__(
        self,
        settings: ManualSettings,
        connections: Connections,
        pack: Callable[[], Runtime],
        payload_keys: str = "",
        *,
        secret_keys: Callable[[], str] = lambda: "",
        message_key: str = "",
        command: Callable[[ManualSettings, HostAccess, SliceRequest, str], str] = agent_command,
    ) -> None:
        self.settings = settings
        self._connections = connections
        self._pack = pack
        self._payload_keys = payload_keys
        self._secret_keys = secret_keys
        self._message_key = message_key
        self._command = command
        self._packed: asyncio.Future[Runtime] | None = None
        #: The lock of an agent's restart with new packages. Only one agent restarts at a time, so
        #: that the other hosts can take tasks.
        self._upgrading = asyncio.Lock()
        self._installing = asyncio.Semaphore(MAX_INSTALLING)
        self._wanted: dict[HostAccess, SliceRequest] = {}
        self._tasks: dict[HostAccess, asyncio.Task[None]] = {}
        self._tunnels: dict[
            HostAccess, tuple[asyncssh.SSHClientConnection, asyncssh.SSHListener]
        ] = {}
        self._starts: dict[str, list[float]] = {}
        self._faults: dict[str, Fault] = {}
        self._avoided: dict[HostAccess, tuple[float, str]] = {}
        self._serving = False

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves the machines that the platform names, for as long as the block lasts. Agents and
        programs continue afterwards.
        """
        self._serving = True
        for host, request in self._wanted.items():
            self.attend(host, request)
        try:
            yield
        finally:
            self._serving = False
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._tasks.clear()

    def reconfigure(self, settings: ManualSettings) -> None:
        """Uses another configuration of the cluster from now on. Machines that it does not list are
        not visited any more.
        """
        self.settings = settings
        for host in self._wanted.keys() - set(settings.all_hosts):
            del self._wanted[host]
            self._tunnels.pop(host, None)  # it ends with its connection
            if (task := self._tasks.pop(host, None)) is not None:
                task.cancel()
        self._connections.reconfigure(settings)

    def attend(self, host: HostAccess, request: SliceRequest) -> None:
        """Begins to keep the machine for this slice, unless it is kept already."""
        self._wanted[host] = request
        task = self._tasks.get(host)
        if self._serving and (task is None or task.done()):
            self._tasks[host] = asyncio.create_task(self._keep(host))

    def fault_of(self, slice_id: str) -> Fault | None:
        """Returns why the slice does not start; None if no fault is known."""
        return self._faults.get(slice_id)

    def avoid(self, host: HostAccess) -> str:
        """Returns why the machine should get no slice now; empty if it may get one."""
        since, reason = self._avoided.get(host, (0.0, ""))
        if reason and time.monotonic() - since > AVOIDED.total_seconds():
            del self._avoided[host]
            return ""
        return reason

    # -- private
    # ----------------------------------------------------------------------------------------------

    async def _keep(self, host: HostAccess) -> None:
        """Visits the machine until its slice is gone. Then closes the tunnel, because the next
        slice may belong to another cluster.
        """
        delay = self.settings.poll_interval
        while True:
            slice_id = self._wanted[host].slice_id
            try:
                if not await self._visit(host):
                    del self._wanted[host]
                    self._starts.pop(slice_id, None)
                    self._faults.pop(slice_id, None)
                    if (tunnel := self._tunnels.pop(host, None)) is not None:
                        tunnel[1].close()
                    return
                self._faults.pop(slice_id, None)
                delay = self.settings.poll_interval
            except MachineFault as error:
                logger.warning("slice %s: %s", slice_id, error)
                final = isinstance(error, UnusableMachine)
                self._faults[slice_id] = Fault(str(error), final)
                if final:
                    self._avoided[host] = (time.monotonic(), str(error).removeprefix(f"{host}: "))
                delay = min(2 * delay, MAX_DELAY)
            except Exception as error:  # a fault in the keeper must not leave a machine without one
                logger.exception("slice %s: machine %s cannot be kept", slice_id, host)
                self._faults[slice_id] = Fault(f"{host}: cannot be kept: {error!r}", final=False)
                delay = min(2 * delay, MAX_DELAY)
            await asyncio.sleep(delay.total_seconds())

    async def _visit(self, host: HostAccess) -> bool:
        """Installs and starts what the machine lacks. Returns False if it has no slice of this
        cluster.
        """
        state = await self._ask(host, "look", what="reading the lease")
        if state.lease is None or state.lease.uid != self.settings.uid:
            return False
        self._wanted[host] = state.lease.request
        if state.deleting:
            self._starts.pop(state.lease.request.slice_id, None)
            return True  # its agent ends, and needs the tunnel for its last reports
        if not state.runtime:
            state = await self._install(host, await self._packages(host))
            if not state.runtime:
                return True  # deleted meanwhile: the next visit sees whether it is gone
        await self._serve(host, state)
        await self._upgrade(host, state)
        return True

    async def _serve(self, host: HostAccess, state: HostState) -> None:
        """Opens the tunnel and starts the agent, unless they are there."""
        request = self._wanted[host]
        port, secret_keys = await self._tunnel(host, state.port), self._secret_keys()
        keys = self._payload_keys + secret_keys + self._message_key
        digest = hashlib.sha256(keys.encode()).hexdigest() if keys else ""
        if not state.running or (port, digest) != (state.port, state.keys):
            if not state.running:
                await self._check_starts(host, request.slice_id)
            command = self._command(self.settings, host, request, f"127.0.0.1:{port}")
            given = {
                "CONFIG": encoded(self.settings.config),
                "PAYLOAD_KEYS": encoded(self._payload_keys),
                "SECRET_KEYS": encoded(secret_keys),
                "MESSAGE_KEY": encoded(self._message_key),
            }
            await self._ask(
                host,
                "start",
                limit=START_LIMIT,
                what="starting the agent",
                AGENT=command,
                PORT=str(port),
                **given,
            )
            logger.info(
                "slice %s: the agent on %s %s",
                request.slice_id,
                host,
                "starts again" if state.started else "starts",
            )

    async def _upgrade(self, host: HostAccess, state: HostState) -> None:
        """Restarts the agent with the packages of this process, if it has other ones. Its programs
        continue.
        """
        runtime = self._begin_packing()
        if not runtime.done() or runtime.exception() is not None or self._upgrading.locked():
            return  # the next visit tries again
        if runtime.result().digest != state.runtime:
            async with self._upgrading:
                logger.info("slice %s: %s gets other packages", self._wanted[host].slice_id, host)
                state = await self._install(host, runtime.result())
                if state.runtime:
                    await self._serve(host, state)

    async def _check_starts(self, host: HostAccess, slice_id: str) -> None:
        """Counts one more start of the slice's agent.

        Raises:
            UnusableMachine: the agent ended after each of the last starts.
        """
        now = time.monotonic()
        recent = [
            each
            for each in self._starts.get(slice_id, ())
            if now - each < STARTS_COUNT.total_seconds()
        ]
        if len(recent) >= MAX_STARTS:
            asked, what = script(self.settings, "output", SLICE=slice_id), "reading the agent's log"
            answer = await self._connections.script(host, asked, limit=COMMAND_LIMIT, what=what)
            output = base64.b64decode(answer.get("output", "")).decode(errors="replace").strip()
            raise UnusableMachine(
                f"{host}: the agent ended after each of {len(recent)} starts:"
                f" {output[-SHOWN:] or 'no output'}"
            )
        self._starts[slice_id] = [*recent, now]

    def _begin_packing(self, *, again: bool = False) -> asyncio.Future[Runtime]:
        """Returns the packages of this process, which are packed once.

        Args:
            again: whether to pack them again if that has failed.
        """
        if self._packed is None or (
            again and self._packed.done() and self._packed.exception() is not None
        ):
            self._packed = asyncio.ensure_future(asyncio.to_thread(self._pack))
        return self._packed

    async def _packages(self, host: HostAccess) -> Runtime:
        """Waits for the packages of this process.

        Raises:
            MachineFault: there are none.
        """
        what = f"{host}: the control plane"
        try:
            async with asyncio.timeout(PACK_LIMIT.total_seconds()):
                return await asyncio.shield(self._begin_packing(again=True))
        except TimeoutError:
            raise MachineFault(
                f"{what} did not pack the agent's packages within {PACK_LIMIT.total_seconds():g} s"
            ) from None
        except OSError as error:
            raise MachineFault(f"{what} could not pack the agent's packages: {error}") from None

    async def _install(self, host: HostAccess, runtime: Runtime) -> HostState:
        """Sends the packages to the machine. Returns the machine's state, without packages if its
        slice was deleted in the meantime.
        """
        space = str(runtime.space)
        what = "checking the machine"
        state = await self._ask(
            host, "check", what=what, MACHINE=MACHINE, PYTHON=PYTHON, SPACE=space
        )
        if state.lease is None or state.deleting:
            return state
        async with self._installing:
            place = f'"$HOME/{self.settings.directory}/$(uname -n)/runtime.tgz"'
            upload = f"exec sh -c 'umask 077; exec cat > {place}'"
            await self._connections.run(
                host, upload, runtime.file, limit=UPLOAD_LIMIT, what="sending the agent's packages"
            )
            digest, what = runtime.digest, "installing the agent"
            return await self._ask(
                host, "install", limit=INSTALL_LIMIT, what=what, DIGEST=digest, PYTHON=PYTHON
            )

    async def _tunnel(self, host: HostAccess, port: int) -> int:
        """Opens the tunnel from the machine to the Temporal service, unless it is open. Returns its
        port on the machine.

        Args:
            port: the port that it had before; 0: any.
        """
        target, _, target_port = self.settings.address.rpartition(":")
        async with self._connections.to(host) as connection:
            known = self._tunnels.get(host)
            if known is not None and known[0] is connection and not connection.is_closed():
                return known[1].get_port()
            for wanted in dict.fromkeys((port, 0)):
                try:
                    async with asyncio.timeout(COMMAND_LIMIT.total_seconds()):
                        listener = await connection.forward_remote_port(
                            "127.0.0.1", wanted, target, int(target_port)
                        )
                except asyncssh.ChannelListenError:
                    # the port is in use: another program took it, or the machine still has the last
                    # connection
                    continue
                except TimeoutError:
                    raise MachineFault(
                        f"{host}: sshd did not open the tunnel to the control plane within"
                        f" {COMMAND_LIMIT.total_seconds():g} s"
                    ) from None
                self._tunnels[host] = (connection, listener)
                return listener.get_port()
        raise UnusableMachine(
            f"{host}: its sshd allows no tunnels; set AllowTcpForwarding yes in sshd_config there"
        )

    async def _ask(
        self,
        host: HostAccess,
        call: str,
        *,
        what: str,
        limit: timedelta = COMMAND_LIMIT,
        **values: str,
    ) -> HostState:
        return state_of(
            await self._connections.script(
                host, script(self.settings, call, **values), limit=limit, what=what
            )
        )
