"""A control plane on a virtual machine of Google Cloud.

Everything that it does can be said again: the machine is found by its name and its labels, and what belongs to the cluster is
known by the uid that lies in its store, also when nobody answers any more. The cluster is used through a tunnel
(`iris.client.tunnel`), unless its Temporal service is one that is there anyway.
"""

import asyncio
import contextlib
import time
import uuid
from datetime import timedelta
from typing import Any

from google.cloud import compute_v1

from iris.client.closing import delete_all
from iris.client.clusters import ClusterRecord, Gate, forget, read_record, write_config, write_record
from iris.client.control import ControllerStatus, StopPlan, Tell, answering, give_back, nobody
from iris.client.identity import cluster_uid
from iris.client.scaling import FleetClient
from iris.client.tunnel import close_tunnel, last_words, open_tunnel
from iris.config import ClusterConfig, dump_config, groups
from iris.errors import InvalidValue, IrisError, Unreachable
from iris.machines import SliceRequest
from iris.platforms.base import PlatformError, SliceOps
from iris.platforms.factory import create_platform
from iris.platforms.gcp import marks
from iris.platforms.gcp.controller_ops import RUNNING, ControllerMachine, SeenMachine
from iris.platforms.gcp.controller_vm import insert_request
from iris.platforms.gcp.requests import create_request, printed
from iris.platforms.gcp.settings import GcpSettings, gcp_settings
from iris.platforms.gcp.startup import host_script
from iris.store import Store

#: A machine that has nothing yet installs Docker and pulls its image: some minutes. Its own patience with a pull is five.
START = timedelta(minutes=15)
LOOK_EVERY = timedelta(seconds=1)
#: A tunnel has to be opened first.
ANSWER = timedelta(seconds=30)
#: How long slices may take to go: what runs on them has its grace, and Google minutes to delete a TPU.
CLOSE_DOWN = timedelta(minutes=15)
DELETE = timedelta(minutes=15)
#: What the machine says of its own start begins so; and so when it cannot go on.
MARK, FAILED = "[iris-init]", "[iris-init] FAILED"
#: Lines of the console that go with an error.
SAID = 20
#: In the place of what is only known of a cluster that was started.
UNKNOWN = "unknown-before-the-start"


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
        self._text = dump_config(config) if text is None else text
        self._tell = tell

    # -- the protocol --------------------------------------------------------------------------------------------------------

    def start(self) -> str:
        """See `ControllerProtocol`. One that runs is found, and keeps the configuration that it has.

        Raises:
            PlatformError: Google refuses the machine.
            IrisError: it did not come up; the message has the end of its console. The machine stays, for a look at it.
        """
        return asyncio.run(self._start())

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
        """See `ControllerProtocol`."""
        settings = await self._settings()
        seen = await asyncio.to_thread(self._machine(settings).find)
        forgets = self.config.controller.temporal is None
        plan = StopPlan(name=self.name, running=seen is not None, ephemeral=forgets, elsewhere=True)
        if seen is not None:
            plan = plan.model_copy(update={"machine": f"{seen.name} in {seen.zone}"})
            self._remember(settings, seen)
            if seen.status == RUNNING and (client := await answering(self.name, ANSWER)) is not None:
                made = tuple(row.id for row in await client.slices() if row.made)
                jobs = len(await client.jobs(live_only=True, limit=1_000))
                return plan.model_copy(update={"answers": True, "jobs": jobs, "slices": made})
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
        settings = gcp_settings(self.config, UNKNOWN, text=self._text, address=self._internal_address())
        shown = {}
        for group in groups(self.config):
            request = SliceRequest(
                slice_id=f"{settings.label_prefix}-{group.name}-00000000".replace("_", "-"),
                cluster=self.name,
                zone=group.zones[0],
                token=UNKNOWN,
                group=group,
            )
            shown[group.name] = printed(create_request(settings, request, host_script(settings, request)))
        return {"controller": printed(insert_request(settings, self.config.controller, UNKNOWN)), "slices": shown}

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _start(self) -> str:
        settings = await self._settings()
        machine = self._machine(settings)
        seen = await asyncio.to_thread(machine.find)
        if seen is None:
            request = insert_request(settings, self.config.controller, str(uuid.uuid4()))
            self._tell(f"making machine {request.instance_resource.name} in {self._gcp.zone}")
            await asyncio.to_thread(machine.create, request)
            seen = await asyncio.to_thread(machine.find)
            if seen is None:
                raise IrisError("the machine that was just made is gone; somebody has deleted it, or Google has")
        else:
            self._tell(f"found machine {seen.name} in {seen.zone} ({seen.status})")
            if seen.build != _build(insert_request(settings, self.config.controller, UNKNOWN)):
                self._tell(f"it has another configuration; to give it this one: iris cluster reload {self.name} --config FILE")
            await asyncio.to_thread(machine.switch_on, seen)
        self._remember(settings, seen)
        return await self._until_it_answers(machine, seen)

    async def _restart(self) -> str:
        settings = await self._settings()
        machine = self._machine(settings)
        seen = await self._running(machine)
        request = insert_request(settings, self.config.controller, UNKNOWN)
        await asyncio.to_thread(machine.rebuild, seen, request)
        before = len(_marked(await asyncio.to_thread(machine.console, seen)))
        self._tell(f"switching {seen.name} off and on")
        if seen.status == RUNNING:
            await asyncio.to_thread(machine.reset, seen)
        else:
            await asyncio.to_thread(machine.switch_on, seen)
        self._remember(settings, seen)
        return await self._until_it_answers(machine, seen, before)

    async def _reload(self) -> str:
        settings = await self._settings()
        machine = self._machine(settings)
        seen = await self._running(machine)
        await asyncio.to_thread(machine.rebuild, seen, insert_request(settings, self.config.controller, UNKNOWN))
        self._remember(settings, seen)
        client = await FleetClient.connect(self.name)
        await client.reload(self.config)
        return client.cluster.address

    async def _stop(self) -> None:
        settings = await self._settings()
        machine = self._machine(settings)
        seen = await asyncio.to_thread(machine.find)
        if seen is not None:
            self._remember(settings, seen)
            client = await answering(self.name, ANSWER) if seen.status == RUNNING else None
            if client is None:
                self._tell(f"the control plane of cluster {self.name} does not answer; deleting its machines directly")
            elif not await give_back(client, CLOSE_DOWN, self._tell):
                self._tell("deleting its machines directly")
        else:
            self._tell(f"cluster {self.name} has no machine for its control plane")
        # First whoever would make new ones.
        await asyncio.to_thread(machine.delete)
        deleted = await delete_all(self._slices(settings), DELETE)
        if deleted:
            self._tell(f"deleted {', '.join(deleted)}")
        close_tunnel(self.name)
        record = read_record(self.name)
        if record is not None and record.remote:
            forget(self.name)

    async def _discover(self) -> str | None:
        settings = await self._settings()
        seen = await asyncio.to_thread(self._machine(settings).find)
        if seen is None or seen.status != RUNNING:
            return None
        self._remember(settings, seen)
        return (await asyncio.to_thread(open_tunnel, self.name)).address

    async def _console(self, lines: int) -> str | None:
        machine = self._machine(await self._settings())
        seen = await asyncio.to_thread(machine.find)
        if seen is None:
            return None
        said = await asyncio.to_thread(machine.console, seen)
        return "\n".join(said.splitlines()[-lines:])

    async def _until_it_answers(self, machine: ControllerMachine, seen: SeenMachine, told: int = 0) -> str:
        """Its address, once its planners answer; what the machine says of its start is told meanwhile.

        Args:
            told: so many lines are of a start before this one.
        """
        give_up, before = time.monotonic() + START.total_seconds(), told
        self._tell("waiting until it answers")
        while True:
            answers = await answering(self.name) is not None
            # Also of one that answers already: how it came up is told however quick it was.
            said = ""
            with contextlib.suppress(PlatformError):
                said = await asyncio.to_thread(machine.console, seen)
            marked = _marked(said)
            if said and len(marked) < told:
                # A console that began anew.
                told = before = 0
            for line in marked[told:]:
                self._tell(line)
            told = max(told, len(marked))
            if answers:
                record = read_record(self.name)
                assert record is not None
                return record.address
            there = await asyncio.to_thread(machine.find)
            if there is None:
                raise IrisError(f"the machine of cluster {self.name} is gone; start it again")
            seen = there
            failed = len(marked) > before and FAILED in marked[-1]
            if failed or time.monotonic() > give_up:
                why = "its machine could not be set up" if failed else f"not within {START.seconds // 60} minutes"
                end = "\n".join(said.splitlines()[-SAID:]) or "(nothing)"
                raise IrisError(
                    f"the control plane of cluster {self.name} did not come up: {why} (machine {seen.name} in {seen.zone}, "
                    f"{seen.status}). Its console says last:\n{end}\n{self._way(seen)}"
                )
            await asyncio.sleep(LOOK_EVERY.total_seconds())

    def _way(self, seen: SeenMachine) -> str:
        return (
            f"Look at it with: gcloud compute ssh {seen.name} --project={self._project} --zone={seen.zone}; delete it with: "
            f"iris cluster stop {self.name}{last_words(self.name)}"
        )

    async def _running(self, machine: ControllerMachine) -> SeenMachine:
        seen = await asyncio.to_thread(machine.find)
        if seen is None:
            raise Unreachable(f"cluster {self.name!r} does not run; start it with: iris cluster start --config FILE")
        return seen

    async def _settings(self) -> GcpSettings:
        """The cluster as its machines have to know it.

        Raises:
            Unreachable: the store does not answer, which alone knows what is the cluster's.
        """
        uid = await cluster_uid(Store(self.config.controller.bundle_prefix), self.name)
        return gcp_settings(self.config, uid, text=self._text)

    @property
    def _project(self) -> str:
        assert self.config.platform.gcp is not None
        return self.config.platform.gcp.project_id

    def _machine(self, settings: GcpSettings) -> ControllerMachine:
        return ControllerMachine(settings, self._gcp.zone, self._tell)

    def _slices(self, settings: GcpSettings) -> SliceOps:
        return create_platform(self.config, settings=settings)

    def _internal_address(self) -> str:
        """As a dry run shows it: the real one is what the machine's metadata server says."""
        if self.config.controller.temporal is not None:
            return self.config.controller.temporal.address
        name = marks.controller_name(gcp_settings(self.config, UNKNOWN))
        return f"{name}.{self._gcp.zone}.c.{self._project}.internal:{self._gcp.port}"

    def _remember(self, settings: GcpSettings, seen: SeenMachine) -> None:
        """Write down how the cluster is reached from here, and what it consists of.

        Raises:
            InvalidValue: a cluster of its name runs on this machine.
        """
        temporal, before = self.config.controller.temporal, read_record(self.name)
        if before is not None and before.alive():
            remedy = f"stop that one with: iris cluster stop {self.name}"
            raise InvalidValue("name", self.name, "is that of a cluster that runs on this machine", remedy)
        gate = Gate(project=self._project, zone=seen.zone, machine=seen.name, port=self._gcp.port, iap=self._gcp.iap)
        record = ClusterRecord(
            name=self.name,
            address="" if temporal is None else temporal.address,
            namespace="default" if temporal is None else temporal.namespace,
            store=self.config.controller.bundle_prefix,
            remote=True,
            gate=gate if temporal is None else None,
        )
        if before is not None and before.gate == record.gate and before.gate is not None:
            record = record.model_copy(update={"address": before.address, "ui": before.ui, "tunnel": before.tunnel})
        if record != before:
            write_record(record)
        write_config(self.name, self._text)


def _marked(said: str) -> list[str]:
    """The lines in which a machine tells of its start; the console puts the time and the speaker before them."""
    return [line[line.index(MARK) :] for line in said.splitlines() if MARK in line]


def _build(request: compute_v1.InsertInstanceRequest) -> str:
    items = request.instance_resource.metadata.items
    return next((str(item.value) for item in items if item.key == marks.BUILD_KEY), "")
