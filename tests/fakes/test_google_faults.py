"""The failures that a test can trigger in the fake Google, and its recovery after its process
died.
"""

import itertools
import time
from collections.abc import Iterator

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.longrunning import operations_pb2

from tests.fakes.google.callers import (
    ZONE,
    a_node,
    an_instance,
    instances_client,
    location,
    tpu_client,
)
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long

_numbers = itertools.count()
State = tpu_v2.Node.State


@pytest.fixture
def project(google: FakeGoogle) -> Iterator[str]:
    yield f"project-{next(_numbers)}"
    google.clear()


@pytest.fixture
def tpus(google: FakeGoogle) -> tpu_v2.TpuClient:
    return tpu_client(google)


def path_of(project: str, name: str = "n1") -> str:
    return f"{location(project)}/nodes/{name}"


def create(
    tpus: tpu_v2.TpuClient, project: str, name: str = "n1", timeout: float = 60.0
) -> operations_pb2.Operation:
    return tpus.create_node(
        parent=location(project), node_id=name, node=a_node(), timeout=timeout
    ).operation


def operation(tpus: tpu_v2.TpuClient, name: str) -> operations_pb2.Operation:
    return tpus.get_operation(operations_pb2.GetOperationRequest(name=name))


def test_only_the_next_calls_fail(google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str) -> None:
    """A refused call has no effect."""
    google.fail("CreateNode", "INTERNAL", match=project)
    google.fail("CreateNode", 429, details="rate", match=project, retry_after=7)
    with pytest.raises(exceptions.InternalServerError):
        create(tpus, project)
    with pytest.raises(exceptions.ResourceExhausted) as caught:
        create(tpus, project)

    assert caught.value.details[0].reason == "RATE_LIMIT_EXCEEDED"
    assert google.alive(project) == []
    create(tpus, project)


def test_a_call_takes_effect_although_its_reply_is_lost(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """A caller that takes the error for a refusal leaves an orphan."""
    google.commit_then_drop("CreateNode", match=project)
    with pytest.raises(exceptions.ServiceUnavailable):
        create(tpus, project)
    google.commit_then_drop("instances.insert", match=project)
    with pytest.raises(OSError, match="Connection"):
        instances_client(google).insert_unary(
            project=project, zone=ZONE, instance_resource=an_instance("vm1"), retry=None
        )

    assert len(google.alive(project)) == 2


def test_a_call_that_hangs_ends_at_the_callers_deadline(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """The fake itself continues."""
    google.hang("GetNode", match=project)
    with pytest.raises(exceptions.DeadlineExceeded):
        tpus.get_node(name=path_of(project), timeout=0.2)
    google.latency("GetNode", 0.3, times=1, match=project)
    began = time.monotonic()
    with pytest.raises(exceptions.NotFound):
        tpus.get_node(name=path_of(project), timeout=60)

    assert time.monotonic() - began >= 0.3


def test_too_many_calls_are_refused_until_a_minute_has_passed(
    google: FakeGoogle, project: str
) -> None:
    """Compute returns 403 or 429, with the time to wait."""
    vms = instances_client(google)
    google.rate_limit("instances.get", 2, status=403, retry_after=9)
    answers = []
    for _ in range(3):
        with pytest.raises(exceptions.ClientError) as caught:
            vms.get(project=project, zone=ZONE, instance="vm1", retry=None)
        answers.append(caught.value)

    assert [each.code for each in answers] == [404, 404, 403]
    assert answers[-1].errors[0]["reason"] == "rateLimitExceeded"
    assert answers[-1].response.headers["Retry-After"] == "9"
    google.advance(60)
    with pytest.raises(exceptions.NotFound):
        vms.get(project=project, zone=ZONE, instance="vm1", retry=None)


def test_operations_can_hang_disappear_and_fail(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """The node shows the result: it is ready although its operation never ends."""
    for what in ("stuck", "lost", "done_before_return"):
        google.operation(what, match=project)
        made = create(tpus, project, what.replace("_", "-"))
        google.advance(1)
        assert tpus.get_node(name=path_of(project, what.replace("_", "-"))).state is State.READY
        assert made.done is (what == "done_before_return")
        if what == "lost":
            with pytest.raises(exceptions.NotFound):
                operation(tpus, made.name)
        else:
            assert operation(tpus, made.name).done is (what == "done_before_return")

    google.operation("error", code=13, message="something broke", match=project)
    made = create(tpus, project, "broken")
    google.advance(1)
    assert (operation(tpus, made.name).error.code, operation(tpus, made.name).error.message) == (
        13,
        "something broke",
    )
    with pytest.raises(exceptions.NotFound):
        tpus.get_node(name=path_of(project, "broken"))


def test_a_node_preempted_during_its_creation_reports_it_and_stays(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """With code 3, as for a bad request; it holds its quota until it is deleted."""
    google.boot_time(None, "n-late")
    made = create(tpus, project, "n-late")
    google.preempt("n-late")

    assert operation(tpus, made.name).error.code == 3
    assert "PREEMPTED" in operation(tpus, made.name).error.message
    assert tpus.get_node(name=path_of(project, "n-late")).state is State.PREEMPTED


def test_a_delete_during_the_creation_ends_the_create(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """With an error that means nothing."""
    google.boot_time(None, "n-gone")
    made = create(tpus, project, "n-gone")
    tpus.delete_node(name=path_of(project, "n-gone"), timeout=60).result(timeout=60)

    assert operation(tpus, made.name).error.code == 1
    assert google.alive(project) == []


def test_a_test_can_set_any_state_of_a_node(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """States that no client knows, missing or empty endpoints, and no fields at all."""
    google.node("n-odd", endpoints=["10.0.0.1", ""])
    create(tpus, project, "n-odd")
    google.advance(1)
    path = path_of(project, "n-odd")
    assert [each.ip_address for each in tpus.get_node(name=path).network_endpoints] == [
        "10.0.0.1",
        "",
    ]

    google.node("n-odd", state="REPAIRING", health=5, endpoints=3)
    seen = tpus.get_node(name=path)
    assert (seen.state, len(seen.network_endpoints), seen.health) == (
        State.REPAIRING,
        3,
        tpu_v2.Node.Health.UNHEALTHY_MAINTENANCE,
    )
    google.node("n-odd", state=99)
    with pytest.warns(UserWarning, match="99"):
        assert tpus.get_node(name=path).state == 99
    google.node("n-odd", vanish=True)
    with pytest.raises(exceptions.NotFound):
        tpus.get_node(name=path)


def test_a_list_can_be_outdated(google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str) -> None:
    """New resources are missing and deleted ones are present: a list is a hint."""

    def listed() -> list[str]:
        return [each.name for each in tpus.list_nodes(parent=location(project))]

    google.stale_lists(ghosts=60, lag=60)
    create(tpus, project)
    assert listed() == []
    google.advance(61)
    assert listed() == [path_of(project)]
    tpus.delete_node(name=path_of(project), timeout=60).result(timeout=60)
    assert listed() == [path_of(project)]
    google.stale_lists()
    assert listed() == []


def test_a_delete_of_another_owners_resource_is_reported(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """The audit log matches the resources, and the delete was wrong all the same."""
    google.seed_foreign("theirs", project, ZONE)
    google.check(project)
    tpus.delete_node(name=path_of(project, "theirs"), timeout=60)

    with pytest.raises(AssertionError, match="somebody else's"):
        google.check(project)


def test_expired_credentials_are_refused(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """For all calls of both APIs, if the test sets it."""
    google.fail("*", "UNAUTHENTICATED", times=None, match=project)
    with pytest.raises(exceptions.Unauthenticated):
        tpus.get_node(name=path_of(project))


def test_the_state_survives_the_process() -> None:
    """At any moment, with the ports, the audit log and pending events."""
    with FakeGoogle() as google:
        tpus, place = tpu_client(google), location("project-1")
        google.boot_time(30)
        google.quota("v5litepod", "on-demand", ZONE, 32)
        first = create(tpus, "project-1", "n1")
        create(tpus, "project-1", "n2")
        before = google.resources()
        google.kill()
        google.restart()
        tpus = tpu_client(google)

        assert google.resources() == before
        with pytest.raises(exceptions.ResourceExhausted):
            create(tpus, "project-1", "n3")
        google.advance(31)
        assert operation(tpus, first.name).done
        assert {each.state for each in tpus.list_nodes(parent=place)} == {State.READY}
        assert google.created("node") == [f"{place}/nodes/n1", f"{place}/nodes/n2"]
        google.check()
