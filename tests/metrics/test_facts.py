"""Metrics follow what happens: in activities, in calls of a cloud, on a host and in the planners."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.api_core import exceptions as google
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from iris.activities.control.platform_calls import platform_call
from iris.activities.host.attempt.lifecycle import Load, State
from iris.activities.host.attempt.run_task import Tasks
from iris.activities.host.files.logs import LogShipper
from iris.activities.host.machine.gpu_health import GpuHealth
from iris.activities.host.runtimes.shim import shim
from iris.messages.scheduler import Totals
from iris.metrics import declared, page
from iris.model.host.hosts import ClosedBy, Closure
from iris.model.job.spec import Band
from iris.platforms.base import PlatformError, QuotaExceeded, RateLimited, StockOut, Unavailable
from iris.platforms.gcp.clients import Calls
from iris.platforms.gcp.errors import CallFailed
from iris.platforms.gcp.rate_limiter import Urgency
from iris.scheduling.ledger.ledger import Ledger
from iris.storage.log_format import Stream
from iris.storage.object_store import Store
from iris.worker_agents.control_plane import planner_gauges
from iris.worker_agents.host.agent import gather_gauges
from iris.workflows.scheduler.scheduler_views import totals_of
from tests.activities.control.test_notifier import ENDED, FULL, evict
from tests.activities.control.test_outbox import AWAY, REJECTED, Scheduler, send
from tests.builders import NOON, a_host, a_request, some
from tests.platforms.gcp.requests import gcp

#: Returns the value of a metric with these labels; None if there is none.
Value = Callable[..., float | None]
PLAIN = gcp(tpu_endpoint="grpc://nowhere", compute_endpoint="http://nowhere")


@pytest.fixture
def value() -> Iterator[Value]:
    with page.storing(declared.METRICS) as registry:
        yield lambda name, **labels: registry.get_sample_value(name, labels)


async def test_an_eviction_counts_when_its_owner_has_received_it(value: Value) -> None:
    """An owner that is gone has lost nothing, and one that cannot be signalled is told later."""
    await evict({"b": ENDED})
    await evict({"a": FULL, "b": ENDED})

    assert value("iris_evictions_total") == 2 + 1


async def test_exchanges_that_fail_are_told_from_those_that_are_answered(
    value: Value, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that is away and a message that it rejects need different remedies."""
    monkeypatch.setattr("iris.activities.control.outbox.RETRY_EVERY", 0.0)
    await send(Scheduler({"0": AWAY}, times=2), 1)
    await send(Scheduler({"1": REJECTED}), 2)

    assert value("iris_exchange_failures_total", failure="unanswered") == 2
    assert (
        value("iris_exchange_failures_total", failure="rejected") == 2
    )  # the batch, then its half
    assert value("iris_exchange_messages_count") == 1 + 1
    assert value("iris_exchange_duration_seconds_count") == 1 + 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (StockOut("none"), "STOCK_OUT"),
        (QuotaExceeded("none"), "QUOTA"),
        (RateLimited("too many"), "RATE_LIMITED"),
        (Unavailable("no answer"), "UNAVAILABLE"),
    ],
)
async def test_a_refusal_of_the_platform_counts_by_its_kind(
    value: Value, error: PlatformError, outcome: str
) -> None:
    """With a retry, if Temporal repeats the call."""

    async def create(fails: bool) -> None:
        with platform_call("create"):
            if fails:
                raise error

    environment = ActivityEnvironment()
    with pytest.raises(PlatformError):
        await environment.run(create, True)
    assert value("iris_platform_call_retries_total", call="create") is None
    environment.info = replace(environment.info, attempt=2)
    await environment.run(create, False)

    assert value("iris_platform_calls_total", call="create", outcome=outcome) == 1
    assert value("iris_platform_calls_total", call="create", outcome="ok") == 1
    assert value("iris_platform_call_duration_seconds_count", call="create") == 2
    assert value("iris_platform_call_retries_total", call="create") == 1


async def test_an_answer_of_google_counts_by_its_kind(value: Value) -> None:
    """Google's own quota of calls is told from a refusal."""
    errors = {
        "not_found": google.NotFound("no node"),
        "no_answer": google.ServiceUnavailable("away"),
        "refused": google.Forbidden("no permission"),
        "rate_limited": google.TooManyRequests("Quota exceeded: requests per minute"),
    }
    for error in errors.values():
        # Each has calls of its own: an error pauses the calls that follow.
        with pytest.raises(CallFailed):
            await Calls(PLAIN, cast(Any, lambda _: None)).make(Urgency.READ, failing(error))
    await Calls(PLAIN, cast(Any, lambda _: None)).make(Urgency.DELETE, lambda _: None)

    assert {
        answer: value("iris_google_calls_total", urgency="read", answer=answer) for answer in errors
    } == dict.fromkeys(errors, 1)
    assert value("iris_google_calls_total", urgency="delete", answer="ok") == 1


def failing(error: Exception) -> Callable[[object], None]:
    def call(_: object) -> None:
        raise error

    return call


async def test_a_store_that_takes_no_logs_shows_as_failures_and_a_growing_backlog(
    value: Value, tmp_path: Path
) -> None:
    """Logs would be lost when the host's disk is full."""
    output = tmp_path / "stdout"
    output.write_text("line\n" * 10)

    class Full:
        async def put(self, *_: object) -> None:
            raise OSError("no space left on device")

    shipper = LogShipper(cast(Store, Full()), "logs/x", {Stream.STDOUT: output})

    await shipper.ship(ended=True)
    before = shipper.backlog
    with output.open("a") as file:
        file.write("more\n" * 100)

    assert shipper.backlog == before + 500 > 500
    assert value("iris_log_store_failures_total") == 1


async def test_a_host_shows_its_attempts_the_shortest_lease_and_its_gpus(
    value: Value, tmp_path: Path
) -> None:
    """A lease that runs out ends a program; a preparation and an upload have none."""
    loads = [
        Load(State.PREPARING, None, 5),
        Load(State.RUNNING, shim.now() + 40, 10),
        Load(State.RUNNING, shim.now() + 20, 0),
    ]
    tasks = cast(Tasks, SimpleNamespace(loads=lambda: loads))

    await gather_gauges(tasks, GpuHealth(), {"agent": tmp_path})
    assert value("iris_attempts", state="PREPARING") == 1
    assert value("iris_attempts", state="RUNNING") == 2
    assert 19 < (value("iris_lease_left_seconds") or 0) <= 20
    assert value("iris_log_backlog_bytes") == 15
    assert value("iris_gpu_fault") is None

    loads.clear()
    broken = GpuHealth(incomplete=("nvidia-smi reports: GPU is lost", None))
    await gather_gauges(tasks, broken, {"agent": tmp_path})
    assert value("iris_attempts", state="RUNNING") is None
    assert value("iris_lease_left_seconds") is None
    assert value("iris_gpu_fault") == 1


def a_ledger() -> Ledger:
    """One host with a core that is taken, one that an operator has closed, and a queue."""
    ledger = Ledger()
    group = {"scale-group": "cpu"}
    ledger.hosts_up(
        [
            a_host("h1", some(cpu=1), attributes=group),
            a_host("h2", some(cpu=1), attributes=group),
            a_host("h3", some(cpu=1), fault="GPU is lost"),
        ]
    )
    ledger.close("h2", Closure(by=ClosedBy.CORDON))
    ledger.ask(a_request("runs", some(cpu=1), band=Band.PRODUCTION))
    ledger.settle(NOON)
    for number in range(3):
        ledger.ask(a_request(f"waits{number}", some(cpu=1), band=Band.BATCH))
    ledger.ask(a_request("big", some(cpu=64)))
    ledger.ask(a_request("held", some(cpu=1)))
    ledger.amend("held", Band.INTERACTIVE, held=True)
    ledger.settle(NOON)
    return ledger


def test_the_gauges_of_the_queue_are_those_of_the_ledger(value: Value) -> None:
    """Gangs by band and code, hosts by group and the cause why they are closed."""
    planner_gauges.show_totals(totals_of(a_ledger(), recovering=False))

    assert value("iris_gangs_running", band="production") == 1
    assert value("iris_gangs_held", band="interactive") == 1
    assert value("iris_gangs_waiting", band="batch", reason="BUSY") == 3
    assert value("iris_gangs_waiting", band="interactive", reason="TOO_BIG") == 1
    assert value("iris_hosts", group="cpu", state="open") == 1
    assert value("iris_hosts", group="cpu", state="cordoned") == 1
    assert value("iris_hosts", group="none", state="quarantined") == 1
    assert value("iris_scheduler_paused") == 0


def test_a_scheduler_that_recovers_tells_no_reasons(value: Value) -> None:
    """Its ledger lacks hosts, so each reason would be wrong."""
    planner_gauges.show_totals(totals_of(a_ledger(), recovering=True))

    assert value("iris_gangs_waiting", band="batch", reason="NOT_COMPUTED") == 3


async def test_a_planner_that_does_not_answer_has_no_values(value: Value) -> None:
    """Its last values would look like present ones."""
    planner_gauges.show_totals(Totals(running={Band.BATCH: 7}))

    class Silent:
        def get_workflow_handle(self, workflow_id: str) -> "Silent":
            return self

        async def query(self, *_: object, **__: object) -> None:
            raise RPCError("no poller", RPCStatusCode.FAILED_PRECONDITION, b"")

    await planner_gauges.gather(cast(Client, Silent()), "x")

    assert value("iris_gangs_running", band="batch") is None
    for planner in ("scheduler", "autoscaler"):
        assert value("iris_planner_answers", planner=planner) == 0
