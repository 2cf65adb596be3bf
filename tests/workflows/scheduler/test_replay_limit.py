"""A run of the scheduler continues as new before its replay costs much, however few events its
history has.
"""

from itertools import pairwise
from typing import ClassVar

import pytest
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer

from iris.client.connect.plugin import IrisPlugin
from iris.model import names
from iris.model.states import JobState
from iris.scheduling.ledger import ledger
from iris.scheduling.placement.effort import Effort
from iris.workflows.scheduler import scheduler
from tests.builders import some
from tests.harness import WORKFLOWS, Cluster

#: Reached after a few passes here.
LIMIT = 4_000


class Steps(Effort):
    """Remembers the count after each exchange of the scheduler that is being replayed."""

    of_run: ClassVar[list["Steps"]] = []

    def __init__(self) -> None:
        super().__init__()
        self.after: list[int] = []
        self.of_run.append(self)

    def received(self, messages: int) -> None:
        super().received(messages)
        self.after.append(self.looks)


async def _runs(cluster: Cluster, first: str) -> list[WorkflowHistory]:
    """The histories of the scheduler's runs, the oldest first."""
    histories: list[WorkflowHistory] = []
    run_id = first
    while run_id:
        handle: WorkflowHandle[object, object] = cluster.client.get_workflow_handle(
            names.scheduler_workflow(cluster.name), run_id=run_id
        )
        histories.append(await handle.fetch_history())
        run_id = (
            histories[-1]
            .events[-1]
            .workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        )
    return histories


@pytest.mark.long
async def test_no_run_of_the_scheduler_costs_more_to_replay_than_the_limit_and_one_message(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that takes longer than a workflow task may take starts over, again and again: the
    cluster stands still.
    """
    monkeypatch.setattr(scheduler, "MAX_REPLAY", LIMIT)
    first = (await cluster.scheduler.describe()).run_id
    assert first is not None
    await cluster.join(offers=some(cpu=4))
    large = [await cluster.submit(f"large{n}", resources=some(cpu=8 + n)) for n in range(6)]
    for job in large:
        await cluster.waits(job)
    small = [await cluster.submit(f"small{n}") for n in range(8)]
    ends = [await cluster.end(job) for job in small]

    assert {end.state for end in ends} == {JobState.SUCCEEDED}
    assert (await cluster.snapshot()).waiting == len(large)
    runs = await _runs(cluster, first)
    assert len(runs) > 1, "it did not continue as new: nothing was tested"
    monkeypatch.setattr(ledger, "Effort", Steps)
    for history in runs:
        Steps.of_run.clear()
        await Replayer(workflows=list(WORKFLOWS), plugins=[IrisPlugin()]).replay_workflow(history)
        (steps,) = Steps.of_run
        assert steps.looks < LIMIT + max(
            (after - before for before, after in pairwise([0, *steps.after])), default=0
        )
