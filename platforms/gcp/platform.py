"""Implements a platform on Google Cloud.

Each slice is one Google resource whose name is the slice's id: a TPU node, a queued resource (with
the node that it creates), or a virtual machine. `GcpPlatform` finds every slice by that name and by
the labels. It remembers the kind of a slice and the operation that creates it only to save calls.
"""

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from google.cloud import tpu_v2

from iris.model.slice.keys import KEY_BYTES, derived_key, public_key
from iris.model.slice.provisioning import (
    ANYWHERE,
    DeleteResult,
    FleetListing,
    MachineState,
    SliceObservation,
    SliceRequest,
)
from iris.platforms.base import BadConfig, PlatformError, RateLimited, Unavailable
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.clients import Calls
from iris.platforms.gcp.compute import Instances, list_instances
from iris.platforms.gcp.create_requests import CreateRequest, create_request
from iris.platforms.gcp.diagnostics import tail
from iris.platforms.gcp.errors import ApiError, CallFailed, platform_error, retryable_error
from iris.platforms.gcp.lean_compute import compute_v1
from iris.platforms.gcp.observe import (
    CreateOperation,
    ObservedResource,
    ResourceKind,
    failed_create,
    not_visible,
)
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.gcp.tpu import Nodes, QueuedResources, list_tpus

logger = logging.getLogger(__name__)

#: The deadline of one platform call, in seconds. A create call that has begun may need
#: `clients.DEADLINE` in addition. The sum is below the 60 s that the workflows allow for a platform
#: call.
CALL_TIMEOUT_S = 40.0
#: The time after a create call during which a slice that is not visible may still appear, in
#: seconds. It is used if the result or the progress of the call is unknown.
INVISIBLE_TIMEOUT_S = 60.0
#: The time after a create call during which a slice that is not visible may still appear while an
#: operation reports that the create is running, in seconds. It is limited, because an operation
#: that is stuck runs for ever.
CREATE_TIMEOUT_S = 600.0
#: The states of a slice whose create may have failed. For a slice in these states, the platform
#: also reads the create operation, which contains the reason. `describe_slice` does so for
#: CREATING, too.
_ENDING = frozenset({MachineState.DELETING, MachineState.PREEMPTED})
_DOUBTFUL = _ENDING | {MachineState.CREATING}
#: Matches the message of the API in a zone where the service is not offered. Google reports this as
#: a permission error, so a real permission error may have the same message.
_NO_SUCH_ZONE = re.compile(r"Location \S+ is not found")


class SliceApi(Protocol):
    """The calls on the slices of one kind of Google resource. Every method raises `CallFailed`, or
    `RateLimited` if the rate limit did not allow its call in time.
    """

    async def create(self, request: CreateRequest) -> str: ...

    async def get(self, slice_id: str, zone: str) -> ObservedResource | None: ...

    async def delete(self, slice_id: str, zone: str) -> None: ...

    async def find_create_operation(
        self, slice_id: str, zone: str, operation: str
    ) -> CreateOperation | None:
        """Returns the operation that creates the slice; None if there is none or it is lost.

        Args:
            operation: the name of the operation; empty: the method searches for it.
        """
        ...

    async def last_output(self, slice_id: str, zone: str) -> str: ...


@dataclass(frozen=True)
class Hint:
    """The facts that the platform remembers about a slice, to decide whether the slice may still
    appear although it is not visible.
    """

    kind: ResourceKind
    #: The name of the Google operation that creates the slice; empty if the slice has been active
    #: since, or if the name is unknown.
    operation: str = ""
    #: The time of the create call; None if there was no create call, or the slice has been seen
    #: since.
    requested_at: float | None = None

    def may_appear(self, creation: CreateOperation | None, now: float) -> bool:
        """Returns True if the slice may still appear, although it is not visible now."""
        if self.requested_at is None or (creation is not None and creation.error is not None):
            return False
        running = creation is not None and not creation.done
        return now < self.requested_at + (CREATE_TIMEOUT_S if running else INVISIBLE_TIMEOUT_S)


class GcpPlatform:
    """Manages the slices of one cluster in one project of Google Cloud. All objects with the same
    settings manage the same slices.
    """

    def __init__(
        self,
        settings: GcpSettings,
        script: Callable[[SliceRequest], str],
        calls: Calls | None = None,
        now: Callable[[], float] = time.monotonic,
        secret: bytes = b"",
        delegate: Callable[[str, str], str] = lambda slice_id, public_key: "",
    ) -> None:
        """
        Args:
            script: returns the startup script of a slice's hosts.
            calls: None: clients for the settings' endpoints.
            now: a clock, in seconds.
            secret: the private keys of slices are derived from it; empty: random, because a slice's
                metadata has its keys.
            delegate: returns the text that proves to Temporal's servers that a slice has this
                public key; empty if they need none.
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
        self._secret = secret or secrets.token_bytes(KEY_BYTES)
        self._delegate = delegate

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """Implements `Platform.create_slice`. Adopts an existing resource of the name if the same
        request created it.
        """
        private_key = derived_key(self._secret, request.slice_id, request.token)
        delegation = self._delegate(request.slice_id, public_key(private_key))
        wanted = create_request(
            self._settings, request, self._script(request), private_key, delegation
        )
        async with _retryable_errors(request.zone):
            operation = await self._create(wanted, request)
            seen = await self._find(request.slice_id, request.zone)
            if seen is None and operation:
                creation = await self._find_create_operation(request.slice_id, request.zone)
                if creation is not None and creation.error is not None:
                    raise platform_error(creation.error, request.zone, _machine_kind(request))
        if seen is None and not operation:
            raise Unavailable(
                f"{request.slice_id} in {request.zone} was deleted during its creation; the request"
                " can be repeated"
            )
        return (
            self._adopted(seen.observation, request, seen.labels)
            if seen is not None
            else _requested(request, private_key)
        )

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """Implements `Platform.describe_slice`.

        If Google accepted the create and it failed later, the observation contains the reason.
        While the create is running, there is an observation even if the resource is not visible
        yet.
        """
        async with _retryable_errors(zone):
            if (found := await self._find(slice_id, zone)) is not None:
                return (
                    await self._explained(found, _DOUBTFUL)
                    if label_rules.is_ours(self._settings, found.labels)
                    else None
                )
            creation = await self._find_create_operation(slice_id, zone)
        if creation is not None and creation.error is not None:
            return (
                None
                if creation.error.is_cancelled
                else failed_create(slice_id, zone, creation.error)
            )
        return not_visible(slice_id, zone) if self._may_appear(slice_id, creation) else None

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Implements `Platform.last_output`.

        Returns the end of a virtual machine's serial console, or the problems of a TPU node, which
        has no console.
        """
        async with _retryable_errors(zone):
            found = await self._find(slice_id, zone)
            if found is None or not label_rules.is_ours(self._settings, found.labels):
                return ""
            return tail(await self._apis[found.kind].last_output(slice_id, zone))

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """Implements `Platform.delete_slice`.

        Does not touch a resource of another owner, or one marked as manual. An invisible slice is
        not GONE while a create that may still produce it is running.
        """
        async with _retryable_errors(zone):
            found = await self._find(slice_id, zone)
            if found is None and await self._may_still_appear(slice_id, zone):
                await self._delete(self._hints[slice_id].kind, slice_id, zone)
                return DeleteResult.GOING
            if found is None or not label_rules.is_ours(self._settings, found.labels):
                self._hints.pop(slice_id, None)
                return DeleteResult.GONE if found is None else DeleteResult.LEFT
            if found.observation.state is not MachineState.DELETING:
                await self._delete(found.kind, slice_id, zone)
        return DeleteResult.GOING

    async def list_slices(self) -> FleetListing:
        """Implements `Platform.list_slices`. If one of the two services does not answer, no zone is
        listed completely.
        """
        tpus, instances = await asyncio.gather(
            list_tpus(self._calls, self._settings.project),
            list_instances(self._calls, self._settings.project, self._settings.uid),
            return_exceptions=True,
        )
        seen: list[ObservedResource] = []
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
        # Pages may overlap.
        ours = {each.observation.slice_id: each for each in seen if self._is_host(each)}
        for slice_id, each in ours.items():
            self._hints.setdefault(slice_id, Hint(each.kind))
        slices = []
        for slice_id in sorted(ours):
            # Without the explanation the observation is still useful.
            try:
                slices.append(await self._explained(ours[slice_id]))
            except (
                CallFailed,
                RateLimited,
            ):
                slices.append(ours[slice_id].observation)
        return FleetListing(slices=tuple(slices), unreachable=unreachable)

    # -- Private methods
    # ----------------------------------------------------------------------------------------------

    async def _find(self, slice_id: str, zone: str) -> ObservedResource | None:
        """Returns the resource of this name.

        Without a hint it looks for all kinds; the search for queued resources finds nodes, too. A
        failed search matters only if the other one finds nothing.
        """
        hint = self._hints.get(slice_id)
        failed: CallFailed | None = None
        for kind in (
            (hint.kind,) if hint is not None else (ResourceKind.INSTANCE, ResourceKind.QUEUED)
        ):
            try:
                found = await self._apis[kind].get(slice_id, zone)
            except CallFailed as error:
                if hint is not None or not self._is_nowhere(kind, error.api_error, zone):
                    failed = error
                continue
            if found is not None:
                self._hints[slice_id] = Hint(found.kind, hint.operation if hint is not None else "")
                return found
        if failed is not None:
            raise failed
        return None

    async def _find_create_operation(self, slice_id: str, zone: str) -> CreateOperation | None:
        """Returns the operation that creates the slice, or that failed to, if Google still lists
        it.
        """
        hint = self._hints.get(slice_id)
        if hint is not None:
            return await self._apis[hint.kind].find_create_operation(slice_id, zone, hint.operation)
        for kind in (ResourceKind.INSTANCE, ResourceKind.QUEUED):
            try:
                creation = await self._apis[kind].find_create_operation(slice_id, zone, "")
            except CallFailed as error:
                if not self._is_nowhere(kind, error.api_error, zone):
                    raise
                continue
            if creation is not None:
                if not creation.done:  # the process that made the create call is gone
                    self._hints[slice_id] = Hint(kind, creation.name, self._now())
                return creation
        return None

    def _may_appear(self, slice_id: str, creation: CreateOperation | None) -> bool:
        hint = self._hints.get(slice_id)
        return hint is not None and hint.may_appear(creation, self._now())

    async def _may_still_appear(self, slice_id: str, zone: str) -> bool:
        """Returns True if an invisible slice may still appear. A slice that was visible once and is
        not any more is gone.
        """
        hint = self._hints.get(slice_id)
        if hint is not None and hint.requested_at is None:
            return False
        return self._may_appear(slice_id, await self._find_create_operation(slice_id, zone))

    async def _explained(
        self, seen: ObservedResource, doubtful: frozenset[MachineState] = _ENDING
    ) -> SliceObservation:
        """Returns the observation, with the reason of a failed create added.

        After a failed create the machines stay visible for a moment, in a state of deletion or
        creation. Only the create operation contains the reason.

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
        creation = await self._apis[hint.kind].find_create_operation(
            found.slice_id, found.zone, hint.operation
        )
        if creation is None or creation.error is None or creation.error.is_cancelled:
            return found
        why = failed_create(found.slice_id, found.zone, creation.error)
        cause = {
            "state": why.state,
            "reason": why.reason,
            "fault": why.fault,
            "quota_scope": why.quota_scope,
        }
        return found.model_copy(update=cause)

    async def _create(self, wanted: CreateRequest, request: SliceRequest) -> str:
        """Makes the create call and remembers it: a call without an answer, or with a cancelled
        caller, may still succeed.

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
            error = platform_error(failed.api_error, request.zone, _machine_kind(request))
            unknown = failed.api_error.already_exists or isinstance(error, Unavailable)
            self._hints[request.slice_id] = (
                Hint(kind, before.operation, self._now()) if unknown else before
            )
            if not failed.api_error.already_exists:
                raise error from None
            return ""
        self._hints[request.slice_id] = Hint(kind, operation, self._now())
        return operation

    async def _delete(self, kind: ResourceKind, slice_id: str, zone: str) -> None:
        """Makes the delete call. The caller sees the result when it looks again, also if Google is
        busy with the resource.
        """
        try:
            await self._apis[kind].delete(slice_id, zone)
        except CallFailed as error:
            if not (error.api_error.is_absence or error.api_error.is_busy):
                raise
            logger.info("cannot delete slice %s in %s yet: %s", slice_id, zone, error)

    def _adopted(
        self, seen: SliceObservation, request: SliceRequest, labels: Mapping[str, str]
    ) -> SliceObservation:
        if not label_rules.is_ours(self._settings, labels) or seen.token != request.token:
            raise BadConfig(
                f"{request.slice_id} in {request.zone} already exists and was created by another"
                " request"
            )
        if seen.state is MachineState.DELETING:
            raise Unavailable(f"{request.slice_id} in {request.zone} is being deleted")
        return seen

    def _is_unused(self, kind: ResourceKind, api_error: ApiError) -> bool:
        """Returns True if the project does not use the service.

        An error that names no project counts only for the TPU API, and only if no group has TPUs.
        """
        no_tpus = kind is not ResourceKind.INSTANCE and not self._settings.tpu_zones
        return api_error.is_disabled_in(self._settings.project) or (
            no_tpus and api_error.is_service_disabled
        )

    def _is_nowhere(self, kind: ResourceKind, api_error: ApiError, zone: str) -> bool:
        """Returns True if there can be no resource of the kind: the project does not use the
        service, or the zone lacks it.

        For a zone in which groups have TPUs, the message that the zone does not exist means a
        missing permission instead.
        """
        absent = (
            _NO_SUCH_ZONE.search(api_error.message) is not None
            and zone not in self._settings.tpu_zones
        )
        return self._is_unused(kind, api_error) or absent

    def _problem(self, kind: ResourceKind, error: BaseException) -> list[PlatformError]:
        """Returns the error of a service that could not be listed; an empty list if the project
        does not use the service.
        """
        if isinstance(error, CallFailed):
            return (
                []
                if self._is_unused(kind, error.api_error)
                else [retryable_error(error.api_error, "any zone")]
            )
        if isinstance(error, RateLimited):
            return [error]
        raise error

    def _is_host(self, seen: ObservedResource) -> bool:
        """Returns True if the resource is a slice of this cluster. The control plane's machine is
        not a slice.
        """
        return (
            label_rules.is_ours(self._settings, seen.labels)
            and seen.labels.get(label_rules.ROLE) == "host"
        )


def _kind_of(wanted: CreateRequest) -> ResourceKind:
    match wanted:
        case tpu_v2.CreateNodeRequest():
            return ResourceKind.NODE
        case tpu_v2.CreateQueuedResourceRequest():
            return ResourceKind.QUEUED
        case compute_v1.InsertInstanceRequest():
            return ResourceKind.INSTANCE


def _requested(request: SliceRequest, private_key: str) -> SliceObservation:
    """Returns the observation of a slice that was requested with this key and is not visible
    yet.
    """
    return SliceObservation(
        slice_id=request.slice_id,
        group=request.group.name,
        zone=request.zone,
        state=MachineState.CREATING,
        created_at=datetime.now(UTC),
        hosts=request.group.hosts,
        token=request.token,
        public_key=public_key(private_key),
    )


def _machine_kind(request: SliceRequest) -> str:
    """Describes the requested machines, for refusals."""
    group = request.group
    tier = "spot" if group.preemptible else "reserved" if group.reservation else "on demand"
    return f"{group.accelerator_variant or group.machine_type} ({tier})"


@contextlib.asynccontextmanager
async def _retryable_errors(zone: str) -> AsyncIterator[None]:
    """Converts a failed call, or a timeout of all calls together, to an error that tells the caller
    to repeat the call.
    """
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            yield
    except TimeoutError:
        raise Unavailable(
            f"Google Cloud did not answer all calls for {zone} within {CALL_TIMEOUT_S:g} s"
        ) from None
    except CallFailed as error:
        raise retryable_error(error.api_error, zone) from None
