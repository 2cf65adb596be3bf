"""A job runs only where its constraints hold, and where `--dry-run` says that it will."""

import pytest

from iris.model.host.constraints import parse_constraint, preemptible_constraint
from iris.model.states import JobState
from tests.builders import CHIPS, a_spec, demands
from tests.fleet_harness import MINUTE, FleetCluster
from tests.harness import Cluster
from tests.scaling_world import a_group


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("preemptible = true", "spot"),
        ("preemptible != true", "firm"),
        ("preemptible = false", "firm"),
        ("preemptible != false", "spot"),
        ("preemptible in (true, 2)", "spot"),
        ("preemptible = 1", "one"),
        ("preemptible in (1)", "one"),
        ('preemptible = "true"', "text"),
    ],
)
async def test_a_job_runs_where_its_constraint_holds_and_the_forecast_agrees(
    cluster: Cluster, text: str, where: str
) -> None:
    """`true`, `1` and `"true"` are three values on the whole way from the command line to the
    host.
    """
    others = {} if "!=" in text else {"one": 1, "text": "true"}
    for host_id, value in {"spot": True, "firm": False, **others}.items():
        await cluster.join(host_id, attributes={"preemptible": value})
    constraints = (parse_constraint(text),)
    foreseen = await cluster.users.jobs.forecast(a_spec(constraints=constraints))
    status = await cluster.end(await cluster.submit(constraints=constraints))

    assert (status.state, status.tasks[0].host) == (JobState.SUCCEEDED, where)
    assert foreseen.hosts == (where,)


async def test_a_job_that_no_host_may_run_waits_and_its_reason_names_the_values_as_they_are_typed(
    cluster: Cluster,
) -> None:
    """Half of what `!= true` is for: a job that must not be interrupted never runs where it may
    be.
    """
    await cluster.join(attributes={"preemptible": True})
    job = await cluster.submit(constraints=demands("preemptible != true"))
    await cluster.waits(job)

    refusal = (await cluster.users.jobs.explain(job)).refusal
    assert refusal is not None
    assert refusal.excluded == {"preemptible != true": 1}


@pytest.mark.parametrize("preemptible", [True, False])
async def test_a_gang_that_demands_a_truth_value_gets_a_slice_of_the_group_that_has_it(
    fleet: FleetCluster, preemptible: bool
) -> None:
    """The demand travels on to the autoscaler, and the slice's hosts back to the scheduler."""
    await fleet.scale(a_group("spot", preemptible=True), a_group("firm", preemptible=False))
    job = await fleet.gang(
        tasks=4, resources=CHIPS, constraints=(preemptible_constraint(preemptible),)
    )
    await fleet.comes_true(lambda: fleet.platform.created)

    assert (await fleet.end(job, within=MINUTE)).state is JobState.SUCCEEDED
    assert [slice_id.split("-")[1] for slice_id in fleet.platform.created] == [
        "spot" if preemptible else "firm"
    ]
