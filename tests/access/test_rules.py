"""The rules of the policy use the names that Iris's workflows and agents have."""

from collections.abc import Iterator, Mapping

import pytest
from temporalio import workflow

from iris.access.rules import ALL, rules
from iris.client.pool import messages as pool
from iris.messages.exec import EXEC_TASK, PROFILE_TASK
from iris.messages.port_forward import FORWARD_PORTS
from iris.model import names
from iris.model.job.arrays import KIND_PART
from iris.workflows.autoscaler.autoscaler import AutoscalerWorkflow
from iris.workflows.jobs.array_part import ArrayPartWorkflow
from iris.workflows.jobs.job import JobWorkflow
from iris.workflows.jobs.scheduled_job import ScheduledJobWorkflow
from iris.workflows.jobs.task import TaskWorkflow
from iris.workflows.scheduler.scheduler import SchedulerWorkflow
from iris.workflows.slices.slice import SliceWorkflow

CLUSTER = "lab"
WORKFLOWS: Mapping[str, type] = {
    names.KIND_JOB: JobWorkflow,
    names.KIND_TASK: TaskWorkflow,
    KIND_PART: ArrayPartWorkflow,
    names.KIND_SCHEDULE: ScheduledJobWorkflow,
    names.KIND_SLICE: SliceWorkflow,
    names.KIND_SCHEDULER: SchedulerWorkflow,
    names.KIND_AUTOSCALER: AutoscalerWorkflow,
}


def granted(call: str) -> Iterator[tuple[str, str]]:
    """Yields the kinds and names that some role may use in a call."""
    for by_whose in rules(CLUSTER)["roles"].values():
        for calls in by_whose.values():
            for kind, allowed in calls.get(call, {}).items():
                yield from ((kind, name) for name in allowed if ALL not in (kind, name))


@pytest.mark.parametrize("call", ["signal", "query", "update"])
def test_messages_in_the_rules_are_messages_of_the_workflow(call: str) -> None:
    """A message that was renamed would be refused for everybody."""
    for kind, name in granted(call):
        definition = workflow._Definition.must_from_class(WORKFLOWS[kind])
        known = {
            "signal": definition.signals,
            "query": definition.queries,
            "update": definition.updates,
        }
        by_host = call == "signal" and names.host_of_signal(name) is not None
        assert (None if by_host else name) in known[call], (kind, name)


def test_types_in_the_rules_are_types_of_workflows_and_activities() -> None:
    """The rules spell the names of activities that they cannot import."""
    sessions = {EXEC_TASK, PROFILE_TASK, FORWARD_PORTS}
    activities = {*sessions, pool.RUN_CALLS, pool.RETIRE}

    assert {name for _, name in granted("activity")} == activities
    for kind, name in (*granted("start"), *granted("schedule")):
        assert workflow._Definition.must_from_class(WORKFLOWS[kind]).name == name


def test_ids_of_iris_have_the_kinds_of_the_rules() -> None:
    """The servers know an id by its prefix, or as a whole."""
    kinds = rules(CLUSTER)["kinds"]
    ids = {
        "job": names.job_workflow(CLUSTER, "ada/train"),
        "task": names.task_workflow(CLUSTER, "ada/train:0"),
        "slice": names.slice_workflow(CLUSTER, "v5-1"),
        "schedule": names.schedule_id(CLUSTER, "ada/nightly"),
        "session": names.session(CLUSTER, "ada/train:0", EXEC_TASK, "s"),
        "pool": names.pool_queue(CLUSTER, "ada/pool", "t"),
        "host": names.host_queue(CLUSTER, "v5-1"),
        "scheduler": names.scheduler_workflow(CLUSTER),
        "autoscaler": names.autoscaler_workflow(CLUSTER),
        "control": names.control_queue(CLUSTER),
        "planner": names.planner_queue(CLUSTER),
        "patient": names.patient_queue(CLUSTER),
    }

    for kind, each in ids.items():
        found = [
            name
            for name, rule in kinds.items()
            if each == rule.get("id") or each.startswith(rule.get("prefix", "\0"))
        ]
        assert found == [kind]
    assert {*kinds} - {*ids} == {KIND_PART}


def test_nobody_but_a_control_plane_does_the_planners_work() -> None:
    """Messages between the parts of a cluster are not for people: they would move tasks."""
    internal = {"placed", "evicted", "task_changed", "part_changed", "child_started", "demand"}

    assert internal.isdisjoint(name for _, name in granted("signal"))
    assert {kind for kind, _ in granted("start")} == {"job", "slice"}
