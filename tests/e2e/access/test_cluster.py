"""A whole cluster with identities: a control plane, a machine that joined, and people who use the
command line. What they need is allowed, and nothing of it is refused.
"""

import asyncio
import json
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ListWorkersRequest, TerminateWorkflowExecutionRequest

from iris.model import names
from tests.e2e.access.lab import People, a_lab
from tests.e2e.access.people import NAMESPACE
from tests.e2e.cluster import eventually

pytestmark = pytest.mark.production

OFFER = ("--cpu", "4", "--memory", "4g", "--attribute", "rack=a")


@pytest.fixture(scope="module")
def lab() -> Iterator[People]:
    """A cluster with one slice of two machines that joined."""
    with a_lab() as cluster:
        for host, who in {"own-w-0": "joined", "own-w-1": "second"}.items():
            place = ("--host-id", host, "--slice", "own", "--slice-size", "2")
            where = ("--run-as=root", "--dir", str(cluster.home / host))
            cluster.begin("agent", "--join", *place, *where, *OFFER, who=who)
        eventually(lambda: len(cluster.host_ids()) == 2, every=0.5)
        yield cluster


def shell(text: str) -> tuple[str, ...]:
    return "--", "sh", "-c", text


@pytest.fixture(scope="module")
def job(lab: People) -> str:
    """A job of ada's that runs."""
    lab.iris("submit", "-n", "long", "-d", "--note", "a note", *shell("echo begun; sleep 1000"))
    eventually(lambda: lab.iris("status", "long", "--json").json["state"] == "RUNNING", every=0.5)
    return "ada/long"


def test_the_owner_does_everything_with_a_job(lab: People, job: str) -> None:
    """From submission to cancellation, for jobs, arrays and gangs; what hosts and the control plane
    do for it is allowed, too.
    """
    assert lab.iris("submit", "-n", "one", *shell("echo hello")).out == "hello\n"
    both = ("--replicas", "2", "--gang-by", "rack")
    gang = lab.iris("submit", "-n", "gang", *both, *shell("echo $IRIS_TASK_INDEX"))
    assert sorted(gang.out.splitlines()) == ["[0] 0", "[1] 1"]
    lab.iris("submit", "-n", "array", "--replicas", "3", *shell("true"))
    lab.iris("submit", "-n", "fails", *shell("exit 3"), code=125)
    assert lab.iris("exec", job, "--", "echo", "inside").out == "inside\n"
    lab.iris("hold", job)
    lab.iris("release", job)
    lab.iris("schedule", "create", "-n", "plan", "--cron", "0 3 * * *", *shell("true"))
    lab.iris("schedule", "pause", "plan")
    lab.iris("schedule", "trigger", "plan")
    eventually(lambda: lab.iris("wait", "plan", code=None).code == 0, every=0.5)
    assert "plan" in lab.iris("schedule", "show", "plan").out
    lab.iris("schedule", "delete", "plan")
    lab.iris("submit", "-n", "ends", "-d", *shell("sleep 1000"))
    lab.iris("cancel", "ends")
    lab.iris("wait", "ends", code=126)

    assert lab.refusals("ada", "cp", "joined", "second") == []


@pytest.mark.parametrize("who", ["bob", "vera"])
def test_others_see_the_state_of_a_job_and_cannot_touch_it(lab: People, job: str, who: str) -> None:
    """A user and a viewer see the same of another's job."""
    row = next(
        each for each in lab.iris("jobs", "--all", "--json", who=who).json if each["id"] == job
    )
    status = lab.iris("status", job, who=who)

    assert row["state"] == "RUNNING"
    assert "RUNNING" in status.out
    for hidden in ("begun", "a note"):
        assert hidden not in status.out + json.dumps(row)
        assert hidden not in json.dumps(lab.iris("status", job, "--json", who=who).json)
    assert "own-w-" in lab.iris("explain", job, who=who).out
    lab.iris("usage", who=who)
    before = len(lab.refusals(who))
    for command in (
        ("hold", job),
        ("cancel", job),
        ("rerun", job),
        ("exec", job, "--", "id"),
        ("port-forward", job, "8080"),
        ("profile", job),
        ("host", "cordon", "own-w-0", "--reason", "mine"),
        ("cluster", "pause", "--reason", "mine"),
    ):
        said = lab.iris(*command, code=None, who=who).err
        assert "refuses" in said or "may not read" in said, command
    assert len(lab.refusals(who)) >= before + 7
    assert lab.iris("status", job, "--json").json["state"] == "RUNNING"


def test_a_job_starts_from_a_checkpoint_that_its_user_may_read(lab: People) -> None:
    """The host would read the checkpoint of anybody. The server refuses the start, so nothing
    depends on the client.
    """
    save = "echo ada > $IRIS_CHECKPOINT_DIR/whose"
    show = ("--", "sh", "-c", "cat $IRIS_CHECKPOINT_DIR/whose")
    lab.iris("submit", "-n", "base", *shell(save))
    again = ("submit", "-n", "again", "--from-checkpoint", "ada/base", *show)

    assert lab.iris(*again).out.endswith("ada\n")
    assert "job/ada/base" in lab.iris(*again, code=5, who="bob").err
    assert lab.iris(*again, who="olga").out.endswith("ada\n")
    assert [each["what"] for each in lab.refusals("bob")][-1] == "job/bob/again"


def test_a_placement_of_a_terminated_job_is_free_soon(lab: People) -> None:
    """Its host tells the scheduler, which finds out by itself only later."""
    lab.iris("submit", "-n", "gone", "-d", "--cpu", "2", *shell("sleep 1000"))
    eventually(lambda: lab.iris("status", "gone", "--json").json["state"] == "RUNNING", every=0.5)
    before = lab.free_cpu()
    end = TerminateWorkflowExecutionRequest(
        namespace="default",
        workflow_execution=WorkflowExecution(workflow_id=names.job_workflow("lab", "ada/gone")),
    )
    asyncio.run(lab.service.who("ada", "terminate_workflow_execution", end))

    eventually(lambda: sum(lab.free_cpu()) == sum(before) + 2, every=0.5)
    assert lab.refusals("joined", "second") == []


def test_nobody_submits_as_somebody_else(lab: People) -> None:
    """The variable IRIS_USER cannot differ from the identity, and is no identity."""
    job = ("submit", "-n", "y", *shell("true"))
    differs = lab.iris(*job, code=None, who="bob", IRIS_USER="ada")
    missing = lab.iris(*job, code=None, IRIS_USER="ada", IRIS_IDENTITY="")

    assert "IRIS_USER" in differs.err
    assert "no token" in missing.err
    assert lab.iris("status", "ada/y", code=None, who="olga").code != 0


def test_an_operator_runs_the_cluster(lab: People, job: str) -> None:
    """Hosts, pauses, and everybody's jobs; and no job in another's name."""
    for command in (
        ("host", "cordon", "own-w-1", "--reason", "disk"),
        ("host", "uncordon", "own-w-1"),
        ("host", "drain", "own-w-1", "--deadline", "1h"),
        ("host", "uncordon", "own-w-1"),
        ("quota", "list"),
        ("cluster", "pause", "--reason", "work"),
        ("cluster", "resume"),
        ("hold", job),
        ("release", job),
        ("cluster", "status"),
    ):
        lab.iris(*command, who="olga")
    assert "sleep 1000" in lab.iris("status", job, who="olga").out
    assert lab.iris("exec", job, "--", "echo", "inside", who="olga").out == "inside\n"
    assert lab.refusals("olga", "cp", "joined", "second") == []
    assert lab.iris("quota", "list").out == lab.iris("quota", "list", who="vera").out


def test_the_http_api_has_the_same_rules(lab: People, job: str) -> None:
    """Temporal's HTTP API, which the Web UI's server may use, asks the same authorizer."""
    port = lab.service.temporal.service.http_port
    place = f"http://127.0.0.1:{port}/api/v1/namespaces/default"
    query = quote(f"WorkflowId = 'lab/job/{job}'")
    one = f"{place}/workflows?query={query}"

    def call(path: str, who: str | None = None, body: object = None) -> tuple[int, str]:
        token = (
            {} if who is None else {"Authorization": f"Bearer {lab.service.people[who].token()}"}
        )
        data = None if body is None else json.dumps(body).encode()
        headers = {**token, "Content-Type": "application/json"}
        try:
            with urlopen(Request(path, data, headers), timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    found = {who: call(one, who) for who in ("ada", "olga", "bob", "vera")}

    assert {code for code, _ in found.values()} == {200}
    assert all(job in text for _, text in found.values())
    memos = {who: names.MEMO_COMMAND in text for who, (_, text) in found.items()}
    assert memos == {"ada": True, "olga": True, "bob": False, "vera": False}
    assert call(one)[0] == 401
    assert call(f"{place}/batch-operations/b", "olga", {})[0] == 403
    assert call(f"{place}/workflows/lab", "ada", {"workflowType": {"name": "X"}})[0] == 403
    assert call(f"{place}/activities/lab/complete", "ada", {})[0] == 403
    nexus = f"http://127.0.0.1:{port}/namespaces/default/task-queues/q/nexus-services/s/o"
    assert call(nexus, "olga", {})[0] == 403


def test_a_worker_of_another_cannot_be_named(lab: People) -> None:
    """With the key of a worker, a stolen host could report that worker in its own queue, and the
    cluster would take the other host for lost.
    """

    async def keys(who: str) -> set[bool]:
        request = ListWorkersRequest(namespace=NAMESPACE)
        found = await lab.service.who(who, "list_workers", request)
        assert len(found.workers_info) >= 3
        return {bool(each.worker_heartbeat.worker_instance_key) for each in found.workers_info}

    async def all_keys() -> dict[str, set[bool]]:
        return {who: await keys(who) for who in ("cp", "olga", "ada", "vera", "stolen")}

    hidden = {who: {False} for who in ("olga", "ada", "vera", "stolen")}
    assert asyncio.run(all_keys()) == {"cp": {True}, **hidden}
