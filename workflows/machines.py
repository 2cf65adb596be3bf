"""The machines of one slice, for its workflow: asking for them, looking at them, giving them back."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from iris.activities.slices import Slices
from iris.machines import CreateOutcome, DeleteResult, SliceRequest
from iris.workflows import policies
from iris.workflows.fleet_messages import Machines, SliceRef


def ask(request: SliceRequest) -> workflow.ActivityHandle[CreateOutcome]:
    """Begin to ask the platform, until it has answered. A call that is under way when nobody wants the answer any more ends
    first: what it makes must not come after what deletes it."""
    return workflow.start_activity_method(
        Slices.create_slice,
        request,
        start_to_close_timeout=policies.PLATFORM_CALL,
        retry_policy=policies.UNTIL_DONE,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


async def look(request: SliceRequest) -> Machines | None:
    """What the platform says of them; None: it does not answer, and nothing is known."""
    try:
        return await workflow.execute_activity_method(
            Slices.describe_slice,
            SliceRef(slice_id=request.slice_id, zone=request.zone),
            start_to_close_timeout=policies.PLATFORM_CALL,
            retry_policy=policies.A_FEW_TIMES,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return None


async def last_words(request: SliceRequest) -> str:
    """What they have said last; empty when that is not told at once: it is for people, and nothing waits for it."""
    try:
        said = await workflow.execute_activity_method(
            Slices.last_words,
            SliceRef(slice_id=request.slice_id, zone=request.zone),
            start_to_close_timeout=policies.OBSERVE,
            schedule_to_close_timeout=policies.LAST_WORDS,
            retry_policy=policies.ONCE,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return ""
    return said.text


async def give_back(request: SliceRequest) -> bool:
    """Whether they are gone; else the platform is at it."""
    result = await workflow.execute_activity_method(
        Slices.delete_slice,
        SliceRef(slice_id=request.slice_id, zone=request.zone),
        start_to_close_timeout=policies.PLATFORM_CALL,
        retry_policy=policies.UNTIL_DONE,
    )
    return result is DeleteResult.GONE
