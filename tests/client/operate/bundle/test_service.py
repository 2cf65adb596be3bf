"""What a bundle has of Temporal's answers: all but the payloads."""

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo, WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from iris.client.operate.bundle.service import without_payloads

SECRET = b"opensesame"
PAYLOAD = Payload(metadata={"encoding": b"json/plain"}, data=SECRET)
PAYLOADS = Payloads(payloads=[PAYLOAD])


def test_an_event_keeps_its_names_and_times_and_loses_every_payload() -> None:
    """Arguments, headers, memos, attributes and details: each may have a command or a token."""
    event = HistoryEvent(event_id=7)
    started = event.workflow_execution_started_event_attributes
    started.workflow_type.name = "JobWorkflow"
    started.input.CopyFrom(PAYLOADS)
    started.header.fields["trace"].CopyFrom(PAYLOAD)
    started.memo.fields["iris_command"].CopyFrom(PAYLOAD)
    started.search_attributes.indexed_fields["IrisUser"].CopyFrom(PAYLOAD)
    started.continued_failure.CopyFrom(
        Failure(
            message="exited with code 3",
            cause=Failure(
                encoded_attributes=PAYLOAD,
                application_failure_info=ApplicationFailureInfo(type="Job", details=PAYLOADS),
            ),
        )
    )
    event.user_metadata.summary.CopyFrom(PAYLOAD)
    assert without_payloads(event) == {
        "eventId": "7",
        "workflowExecutionStartedEventAttributes": {
            "workflowType": {"name": "JobWorkflow"},
            "continuedFailure": {
                "message": "exited with code 3",
                "cause": {"applicationFailureInfo": {"type": "Job"}},
            },
        },
    }
    assert started.input == PAYLOADS  # the caller's message is unchanged


def test_a_marker_loses_its_details_which_are_in_a_map() -> None:
    """The result of a local activity is in one."""
    event = HistoryEvent()
    event.marker_recorded_event_attributes.marker_name = "core_local_activity"
    event.marker_recorded_event_attributes.details["result"].CopyFrom(PAYLOADS)
    assert without_payloads(event) == {
        "markerRecordedEventAttributes": {"markerName": "core_local_activity"}
    }


def test_the_description_of_a_workflow_keeps_its_pending_activities_without_heartbeats() -> None:
    """How often an activity was tried, and why it failed, is what a report needs."""
    activity = PendingActivityInfo(attempt=9, heartbeat_details=PAYLOADS)
    activity.last_failure.message = "no answer"
    described = DescribeWorkflowExecutionResponse(
        pending_activities=[activity],
        workflow_execution_info=WorkflowExecutionInfo(history_length=41),
    )
    described.workflow_execution_info.memo.fields["iris_store"].CopyFrom(PAYLOAD)
    assert without_payloads(described) == {
        "workflowExecutionInfo": {"historyLength": "41"},
        "pendingActivities": [{"attempt": 9, "lastFailure": {"message": "no answer"}}],
    }
