"""Implements `ControllerProtocol` for a control plane on a Google Cloud VM.

Every operation can be repeated, because it finds the machine by name and labels. The uid in the
cluster's store identifies the cluster's resources, also without a control plane. Clients use a
tunnel, unless the configuration names an existing Temporal service.
"""

import asyncio
import time
import uuid
from datetime import timedelta
from typing import Any

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import (
    check_is_free,
    forget,
    read_record,
    write_config,
    write_record,
)
from iris.client.connect.controller_vm import record_of
from iris.client.connect.encryption import check_both_sides
from iris.client.connect.identity import cluster_uid, known_uid
from iris.client.connect.tunnel import check_gcloud, close_tunnel, of_tunnel, open_tunnel
from iris.client.fleet.slices import SliceRow
from iris.client.operate.controller import (
    REMOTE_ANSWER_TIMEOUT,
    ControllerStatus,
    Progress,
    StopPlan,
    answering_client,
    client_once_it_answers,
    delete_through,
    last_lines,
    no_progress,
    status_of,
    with_contents,
)
from iris.client.operate.delete_slices import delete_all
from iris.client.operate.gcp.dry_run import UNKNOWN, shown_requests
from iris.client.operate.gcp.wait_ready import until_it_answers
from iris.client.operate.platforms import create_platform, over_ssh
from iris.config import ClusterConfig, dump_config
from iris.model.errors import InvalidValue, IrisError, Rejected, Unreachable
from iris.model.slice.scale_groups import is_gcp_zone
from iris.platforms.base import SliceOps, Unavailable
from iris.platforms.gcp.controller_ops import RUNNING, ControllerMachine, SeenMachine
from iris.platforms.gcp.controller_vm import build_of, insert_request, made_with
from iris.platforms.gcp.diagnostics import FAILED, startup_lines
from iris.platforms.gcp.settings import GcpSettings, gcp_settings
from iris.processes.process import uninterrupted
from iris.storage.object_store import Store

#: How long Iris waits, after a control plane did not answer, before it sends the control plane
#: another request.
ASK_AGAIN_AFTER = timedelta(minutes=1)
#: How long slices may take to disappear: their tasks get their grace period, and Google takes
#: minutes to delete a TPU.
DELETE_TIMEOUT = timedelta(minutes=15)
#: How long a slice on a machine over SSH may take to disappear when the cluster is stopped. A
#: machine that is down may not answer for days; after this time, the command ends with an error.
MACHINE_TIMEOUT = timedelta(seconds=90)


class GcpController:
    """Implements `iris.client.operate.controller.ControllerProtocol` on Google Cloud.

    Args:
        text: the configuration as the user wrote it. The machine gets exactly this text.
    """

    def __init__(
        self, config: ClusterConfig, *, text: str | None = None, progress: Progress = no_progress
    ) -> None:
        gcp = config.controller.gcp
        if gcp is None or config.platform.gcp is None:
            raise InvalidValue(
                "controller",
                config.controller.kind,
                "is not on Google Cloud",
                "write controller: {gcp: {…}}",
            )
        self.name = config.name
        self.config = config
        self._gcp = gcp
        self._project = config.platform.gcp.project_id
        self._text = dump_config(config) if text is None else text
        self._progress = progress
        #: The time of the last request that the control plane did not answer, in seconds by
        #: `time.monotonic`, and the error; None if there was no such request.
        self._silent: tuple[float, str] | None = None

    # -- the protocol
    # ----------------------------------------------------------------------------------------------

    def start(self, *, new: bool = False) -> str:
        """Implements `ControllerProtocol.start`. Uses a machine that exists already, and keeps its
        configuration.

        Raises:
            Rejected: `new` is set and the cluster exists.
            InvalidValue: another cluster with this name is known here.
            Unreachable: this machine cannot reach the cluster or its store.
            PlatformError: Google refuses the machine.
            IrisError: the control plane did not come up; the message has the end of its console.
                Its machine is kept for inspection, unless `new` is set.
        """
        return asyncio.run(self._start_new() if new else self._start())

    def stop(self) -> None:
        """Implements `ControllerProtocol.stop`. Deletes the machine with its disk.

        The jobs are lost, unless the configuration names a Temporal service elsewhere.

        Raises:
            IrisError: some machines may still exist; call this method again.
        """
        asyncio.run(self._stop())

    def restart(self) -> str:
        """Implements `ControllerProtocol.restart`. Switches the machine off and on. It boots with
        this configuration and its images.

        Raises:
            Unreachable: there is no such machine.
            IrisError: the control plane did not come up again.
        """
        return asyncio.run(self._restart())

    def reload(self) -> str:
        """Implements `ControllerProtocol.reload`. The machine also uses this configuration at its
        next boot.

        Raises:
            Unreachable: the cluster does not run, or does not answer.
        """
        return asyncio.run(self._reload())

    def discover(self) -> str | None:
        """Implements `ControllerProtocol.discover`. The address is a port of this machine if the
        cluster needs a tunnel.
        """
        return asyncio.run(self._discover())

    def status(self) -> ControllerStatus:
        """Implements `ControllerProtocol.status`."""
        return asyncio.run(status_of(self.name, self._discover()))

    def fetch_startup_logs(self, tail_lines: int = 100) -> str | None:
        """Implements `ControllerProtocol.fetch_startup_logs`. Returns the end of the machine's
        serial console.
        """
        return asyncio.run(self._console(tail_lines))

    async def plan_stop(self) -> StopPlan:
        """Implements `ControllerProtocol.plan_stop`.

        Raises:
            Unreachable: this machine has no `gcloud` and cannot reach the control plane. A stop
                without a plan deletes the machines directly.
        """
        settings = await self._settings()
        seen = await self._find_for_stop(self._machine(settings))
        loses_jobs = self.config.controller.temporal is None
        plan = StopPlan(
            name=self.name, running=seen is not None, ephemeral=loses_jobs, elsewhere=True
        )
        if seen is not None:
            plan = plan.model_copy(update={"machine": f"{seen.name} in {seen.zone}"})
            self._write_record(seen)
            if seen.status == RUNNING:
                try:
                    self._check_reachable()
                except Unreachable as error:
                    remedy = f"iris cluster stop {self.name} --yes"
                    raise Unreachable(
                        f"{error}; to delete its machines without the control plane, run: {remedy}"
                    ) from None
            try:
                return await with_contents(plan, await self._client(seen))
            except Unreachable as error:
                plan = plan.model_copy(update={"silent": str(error)})
        listing = await slice_ops(self.config, settings).list_slices()
        ids = tuple(sorted(each.slice_id for each in listing.slices))
        return plan.model_copy(update={"slices": ids, "unreachable": listing.unreachable})

    # -- for other modules
    # ----------------------------------------------------------------------------------------------

    async def machines(self) -> SliceOps:
        """Returns the part of the platform that lists and deletes the cluster's slices."""
        return slice_ops(self.config, await self._settings())

    async def seen(self) -> SeenMachine | None:
        """Returns the control plane's machine, as Google reports it."""
        return await asyncio.to_thread(self._machine(await self._settings()).find)

    def requests(self) -> dict[str, Any]:
        """Returns the requests for the control plane's machine and for one slice of each group, as
        the JSON of Google's APIs.

        Sends nothing.

        Raises:
            PlatformError: Google would refuse a request.
        """
        return shown_requests(self.config, self._text)

    # -- private
    # ----------------------------------------------------------------------------------------------

    async def _start(self, *, keep: bool = True) -> str:
        """Creates the machine or uses the existing one, waits until the planners answer, and
        returns the address.

        Args:
            keep: whether the machine is kept if it does not come up. The error then says how to
                inspect it.
        """
        settings = await self._settings_for_start()
        machine = self._machine(settings)
        seen, before = await asyncio.to_thread(machine.find), 0
        if seen is None:
            request = insert_request(settings, self.config.controller, str(uuid.uuid4()))
            self._progress(f"creating machine {request.instance_resource.name} in {self._gcp.zone}")
            await uninterrupted(asyncio.to_thread(machine.create, request))
            seen = await asyncio.to_thread(machine.find)
            if seen is None:
                raise IrisError(
                    "the new machine no longer exists; find the reason in the audit log of the"
                    " Google Cloud project, and start the cluster again"
                )
        else:
            self._progress(f"found machine {seen.name} in {seen.zone} ({seen.status})")
            self._write_record(seen)
            if await self._has_failed(machine, seen):
                self._progress("its last setup failed; trying again with this configuration")
                seen, before = await self._reboot(settings, machine, seen)
            else:
                if seen.build != build_of(
                    insert_request(settings, self.config.controller, UNKNOWN)
                ):
                    remedy = f"iris cluster reload {self.name} --config FILE"
                    self._progress(
                        f"it has another configuration; to apply this one, run: {remedy}"
                    )
                self._report_fixed_settings(settings, seen)
            await asyncio.to_thread(machine.switch_on, seen)
        self._write_record(seen)
        return await until_it_answers(
            self.config, machine, seen, self._progress, reported=before, keep=keep
        )

    async def _start_new(self) -> str:
        seen = await asyncio.to_thread(self._machine(await self._settings_for_start()).find)
        if seen is not None:
            there = f"machine {seen.name} in {seen.zone} ({seen.status})"
            raise Rejected(
                f"cluster {self.name} exists already: {there}; stop it with: iris cluster stop"
                f" {self.name}"
            )
        try:
            return await self._start(keep=False)
        except BaseException:  # also after an interrupt
            self._progress("it did not come up; deleting it")
            await self._stop()
            raise

    async def _restart(self) -> str:
        self._check_name()
        self._check_reachable()
        check_both_sides(self.config.controller.payload_keys)
        settings = await self._settings()
        machine = self._machine(settings)
        seen, before = await self._reboot(settings, machine, await self._running(machine))
        self._write_record(seen)
        return await until_it_answers(self.config, machine, seen, self._progress, reported=before)

    async def _has_failed(self, machine: ControllerMachine, seen: SeenMachine) -> bool:
        """Returns whether the machine's setup has failed, and no earlier control plane answers on
        it.
        """
        lines = (
            startup_lines(await asyncio.to_thread(machine.console, seen))
            if seen.status == RUNNING
            else []
        )
        return (
            bool(lines)
            and lines[-1].startswith(FAILED)
            and await answering_client(self.name, REMOTE_ANSWER_TIMEOUT) is None
        )

    async def _reboot(
        self, settings: GcpSettings, machine: ControllerMachine, seen: SeenMachine
    ) -> tuple[SeenMachine, int]:
        """Boots the machine with this configuration and its images.

        Returns:
            The machine, and how many lines it has logged about earlier starts.
        """
        seen = await self._rebuilt(settings, machine, seen)
        before = len(startup_lines(await asyncio.to_thread(machine.console, seen)))
        self._progress(f"switching {seen.name} off and on")
        await asyncio.to_thread(
            machine.reset if seen.status == RUNNING else machine.switch_on, seen
        )
        return seen, before

    async def _rebuilt(
        self, settings: GcpSettings, machine: ControllerMachine, seen: SeenMachine
    ) -> SeenMachine:
        """Gives the machine this configuration. Reports the settings that an existing machine
        cannot change.
        """
        self._report_fixed_settings(settings, seen)
        await asyncio.to_thread(
            machine.rebuild, seen, insert_request(settings, self.config.controller, UNKNOWN)
        )
        return seen.model_copy(update={"config": self._text})

    def _report_fixed_settings(self, settings: GcpSettings, seen: SeenMachine) -> None:
        wanted = made_with(settings, self._gcp)
        stays = [
            f"{key} {was!r}, not {wanted[key]!r}"
            for key, was in seen.made_with.items()
            if wanted.get(key, was) != was
        ]
        if stays:
            self._progress(
                "its machine keeps these settings until the cluster is stopped and started:"
                f" {'; '.join(stays)}"
            )

    async def _reload(self) -> str:
        self._check_name()
        self._check_reachable()
        settings = await self._settings()
        machine = self._machine(settings)
        self._write_record(await self._rebuilt(settings, machine, await self._running(machine)))
        client = await AsyncIrisClient.connect(self.name)
        await client.cluster.reload(self.config)
        return client.record.address

    async def _stop(self) -> None:
        self._check_name()
        settings = await self._settings()
        machine = self._machine(settings)
        seen, all_deleted = await self._find_for_stop(machine), False
        if seen is not None:
            self._write_record(seen)
            try:
                all_deleted = await delete_through(
                    await self._client(seen), timeout_of, self._progress
                )
                if not all_deleted:
                    self._progress("deleting its machines directly")
            except Unreachable as error:
                self._progress(
                    f"the control plane of cluster {self.name} does not answer; deleting its"
                    f" machines directly ({error})"
                )
        else:
            self._progress(f"cluster {self.name} has no machine for its control plane")
        # The control plane goes first, because it would create new machines.
        await asyncio.to_thread(machine.delete)
        deleted = await delete_directly(
            self.config, settings, self._progress, machines=not all_deleted
        )
        if deleted:
            self._progress(f"deleted {', '.join(deleted)}")
        close_tunnel(self.name)
        record = read_record(self.name)
        if record is not None and record.remote:
            forget(self.name)

    async def _find_for_stop(self, machine: ControllerMachine) -> SeenMachine | None:
        """Returns the machine, or None if it was not found.

        A zone that does not answer may have the machine. The stop still deletes everything in the
        other zones, and the lists of slices name that zone.
        """
        try:
            return await asyncio.to_thread(machine.find)
        except Unavailable as error:
            self._progress(str(error))
            return None

    async def _client(self, seen: SeenMachine) -> AsyncIrisClient:
        """Returns a client of the control plane."""
        if seen.status != RUNNING:
            raise Unreachable(f"machine {seen.name} in {seen.zone} is {seen.status}")
        # One stop asks twice: for its plan, and again after the user has confirmed the plan.
        if (
            self._silent is not None
            and time.monotonic() - self._silent[0] < ASK_AGAIN_AFTER.total_seconds()
        ):
            raise Unreachable(self._silent[1])
        try:
            return await client_once_it_answers(self.name, REMOTE_ANSWER_TIMEOUT)
        except Unreachable as error:
            self._silent = time.monotonic(), str(error)
            raise

    async def _discover(self) -> str | None:
        settings = await self._settings()
        seen = await asyncio.to_thread(self._machine(settings).find)
        if seen is None or seen.status != RUNNING:
            return None
        self._write_record(seen)
        return (await asyncio.to_thread(open_tunnel, self.name)).address

    async def _console(self, lines: int) -> str | None:
        machine = self._machine(await self._settings())
        seen = await asyncio.to_thread(machine.find)
        if seen is None:
            return None
        return last_lines(await asyncio.to_thread(machine.console, seen), lines)

    async def _running(self, machine: ControllerMachine) -> SeenMachine:
        seen = await asyncio.to_thread(machine.find)
        if seen is None:
            raise Unreachable(
                f"cluster {self.name!r} does not run; start it with: iris cluster start --config"
                " FILE"
            )
        return seen

    async def _settings(self) -> GcpSettings:
        """Returns the settings that the cluster's machines need."""
        uid = await known_uid(Store(self.config.controller.bundle_prefix), self.name)
        return gcp_settings(self.config, uid, text=self._text)

    async def _settings_for_start(self) -> GcpSettings:
        """Returns the settings of a cluster that is being started. Creates its uid at the first
        start.
        """
        self._check_name()
        self._check_reachable()
        check_both_sides(self.config.controller.payload_keys)
        uid = await cluster_uid(Store(self.config.controller.bundle_prefix, create=True), self.name)
        return gcp_settings(self.config, uid, text=self._text)

    def _check_name(self) -> None:
        check_is_free(self.name, self._project, self.config.controller.bundle_prefix)

    def _check_reachable(self) -> None:
        if self.config.controller.temporal is None:
            check_gcloud(self.name, self._gcp.port)

    def _machine(self, settings: GcpSettings) -> ControllerMachine:
        return ControllerMachine(settings, self._gcp.zone, self._progress)

    def _write_record(self, seen: SeenMachine) -> None:
        """Writes the cluster's record and the machine's own configuration, which may differ from
        this one.

        Raises:
            InvalidValue: another cluster with this name is known here.
        """
        self._check_name()
        record, before = record_of(self.config, seen.name, seen.zone), read_record(self.name)
        if before is not None and before.vm == record.vm and before.vm is not None:
            record = record.model_copy(update=of_tunnel(before))
        if record != before:
            write_record(record)
        if seen.config:
            write_config(self.name, seen.config)


def timeout_of(row: SliceRow) -> timedelta:
    """Returns how long the slice may take to disappear."""
    return DELETE_TIMEOUT if is_gcp_zone(row.zone) else MACHINE_TIMEOUT


def slice_ops(config: ClusterConfig, settings: GcpSettings) -> SliceOps:
    """Returns the part of the platform that lists and deletes all of the cluster's slices."""
    return create_platform(config, settings=settings, over_ssh=over_ssh(config, settings.uid))


async def delete_directly(
    config: ClusterConfig, settings: GcpSettings, progress: Progress, *, machines: bool
) -> list[str]:
    """Deletes all slices without the control plane, and returns their ids.

    Args:
        machines: whether to give back the machines over SSH, too. This machine may not reach them,
            and the control plane may have given them back already.

    Raises:
        IrisError: some slices may still exist. All others are deleted.
    """
    parts = [delete_all(create_platform(config, settings=settings), DELETE_TIMEOUT, progress)]
    lab = over_ssh(config, settings.uid)
    if machines and lab is not None:
        parts.append(delete_all(create_platform(config, over_ssh=lab), MACHINE_TIMEOUT, progress))
    results = await asyncio.gather(*parts, return_exceptions=True)
    failures = [each for each in results if isinstance(each, BaseException)]
    for each in failures:
        if not isinstance(each, IrisError):
            raise each
    if failures:
        raise IrisError("\n".join(map(str, failures)))
    return sorted(slice_id for each in results if isinstance(each, list) for slice_id in each)
