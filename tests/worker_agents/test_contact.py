"""By which variables a program's client finds the cluster."""

import os
from pathlib import Path

import pytest

from iris.client.connect.clusters import ClusterRecord, ProcessRef, write_record
from iris.worker_agents.host.agent import contact_env


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    return tmp_path


def test_a_host_elsewhere_knows_the_address_alone() -> None:
    """Its own state directory has nothing of the cluster."""
    assert contact_env("10.0.0.2:7233", "default", "euw4") == {
        "IRIS_CLUSTER_ADDRESS": "10.0.0.2:7233/euw4"
    }
    assert contact_env("10.0.0.2:7233", "team", "euw4")["IRIS_CLUSTER_NAMESPACE"] == "team"


def test_a_host_of_a_cluster_on_this_machine_names_its_state_directory(state: Path) -> None:
    """Logs and outputs of stopped clusters are found there, too. A cluster of this name elsewhere
    has another address.
    """
    write_record(
        ClusterRecord(
            name="local",
            address="127.0.0.1:7",
            store="file:///s",
            supervisor=ProcessRef.of(os.getpid()),
        )
    )

    assert contact_env("127.0.0.1:7", "default", "local")["IRIS_STATE_DIR"] == str(state)
    assert "IRIS_STATE_DIR" not in contact_env("10.0.0.2:7233", "default", "local")
