"""Jobs that a program in a job submits: found again by its retry, and ended with it, also when
services are killed meanwhile.
"""

import json
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, eventually, until

pytestmark = pytest.mark.long

#: Submits a job that ends at once, waits for it, and submits one that runs until the test lets it
#: go.
LAUNCHER = f"""
import iris, os
context = iris.context()
some = iris.Resources(cpu=0.5, memory="64m")
context.client.submit("sh", "-c", "echo quick >> runs", resources=some).result()
slow = context.client.submit("sh", "-c", "echo slow $GREETING >> runs; {until("go")}", name="slow", resources=some)
open(f"submitted-{{context.attempt}}", "w").close()
slow.result()
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster whose processes are killed."""
    with a_cluster("--hosts", "1", "--cpu", "4") as running:
        yield running


def states(cluster: Cluster) -> dict[str, str]:
    return {row["id"]: row["state"] for row in cluster.iris("jobs", "--json").json}


def test_a_retried_parent_finds_its_jobs_after_the_death_of_everything_around_it(
    cluster: Cluster,
) -> None:
    """What has been computed is not computed again, and what runs is not doubled."""
    cluster.submit(
        "top", "--max-retries", "1", "--env", "GREETING=hello", "--", sys.executable, "-c", LAUNCHER
    )
    cluster.there_is("submitted-1")
    eventually(lambda: len(cluster.lines("runs")) == 2)
    cluster.kill("controller")
    cluster.kill("agent")
    cluster.kill(sys.executable, LAUNCHER)
    cluster.there_is("submitted-2")
    shown = cluster.iris("status", "top").out
    cluster.file("go").touch()
    cluster.iris("wait", "top")

    assert "2: 1 RUNNING, 1 SUCCEEDED (ada/top/slow RUNNING)" in shown
    assert sorted(cluster.lines("runs")) == ["quick", "slow hello"]
    assert sorted(states(cluster).values()) == ["SUCCEEDED"] * 3
    tree = cluster.iris("jobs", "--tree", "--all").out.splitlines()
    assert tree[1].startswith(f"{USER}/top ")
    assert [line.split()[0] for line in tree[2:]] == ["└", "└"]


def test_the_jobs_of_a_cancelled_parent_end_though_the_control_plane_dies_meanwhile(
    cluster: Cluster,
) -> None:
    """Whatever the control plane was doing, the next one goes on with it. No program is left."""
    cluster.submit("top", "--", sys.executable, "-c", LAUNCHER)
    eventually(lambda: len(cluster.lines("runs")) == 2)
    assert (
        cluster.iris("cancel", "top").out
        == f"cancelling {USER}/top (grace period 30s) and the 1 live job that belongs to it\n"
    )
    cluster.kill("controller")
    cluster.iris("wait", "top", "ada/top/slow", code=126)

    assert (
        cluster.iris("explain", "ada/top/slow").out.splitlines()[1]
        == "its parent ada/top was cancelled"
    )
    eventually(lambda: cluster.free_cpu() == [4])


#: What a user types by hand in a shell, in a job. Each command names the child that the script has
#: submitted.
SCRIPT = f"""set -e
submit="iris submit -q -d --no-workspace --cpu 0.5 --memory 64m"
$submit -n kid -- echo from the child
$submit -n waits --after kid -- echo after the child
$submit -n stays -- sh -c '{until("never")}'
iris wait kid waits
iris status kid --json > status
iris logs kid > log
iris logs kid#1:0 > log-of-run
iris explain waits > explained
iris cancel stays > cancelled
iris wait stays || test $? = 126
iris wait ada/kid
iris logs ada/kid > log-of-full-name
python=$1
$python -c '
import iris
client = iris.context().client
assert client.job("kid").wait().state == "SUCCEEDED"
assert client.submit(max, 1, 2, name="sum", resources=iris.Resources(cpu=0.5, memory="64m")).result() == 2
assert client.job("sum").result() == 2
after = client.submit("true", name="last", after=["kid", client.job("sum")], resources=iris.Resources(cpu=0.5, memory="64m"))
assert client.job("last").wait().state == "SUCCEEDED"
'
"""


def test_in_a_job_a_bare_name_is_that_of_its_child(cluster: Cluster) -> None:
    """The script that works by hand works in a job, also where the user has another job of the
    name.
    """
    cluster.submit("kid", "--", "echo", "from the user")
    cluster.iris("wait", "kid")
    cluster.submit("top", "--", "sh", "-c", SCRIPT, "script", sys.executable)
    ended = cluster.iris("wait", "top", code=None)

    assert ended.code == 0, cluster.logs("top")
    assert json.loads(cluster.file("status").read_text())["id"] == "ada/top/kid"
    assert cluster.lines("log") == cluster.lines("log-of-run") == ["from the child"]
    assert cluster.lines("log-of-full-name") == ["from the user"]
    assert cluster.lines("explained")[0].split() == ["ada/top/waits", "SUCCEEDED"]
    assert cluster.lines("cancelled") == ["cancelling ada/top/stays (grace period 30s)"]
    assert set(states(cluster)) == {
        "ada/kid",
        *(f"ada/top{name}" for name in ("", "/kid", "/waits", "/stays", "/sum", "/last")),
    }
