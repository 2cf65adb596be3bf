"""Slices on Google Cloud.

Every slice is one thing of Google's with the slice's id as its name: a TPU node, a queued resource (and the node that it makes),
or a virtual machine. Whatever is not remembered here can be found again by that name and by the labels; what is remembered only
saves calls: which of the three an id is, and which operation makes it.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
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
from iris.platforms.gcp.sights import Kind, Sight, failed_create
from iris.platforms.gcp.tpu import Nodes, QueuedResources, list_tpus

logger = logging.getLogger(__name__)

#: Where a service is not offered, the API says so as if it were a matter of rights. There can be nothing there.
_NO_SUCH_PLACE = re.compile(r"Location \S+ is not found")


class Things(Protocol):
    """One kind of what a slice may be, by name. Every method raises `CallFailed`, or `RateLimited` when it was not its turn."""

    async def create(self, request: CreateRequest) -> str: ...

    async def get(self, slice_id: str, zone: str) -> Sight | None: ...

    async def delete(self, slice_id: str, zone: str) -> None: ...

    async def failure(self, slice_id: str, zone: str, operation: str) -> Trouble | None: ...


@dataclass(frozen=True)
class Hint:
    """What is remembered of a slice."""

    kind: Kind
    #: That makes it; empty: it was found.
    operation: str = ""


class GcpPlatform:
    """The slices of one cluster in one project. Every object with the same settings is the same platform."""

    def __init__(self, settings: GcpSettings, script: Callable[[SliceRequest], str], calls: Calls | None = None) -> None:
        """
        Args:
            script: what the hosts of a slice do when they come up.
            calls: None: with clients for the settings' endpoints.
        """
        self._settings = settings
        self._script = script
        self._calls = calls or Calls(settings)
        project = settings.project
        self._things: Mapping[Kind, Things] = {
            Kind.INSTANCE: Instances(self._calls, project),
            Kind.NODE: Nodes(self._calls, project),
            Kind.QUEUED: QueuedResources(self._calls, project),
        }
        self._hints: dict[str, Hint] = {}

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """See `Platform`. What is there already under its name is adopted, if the same request has made it."""
        wanted = create_request(self._settings, request, self._script(request))
        kind, operation = _kind_of(wanted), ""
        things = self._things[kind]
        try:
            operation = await things.create(wanted)
        except CallFailed as error:
            if not error.trouble.is_taken:
                raise verdict(error.trouble, request.zone, _in_words(request)) from None
        self._hints[request.slice_id] = Hint(kind, operation)
        with _asked_later(request.zone):
            seen = await things.get(request.slice_id, request.zone)
            if seen is None and operation and (trouble := await things.failure(request.slice_id, request.zone, operation)):
                raise verdict(trouble, request.zone, _in_words(request))
        if seen is None and not operation:
            raise Unavailable(f"{request.slice_id} was there in {request.zone}, and is gone; it can be asked for again")
        return self._adopted(seen.observation, request, seen.labels) if seen is not None else _promised(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """See `Platform`. Of a slice whose create has failed after Google had agreed to it, it is said why."""
        with _asked_later(zone):
            if (found := await self._find(slice_id, zone)) is not None:
                return found.observation if marks.is_ours(self._settings, found.labels) else None
            trouble = await self._failure(slice_id, zone)
        return failed_create(slice_id, zone, trouble) if trouble is not None else None

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """See `Platform`. What is not ours, or what people have marked as theirs, is not touched."""
        with _asked_later(zone):
            found = await self._find(slice_id, zone)
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
            problems += _problem(tpus)
        else:
            seen += tpus[0]
            unreachable.update(dict.fromkeys(tpus[1], "the Cloud TPU API cannot reach the zone"))
        if isinstance(instances, BaseException):
            problems += _problem(instances)
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
        return FleetListing(slices=tuple(ours[each].observation for each in sorted(ours)), unreachable=unreachable)

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _find(self, slice_id: str, zone: str) -> Sight | None:
        """What has this name. Without a hint all kinds are looked for (who looks for a queued resource finds nodes, too); only
        when nothing is found does it matter that one could not be asked."""
        hint = self._hints.get(slice_id)
        failed: CallFailed | None = None
        for kind in (hint.kind,) if hint is not None else (Kind.INSTANCE, Kind.QUEUED):
            try:
                found = await self._things[kind].get(slice_id, zone)
            except CallFailed as error:
                if hint is not None or not _is_nowhere(error.trouble):
                    failed = error
                continue
            if found is not None:
                return found
        if failed is not None:
            raise failed
        return None

    async def _failure(self, slice_id: str, zone: str) -> Trouble | None:
        """Why the slice's create has failed, as far as any operation tells."""
        hint = self._hints.get(slice_id)
        for kind in (hint.kind,) if hint is not None else tuple(Kind):
            try:
                trouble = await self._things[kind].failure(slice_id, zone, hint.operation if hint is not None else "")
            except CallFailed as error:
                if hint is not None or not _is_nowhere(error.trouble):
                    raise
                continue
            if trouble is not None:
                return None if trouble.is_called_off else trouble
        return None

    async def _delete(self, kind: Kind, slice_id: str, zone: str) -> None:
        """Ask for it. Whether it was done is seen by looking again, also when Google is busy with it."""
        try:
            await self._things[kind].delete(slice_id, zone)
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


def _is_nowhere(trouble: Trouble) -> bool:
    """The service is not switched on, or is not in this zone: there is nothing of it there."""
    return trouble.is_service_disabled or _NO_SUCH_PLACE.search(trouble.words) is not None


def _problem(error: BaseException) -> list[PlatformError]:
    """Why a service could not be listed; nothing when the project does not use it."""
    if isinstance(error, CallFailed):
        return [] if error.trouble.is_service_disabled else [later(error.trouble, "any zone")]
    if isinstance(error, RateLimited):
        return [error]
    raise error


@contextlib.contextmanager
def _asked_later(zone: str) -> Iterator[None]:
    """A call that fails in here is one to be asked again."""
    try:
        yield
    except CallFailed as error:
        raise later(error.trouble, zone) from None
