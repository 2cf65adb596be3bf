"""A slice's machines: asking a platform for them, looking at them, giving them back."""

import logging

from temporalio import activity

from iris.machines import CreateOutcome, DeleteResult, SliceRequest
from iris.platforms.base import Platform, PlatformError, QuotaExceeded, Refused
from iris.workflows.fleet_messages import LastWords, Machines, SliceRef

logger = logging.getLogger(__name__)


class Slices:
    """Activities that act on a platform. Each may be repeated: the slice's id is its machines' name."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    @activity.defn
    async def create_slice(self, request: SliceRequest) -> CreateOutcome:
        """Ask for the slice. A refusal is an outcome; after no answer, or too many calls, Temporal asks again."""
        try:
            return CreateOutcome(observation=await self._platform.create_slice(request))
        except QuotaExceeded as error:
            return CreateOutcome(fault=error.fault, reason=str(error), quota_scope=error.scope)
        except Refused as error:
            return CreateOutcome(fault=error.fault, reason=str(error))

    @activity.defn
    async def describe_slice(self, ref: SliceRef) -> Machines:
        """What the platform says of it now."""
        return Machines(observation=await self._platform.describe_slice(ref.slice_id, ref.zone))

    @activity.defn
    async def last_words(self, ref: SliceRef) -> LastWords:
        """What its machines have said last, as far as the platform tells it now: nobody waits for an answer."""
        try:
            return LastWords(text=await self._platform.last_words(ref.slice_id, ref.zone))
        except PlatformError as error:
            logger.warning("what slice %s has said last is not known: %s", ref.slice_id, error)
            return LastWords()

    @activity.defn
    async def delete_slice(self, ref: SliceRef) -> DeleteResult:
        """Give it back; GOING has to be asked again until it is GONE."""
        return await self._platform.delete_slice(ref.slice_id, ref.zone)
