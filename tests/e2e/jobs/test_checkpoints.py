"""A training loop loses no step when its agent is killed, when it is evicted, and when its host is
taken away.
"""

import json
import re
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_cluster, eventually

pytestmark = pytest.mark.long

EXAMPLE = str(Path(__file__).parent.parent.parent.parent / "examples" / "checkpointed.py")


def attempts(cluster: Cluster) -> list[tuple[int, int]]:
    """For each attempt of the job: after which step it has started, and the last step that it has
    reported.
    """
    found: list[tuple[int, int]] = []
    for line in cluster.logs("train"):
        if started := re.fullmatch(r"attempt \d+ starts after step (\d+)", line):
            found.append((int(started[1]), int(started[1])))
        elif step := re.match(r"step (\d+): ", line):
            found[-1] = (found[-1][0], int(step[1]))
    return found


def saves(cluster: Cluster) -> tuple[int, int]:
    """The last save in the store: its attempt and its number."""
    found = (cluster.home / "clusters").glob("*/store/checkpoints/*/train/*/0/*/*.json")
    return max(((int(path.parent.name), int(path.stem)) for path in found), default=(0, 0))


def test_a_training_loop_goes_on_from_its_last_step_each_time() -> None:
    """The example, on real processes. A step that was saved when the program was killed may not
    have been reported yet.
    """
    with a_cluster("--cpu", "1", "--hosts", "1", "--min-run-time", "1s", "--ephemeral") as cluster:
        cluster.submit("train", "--cpu", "1", "--", "python3", EXAMPLE, "100000")
        # A save while it runs: the agent has seen that it replaces its file, so the file counts at
        # any time.
        eventually(lambda: saves(cluster) >= (1, 1))
        before = saves(cluster)
        cluster.kill("agent", cluster.only_host())
        eventually(lambda: saves(cluster) > before)
        cluster.iris(
            "submit", "-n", "urgent", "--cpu", "1", "--priority", "production", "--", "sleep", "0"
        )
        eventually(lambda: saves(cluster) >= (2, 1))
        cluster.iris(
            "host", "drain", str(cluster.status("train")["tasks"][0]["host"]), "--deadline", "1s"
        )
        eventually(lambda: saves(cluster) >= (3, 1))
        cluster.iris("cancel", "train")
        cluster.iris("wait", "train", code=126)

        (_, first), (second, evicted), (third, last) = attempts(cluster)
        assert 0 < first <= second <= first + 1
        assert 0 < evicted <= third <= evicted + 1
        log = cluster.iris("logs", "train", "--build", "--attempt", "3").out
        assert re.search(r"^\[iris\] .*checkpoint of attempt 2\b", log, re.MULTILINE)
        cluster.iris("fetch", "train", "--checkpoint")
        step, _ = json.loads((cluster.work / "train-checkpoint" / "state.json").read_text())
        assert last <= step <= last + 1


def test_a_new_job_starts_from_the_checkpoint_of_an_earlier_one() -> None:
    """To train on with another rate, or on more machines. It then has a checkpoint of its own, also
    if it has changed nothing.
    """
    writes = 'echo "$IRIS_TASK_INDEX of $0" > "$IRIS_CHECKPOINT_DIR/state"'
    reads = 'cat "$IRIS_CHECKPOINT_DIR/state" 2> /dev/null || echo nothing'
    with a_cluster("--cpu", "4", "--hosts", "1", "--ephemeral") as cluster:
        for run in ("old", "new"):
            cluster.submit(
                "train", "--replicas", "2", "--cpu", "0.1", "--", "sh", "-c", writes, run
            )
            cluster.iris("wait", "train")
        more = ("--replicas", "3", "--cpu", "0.1", "--from-checkpoint")
        cluster.submit("more", *more, "train", "--", "sh", "-c", reads)
        cluster.submit("copies", *more, "train#1:1", "--", "sh", "-c", reads)
        cluster.iris("wait", "more", "copies")

        read = {
            job: [line for line in cluster.logs(job) if "[iris]" not in line]
            for job in ("more", "copies")
        }
        assert sorted(read["more"]) == ["[0] 0 of new", "[1] 1 of new", "[2] nothing"]
        assert sorted(read["copies"]) == [f"[{index}] 1 of old" for index in range(3)]
        assert (
            "starts    from the checkpoint of ada/train#1:1" in cluster.iris("status", "copies").out
        )
        cluster.iris("fetch", "more", "--checkpoint")
        assert (cluster.work / "more-checkpoint" / "1" / "state").read_text() == "1 of new\n"
        for source, reason in (
            ("train", "has a checkpoint of task 1, but the last task of the new job is 0"),
            ("train:5", "name a task"),
        ):
            assert (
                reason
                in cluster.iris(
                    "submit", "-d", "--from-checkpoint", source, "--", "true", code=2
                ).err
            )
        never = cluster.iris("submit", "--from-checkpoint", "never", "--", "true", code=3)
        assert "ada/never" in never.err
