"""Slices on Google Cloud.

Every slice is one thing of Google's with the slice's id as its name: a TPU node, a queued resource (and the node that it makes),
or a virtual machine. Whatever is not remembered here can be found again by that name and by the labels; what is remembered only
saves calls: which of the three an id is, and which operation makes it.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from google.cloud import compute_v1, tpu_v2

from iris.machines import ANYWHERE, DeleteResult, FleetListing, MachineState, SliceObservation, SliceRequest
from iris.platforms.base import BadConfig, PlatformError, RateLimited, Unavailable
from iris.platforms.gcp import marks
from iris.platforms.gcp.clients import Calls
from iris.platforms.gcp.compute import Instances, list_instances
from iris.platforms.gcp.errors import CallFailed, Trouble, later, verdict
from iris.platforms.gcp.requests import CreateRequest, create_request
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.gcp.sights import Kind, Making, Sight, failed_create, unseen
from iris.platforms.gcp.tpu import Nodes, QueuedResources, list_tpus
from iris.platforms.gcp.words import tail

logger = logging.getLogger(__name__)

#: Of one verb, in seconds. With the end of a create that is under way then (`clients.DEADLINE`) it is less than the minute that
#: the workflows give a platform.
VERB = 40.0
#: So long something may come, in seconds, of which nobody knows whether it was asked for with success, or how far it is.
UNSEEN = 60.0
#: And so long, of which an operation says that it is being made: one that is stuck never says anything else.
UNDER_WAY = 600.0
#: In which a slice may be of which the create has failed.
_ENDING = frozenset({MachineState.DELETING, MachineState.PREEMPTED})
_DOUBTFUL = _ENDING | {MachineState.CREATING}
#: Where a service is not offered, the API says so as if it were a matter of rights; it may be one, too.
_NO_SUCH_PLACE = re.compile(r"Location \S+ is not found")


class SliceApi(Protocol):
    """The calls for one kind of what a slice may be, by its name. Every method raises `CallFailed`, or `RateLimited` when it was
    not its turn."""

    async def create(self, request: CreateRequest) -> str: ...

    async def get(self, slice_id: str, zone: str) -> Sight | None: ...

    async def delete(self, slice_id: str, zone: str) -> None: ...

    async def making(self, slice_id: str, zone: str, operation: str) -> Making | None:
        """What makes it; None: nothing does, or it is lost. Without the operation's name it is looked for."""
        ...

    async def last_words(self, slice_id: str, zone: str) -> str: ...


@dataclass(frozen=True)
class Hint:
    """What is remembered of a slice."""

    kind: Kind
    #: That makes it; empty: it was found, or nobody has heard the name.
    operation: str = ""
    #: When it was asked for; None: it has been seen since, or was not asked for.
    asked_at: float | None = None

    def may_come(self, making: Making | None, now: float) -> bool:
        """Whether it may be there in a while, although nothing is to be seen of it."""
        if self.asked_at is None or (making is not None and making.trouble is not None):
            return False
        return now < self.asked_at + (UNSEEN if making is None or making.done else UNDER_WAY)


class GcpPlatform:
    """The slices of one cluster in one project. Every object with the same settings is the same platform."""

    def __init__(
        self,
        settings: GcpSettings,
        script: Callable[[SliceRequest], str],
        calls: Calls | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            script: what the hosts of a slice do when they come up.
            calls: None: with clients for the settings' endpoints.
            now: a clock, in seconds.
        """
        self._settings = settings
        self._script = script
        self._calls = calls or Calls(settings)
        project = settings.project
        self._apis: Mapping[Kind, SliceApi] = {
            Kind.INSTANCE: Instances(self._calls, project),
            Kind.NODE: Nodes(self._calls, project),
            Kind.QUEUED: QueuedResources(self._calls, project),
        }
        self._hints: dict[str, Hint] = {}
        self._now = now

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """See `Platform`. What is there already under its name is adopted, if the same request has made it."""
        wanted = create_request(self._settings, request, self._script(request))
        async with _asked_later(request.zone):
            operation = await self._create(wanted, request)
            seen = await self._find(request.slice_id, request.zone)
            if seen is None and operation:
                making = await self._making(request.slice_id, request.zone)
                if making is not None and making.trouble is not None:
                    raise verdict(making.trouble, request.zone, _in_words(request))
        if seen is None and not operation:
            raise Unavailable(f"{request.slice_id} was there in {request.zone}, and is gone; it can be asked for again")
        return self._adopted(seen.observation, request, seen.labels) if seen is not None else _promised(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """See `Platform`. Of a slice whose create has failed after Google had agreed to it, it is said why; while its create is
        under way there is one, whether anything is to be seen of it or not."""
        async with _asked_later(zone):
            if (found := await self._find(slice_id, zone)) is not None:
                return await self._explained(found, _DOUBTFUL) if marks.is_ours(self._settings, found.labels) else None
            making = await self._making(slice_id, zone)
        if making is not None and making.trouble is not None:
            return None if making.trouble.is_called_off else failed_create(slice_id, zone, making.trouble)
        return unseen(slice_id, zone) if self._may_come(slice_id, making) else None

    async def last_words(self, slice_id: str, zone: str) -> str:
        """See `Platform`. Of a virtual machine the end of its serial console; of a TPU node, which has none, what ails it."""
        async with _asked_later(zone):
            found = await self._find(slice_id, zone)
            if found is None or not marks.is_ours(self._settings, found.labels):
                return ""
            return tail(await self._apis[found.kind].last_words(slice_id, zone))

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """See `Platform`. What is not ours, or what people have marked as theirs, is not touched. What nobody shows is not GONE
        while the create that may still make it is under way."""
        async with _asked_later(zone):
            found = await self._find(slice_id, zone)
            if found is None and await self._is_coming(slice_id, zone):
                await self._delete(self._hints[slice_id].kind, slice_id, zone)
                return DeleteResult.GOING
            if found is None or not marks.is_ours(self._settings, found.labels):
                self._hints.pop(slice_id, None)
                return DeleteResult.GONE
            if found.observation.state is not MachineState.DELETING:
                await self._delete(found.kind, slice_id, zone)
        return DeleteResult.GOING

    async def list_slices(self) -> FleetListing:
        """See `Platform`. What is in a service that does not answer may be anywhere."""
        tpus, instances = await asyncio.gather(
            list_tpus(self._calls, self._settings.project),
            list_instances(self._calls, self._settings.project, self._settings.uid),
            return_exceptions=True,
        )
        seen: list[Sight] = []
        unreachable: dict[str, str] = {}
        problems: list[PlatformError] = []
        if isinstance(tpus, BaseException):
            problems += self._problem(Kind.NODE, tpus)
        else:
            seen += tpus[0]
            unreachable.update(dict.fromkeys(tpus[1], "the Cloud TPU API cannot reach the zone"))
        if isinstance(instances, BaseException):
            problems += self._problem(Kind.INSTANCE, instances)
        else:
            seen += instances[0]
            unreachable.update(instances[1])
        if len(problems) == 2:
            raise problems[0]
        if problems:
            unreachable[ANYWHERE] = str(problems[0])
        ours = {each.observation.slice_id: each for each in seen if self._is_host(each)}  # pages may overlap
        for slice_id, each in ours.items():
            self._hints.setdefault(slice_id, Hint(each.kind))
        slices = []
        for slice_id in sorted(ours):
            try:
                slices.append(await self._explained(ours[slice_id]))
            except (CallFailed, RateLimited):  # the list has been got, and says most
                slices.append(ours[slice_id].observation)
        return FleetListing(slices=tuple(slices), unreachable=unreachable)

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _find(self, slice_id: str, zone: str) -> Sight | None:
        """What has this name. Without a hint all kinds are looked for (who looks for a queued resource finds nodes, too); only
        when nothing is found does it matter that one could not be asked."""
        hint = self._hints.get(slice_id)
        failed: CallFailed | None = None
        for kind in (hint.kind,) if hint is not None else (Kind.INSTANCE, Kind.QUEUED):
            try:
                found = await self._apis[kind].get(slice_id, zone)
            except CallFailed as error:
                if hint is not None or not self._is_nowhere(kind, error.trouble, zone):
                    failed = error
                continue
            if found is not None:
                self._hints[slice_id] = Hint(found.kind, hint.operation if hint is not None else "")
                return found
        if failed is not None:
            raise failed
        return None

    async def _making(self, slice_id: str, zone: str) -> Making | None:
        """What makes the slice, or was to, as far as any operation tells."""
        hint = self._hints.get(slice_id)
        if hint is not None:
            return await self._apis[hint.kind].making(slice_id, zone, hint.operation)
        for kind in (Kind.INSTANCE, Kind.QUEUED):
            try:
                making = await self._apis[kind].making(slice_id, zone, "")
            except CallFailed as error:
                if not self._is_nowhere(kind, error.trouble, zone):
                    raise
                continue
            if making is not None:
                if not making.done:  # whoever has asked for it is gone
                    self._hints[slice_id] = Hint(kind, making.operation, self._now())
                return making
        return None

    def _may_come(self, slice_id: str, making: Making | None) -> bool:
        hint = self._hints.get(slice_id)
        return hint is not None and hint.may_come(making, self._now())

    async def _is_coming(self, slice_id: str, zone: str) -> bool:
        """Whether a slice that nobody shows may be there in a while. What was seen once, and is not any more, is gone."""
        hint = self._hints.get(slice_id)
        if hint is not None and hint.asked_at is None:
            return False
        return self._may_come(slice_id, await self._making(slice_id, zone))

    async def _explained(self, seen: Sight, doubtful: frozenset[MachineState] = _ENDING) -> SliceObservation:
        """As it was seen. Machines that could not be made are still to be seen for a moment, as if somebody had them deleted, or
        as if they were still being made: why is in the operation that was to make them.

        Args:
            doubtful: the states in which that is asked for; each time it is a call.
        """
        found = seen.observation
        hint = self._hints.get(found.slice_id)
        if hint is None or not hint.operation:
            return found
        if found.state is MachineState.ACTIVE:
            self._hints[found.slice_id] = Hint(hint.kind)  # they were made
        if found.state not in doubtful:
            return found
        making = await self._apis[hint.kind].making(found.slice_id, found.zone, hint.operation)
        if making is None or making.trouble is None or making.trouble.is_called_off:
            return found
        why = failed_create(found.slice_id, found.zone, making.trouble)
        told = {"state": why.state, "reason": why.reason, "fault": why.fault, "quota_scope": why.quota_scope}
        return found.model_copy(update=told)

    async def _create(self, wanted: CreateRequest, request: SliceRequest) -> str:
        """Ask for it, and remember that: what nobody answers, or waits for, may be made all the same. The name of the operation;
        empty: there is something of its name."""
        kind = _kind_of(wanted)
        before = self._hints.get(request.slice_id, Hint(kind))
        self._hints[request.slice_id] = Hint(kind, before.operation, self._now())
        try:
            operation = await self._apis[kind].create(wanted)
        except RateLimited:
            self._hints[request.slice_id] = before
            raise
        except CallFailed as failed:
            error = verdict(failed.trouble, request.zone, _in_words(request))
            unknown = failed.trouble.is_taken or isinstance(error, Unavailable)
            self._hints[request.slice_id] = Hint(kind, before.operation, self._now()) if unknown else before
            if not failed.trouble.is_taken:
                raise error from None
            return ""
        self._hints[request.slice_id] = Hint(kind, operation, self._now())
        return operation

    async def _delete(self, kind: Kind, slice_id: str, zone: str) -> None:
        """Ask for it. Whether it was done is seen by looking again, also when Google is busy with it."""
        try:
            await self._apis[kind].delete(slice_id, zone)
        except CallFailed as error:
            if not (error.trouble.is_absence or error.trouble.is_busy):
                raise
            logger.info("slice %s in %s is not being deleted yet: %s", slice_id, zone, error)

    def _adopted(self, seen: SliceObservation, request: SliceRequest, labels: Mapping[str, str]) -> SliceObservation:
        if not marks.is_ours(self._settings, labels) or seen.token != request.token:
            raise BadConfig(f"{request.slice_id} in {request.zone} exists already, and was not made by this request")
        if seen.state is MachineState.DELETING:
            raise Unavailable(f"{request.slice_id} in {request.zone} is being deleted")
        return seen

    def _is_unused(self, kind: Kind, trouble: Trouble) -> bool:
        """Whether the project does not use the service. A refusal that does not say which project it means is believed about TPUs
        where no group has any."""
        no_tpus = kind is not Kind.INSTANCE and not self._settings.tpu_zones
        return trouble.is_disabled_in(self._settings.project) or (no_tpus and trouble.is_service_disabled)

    def _is_nowhere(self, kind: Kind, trouble: Trouble, zone: str) -> bool:
        """Whether there can be nothing of the kind: the service is not used, or is not in this zone. For a zone in which groups
        have TPUs these words mean that somebody has taken the right away."""
        absent = _NO_SUCH_PLACE.search(trouble.words) is not None and zone not in self._settings.tpu_zones
        return self._is_unused(kind, trouble) or absent

    def _problem(self, kind: Kind, error: BaseException) -> list[PlatformError]:
        """Why a service could not be listed; nothing when the project does not use it."""
        if isinstance(error, CallFailed):
            return [] if self._is_unused(kind, error.trouble) else [later(error.trouble, "any zone")]
        if isinstance(error, RateLimited):
            return [error]
        raise error

    def _is_host(self, seen: Sight) -> bool:
        """Whether it is a slice of this cluster: the control plane's own machine is none."""
        return marks.is_ours(self._settings, seen.labels) and seen.labels.get(marks.ROLE) == "host"


def _kind_of(wanted: CreateRequest) -> Kind:
    match wanted:
        case tpu_v2.CreateNodeRequest():
            return Kind.NODE
        case tpu_v2.CreateQueuedResourceRequest():
            return Kind.QUEUED
        case compute_v1.InsertInstanceRequest():
            return Kind.INSTANCE


def _promised(request: SliceRequest) -> SliceObservation:
    """What was asked for and cannot be seen yet."""
    return SliceObservation(
        slice_id=request.slice_id,
        group=request.group.name,
        zone=request.zone,
        state=MachineState.CREATING,
        created_at=datetime.now(UTC),
        hosts=request.group.hosts,
        token=request.token,
    )


def _in_words(request: SliceRequest) -> str:
    """What is wanted, as a refusal names it."""
    group = request.group
    tier = "spot" if group.preemptible else "reserved" if group.reservation else "on demand"
    return f"{group.accelerator_variant or group.machine_type} ({tier})"


@contextlib.asynccontextmanager
async def _asked_later(zone: str) -> AsyncIterator[None]:
    """A call that fails in here is one to be asked again, and so are those that take too long together."""
    try:
        async with asyncio.timeout(VERB):
            yield
    except TimeoutError:
        raise Unavailable(f"Google Cloud has not answered all that was asked of {zone} within {VERB:g} s") from None
    except CallFailed as error:
        raise later(error.trouble, zone) from None
