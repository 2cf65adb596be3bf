"""Implements a platform on Google Cloud.

Each slice is one Google resource whose name is the slice's id: a TPU node, a queued resource (with the node that it creates), or
a virtual machine. `GcpPlatform` finds every slice by that name and by the labels. It remembers the kind of a slice and the
operation that creates it only to save calls.
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

from iris.model.provisioning import ANYWHERE, DeleteResult, FleetListing, MachineState, SliceObservation, SliceRequest
from iris.platforms.base import BadConfig, PlatformError, RateLimited, Unavailable
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.clients import Calls
from iris.platforms.gcp.compute import Instances, list_instances
from iris.platforms.gcp.diagnostics import tail
from iris.platforms.gcp.errors import ApiError, CallFailed, later, verdict
from iris.platforms.gcp.observe import Making, ResourceKind, Sight, failed_create, unseen
from iris.platforms.gcp.requests import CreateRequest, create_request
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.gcp.tpu import Nodes, QueuedResources, list_tpus

logger = logging.getLogger(__name__)

#: The deadline of one platform call, in seconds. Together with the end of a create in flight (`clients.DEADLINE`) it is below the
#: 60 s that the workflows allow for a platform call.
VERB = 40.0
#: The seconds for which an invisible slice may still appear if the result of its create call, or its progress, is unknown.
UNSEEN = 60.0
#: The same while an operation reports that the create is running. It is limited, because a stuck operation runs for ever.
UNDER_WAY = 600.0
#: The states in which a slice may be after a failed create. `describe_slice` checks CREATING, too.
_ENDING = frozenset({MachineState.DELETING, MachineState.PREEMPTED})
_DOUBTFUL = _ENDING | {MachineState.CREATING}
#: The message of the API in a zone where the service is not offered. It is a permission error, and may also mean a real one.
_NO_SUCH_PLACE = re.compile(r"Location \S+ is not found")


class SliceApi(Protocol):
    """The calls on one kind of resource, by slice id. Every method raises `CallFailed`, or `RateLimited` if it got no turn."""

    async def create(self, request: CreateRequest) -> str: ...

    async def get(self, slice_id: str, zone: str) -> Sight | None: ...

    async def delete(self, slice_id: str, zone: str) -> None: ...

    async def making(self, slice_id: str, zone: str, operation: str) -> Making | None:
        """Returns the operation that creates the slice; None if there is none or it is lost.

        Args:
            operation: the name of the operation; empty: the method searches for it.
        """
        ...

    async def last_words(self, slice_id: str, zone: str) -> str: ...


@dataclass(frozen=True)
class Hint:
    """The remembered facts about a slice."""

    kind: ResourceKind
    #: The name of the operation that creates it; empty: the slice was found, or the name is unknown.
    operation: str = ""
    #: The time of the create call; None: the slice has been seen since, or there was no create call.
    asked_at: float | None = None

    def may_come(self, making: Making | None, now: float) -> bool:
        """Returns True if the slice may still appear, although it is not visible now."""
        if self.asked_at is None or (making is not None and making.trouble is not None):
            return False
        return now < self.asked_at + (UNSEEN if making is None or making.done else UNDER_WAY)


class GcpPlatform:
    """Manages the slices of one cluster in one project. All objects with the same settings are the same platform."""

    def __init__(
        self,
        settings: GcpSettings,
        script: Callable[[SliceRequest], str],
        calls: Calls | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            script: returns the startup script of a slice's hosts.
            calls: None: clients for the settings' endpoints.
            now: a clock, in seconds.
        """
        self._settings = settings
        self._script = script
        self._calls = calls or Calls(settings)
        project = settings.project
        self._apis: Mapping[ResourceKind, SliceApi] = {
            ResourceKind.INSTANCE: Instances(self._calls, project),
            ResourceKind.NODE: Nodes(self._calls, project),
            ResourceKind.QUEUED: QueuedResources(self._calls, project),
        }
        self._hints: dict[str, Hint] = {}
        self._now = now

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """Implements `Platform.create_slice`. Adopts an existing resource of the name if the same request created it."""
        wanted = create_request(self._settings, request, self._script(request))
        async with _asked_later(request.zone):
            operation = await self._create(wanted, request)
            seen = await self._find(request.slice_id, request.zone)
            if seen is None and operation:
                making = await self._making(request.slice_id, request.zone)
                if making is not None and making.trouble is not None:
                    raise verdict(making.trouble, request.zone, _in_words(request))
        if seen is None and not operation:
            raise Unavailable(
                f"{request.slice_id} in {request.zone} was deleted during its creation; the request can be repeated"
            )
        return self._adopted(seen.observation, request, seen.labels) if seen is not None else _promised(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """Implements `Platform.describe_slice`.

        If Google accepted the create and it failed later, the observation contains the reason. While the create is running, there
        is an observation even if the resource is not visible yet.
        """
        async with _asked_later(zone):
            if (found := await self._find(slice_id, zone)) is not None:
                return await self._explained(found, _DOUBTFUL) if label_rules.is_ours(self._settings, found.labels) else None
            making = await self._making(slice_id, zone)
        if making is not None and making.trouble is not None:
            return None if making.trouble.is_called_off else failed_create(slice_id, zone, making.trouble)
        return unseen(slice_id, zone) if self._may_come(slice_id, making) else None

    async def last_words(self, slice_id: str, zone: str) -> str:
        """Implements `Platform.last_words`.

        Returns the end of a virtual machine's serial console, or the problems of a TPU node, which has no console.
        """
        async with _asked_later(zone):
            found = await self._find(slice_id, zone)
            if found is None or not label_rules.is_ours(self._settings, found.labels):
                return ""
            return tail(await self._apis[found.kind].last_words(slice_id, zone))

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """Implements `Platform.delete_slice`.

        Does not touch a resource of another owner, or one marked as manual. An invisible slice is not GONE while a create that
        may still produce it is running.
        """
        async with _asked_later(zone):
            found = await self._find(slice_id, zone)
            if found is None and await self._is_coming(slice_id, zone):
                await self._delete(self._hints[slice_id].kind, slice_id, zone)
                return DeleteResult.GOING
            if found is None or not label_rules.is_ours(self._settings, found.labels):
                self._hints.pop(slice_id, None)
                return DeleteResult.GONE
            if found.observation.state is not MachineState.DELETING:
                await self._delete(found.kind, slice_id, zone)
        return DeleteResult.GOING

    async def list_slices(self) -> FleetListing:
        """Implements `Platform.list_slices`. If one of the two services does not answer, no zone is listed completely."""
        tpus, instances = await asyncio.gather(
            list_tpus(self._calls, self._settings.project),
            list_instances(self._calls, self._settings.project, self._settings.uid),
            return_exceptions=True,
        )
        seen: list[Sight] = []
        unreachable: dict[str, str] = {}
        problems: list[PlatformError] = []
        if isinstance(tpus, BaseException):
            problems += self._problem(ResourceKind.NODE, tpus)
        else:
            seen += tpus[0]
            unreachable.update(dict.fromkeys(tpus[1], "the Cloud TPU API cannot reach the zone"))
        if isinstance(instances, BaseException):
            problems += self._problem(ResourceKind.INSTANCE, instances)
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
            except (CallFailed, RateLimited):  # without the explanation the observation is still useful
                slices.append(ours[slice_id].observation)
        return FleetListing(slices=tuple(slices), unreachable=unreachable)

    # -- Private methods -----------------------------------------------------------------------------------------------------

    async def _find(self, slice_id: str, zone: str) -> Sight | None:
        """Returns the resource of this name.

        Without a hint it looks for all kinds; the search for queued resources finds nodes, too. A failed search matters only if
        the other one finds nothing.
        """
        hint = self._hints.get(slice_id)
        failed: CallFailed | None = None
        for kind in (hint.kind,) if hint is not None else (ResourceKind.INSTANCE, ResourceKind.QUEUED):
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
        """Returns the operation that creates the slice, or that failed to, if Google still lists it."""
        hint = self._hints.get(slice_id)
        if hint is not None:
            return await self._apis[hint.kind].making(slice_id, zone, hint.operation)
        for kind in (ResourceKind.INSTANCE, ResourceKind.QUEUED):
            try:
                making = await self._apis[kind].making(slice_id, zone, "")
            except CallFailed as error:
                if not self._is_nowhere(kind, error.trouble, zone):
                    raise
                continue
            if making is not None:
                if not making.done:  # the process that made the create call is gone
                    self._hints[slice_id] = Hint(kind, making.operation, self._now())
                return making
        return None

    def _may_come(self, slice_id: str, making: Making | None) -> bool:
        hint = self._hints.get(slice_id)
        return hint is not None and hint.may_come(making, self._now())

    async def _is_coming(self, slice_id: str, zone: str) -> bool:
        """Returns True if an invisible slice may still appear. A slice that was visible once and is not any more is gone."""
        hint = self._hints.get(slice_id)
        if hint is not None and hint.asked_at is None:
            return False
        return self._may_come(slice_id, await self._making(slice_id, zone))

    async def _explained(self, seen: Sight, doubtful: frozenset[MachineState] = _ENDING) -> SliceObservation:
        """Returns the observation, with the reason of a failed create added.

        After a failed create the machines stay visible for a moment, in a state of deletion or creation. Only the create
        operation contains the reason.

        Args:
            doubtful: the states in which to read the operation. Each read is a call.
        """
        found = seen.observation
        hint = self._hints.get(found.slice_id)
        if hint is None or not hint.operation:
            return found
        if found.state is MachineState.ACTIVE:
            self._hints[found.slice_id] = Hint(hint.kind)  # the create succeeded
        if found.state not in doubtful:
            return found
        making = await self._apis[hint.kind].making(found.slice_id, found.zone, hint.operation)
        if making is None or making.trouble is None or making.trouble.is_called_off:
            return found
        why = failed_create(found.slice_id, found.zone, making.trouble)
        told = {"state": why.state, "reason": why.reason, "fault": why.fault, "quota_scope": why.quota_scope}
        return found.model_copy(update=told)

    async def _create(self, wanted: CreateRequest, request: SliceRequest) -> str:
        """Makes the create call and remembers it: a call without an answer, or with a cancelled caller, may still succeed.

        Returns the name of the operation; empty if a resource of the name exists already.
        """
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

    async def _delete(self, kind: ResourceKind, slice_id: str, zone: str) -> None:
        """Makes the delete call. The caller sees the result when it looks again, also if Google is busy with the resource."""
        try:
            await self._apis[kind].delete(slice_id, zone)
        except CallFailed as error:
            if not (error.trouble.is_absence or error.trouble.is_busy):
                raise
            logger.info("cannot delete slice %s in %s yet: %s", slice_id, zone, error)

    def _adopted(self, seen: SliceObservation, request: SliceRequest, labels: Mapping[str, str]) -> SliceObservation:
        if not label_rules.is_ours(self._settings, labels) or seen.token != request.token:
            raise BadConfig(f"{request.slice_id} in {request.zone} already exists and was created by another request")
        if seen.state is MachineState.DELETING:
            raise Unavailable(f"{request.slice_id} in {request.zone} is being deleted")
        return seen

    def _is_unused(self, kind: ResourceKind, trouble: ApiError) -> bool:
        """Returns True if the project does not use the service.

        An error that names no project counts only for the TPU API, and only if no group has TPUs.
        """
        no_tpus = kind is not ResourceKind.INSTANCE and not self._settings.tpu_zones
        return trouble.is_disabled_in(self._settings.project) or (no_tpus and trouble.is_service_disabled)

    def _is_nowhere(self, kind: ResourceKind, trouble: ApiError, zone: str) -> bool:
        """Returns True if there can be no resource of the kind: the project does not use the service, or the zone lacks it.

        For a zone in which groups have TPUs, the message that the zone does not exist means a missing permission instead.
        """
        absent = _NO_SUCH_PLACE.search(trouble.words) is not None and zone not in self._settings.tpu_zones
        return self._is_unused(kind, trouble) or absent

    def _problem(self, kind: ResourceKind, error: BaseException) -> list[PlatformError]:
        """Returns the error of a service that could not be listed; an empty list if the project does not use the service."""
        if isinstance(error, CallFailed):
            return [] if self._is_unused(kind, error.trouble) else [later(error.trouble, "any zone")]
        if isinstance(error, RateLimited):
            return [error]
        raise error

    def _is_host(self, seen: Sight) -> bool:
        """Returns True if the resource is a slice of this cluster. The control plane's machine is not a slice."""
        return label_rules.is_ours(self._settings, seen.labels) and seen.labels.get(label_rules.ROLE) == "host"


def _kind_of(wanted: CreateRequest) -> ResourceKind:
    match wanted:
        case tpu_v2.CreateNodeRequest():
            return ResourceKind.NODE
        case tpu_v2.CreateQueuedResourceRequest():
            return ResourceKind.QUEUED
        case compute_v1.InsertInstanceRequest():
            return ResourceKind.INSTANCE


def _promised(request: SliceRequest) -> SliceObservation:
    """Returns the observation of a slice that was requested and is not visible yet."""
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
    """Describes the requested machines, for refusals."""
    group = request.group
    tier = "spot" if group.preemptible else "reserved" if group.reservation else "on demand"
    return f"{group.accelerator_variant or group.machine_type} ({tier})"


@contextlib.asynccontextmanager
async def _asked_later(zone: str) -> AsyncIterator[None]:
    """Converts a failed call, or a timeout of all calls together, to an error that tells the caller to repeat the call."""
    try:
        async with asyncio.timeout(VERB):
            yield
    except TimeoutError:
        raise Unavailable(f"Google Cloud did not answer all calls for {zone} within {VERB:g} s") from None
    except CallFailed as error:
        raise later(error.trouble, zone) from None
