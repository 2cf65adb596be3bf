"""The programs of a gang on real hosts: they start together, or not at all, and every list says
what they wait for.
"""

from collections.abc import Iterator

import pytest

from iris.model.errors import Unreachable
from tests.e2e.cluster import Cluster, a_cluster, eventually, until

pytestmark = pytest.mark.long

#: v4-16 is a slice of two hosts.
GANG = ("--tpu", "v4-16")
#: A program that says in a file whether the slow host was allowed to go on before.
PROGRAM = (
    "--",
    "sh",
    "-c",
    "test -e go && touch after.$IRIS_TASK_INDEX || touch before.$IRIS_TASK_INDEX",
)


@pytest.fixture(params=["separate", "shared"])
def tpus(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A slice of two hosts, each with an agent of its own, or both in one process."""
    with a_cluster(*GANG, "--agents", request.param, "--ephemeral", name="starts") as running:
        yield running


def slow(rest: str = "true") -> tuple[str, ...]:
    """The set-up of task 1 waits for a file; that of task 0 is done at once."""
    return "--setup", f"test $IRIS_TASK_INDEX = 0 || {{ {until('go')}; {rest}; }}"


def waits_for_one(cluster: Cluster, job: str) -> bool:
    """Whether it is known that one host of the gang waits for the other: a control plane that was
    killed may take longer to come back than the command waits for it.
    """
    asked = cluster.iris("status", job, "--json", code=None)
    if asked.code == Unreachable.exit_code:
        return False
    assert asked.code == 0, asked.err
    found = asked.json
    return bool(
        found["state"] == "BUILDING" and found["reason"].startswith("waits for 1 of 2 hosts: ")
    )


def test_a_gang_waits_for_its_slow_host_also_if_an_agent_and_the_control_plane_are_killed_meanwhile(
    tpus: Cluster,
) -> None:
    """The agent that follows goes on with the same attempt, prepares it again, and waits again.
    Nobody forgets the question.
    """
    tpus.submit("slow", *GANG, *slow(), *PROGRAM)
    eventually(lambda: waits_for_one(tpus, "slow"))
    ((slice_id, hosts),) = tpus.slices("local-v4-16").items()
    assert tpus.status("slow")["reason"].endswith(hosts[1])
    assert "BUILDING" in tpus.iris("jobs").out
    agent = hosts[0] if tpus.pid("agent", hosts[0]) is not None else slice_id
    first = tpus.kill("agent", agent)
    eventually(lambda: tpus.pid("agent", agent) not in (None, first))
    tpus.kill("controller", "serve")
    eventually(lambda: waits_for_one(tpus, "slow"))
    tpus.file("go").touch()
    tpus.iris("wait", "slow")

    assert [task["attempt"] for task in tpus.status("slow")["tasks"]] == [1, 1]
    assert sorted(path.name for path in tpus.work.iterdir() if path.name != "go") == [
        "after.0",
        "after.1",
    ]


def test_a_set_up_that_fails_on_one_host_ends_the_other_at_once(tpus: Cluster) -> None:
    """No program starts, and the job says which command failed where."""
    tpus.submit("broken", *GANG, *slow("exit 3"), *PROGRAM)
    eventually(lambda: waits_for_one(tpus, "broken"))
    tpus.file("go").touch()
    ended = tpus.iris("wait", "broken", code=125)

    assert "task 1: set-up failed: `test $IRIS_TASK_INDEX = 0" in ended.err
    assert "exited with 3" in ended.err
    assert [path.name for path in tpus.work.iterdir()] == ["go"]
