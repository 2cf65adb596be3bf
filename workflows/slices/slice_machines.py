"""Requests, describes and deletes the machines of one slice, for its workflow."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from iris.activities.control.slices import Slices
from iris.messages.slice import Machines, SliceRef
from iris.model.slice.provisioning import CreateOutcome, DeleteResult, SliceRequest
from iris.workflows import policies


def request(request: SliceRequest) -> workflow.ActivityHandle[CreateOutcome]:
    """Starts the request for the machines, which Temporal retries until the platform has answered.

    If the workflow cancels the request, a call that is under way ends first: it must not create
    machines after the deletion.
    """
    return workflow.start_activity_method(
        Slices.create_slice,
        request,
        start_to_close_timeout=policies.PLATFORM_CALL,
        retry_policy=policies.UNTIL_DONE,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


async def describe(request: SliceRequest) -> Machines | None:
    """Returns the platform's description of the machines; None if it does not answer."""
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


async def console_output(request: SliceRequest) -> str:
    """Returns the machines' last output. It is only for display, so it is empty if the platform
    does not give it at once.
    """
    try:
        console = await workflow.execute_activity_method(
            Slices.console_output,
            SliceRef(slice_id=request.slice_id, zone=request.zone),
            start_to_close_timeout=policies.OBSERVE,
            schedule_to_close_timeout=policies.CONSOLE_OUTPUT,
            retry_policy=policies.ONCE,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return ""
    return console.text


async def delete(request: SliceRequest) -> bool:
    """Deletes the machines. Returns whether they are gone; if not, the platform is still deleting
    them.
    """
    result = await workflow.execute_activity_method(
        Slices.delete_slice,
        SliceRef(slice_id=request.slice_id, zone=request.zone),
        start_to_close_timeout=policies.PLATFORM_CALL,
        retry_policy=policies.UNTIL_DONE,
    )
    return result is DeleteResult.GONE
