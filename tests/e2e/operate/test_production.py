"""Iris on a Temporal service as in production (`make test-production`): what only the dev server's
settings would make true.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import PATIENCE, USER, eventually, until
from tests.e2e.operate.production import OwnCluster, an_own_cluster
from tests.temporal_cluster import TemporalCluster, a_temporal_cluster

pytestmark = pytest.mark.production

#: A namespace with a low limit on the updates of a workflow: Temporal's default is 2,000.
FEW_UPDATES = "few-updates"
#: A namespace whose workers do not report to the server.
QUIET = "quiet"


#: What a machine offers.
OFFER = ("--cpu", "2", "--memory", "4g", "--attribute", "rack=a")


@pytest.fixture(scope="module")
def temporal() -> Iterator[TemporalCluster]:
    """Two servers on PostgreSQL with four shards, and four partitions for each task queue."""
    settings = {
        f"history.maxTotalUpdates@{FEW_UPDATES}": 20,
        f"frontend.WorkerHeartbeatsEnabled@{QUIET}": False,
    }
    with a_temporal_cluster(
        servers=2, settings=settings, namespaces=("default", FEW_UPDATES, QUIET)
    ) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(temporal: TemporalCluster) -> Iterator[OwnCluster]:
    """Two machines that joined as one slice. The namespace did not have Iris' search attributes."""
    with an_own_cluster(temporal.service.addresses, "own") as running:
        for host in ("slice-w-0", "slice-w-1"):
            running.begin(
                "agent",
                "--join",
                "--run-as=root",
                "--host-id",
                host,
                "--slice",
                "slice",
                "--slice-size",
                "2",
                "--dir",
                str(running.home / host),
                *OFFER,
            )
        eventually(lambda: len(running.host_ids()) == 2, every=0.5)
        yield running


@pytest.fixture(scope="module", autouse=True)
def quiet(temporal: TemporalCluster) -> Iterator[tuple[OwnCluster, str]]:
    """A host that does not report, and its incarnation. It takes minutes to show that this costs
    nothing, so it begins first.
    """
    with an_own_cluster(temporal.service.addresses, "quiet", QUIET) as running:
        running.join("host", *OFFER)
        yield running, running.hosts()["host"]["incarnation"]


def shell(text: str) -> tuple[str, ...]:
    return "--", "sh", "-c", text


def test_jobs_run_and_fail_with_their_logs_and_exit_codes(cluster: OwnCluster) -> None:
    """Tasks reach their hosts through queues of four partitions, and programs end as on a dev
    server.
    """
    tasks = cluster.iris(
        "submit", "-n", "tasks", "--replicas", "4", *shell("echo task $IRIS_TASK_INDEX")
    )
    assert sorted(line.split(" ", 1)[1] for line in tasks.out.splitlines()) == [
        f"task {index}" for index in range(4)
    ]
    failed = cluster.iris("submit", "-n", "fails", *shell("echo sorry; exit 3"), code=125)
    assert failed.out == "sorry\n"
    assert cluster.logs("fails") == ["sorry"]

    def listed() -> dict[str, str]:
        return {each["id"]: each["state"] for each in cluster.iris("jobs", "--all", "--json").json}

    # Lists lag behind.
    eventually(
        lambda: listed() == {f"{USER}/tasks": "SUCCEEDED", f"{USER}/fails": "FAILED"}, every=0.5
    )


def test_a_gang_is_placed_together_and_cancelled_together(cluster: OwnCluster) -> None:
    """Its tasks know one another, and its hosts are free afterwards."""
    here = cluster.work
    cluster.submit(
        "gang",
        "--gang-by",
        "rack",
        "--replicas",
        "2",
        *shell(f"touch {here}/gang.$IRIS_TASK_INDEX; sleep 1000"),
    )
    for index in range(2):
        cluster.there_is(f"gang.{index}")
    assert {task["host"] for task in cluster.status("gang")["tasks"]} == {"slice-w-0", "slice-w-1"}
    cluster.iris("cancel", "gang")
    cluster.iris("wait", "gang", code=126)
    eventually(lambda: cluster.free_cpu() == [2, 2], every=0.5)


def test_what_needs_a_later_service_says_so(cluster: OwnCluster) -> None:
    """Servers before 1.32 start no activity without a workflow, unless a setting enables it."""
    cluster.submit("beside", *shell("sleep 1000"))
    eventually(lambda: cluster.status("beside")["tasks"][0]["state"] == "RUNNING", every=0.5)
    assert "use version 1.32 or later" in cluster.iris("exec", "beside", "--", "true", code=5).err
    cluster.iris("cancel", "beside")
    cluster.iris("wait", "beside", code=126)


@pytest.mark.parametrize("number", [0, 1])
def test_jobs_do_not_notice_the_death_of_a_server(
    cluster: OwnCluster, temporal: TemporalCluster, number: int
) -> None:
    """The other one takes over its shards and task queues; who was connected to it comes back when
    it is there again.
    """
    name = f"server-{number}"
    go = cluster.file(f"{name}.go")
    cluster.submit(name, *shell(f"touch {cluster.file(name)}; {until(str(go))}; echo done"))
    cluster.there_is(name)
    temporal.end(name, signal.SIGKILL)
    temporal.start_server(number)
    go.touch()
    eventually(lambda: cluster.iris("wait", name, code=None).code == 0)
    assert cluster.logs(name) == ["done"]
    # A server that takes over a task queue refuses questions until the control plane has polled it.
    eventually(lambda: cluster.iris("status", name, "--json", code=None).code == 0)
    assert cluster.status(name)["tasks"][0]["attempt"] == 1
    assert len(cluster.host_ids()) == 2


def test_jobs_do_not_notice_the_death_of_the_control_plane(cluster: OwnCluster) -> None:
    """One task runs, three wait; after `kill -9` another control plane replays the scheduler and
    goes on.
    """
    go = str(cluster.file("replay.go"))
    once = f"echo $IRIS_TASK_INDEX >> {cluster.file('replay.runs')}"
    cluster.submit("running", "--cpu", "2", *shell(f"touch {cluster.file('running')}; {until(go)}"))
    cluster.there_is("running")
    cluster.submit("waiting", "--replicas", "3", "--cpu", "2", *shell(f"{until(go)}; {once}"))
    cluster.kill("controller")
    # A submission needs only the service.
    cluster.submit("meanwhile", *shell(f"{until(go)}; {once}"))
    cluster.start()
    Path(go).touch()
    cluster.iris("wait", "running", "waiting", "meanwhile")
    assert sorted(cluster.lines("replay.runs")) == ["0", "0", "1", "2"]
    assert [task["attempt"] for task in cluster.status("waiting")["tasks"]] == [1, 1, 1]


def test_programs_survive_a_restart_of_the_control_plane_and_of_both_servers(
    cluster: OwnCluster, temporal: TemporalCluster
) -> None:
    """A gang on two hosts keeps its attempt and its processes; all its lines are there."""
    here, hosts = (
        cluster.work,
        {host_id: host["incarnation"] for host_id, host in cluster.hosts().items()},
    )
    program = (
        f"echo $$ >> {here}/restart.$IRIS_TASK_INDEX; echo begin;"
        f" {until(str(here / 'restart.go'))}; echo end"
    )
    cluster.submit("restart", "--gang-by", "rack", "--replicas", "2", *shell(program))
    for index in range(2):
        cluster.there_is(f"restart.{index}")
    (control,) = cluster.processes_with("controller", "serve")
    control.terminate()
    for number in range(2):
        temporal.end(f"server-{number}", signal.SIGKILL)
    for number in range(2):
        temporal.start_server(number)
    control.wait(PATIENCE)
    cluster.start()
    cluster.file("restart.go").touch()
    cluster.iris("wait", "restart")
    assert [len(cluster.lines(f"restart.{index}")) for index in range(2)] == [1, 1]
    assert [task["attempt"] for task in cluster.status("restart")["tasks"]] == [1, 1]
    assert sorted(cluster.logs("restart")) == [
        f"[{index}] {line}" for index in range(2) for line in ("begin", "end")
    ]
    assert {host_id: host["incarnation"] for host_id, host in cluster.hosts().items()} == hosts


def test_the_scheduler_continues_as_new_before_its_updates_are_refused(
    temporal: TemporalCluster,
) -> None:
    """A service refuses the updates of a workflow beyond its limit; each job takes two."""
    with an_own_cluster(temporal.service.addresses, "few", FEW_UPDATES) as cluster:
        cluster.join("host", *OFFER)
        for index in range(15):
            cluster.iris("submit", "-n", f"job-{index}", *shell("true"))
        eventually(lambda: len(cluster.iris("jobs", "--all", "--json").json) == 15)


def test_a_host_whose_reports_do_not_arrive_is_not_lost(quiet: tuple[OwnCluster, str]) -> None:
    """Where the service has no reports of workers, silence says nothing: the host is still there
    after many observations.
    """
    cluster, incarnation = quiet
    seen: set[str] = set()
    eventually(lambda: seen.update(cluster.observation()) or len(seen) >= 8, every=2)
    assert cluster.hosts()["host"]["incarnation"] == incarnation, (
        "it was lost, and has joined again"
    )
    assert cluster.iris("submit", *shell("echo hello")).out == "hello\n"
