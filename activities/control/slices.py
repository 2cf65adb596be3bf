"""Calls the platform to create, describe and delete a slice's machines."""

import logging

from temporalio import activity

from iris.activities.control.platform_calls import platform_call
from iris.messages.slice import ConsoleOutput, Machines, SliceRef
from iris.model.slice.provisioning import CreateOutcome, DeleteResult, SliceRequest
from iris.platforms.base import Platform, PlatformError, QuotaExceeded, Refused

logger = logging.getLogger(__name__)


class Slices:
    """Activities that call a platform. Each call may be repeated: the machines of a slice have the
    slice's id as their name, so a second call finds the machines of the first one.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    @activity.defn
    async def create_slice(self, request: SliceRequest) -> CreateOutcome:
        """Creates the slice. A refusal of the platform is an outcome. Other errors fail the
        activity, which Temporal retries.
        """
        try:
            with platform_call("create"):
                return CreateOutcome(observation=await self._platform.create_slice(request))
        except QuotaExceeded as error:
            return CreateOutcome(fault=error.fault, reason=str(error), quota_scope=error.scope)
        except Refused as error:
            return CreateOutcome(fault=error.fault, reason=str(error))

    @activity.defn
    async def describe_slice(self, ref: SliceRef) -> Machines:
        """Returns the platform's current description of the slice's machines."""
        with platform_call("describe"):
            seen = await self._platform.describe_slice(ref.slice_id, ref.zone)
        return Machines(observation=seen, at=activity.info().current_attempt_scheduled_time)

    @activity.defn
    async def console_output(self, ref: SliceRef) -> ConsoleOutput:
        """Returns the last output of the slice's machines. It is only for display, so it is empty
        if the platform does not give it now.
        """
        try:
            with platform_call("output"):
                return ConsoleOutput(text=await self._platform.last_output(ref.slice_id, ref.zone))
        except PlatformError as error:
            logger.warning(
                "the console output of slice %s is not available: %s", ref.slice_id, error
            )
            return ConsoleOutput()

    @activity.defn
    async def delete_slice(self, ref: SliceRef) -> DeleteResult:
        """Deletes the slice's machines. If the result is GOING, the caller repeats this."""
        with platform_call("delete"):
            return await self._platform.delete_slice(ref.slice_id, ref.zone)
