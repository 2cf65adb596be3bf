"""A control plane on a virtual machine of Google Cloud.

Everything that it does can be said again: the machine is found by its name and its labels, and what belongs to the cluster is
known by the uid that lies in its store, also when nobody answers any more. The cluster is used through a tunnel
(`iris.client.tunnel`), unless its Temporal service is one that is there anyway.
"""

import asyncio
import time
import uuid
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from iris.client.closing import delete_all
from iris.client.clusters import check_is_free, forget, read_record, write_config, write_record
from iris.client.coming_up import until_it_answers
from iris.client.control import ControllerStatus, StopPlan, Tell, answered, answering, give_back, last_lines, nobody
from iris.client.dry_run import UNKNOWN, shown_requests
from iris.client.identity import cluster_uid, known_uid
from iris.client.machine import record_of
from iris.client.scaling import FleetClient
from iris.client.tunnel import check_gcloud, close_tunnel, open_tunnel
from iris.config import ClusterConfig, dump_config
from iris.errors import InvalidValue, IrisError, Rejected, Unreachable
from iris.platforms.base import SliceOps, Unavailable
from iris.platforms.factory import create_platform
from iris.platforms.gcp.controller_ops import RUNNING, ControllerMachine, SeenMachine
from iris.platforms.gcp.controller_vm import build_of, insert_request, made_with
from iris.platforms.gcp.settings import GcpSettings, gcp_settings
from iris.platforms.gcp.words import FAILED, marked
from iris.store import Store

#: A tunnel has to be opened first.
ANSWER = timedelta(seconds=30)
#: One that has just not answered is not asked again for so long.
STILL_SILENT = timedelta(minutes=1)
#: How long slices may take to go: what runs on them has its grace, and Google minutes to delete a TPU.
CLOSE_DOWN = timedelta(minutes=15)
DELETE = timedelta(minutes=15)


class GcpController:
    """See `iris.client.control.ControllerProtocol`.

    Args:
        text: the configuration as it was written; the machine gets exactly that.
    """

    def __init__(self, config: ClusterConfig, *, text: str | None = None, tell: Tell = nobody) -> None:
        gcp = config.controller.gcp
        if gcp is None or config.platform.gcp is None:
            raise InvalidValue("controller", config.controller.kind, "is not on Google Cloud", "write controller: {gcp: {…}}")
        self.name = config.name
        self.config = config
        self._gcp = gcp
        self._project = config.platform.gcp.project_id
        self._text = dump_config(config) if text is None else text
        self._tell = tell
        #: When it last did not answer, and why.
        self._silent: tuple[float, str] | None = None

    # -- the protocol --------------------------------------------------------------------------------------------------------

    def start(self, *, new: bool = False) -> str:
        """See `ControllerProtocol`. One that runs is found, and keeps the configuration that it has.

        Raises:
            Rejected: it is to be new, and is there; or its name is another cluster's here.
            Unreachable: it could not be reached from here, or its store cannot.
            PlatformError: Google refuses the machine.
            IrisError: it did not come up; the message has the end of its console. Its machine stays, for a look at it, unless
                it was to be new.
        """
        return asyncio.run(self._start_new() if new else self._start())

    def stop(self) -> None:
        """See `ControllerProtocol`. The machine is deleted with its disk: without a Temporal service elsewhere the jobs are
        forgotten.

        Raises:
            IrisError: something may still be there; say the same again.
        """
        asyncio.run(self._stop())

    def restart(self) -> str:
        """See `ControllerProtocol`. The machine is switched off and on, and boots with this configuration and its images.

        Raises:
            Unreachable: there is no such machine.
            IrisError: it did not come up again.
        """
        return asyncio.run(self._restart())

    def reload(self) -> str:
        """See `ControllerProtocol`. The machine finds the same whenever it boots.

        Raises:
            Unreachable: the cluster does not run, or does not answer.
        """
        return asyncio.run(self._reload())

    def discover(self) -> str | None:
        """See `ControllerProtocol`; the address is one of this machine, and leads there."""
        return asyncio.run(self._discover())

    def status(self) -> ControllerStatus:
        """See `ControllerProtocol`."""

        async def look() -> ControllerStatus:
            if (address := await self._discover()) is None:
                return ControllerStatus(running=False)
            return ControllerStatus(running=True, healthy=await answering(self.name, ANSWER) is not None, address=address)

        return asyncio.run(look())

    def fetch_startup_logs(self, tail_lines: int = 100) -> str | None:
        """See `ControllerProtocol`: the end of the machine's serial console."""
        return asyncio.run(self._console(tail_lines))

    async def plan_stop(self) -> StopPlan:
        """See `ControllerProtocol`.

        Raises:
            Unreachable: the control plane cannot be asked from here: there is no `gcloud`. A stop without a plan deletes the
                machines directly.
        """
        settings = await self._settings()
        seen = await self._seen_of_stop(self._machine(settings))
        forgets = self.config.controller.temporal is None
        plan = StopPlan(name=self.name, running=seen is not None, ephemeral=forgets, elsewhere=True)
        if seen is not None:
            plan = plan.model_copy(update={"machine": f"{seen.name} in {seen.zone}"})
            self._remember(seen)
            if seen.status == RUNNING:
                try:
                    self._check_way()
                except Unreachable as error:
                    way = f"iris cluster stop {self.name} --yes"
                    raise Unreachable(f"{error}; its machines are deleted without asking it by: {way}") from None
            try:
                client = await self._answered(seen)
                made = tuple(row.id for row in await client.slices() if row.made)
                jobs = len(await client.jobs(live_only=True, limit=1_000))
                return plan.model_copy(update={"answers": True, "jobs": jobs, "slices": made})
            except Unreachable as error:
                plan = plan.model_copy(update={"silent": str(error)})
        listing = await self._slices(settings).list_slices()
        ids = tuple(sorted(each.slice_id for each in listing.slices))
        return plan.model_copy(update={"slices": ids, "unreachable": listing.unreachable})

    # -- for others ----------------------------------------------------------------------------------------------------------

    async def machines(self) -> SliceOps:
        """The machines of the cluster's slices, to look at and to delete."""
        return self._slices(await self._settings())

    async def seen(self) -> SeenMachine | None:
        """The control plane's machine, as Google shows it."""
        return await asyncio.to_thread(self._machine(await self._settings()).find)

    def requests(self) -> dict[str, Any]:
        """What Google would be asked for, as its APIs' own JSON: the control plane's machine, and a slice of each group.

        Nobody is asked anything.

        Raises:
            PlatformError: Google would not take it.
        """
        return shown_requests(self.config, self._text)

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _start(self, *, stays: bool = True) -> str:
        """Args:
        stays: the machine, if it does not come up.
        """
        settings = await self._settings_of_start()
        machine = self._machine(settings)
        seen, before = await asyncio.to_thread(machine.find), 0
        if seen is None:
            request = insert_request(settings, self.config.controller, str(uuid.uuid4()))
            self._tell(f"making machine {request.instance_resource.name} in {self._gcp.zone}")
            await _to_its_end(asyncio.to_thread(machine.create, request))
            seen = await asyncio.to_thread(machine.find)
            if seen is None:
                raise IrisError("the machine that was just made is gone; somebody has deleted it, or Google has")
        else:
            self._tell(f"found machine {seen.name} in {seen.zone} ({seen.status})")
            self._remember(seen)
            if await self._has_failed(machine, seen):
                self._tell("it could not be set up when it booted last; trying that again with this configuration")
                seen, before = await self._boot_anew(settings, machine, seen)
            else:
                if seen.build != build_of(insert_request(settings, self.config.controller, UNKNOWN)):
                    remedy = f"iris cluster reload {self.name} --config FILE"
                    self._tell(f"it has another configuration; to give it this one: {remedy}")
                self._tell_what_stays(settings, seen)
            await asyncio.to_thread(machine.switch_on, seen)
        self._remember(seen)
        return await until_it_answers(self.config, machine, seen, self._tell, told=before, stays=stays)

    async def _start_new(self) -> str:
        seen = await asyncio.to_thread(self._machine(await self._settings_of_start()).find)
        if seen is not None:
            there = f"machine {seen.name} in {seen.zone} ({seen.status})"
            raise Rejected(f"cluster {self.name} is there already: {there}; stop it with: iris cluster stop {self.name}")
        try:
            return await self._start(stays=False)
        except BaseException:  # an interrupt, too
            self._tell("it did not come up; taking back what was made of it")
            await self._stop()
            raise

    async def _restart(self) -> str:
        self._check_name()
        self._check_way()
        settings = await self._settings()
        machine = self._machine(settings)
        seen, before = await self._boot_anew(settings, machine, await self._running(machine))
        self._remember(seen)
        return await until_it_answers(self.config, machine, seen, self._tell, told=before)

    async def _has_failed(self, machine: ControllerMachine, seen: SeenMachine) -> bool:
        """Whether the machine has given up its setup, and nobody who was there before answers on it."""
        said = marked(await asyncio.to_thread(machine.console, seen)) if seen.status == RUNNING else []
        return bool(said) and said[-1].startswith(FAILED) and await answering(self.name, ANSWER) is None

    async def _boot_anew(self, settings: GcpSettings, machine: ControllerMachine, seen: SeenMachine) -> tuple[SeenMachine, int]:
        """Let the machine boot with this configuration and its images; so many lines it has told of its starts before."""
        seen = await self._rebuilt(settings, machine, seen)
        before = len(marked(await asyncio.to_thread(machine.console, seen)))
        self._tell(f"switching {seen.name} off and on")
        await asyncio.to_thread(machine.reset if seen.status == RUNNING else machine.switch_on, seen)
        return seen, before

    async def _rebuilt(self, settings: GcpSettings, machine: ControllerMachine, seen: SeenMachine) -> SeenMachine:
        """The machine with this configuration, as far as it can have another one than it was made with."""
        self._tell_what_stays(settings, seen)
        await asyncio.to_thread(machine.rebuild, seen, insert_request(settings, self.config.controller, UNKNOWN))
        return seen.model_copy(update={"config": self._text})

    def _tell_what_stays(self, settings: GcpSettings, seen: SeenMachine) -> None:
        wanted = made_with(settings, self._gcp)
        stays = [f"{key} {was!r}, not {wanted[key]!r}" for key, was in seen.made_with.items() if wanted.get(key, was) != was]
        if stays:
            self._tell(f"its machine keeps what it was made with until it is stopped and started: {'; '.join(stays)}")

    async def _reload(self) -> str:
        self._check_name()
        self._check_way()
        settings = await self._settings()
        machine = self._machine(settings)
        self._remember(await self._rebuilt(settings, machine, await self._running(machine)))
        client = await FleetClient.connect(self.name)
        await client.reload(self.config)
        return client.cluster.address

    async def _stop(self) -> None:
        self._check_name()
        settings = await self._settings()
        machine = self._machine(settings)
        seen = await self._seen_of_stop(machine)
        if seen is not None:
            self._remember(seen)
            try:
                if not await give_back(await self._answered(seen), CLOSE_DOWN, self._tell):
                    self._tell("deleting its machines directly")
            except Unreachable as error:
                self._tell(f"the control plane of cluster {self.name} does not answer; deleting its machines directly ({error})")
        else:
            self._tell(f"cluster {self.name} has no machine for its control plane")
        # First whoever would make new ones.
        await asyncio.to_thread(machine.delete)
        deleted = await delete_all(self._slices(settings), DELETE, self._tell)
        if deleted:
            self._tell(f"deleted {', '.join(deleted)}")
        close_tunnel(self.name)
        record = read_record(self.name)
        if record is not None and record.remote:
            forget(self.name)

    async def _seen_of_stop(self, machine: ControllerMachine) -> SeenMachine | None:
        """The machine. That there may be another in a zone that does not answer keeps nobody from stopping what can be seen: the
        lists of slices tell of the zone."""
        try:
            return await asyncio.to_thread(machine.find)
        except Unavailable as error:
            self._tell(str(error))
            return None

    async def _answered(self, seen: SeenMachine) -> FleetClient:
        """A client of the control plane.

        Raises:
            Unreachable: it does not answer, and why.
        """
        if seen.status != RUNNING:
            raise Unreachable(f"machine {seen.name} in {seen.zone} is {seen.status}")
        # A stop asks for its plan, and again when that has been agreed to.
        if self._silent is not None and time.monotonic() - self._silent[0] < STILL_SILENT.total_seconds():
            raise Unreachable(self._silent[1])
        try:
            return await answered(self.name, ANSWER)
        except Unreachable as error:
            self._silent = time.monotonic(), str(error)
            raise

    async def _discover(self) -> str | None:
        settings = await self._settings()
        seen = await asyncio.to_thread(self._machine(settings).find)
        if seen is None or seen.status != RUNNING:
            return None
        self._remember(seen)
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
            raise Unreachable(f"cluster {self.name!r} does not run; start it with: iris cluster start --config FILE")
        return seen

    async def _settings(self) -> GcpSettings:
        """The cluster as its machines have to know it.

        Raises:
            Unreachable: it was never started, or the store does not answer, which alone knows what is the cluster's.
        """
        uid = await known_uid(Store(self.config.controller.bundle_prefix), self.name)
        return gcp_settings(self.config, uid, text=self._text)

    async def _settings_of_start(self) -> GcpSettings:
        """The same of one that is to be started, perhaps for the first time.

        Raises:
            InvalidValue: a cluster of its name is known here.
            Unreachable: it could not be reached from here, or the store does not answer.
        """
        self._check_name()
        self._check_way()
        uid = await cluster_uid(Store(self.config.controller.bundle_prefix), self.name)
        return gcp_settings(self.config, uid, text=self._text)

    def _check_name(self) -> None:
        check_is_free(self.name, self._project, self.config.controller.bundle_prefix)

    def _check_way(self) -> None:
        if self.config.controller.temporal is None:
            check_gcloud(self.name, self._gcp.port)

    def _machine(self, settings: GcpSettings) -> ControllerMachine:
        return ControllerMachine(settings, self._gcp.zone, self._tell)

    def _slices(self, settings: GcpSettings) -> SliceOps:
        return create_platform(self.config, settings=settings)

    def _remember(self, seen: SeenMachine) -> None:
        """Write down how the cluster is reached from here, and the configuration that it has: this one may be another.

        Raises:
            InvalidValue: its name is another cluster's here.
        """
        self._check_name()
        record, before = record_of(self.config, seen.name, seen.zone), read_record(self.name)
        if before is not None and before.gate == record.gate and before.gate is not None:
            record = record.model_copy(update={"address": before.address, "ui": before.ui, "tunnel": before.tunnel})
        if record != before:
            write_record(record)
        if seen.config:
            write_config(self.name, seen.config)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do what cannot be called back: an interrupt is heeded when it is done, and what it has made can be found."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    finally:
        await asyncio.wait({task})
