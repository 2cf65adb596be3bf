"""Recorded histories still fit the workflows: what runs when the code is changed must be able to go
on.
"""

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from iris.client.connect.plugin import IrisPlugin
from tests.harness import WORKFLOWS

HISTORIES = sorted((Path(__file__).parent.parent / "histories").glob("*.json"))


def _workflow_type(path: Path) -> str:
    first = json.loads(path.read_text())["events"][0]
    return first["workflowExecutionStartedEventAttributes"]["workflowType"]["name"]


def history_in(path: Path) -> WorkflowHistory:
    """The history in a file."""
    text = path.read_text()
    return WorkflowHistory.from_json(json.loads(text)["workflowId"], text)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_is_replayed_without_a_difference(path: Path) -> None:
    """A workflow that decides otherwise than it did is stuck for ever: every job under way at an
    upgrade would be.
    """
    await Replayer(workflows=list(WORKFLOWS), plugins=[IrisPlugin()]).replay_workflow(
        history_in(path)
    )


def test_there_are_histories_of_every_kind_of_workflow() -> None:
    """A new workflow without one would be changed without a guard."""
    assert {workflow.__name__ for workflow in WORKFLOWS} == {
        _workflow_type(path) for path in HISTORIES
    }
