"""What Temporal's Web UI shows: what a workflow is, in which state, why, on which hosts, and where
its logs are.
"""

import json
from datetime import timedelta

import pytest

from tests.builders import some
from tests.harness import Cluster, Held, fails


async def test_the_page_of_a_waiting_job_says_what_it_waits_for(cluster: Cluster) -> None:
    """With the numbers; the logs command is there too, for later."""
    await cluster.join(offers=some(cpu=4))
    job = await cluster.submit(resources=some(cpu=32))
    await cluster.waits(job)
    page = await cluster.page(cluster.job(job))

    assert "**PENDING** (TOO_BIG) needs 32 cpu; " in page
    assert "Remedy: request at most 4 cpu" in page
    assert "iris logs ada/train" in page


async def test_the_page_of_a_job_of_several_tasks_that_wait_has_the_code_and_the_remedy_too(
    cluster: Cluster,
) -> None:
    """The tasks' pages had them, of which there may be a thousand."""
    await cluster.join(offers=some(cpu=4))
    job = await cluster.submit(replicas=2, resources=some(cpu=32))
    await cluster.waits(job)
    await cluster.until(lambda: _says(cluster, job, "Remedy: request at most 4 cpu"))
    page = await cluster.page(cluster.job(job))

    assert page.startswith("**PENDING** (TOO_BIG) needs 32 cpu; ")
    assert "Remedy: request at most 4 cpu" in page


async def test_the_page_of_a_running_job_says_where_it_runs(cluster: Cluster) -> None:
    """The page shows it without a query to the control plane."""
    runs = Held()
    host = await cluster.join("rack-7", program=runs)
    job = await cluster.submit()
    await cluster.until(lambda: host.taken)
    await cluster.announce(host.taken[0])
    await cluster.until(lambda: _says(cluster, job, "**RUNNING**"))

    assert "- task 0 **RUNNING** on `rack-7`, attempt 1" in await cluster.page(cluster.job(job))
    assert await cluster.shown_state(cluster.job(job)) == "RUNNING"
    runs.let_go()
    await cluster.end(job)
    assert await cluster.shown_state(cluster.job(job)) == "SUCCEEDED"


async def _says(cluster: Cluster, job: str, text: str) -> bool:
    return text in await cluster.page(cluster.job(job))


async def test_the_page_of_a_failed_job_says_why(cluster: Cluster) -> None:
    """State, reason, host, attempt and exit code stay when the job has gone."""
    await cluster.join("rack-7", program=fails)
    job = await cluster.submit()
    await cluster.end(job)
    page = await cluster.page(cluster.job(job))

    assert "**FAILED** " in page
    assert "- task 0 **FAILED** on `rack-7`, attempt 1, exit code 7" in page
    assert await cluster.shown_state(cluster.job(job)) == "FAILED"


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_job_that_ended_without_success_shows_no_traceback_of_iris(
    cluster: Cluster, replicas: int
) -> None:
    """It reads as a fault of Iris, and hides the one line that says what to do."""
    job = await cluster.submit(
        replicas=replicas, resources=some(cpu=32), scheduling_timeout=timedelta(seconds=30)
    )
    end = await cluster.failure(job, within=timedelta(minutes=1))

    assert end.type == "UNSCHEDULABLE"
    assert end.failure is not None
    assert "30s" in end.failure.message
    assert end.failure.stack_trace == ""


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_cancelled_job_shows_no_traceback_of_iris(cluster: Cluster, replicas: int) -> None:
    """Its page and its tasks' pages show why it ended, and nothing else."""
    runs = Held()
    host = await cluster.join(offers=some(cpu=replicas), program=runs)
    job = await cluster.submit(replicas=replicas)
    await cluster.until(lambda: len(host.taken) == replicas)
    await cluster.cancel(job, "cancelled by ada")
    await cluster.end(job)
    tasks = [cluster.task(job, index) for index in range(replicas)] if replicas > 1 else []

    for handle in (cluster.job(job), *tasks):
        assert await cluster.shown_end(handle) == "CANCELED"
        history = json.loads((await handle.fetch_history()).to_json())
        assert history["events"][-1]["eventType"] == "EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED"
        assert "stackTrace" not in str(history)
        assert (await cluster.page(handle)).startswith("**KILLED** cancelled by ada")


async def test_the_pages_of_tasks_slices_and_the_scheduler_say_what_they_are_about(
    cluster: Cluster,
) -> None:
    """The pages to which a job's page links are written in the same way."""
    host = await cluster.join("rack-7")
    job = await cluster.submit(replicas=2)
    await cluster.end(job)

    task = await cluster.page(cluster.task(job, 1))
    assert "**SUCCEEDED**" in task
    assert "Attempt 1 on host `rack-7`." in task
    assert "iris logs ada/train --task 1" in task
    assert "- host `rack-7`: 4 cpu" in await cluster.page(cluster.slice(host.host))
    assert "**1** hosts, **0** gangs placed, **0** waiting" in await cluster.page(cluster.scheduler)
