"""Traces of jobs: the spans of workflows and attempts, and that they change no history."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from iris.client.connect.plugin import IrisPlugin
from iris.model import names
from iris.model.states import JobState
from iris.tracing import spans
from iris.tracing.context import Span
from iris.worker_agents.control_plane.job_tracing import JobTracing
from tests.builders import some
from tests.harness import (
    WORKFLOWS,
    Cluster,
    Held,
    by_index,
    dev_server_cluster,
    fails,
    in_turn,
    is_not_taken,
    is_preempted,
    succeeds,
    time_skipping_cluster,
)
from tests.workflows.test_replay import HISTORIES, history_in

MINUTE = timedelta(minutes=1)


class Recorder(list[Span]):
    """Takes the place of the export: keeps the spans."""

    def emit(self, span: Span) -> None:
        self.append(span)

    def named(self, name: str) -> list[Span]:
        return [span for span in self if span.name == name]


class Traced(Cluster):
    """A cluster whose control plane traces jobs."""

    settings: ClassVar[dict[str, Any]] = {}

    async def _work(self, queue: str, **settings: Any) -> None:
        if queue == names.control_queue(self.name):
            settings |= {"interceptors": [JobTracing()], **self.settings}
        await super()._work(queue, **settings)

    async def history(self, workflow_id: str) -> WorkflowHistory:
        return await self.client.get_workflow_handle(workflow_id).fetch_history()


class Forgetful(Traced):
    """Its control plane removes a workflow from its cache after each task, and replays it for the
    next.
    """

    settings: ClassVar[dict[str, Any]] = {"max_cached_workflows": 0}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(spans, "_exporter", recorder)
    return recorder


@pytest.fixture(params=[Traced, Forgetful])
async def traced(request: pytest.FixtureRequest, recorder: Recorder) -> AsyncIterator[Traced]:
    """Each test runs with and without a cache of workflows: neither an eviction nor a replay may
    export a span.
    """
    async with time_skipping_cluster(request.param) as cluster:
        yield cluster


async def replay(history: WorkflowHistory, *interceptors: JobTracing) -> None:
    await Replayer(
        workflows=list(WORKFLOWS), plugins=[IrisPlugin()], interceptors=interceptors
    ).replay_workflow(history)


async def test_a_trace_shows_each_attempt_with_its_wait_its_set_up_and_its_program(
    traced: Traced, recorder: Recorder
) -> None:
    """Where the time of a job went, also after a retry."""
    host = await traced.join(program=in_turn(fails, succeeds))
    job = await traced.submit(max_retries_failure=1)
    assert (await traced.end(job, within=MINUTE)).state is JobState.SUCCEEDED
    await traced.job(job).query("status")  # replays the history if the workflow is not cached

    (whole,) = recorder.named("job")
    assert {span.context.trace_id for span in recorder} == {whole.context.trace_id}
    assert (whole.parent, whole.error) == (None, "")
    attempts, waits = recorder.named("attempt"), recorder.named("wait for placement")
    assert [each.attributes["iris.attempt"] for each in attempts] == [1, 2]
    assert [each.attributes["iris.host"] for each in attempts] == [host.host.id] * 2
    assert [bool(each.error) for each in attempts] == [True, False]
    assert {each.parent for each in (*attempts, *waits)} == {whole.context}
    for name in ("set-up", "program"):
        assert [each.parent for each in recorder.named(name)] == [each.context for each in attempts]
    # Each wait ends when its attempt begins, and the second begins when the first attempt ends.
    assert [each.end for each in waits] == [each.start for each in attempts]
    assert (waits[0].start, waits[1].start) == (whole.start, attempts[0].end)


async def test_an_attempt_that_its_host_refuses_has_the_reason(
    traced: Traced, recorder: Recorder
) -> None:
    """Temporal's own error says only that an activity has failed."""
    await traced.join(program=in_turn(is_not_taken, succeeds))
    await traced.end(await traced.submit(), within=MINUTE)
    assert [each.error for each in recorder.named("attempt")] == [
        "OSError: [Errno 28] No space left on device",
        "",
    ]


async def test_a_cancelled_job_has_the_span_of_its_attempt_and_its_own(
    traced: Traced, recorder: Recorder
) -> None:
    """A cancellation reaches the workflow as the removal from a cache does, which ends nothing."""
    await traced.join(program=Held())
    job = await traced.submit()
    await traced.until(lambda: any(host.taken for host in traced.hosts.values()))
    await traced.cancel(job, "enough")
    await traced.end(job)

    (whole,), (attempt,) = recorder.named("job"), recorder.named("attempt")
    assert (whole.error, attempt.parent) == ("cancelled", whole.context)
    assert attempt.error


# Without a cache, the time-skipping server breaks down on such a job, also without traces: it then
# does not know an activity that it has scheduled itself.
@pytest.mark.parametrize("traced", [Traced], indirect=True)
async def test_tasks_with_workflows_of_their_own_join_the_trace_of_their_job(
    traced: Traced, recorder: Recorder
) -> None:
    """A job of a hundred tasks is one trace, not a hundred."""
    await traced.join(program=by_index(succeeds, fails), offers=some(cpu=2))
    job = await traced.submit(replicas=2)
    await traced.end(job, within=MINUTE)

    (whole,), tasks = recorder.named("job"), recorder.named("task")
    assert whole.error
    assert {each.context.trace_id for each in recorder} == {whole.context.trace_id}
    assert [each.parent for each in tasks] == [whole.context] * 2
    assert {each.parent for each in recorder.named("attempt")} == {each.context for each in tasks}


async def test_a_history_is_replayed_with_and_without_traces_and_exports_nothing_again(
    traced: Traced, recorder: Recorder
) -> None:
    """Tracing is switched on and off by a restart of the control plane, while jobs run."""
    await traced.join(program=in_turn(fails, succeeds))
    job = await traced.submit(max_retries_failure=1)
    await traced.end(job, within=MINUTE)
    exported = len(recorder)
    history = await traced.history(names.job_workflow(traced.name, job))

    await replay(history)
    await replay(history, JobTracing())

    assert len(recorder) == exported


@pytest.mark.long
async def test_the_runs_of_a_job_that_continues_as_new_are_one_span(recorder: Recorder) -> None:
    """A job that was preempted for weeks has many runs, and its user knows one job."""
    async with dev_server_cluster(
        "limit.historyCount.suggestContinueAsNew=20", kind=Traced
    ) as traced:
        await traced.join(program=in_turn(*[is_preempted] * 4, succeeds))
        job = await traced.submit()
        await traced.end(job)
        described = await traced.job(job).describe()

    assert described.run_id != described.raw_description.workflow_execution_info.first_run_id
    (whole,), attempts = recorder.named("job"), recorder.named("attempt")
    assert [each.attributes["iris.attempt"] for each in attempts] == [1, 2, 3, 4, 5]
    assert {each.parent for each in attempts} == {whole.context}
    waits = recorder.named("wait for placement")
    assert [each.start for each in waits] == [whole.start, *(each.end for each in attempts[:-1])]


@pytest.mark.long
async def test_histories_without_traces_are_replayed_with_them(recorder: Recorder) -> None:
    """Of every kind of workflow: jobs that were submitted before the switch must go on."""
    for path in HISTORIES:
        await replay(history_in(path), JobTracing())
    assert Counter(span.name for span in recorder) == {}
