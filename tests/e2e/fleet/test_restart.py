"""`iris cluster restart`: another control plane takes over, and programs, hosts and slices stay as
they are.
"""

import json
from typing import Any

import psutil
import pytest

from tests.e2e.cluster import Cluster, a_cluster, eventually

pytestmark = pytest.mark.long

#: Adds its index, attempt and process to a file, and prints numbered lines until the file `go`
#: exists.
COUNTS = """
import os, pathlib, time
with open("starts", "a") as starts:
    print(os.environ["IRIS_TASK_INDEX"], os.environ["IRIS_ATTEMPT"], os.getpid(), file=starts)
number = 0
while not pathlib.Path("go").exists():
    print("line", number, flush=True)
    number += 1
    time.sleep(0.05)
print("end", number)
"""
TASKS = 4


def test_programs_survive_a_restart_of_the_control_plane() -> None:
    """Four tasks on two hosts keep their attempts, processes and lines; no slice is deleted; a
    waiting job starts afterwards.
    """
    with a_cluster("--hosts", "2", "--cpu", "2", "--ephemeral") as cluster:
        cluster.submit(
            "counts", "--replicas", str(TASKS), "--cpu", "1", "--", "python3", "-c", COUNTS
        )
        follower = cluster.begin("logs", "-f", "counts")
        starts = eventually(lambda: len(lines := cluster.lines("starts")) == TASKS and lines)
        cluster.submit("waits", "--", "echo", "waited")
        # It is told a moment after the start.
        eventually(lambda: all(task["host"] for task in cluster.status("counts")["tasks"]))
        before, control = state(cluster), cluster.pid("controller", "serve")
        assert len({task["host"] for task in before["tasks"]}) == 2
        printed = len(follower.out.splitlines())

        assert (
            cluster.iris("cluster", "restart").out
            == "the control plane of cluster local was restarted\n"
        )

        assert cluster.pid("controller", "serve") not in (None, control)
        # It has no earlier observation of the hosts to compare with; two of its own could give them
        # up. The first may not be.
        seen: set[str] = set()
        eventually(lambda: seen.update(cluster.observation()) or len(seen) >= 3, every=2)
        assert state(cluster) == before
        assert all(psutil.pid_exists(int(start.split()[2])) for start in starts)
        assert len(follower.out.splitlines()) > printed

        cluster.file("go").touch()
        cluster.iris("wait", "counts", "waits")
        assert cluster.lines("starts") == starts, "a task was started again"
        assert [task["attempt"] for task in cluster.status("counts")["tasks"]] == [1] * TASKS
        assert cluster.logs("waits") == ["waited"]
        followed = lines_by_task(follower.ends().out.splitlines())
        for lines in followed.values():
            assert lines == [
                *(f"line {number}" for number in range(len(lines) - 1)),
                f"end {len(lines) - 1}",
            ]
        assert followed == lines_by_task(cluster.logs("counts"))
        assert set(followed) == {f"[{index}]" for index in range(TASKS)}


def test_decisions_go_on_soon_after_a_control_plane_has_died_in_a_task_of_the_scheduler() -> None:
    """The next one does not wait until the service gives the task up, which takes half a minute."""
    with a_cluster("--ephemeral") as cluster:
        pid = cluster.pid("controller", "serve")
        control = psutil.Process(pid)
        # It takes the task that the message causes, and does nothing with it.
        control.suspend()
        scheduler = ("--workflow-id", f"{cluster.name}/scheduler")
        message = ("--name", "deliver", "--input", '{"messages": []}')
        cluster.temporal("workflow", "signal", *scheduler, *message)

        def has_begun() -> bool:
            task = cluster.temporal("workflow", "describe", *scheduler).get("pendingWorkflowTask")
            return task is not None and "STARTED" in task["state"].upper()

        eventually(has_begun)
        control.kill()
        cluster.submit("soon", "--", "touch", "decided")
        cluster.there_is("decided")
        events = cluster.temporal("workflow", "show", *scheduler)["events"]
        assert "LostTask" in json.dumps(events)
        # Some time out before a worker begins them: they waited for the dead one.
        assert "START_TO_CLOSE" not in json.dumps(events)


def state(cluster: Cluster) -> dict[str, Any]:
    """The tasks of the job with their attempts and hosts, the hosts with their incarnations, and
    the slices.
    """
    tasks = [
        {key: task[key] for key in ("index", "attempt", "host")}
        for task in cluster.status("counts")["tasks"]
    ]
    hosts = {host_id: host["incarnation"] for host_id, host in cluster.hosts().items()}
    return {"tasks": tasks, "hosts": hosts, "slices": cluster.iris("slice", "list", "--json").json}


def lines_by_task(lines: list[str]) -> dict[str, list[str]]:
    """The lines by the prefix that names their task."""
    found: dict[str, list[str]] = {}
    for line in lines:
        task, text = line.split(" ", 1)
        found.setdefault(task, []).append(text)
    return found
