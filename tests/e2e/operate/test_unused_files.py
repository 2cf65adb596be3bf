"""The store does not grow for ever: `iris cluster gc` deletes what ended jobs have left, and
nothing that a live one needs.
"""

import os
import time
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_cluster, eventually, until

pytestmark = pytest.mark.long


def age(cluster: Cluster) -> Path:
    """Makes all objects of the store forty days old, and returns its directory."""
    (store,) = (cluster.home / "clusters").glob("*/store")
    then = time.time() - 40 * 86_400
    for path in store.rglob("*"):
        os.utime(path, (then, then))
    return store


def test_only_the_files_of_ended_jobs_are_deleted() -> None:
    """A job that waits has old files, too: those that it was submitted with, and the rows of its
    array.
    """
    saves = 'echo 7 > "$IRIS_CHECKPOINT_DIR/step"; echo done > "$IRIS_OUTPUT_DIR/result"; echo said'
    with a_cluster("--cpu", "2", "--hosts", "1", "--ephemeral") as cluster:
        (cluster.work / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0"\n')
        for name in ("source", "ended"):
            (cluster.work / "data").write_text(name)
            cluster.submit(name, "--no-sync", "--workspace", ".", "--", "sh", "-c", saves)
            cluster.iris("wait", name)
        (cluster.work / "data").write_text("alive\n")
        (cluster.work / "rows.csv").write_text("word\nrow\n")
        cluster.submit(
            "alive",
            "--no-sync",
            "--workspace",
            ".",
            "--",
            "sh",
            "-c",
            f"cat data; {until(str(cluster.file('go')))}",
        )
        eventually(lambda: "alive" in cluster.logs("alive"))
        cluster.iris("cluster", "pause")
        late = (
            "--no-sync",
            "--workspace",
            ".",
            "--from-checkpoint",
            "source",
            "--array",
            "rows.csv",
        )
        cluster.submit(
            "late", *late, "--", "sh", "-c", 'cat data "$IRIS_CHECKPOINT_DIR/step"; echo {word}'
        )

        store = age(cluster)
        assert "is too short" in cluster.iris("cluster", "gc", "--older-than", "1h", code=2).err
        shown = cluster.iris("cluster", "gc").out
        assert "/checkpoints/" not in shown
        assert f"checkpoints/{cluster.status('ended')['id']}/" in shown
        assert "said" in cluster.logs("ended")
        cluster.iris("cluster", "gc", "--no-dry-run")

        left = {path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()}
        assert not [path for path in left if "/ended/" in path]
        assert [
            path for path in left if "/source/" in path and not path.startswith("checkpoints/")
        ] == []
        # Of files, and of rows.
        assert len([path for path in left if path.startswith("bundles/")]) == 2
        assert "alive" in cluster.logs("alive")
        assert "is not in the store" in cluster.iris("rerun", "ended", code=3).err
        cluster.iris("cluster", "resume")
        cluster.iris("wait", "late")
        assert [line for line in cluster.logs("late") if "[iris]" not in line] == [
            "alive",
            "7",
            "row",
        ]
