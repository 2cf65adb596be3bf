"""Arrays as their users handle them: rows of a table, one task of many, and what has to run
again.
"""

import pytest

from tests.e2e.cluster import Cluster, eventually, until

pytestmark = pytest.mark.long

WORDS = "word,code\none,0\ntwo,3\nthree,0\nfour,0\n"


def test_a_sweep_over_a_table_loses_one_task_and_runs_two_again(cluster: Cluster) -> None:
    """Each task has its row, one is cancelled and one fails; only these two run again, with their
    indices and rows.
    """
    cluster.file("words.csv").write_text(WORDS)
    program = (
        "echo {index} {word} $IRIS_PARAM_WORD; [ -e words.go ] || [ {index} != 3 ] ||"
        f" {until('words.end')}"
    )
    options = ("--array", "words.csv%2", "--cpu", "0.5", "--max-task-failures", "1")
    cluster.submit(
        "words", *options, "--", "sh", "-c", f"{program}; [ -e words.go ] || exit {{code}}"
    )
    eventually(lambda: _states(cluster, "words")[3] == "RUNNING")
    beside = cluster.iris("exec", "words:3", "--", "sh", "-c", "echo beside $IRIS_PARAM_WORD").out
    cluster.iris("cancel", "words:3")
    waited = cluster.iris("wait", "words").err
    failed = cluster.iris("status", "words", "--filter", "failed").out

    assert beside == "beside four\n"
    assert "2 of 4 tasks" in waited
    assert _states(cluster, "words") == {
        0: "SUCCEEDED",
        1: "FAILED",
        2: "SUCCEEDED",
        3: "CANCELLED",
    }
    assert "code 3" in failed
    assert cluster.logs("words", "--task", "2") == ["2 three three"]

    cluster.file("words.go").touch()
    cluster.iris("rerun", "words", "--failed", "-n", "words-again")
    cluster.iris("wait", "words-again")
    assert _states(cluster, "words-again") == {1: "SUCCEEDED", 3: "SUCCEEDED"}
    assert cluster.logs("words-again", "--task", "3") == ["3 four four"]
    assert "nothing to run again" in cluster.iris("rerun", "words-again", "--failed").err


def test_a_large_array_is_followed_and_cancelled_task_by_task_and_as_a_whole(
    cluster: Cluster,
) -> None:
    """It has several parts, of which some have not begun: no command may wait for them, or miss one
    of their tasks.
    """
    cluster.submit(
        "many",
        "--array",
        "0-599%4",
        "--cpu",
        "0.1",
        "--",
        "sh",
        "-c",
        f"echo {{index}}; {until('many.go')}",
    )
    eventually(
        lambda: cluster.iris("status", "many:2", "--json").json["tasks"][0]["state"] == "RUNNING"
    )
    beside = cluster.iris(
        "exec", "many:2", "--", "sh", "-c", "echo beside $IRIS_ARRAY_INDEX of $IRIS_ARRAY_COUNT"
    ).out
    for task in ("many:1", "many:599"):
        cluster.iris("cancel", task, "--reason", "not this one")
    eventually(
        lambda: cluster.iris("status", "many:1", "--json").json["tasks"][0]["state"] == "CANCELLED"
    )
    page = cluster.iris("status", "many", "--filter", "pending", "--limit", "10", "--page", "2").out
    unknown = cluster.iris("logs", "many", "--task", "600", code=3).err
    cluster.iris("cancel", "many", "--reason", "enough")
    cluster.iris("wait", "many", code=126)
    tasks = cluster.status("many")["tasks"]

    assert beside == "beside 2 of 600\n"
    assert sum("PENDING" in line.split()[:2] for line in page.splitlines()) == 10
    assert "600" in unknown
    assert {task["reason"] for task in tasks if task["state"] == "CANCELLED"} == {"not this one"}
    assert [task["index"] for task in tasks if task["state"] == "CANCELLED"] == [1, 599]
    assert {task["reason"] for task in tasks if task["state"] == "KILLED"} == {"enough"}
    assert len(tasks) == 600


def _states(cluster: Cluster, job: str) -> dict[int, str]:
    return {task["index"]: task["state"] for task in cluster.status(job)["tasks"]}
