"""The audit: each change by a person and each refusal is one line, and nothing else is."""

import asyncio
import json

import pytest
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    RequestCancelWorkflowExecutionRequest,
    StartBatchOperationRequest,
)

from iris.model import names
from tests.e2e.access import requests
from tests.e2e.access.conftest import Service
from tests.e2e.access.people import CLUSTER, NAMESPACE
from tests.e2e.access.requests import execution, job_id

pytestmark = pytest.mark.production


async def test_changes_and_refusals_are_recorded(service: Service) -> None:
    """Who, with which key, from where, what, and why; reads and other traffic of hosts are not
    there.
    """
    before = len(service.audit())
    job = job_id("ada/audited")
    cancel = RequestCancelWorkflowExecutionRequest(
        namespace=NAMESPACE, workflow_execution=execution(job), reason="a better idea"
    )
    read = DescribeWorkflowExecutionRequest(namespace=NAMESPACE, execution=execution(job))
    ready = requests.signal(names.slice_workflow(CLUSTER, "h"), "host_ready")
    batch = StartBatchOperationRequest(namespace=NAMESPACE)

    await service.who("ada", "start_workflow_execution", requests.start("ada/audited"))
    await service.who("olga", "signal_workflow_execution", requests.signal(job, "hold"))
    await service.who("vera", "describe_workflow_execution", read)
    await service.refusal("stolen", "signal_workflow_execution", ready)
    await service.refusal("bob", "request_cancel_workflow_execution", cancel)
    await service.who("ada", "request_cancel_workflow_execution", cancel)
    await service.refusal("olga", "start_batch_operation", batch)

    lines = service.audit()[before:]
    facts = [
        (each["who"], each["role"], each["method"], each.get("what"), each.get("detail"))
        for each in lines
    ]
    assert facts == [
        ("ada", "user", "StartWorkflowExecution", "job/ada/audited", "start JobWorkflow"),
        ("olga", "operator", "SignalWorkflowExecution", "job/ada/audited", "signal hold"),
        ("bob", "user", "RequestCancelWorkflowExecution", "job/ada/audited", "cancel"),
        ("ada", "user", "RequestCancelWorkflowExecution", "job/ada/audited", "cancel"),
        ("olga", "operator", "StartBatchOperation", None, None),
    ]
    assert [each["allowed"] for each in lines] == [True, True, False, True, False]
    assert [each.get("why") for each in lines[2:4]] == ["a better idea"] * 2
    assert lines[0]["key"] == service.people["ada"].key_id[:12]
    assert all(each["from"].startswith("127.0.0.1:") for each in lines)


async def test_a_stranger_cannot_fill_the_disk(service: Service) -> None:
    """Of many refusals in a second some are counted instead, and what clients write is cut."""
    before = len(service.audit())
    long = requests.signal(job_id("ada/" + "x" * 10_000), "hold")
    for _ in range(100):
        await service.refusal("bob", "signal_workflow_execution", long)

    lines = service.audit()[before:]
    while not any(each.get("left_out") for each in lines):
        await asyncio.sleep(0.1)
        await service.refusal("bob", "signal_workflow_execution", long)
        lines = service.audit()[before:]

    assert len(lines) < 100
    assert max(len(json.dumps(each)) for each in lines) < 2_000
