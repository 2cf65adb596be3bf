"""The ends of the logs that a machine has of a cluster."""

from pathlib import Path

import pytest

from iris.client.connect.clusters import cluster_dir
from iris.client.operate.bundle import logs
from iris.client.operate.bundle.archive import Collection
from iris.client.operate.bundle.logs import add_local_logs


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a cluster's logs."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    directory = cluster_dir("lab") / "logs"
    directory.mkdir(parents=True)
    return directory


def test_a_log_that_cannot_be_read_costs_no_other(directory: Path) -> None:
    """A process that another user started has logs of that user."""
    (directory / "folder.log").mkdir()
    (directory / "good.log").write_text("a\nb\nc\n")
    collection = Collection()
    add_local_logs(collection, "lab", 2)
    assert collection.files == {"logs/good.log": "b\nc\n"}
    assert {*collection.missing} == {"logs/folder.log"}


def test_a_line_whose_beginning_was_not_read_is_left_out(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the rest of a secret, which no filter finds."""
    monkeypatch.setattr(logs, "_END", 20)
    (directory / "a.log").write_text("TOKEN=open-sesame-open-sesame\nnext\n")
    collection = Collection()
    add_local_logs(collection, "lab", 10)
    assert collection.files == {"logs/a.log": "next\n"}
