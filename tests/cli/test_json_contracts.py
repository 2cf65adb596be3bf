"""What `--json` promises to programs: these keys, these types, in one place. A change here breaks
somebody's script.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from iris.cli.cluster.checks import CHECKS, WORKERS
from iris.cli.show.autoscaler import ACTIONS, GROUPS, OUTLOOKS
from iris.cli.show.explanation import ATTEMPTS, FITS, explanation_json, forecast_json
from iris.cli.show.hosts import HOSTS
from iris.cli.show.jobs import JOBS, TASKS, status_json, usage_listing
from iris.cli.show.listing import Listing
from iris.cli.show.slices import slice_listing
from iris.cli.show.submission import submission_json
from iris.client.jobs.explanation import Explanation
from iris.client.jobs.rows import JobRow
from iris.client.jobs.submit.start import Submitted
from iris.client.operate.controller import StopPlan
from iris.client.operate.local.versions import AgentVersion, Versions
from iris.messages.scheduler import HostView
from iris.model.job.attempts import Account, AttemptRecord, MemberEnd
from iris.model.job.bundles import Bundle
from iris.model.job.cancelling import Cancelling
from iris.model.job.dependencies import Dependency
from iris.model.job.status import JobStatus
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.scheduling.reasons.forecast import Fit, Forecast
from iris.usage.estimate import Estimate
from tests.builders import a_host, a_spec, a_submission, a_task, at, some
from tests.usage.made_uses import attempt, slice_use, summed

SCHEMAS = Path(__file__).parents[2] / "docs/schemas"
NOON, LATER = "2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z"


def test_submit_names_the_job_its_workflow_and_its_page() -> None:
    """`submit --json` prints the accepted job as it is."""
    submitted = Submitted(
        id="ada/train",
        workflow_id="c/job/ada/train",
        run_id="r1",
        ui="http://ui/r1",
        dashboard="http://pages/jobs/ada/train",
    )
    assert submitted.model_dump() == {
        "id": "ada/train",
        "workflow_id": "c/job/ada/train",
        "run_id": "r1",
        "ui": "http://ui/r1",
        "dashboard": "http://pages/jobs/ada/train",
    }


def test_status_has_the_job_and_each_task_and_null_for_what_is_not_yet() -> None:
    """Times in ISO 8601 with their zone, states as bare words."""
    done = a_task(
        state=TaskState.FAILED,
        attempt=2,
        host="h1",
        exit_code=3,
        reason="exited with code 3",
        failures=2,
    )
    status = JobStatus(
        id="ada/train",
        state=JobState.RUNNING,
        reason="why",
        user="ada",
        submitted_at=at(0),
        started_at=at(60),
        tasks=(done, a_task(index=1, key="internal")),
    )
    plain = {"cancelling": None}
    assert status_json(status) == {
        "id": "ada/train",
        "state": "RUNNING",
        "cancelling": None,
        "reason": "why",
        "user": "ada",
        "submitted_at": NOON,
        "started_at": LATER,
        "finished_at": None,
        "parent": None,
        "tasks": [
            {
                **plain,
                "index": 0,
                "state": "FAILED",
                "host": "h1",
                "attempt": 2,
                "exit_code": 3,
                "reason": "exited with code 3",
            },
            {
                **plain,
                "index": 1,
                "state": "PENDING",
                "host": None,
                "attempt": 0,
                "exit_code": None,
                "reason": "",
            },
        ],
    }


def test_what_is_being_cancelled_says_why_since_when_and_until_when_and_keeps_its_state() -> None:
    """A script that waits for `RUNNING` to end still may."""
    cancelling = Cancelling(reason="cancelled by ada", since=at(0), until=at(60))
    shown = {"reason": "cancelled by ada", "since": NOON, "until": LATER}
    facts: dict[str, Any] = {"id": "ada/train", "state": JobState.RUNNING, "cancelling": cancelling}
    task = a_task(state=TaskState.RUNNING, cancelling=cancelling)
    status = status_json(JobStatus(**facts, user="ada", submitted_at=at(0), tasks=(task,)))
    rows = [
        status,
        status["tasks"][0],
        JOBS.json(JobRow(**facts, user="ada", submitted_at=at(0), command="x")),
        explanation_json(Explanation(**facts, message="")),
    ]
    assert [(row["state"], row["cancelling"]) for row in rows] == [("RUNNING", shown)] * 4


def test_status_and_explain_have_what_the_job_was_submitted_with_and_no_value_of_a_variable() -> (
    None
):
    """The texts show the same. A script reads the words of the command as they are; the priority is
    the current one.
    """
    spec = a_spec(
        command=("sh", "-c", "echo $A"),
        resources=some(cpu=2, memory=1, device="tpu:v5litepod-16:4"),
        env={"TOKEN": "hidden", "A": "1"},
        secrets={"KEY": "env:KEY"},
        image="python:3.12",
        after=(Dependency(job="ada/first", run_id="r0"),),
        bundle=Bundle(sha256="ab" * 32, size=2048),
        commit="12" * 20 + "+",
        tags={"team": "x"},
        note="second try",
    )
    assert submission_json(a_submission(spec, priority="production", page="http://x/y")) == {
        "command": ["sh", "-c", "echo $A"],
        "resources": {
            "cpu": 2.0,
            "memory_bytes": 2**30,
            "disk_bytes": 0,
            "device": {"kind": "tpu", "variant": "v5litepod-16", "count": 4},
        },
        "priority": "production",
        "env": ["A", "TOKEN"],
        "secrets": {"KEY": "env:KEY"},
        "image": "python:3.12",
        "after": [{"job": "ada/first", "on": "ok"}],
        "from_checkpoint": None,
        "commit": "12" * 20 + "+",
        "bundle": "ab" * 32,
        "tags": {"team": "x"},
        "limits": {},
        "note": "second try",
        "page": "http://x/y",
    }
    assert submission_json(a_submission()) | {"command": [], "resources": {}} == {
        "command": [],
        "resources": {},
        "priority": "interactive",
        "env": [],
        "secrets": {},
        "image": None,
        "after": [],
        "from_checkpoint": None,
        "commit": "",
        "bundle": None,
        "tags": {},
        "limits": {},
        "note": "",
        "page": "",
    }


def test_jobs_are_rows_of_id_state_user_priority_tasks_and_time() -> None:
    """The command is for people's lists only."""
    row = JobRow(
        id="ada/train",
        state=JobState.SUCCEEDED,
        user="ada",
        submitted_at=at(0),
        command="python train.py",
    )
    assert JOBS.json(row) == {
        "id": "ada/train",
        "run": None,
        "state": "SUCCEEDED",
        "cancelling": None,
        "user": "ada",
        "priority": "interactive",
        "tasks": 1,
        "device": "",
        "parent": None,
        "commit": "",
        "tags": {},
        "note": "",
        "submitted_at": NOON,
        "reason": "",
    }


def test_a_stop_that_is_only_planned_has_all_that_it_would_do() -> None:
    """`cluster stop --dry-run --json`: what cannot be seen is named, so that a program does not
    take it for nothing.
    """
    plan = StopPlan(
        name="euw4",
        running=True,
        slices=("s1",),
        unreachable={"a-1": "why"},
        machine="m",
        elsewhere=True,
    )
    assert plan.model_dump(mode="json") == {
        "name": "euw4",
        "running": True,
        "ephemeral": False,
        "answers": False,
        "silent": "",
        "jobs": 0,
        "slices": ["s1"],
        "unreachable": {"a-1": "why"},
        "processes": [],
        "elsewhere": True,
        "machine": "m",
    }


def test_explain_gives_numbers_under_names_that_carry_their_units() -> None:
    """CPU in cores, sizes in bytes, devices counted; hosts, groups and those ahead too."""
    refusal = Refusal(
        code=RefusalCode.BUSY,
        message="needs more",
        needed={"cpu": 1500, "memory": 2**30, "disk": 5, "device": 4},
        free={"cpu": 500, "memory": 0, "disk": 0, "device": 0},
        hosts=8,
        ahead=3,
        ahead_first=("bob/big",),
        excluded={"zone = a": 7, "driver >= 5": 1},
        remedy="wait",
        group_needs=4,
        group_has=1,
        scaling="a slice is on its way",
        since=at(0),
    )
    explanation = Explanation(
        id="ada/train", state=JobState.PENDING, message="needs more", refusal=refusal
    )
    assert explanation_json(explanation) == {
        "id": "ada/train",
        "state": "PENDING",
        "cancelling": None,
        "code": "BUSY",
        "message": "needs more",
        "needed": {"cpu": 1.5, "memory_bytes": 2**30, "disk_bytes": 5, "devices": 4},
        "free": {"cpu": 0.5, "memory_bytes": 0, "disk_bytes": 0, "devices": 0},
        "quotas": [],
        "hosts": 8,
        "ahead": 3,
        "ahead_first": ["bob/big"],
        "excluded": {"zone = a": 7, "driver >= 5": 1},
        "remedy": "wait",
        "group_needs": 4,
        "group_has": 1,
        "scaling": "a slice is on its way",
        "since": "2026-01-01T12:00:00Z",
        "attempts": [],
        "parent": None,
        "children": [],
    }


def an_attempt(number: int, **changes: Any) -> AttemptRecord:
    """An attempt on two hosts, of which task 1 brought the end."""
    settings: dict[str, Any] = {
        "hosts": ("h1", "h2"),
        "placed_at": at(0),
        "started_at": at(60),
        "ended_at": at(60),
        "account": Account.FAILURES,
        "reason": "exited with code 3",
        "ends": (
            MemberEnd(index=1, state=TaskState.FAILED, exit_code=3, reason="exited with code 3"),
        ),
    } | changes
    return AttemptRecord(number=number, **settings)


def test_explain_lists_every_attempt_with_its_task_hosts_times_and_who_paid() -> None:
    """One flat list, in the order of tasks; what never started has no start."""
    lost = an_attempt(1, started_at=None, account=Account.UNDELIVERED, reason="refused", ends=())
    explanation = Explanation(
        id="ada/x",
        state=JobState.FAILED,
        message="m",
        attempts={0: (lost,), 2: (an_attempt(1), an_attempt(2))},
    )
    shown = explanation_json(explanation)["attempts"]
    assert [(each["task"], each["number"]) for each in shown] == [(0, 1), (2, 1), (2, 2)]
    assert shown[0] == {
        "task": 0,
        "number": 1,
        "hosts": ["h1", "h2"],
        "placed_at": NOON,
        "started_at": None,
        "ended_at": LATER,
        "account": "undelivered",
        "reason": "refused",
        "ends": [],
    }
    assert shown[1]["ends"] == [
        {"index": 1, "state": "FAILED", "exit_code": 3, "reason": "exited with code 3"}
    ]


def test_a_forecast_says_where_it_starts_or_why_not_and_what_holds_of_every_host() -> None:
    """`submit --dry-run --json`; `feasible` is whether hosts that are there could ever run it."""
    fits = Fit(group="local-cpu", fits=True, why="fits now", hosts=1, named=("h1",))
    assert forecast_json(Forecast(hosts=("h1",), fits=(fits,))) == {
        "starts": True,
        "hosts": ["h1"],
        "feasible": True,
        "refusal": None,
        "verdicts": [
            {"group": "local-cpu", "fits": True, "why": "fits now", "hosts": 1, "named": ["h1"]}
        ],
        "estimate": None,
    }
    refusal = Refusal(code=RefusalCode.TOO_BIG, message="needs more", remedy="ask for less")
    said = {"code": "TOO_BIG", "message": "needs more", "remedy": "ask for less"}
    for never, feasible in ((refusal, False), (None, True)):
        assert forecast_json(Forecast(refusal=refusal, infeasible=never)) == {
            "starts": False,
            "hosts": [],
            "feasible": feasible,
            "refusal": said,
            "verdicts": [],
            "estimate": None,
        }


def test_an_estimate_has_its_costs_and_what_they_are_for() -> None:
    """`submit --json`, also with `--dry-run`; a cost is null if no such machine has a price."""
    estimate = Estimate(currency="USD", spot=1.5, hosts=4, hours=2)
    assert forecast_json(Forecast(), estimate)["estimate"] == {
        "currency": "USD",
        "on_demand": None,
        "spot": 1.5,
        "hosts": 4,
        "hours": 2.0,
        "unpriced": (),
    }


def test_usage_has_rows_totals_and_waste() -> None:
    """`usage --json`; a cost is null if nothing of it has a price."""
    amounts = {
        "attempts": 1,
        "host_hours": 2.0,
        "tpu_chip_hours": 0.0,
        "gpu_hours": 0.0,
        "core_hours": 16.0,
        "cost": 2.0,
        "unpriced_host_hours": 0.0,
    }
    report = summed(slice_use(0, 1, 4), attempt(1, 3), by=("user",)).model_dump(mode="json")
    assert list(report) == [
        *("since", "until", "by", "currency", "rows", "total", "slices", "waste", "unpriced"),
        *("budgets", "gaps"),
    ]
    assert report["rows"] == [{**amounts, "by": {"user": "ada"}}]
    assert report["total"] == amounts
    assert (report["since"], report["currency"]) == ("2026-11-02T00:00:00Z", "USD")
    assert report["waste"][0] == {"kind": "idle", "count": 1, "host_hours": 1.0, "cost": 1.0}


def test_a_host_shows_what_it_offers_what_is_free_and_what_runs() -> None:
    """A device with kind, variant and count; attributes as they were given."""
    offers = some(cpu=8, memory=1, disk=1, device="gpu:H100:8")
    host = a_host("h1", offers, attributes={"zone": "a", "rank": 3}, address="10.0.0.1")
    free = {"cpu": 7500, "memory": 5, "disk": 6, "device": 2}
    assert HOSTS.json(HostView(host=host, free=free, running=("ada/train:0",))) == {
        "id": "h1",
        "state": "READY",
        "reason": "",
        "slice": "slice-of-h1",
        "resources": {
            "cpu": 8.0,
            "memory_bytes": 2**30,
            "disk_bytes": 2**30,
            "device": {"kind": "gpu", "variant": "H100", "count": 8},
        },
        "free": {"cpu": 7.5, "memory_bytes": 5, "disk_bytes": 6, "devices": 2},
        "attributes": {"zone": "a", "rank": 3},
        "running": ["ada/train:0"],
        "address": "10.0.0.1",
    }


def test_a_host_without_devices_says_null_and_nothing_of_them() -> None:
    """`device` is always there, so that a script need not ask."""
    view = HostView(host=a_host(offers=some(cpu=4)), free=some(cpu=4).amounts(), running=())
    shown = HOSTS.json(view)
    assert shown["resources"]["device"] is None
    assert shown["running"] == []


@pytest.mark.parametrize(
    ("listing", "keys"),
    [
        (
            JOBS,
            (
                "id run state cancelling user submitted_at priority tasks device parent commit tags"
                " note reason"
            ),
        ),
        (TASKS, "index state cancelling attempt host exit_code reason"),
        (ATTEMPTS, "number hosts placed_at started_at ended_at account reason ends"),
        (FITS, "group fits why hosts named"),
        (HOSTS, "id state reason slice resources free attributes running address"),
        (
            usage_listing(some()),
            (
                "task host at pid cpu_percent memory_bytes peak_memory_bytes processes ports"
                " gpu_percent gpu_memory_bytes"
            ),
        ),
        (GROUPS, "group availability why until demand target slices"),
        (OUTLOOKS, "example message since possible"),
        (ACTIONS, "slice at group what reason"),
        (
            slice_listing(()),
            "id state group zone made hosts running requested_at reason addresses",
        ),
        (CHECKS, "name ok took_seconds said"),
        (WORKERS, "host slice state reason reported_at started_at running"),
    ],
)
def test_keys_have_an_order_that_differs_from_the_table(listing: Listing[Any], keys: str) -> None:
    """A script that prints the values of an object in their order keeps working."""
    assert " ".join(listing.by_key) == keys


@pytest.mark.parametrize(
    ("closed", "state"),
    [
        ("cordoned: fan broken (by ada)", "CORDONED"),
        ("drained", "DRAINED"),
        ("quarantined: 3 attempts in a row failed", "QUARANTINED"),
        ("scale group local-cpu is paused: by ada", "PAUSED"),
    ],
)
def test_a_host_that_takes_nothing_new_says_so_and_why(closed: str, state: str) -> None:
    """The state is one word for scripts; the reason is whole."""
    shown = HOSTS.json(HostView(host=a_host(), free={}, running=(), closed=closed))
    assert (shown["state"], shown["reason"]) == (state, closed)


def test_the_schema_of_versions_is_that_of_this_version_and_fits_the_output() -> None:
    """Scripts that compare versions read the file in the documentation."""
    schema = json.loads((SCHEMAS / "version.schema.json").read_text())
    assert schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Versions.model_json_schema(mode="serialization"),
    }
    versions = Versions(
        client="0.1.0",
        cluster="local",
        server="1.32.0",
        control_plane=("0.1.0", None),
        agents=(AgentVersion(version=None, hosts=("h1",)),),
        fits=True,
    )
    jsonschema.Draft202012Validator(schema).validate(versions.model_dump(mode="json"))
    jsonschema.Draft202012Validator(schema).validate(
        Versions(client="0.1.0", not_asked="why").model_dump(mode="json")
    )
