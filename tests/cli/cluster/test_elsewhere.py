"""`iris cluster …` of clusters that are not on this machine: what is shown beforehand, and what
slips are answered with.
"""

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from iris.cli.main import cli
from iris.client.connect.clusters import ClusterRecord, ControllerVm, write_config, write_record
from iris.client.connect.identity import cluster_uid
from iris.config import InvalidConfig, load_config, load_written
from iris.model import names
from iris.model.errors import InvalidValue, NotFound, Unreachable
from iris.storage.object_store import Store
from tests.fakes.google.client import FakeGoogle

EXAMPLES = Path(__file__).parents[3] / "examples"
CONFIG = str(EXAMPLES / "eu-west4.yaml")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)


def iris(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["cluster", *arguments])


def know(name: str) -> None:
    """A cluster elsewhere that was started from here."""
    vm = ControllerVm(project="p", zone="z", machine="m", port=10000)
    write_record(
        ClusterRecord(name=name, address="127.0.0.1:1", store="gs://bucket", remote=True, vm=vm)
    )
    write_config(name, Path(CONFIG).read_text().replace("name: eu-west4", f"name: {name}"))


def test_a_dry_run_shows_every_request_and_asks_nobody() -> None:
    """Without credentials, on a laptop in a train."""
    shown = json.loads(iris("start", "--config", CONFIG, "--dry-run").stdout)
    assert shown["controller"]["instanceResource"]["name"] == "iris-euw4-eu-west4-controller"
    assert shown["slices"]["cpu"]["instanceResource"]["machineType"].endswith("/n2-standard-8")


def test_a_start_warns_of_what_the_configuration_risks(tmp_path: Path) -> None:
    """The person who starts a cluster may not be the one who checked the file."""
    file = tmp_path / "cluster.yaml"
    file.write_text(re.sub(r"\n *service_account: .*", "", Path(CONFIG).read_text()))

    warnings = iris("start", "--config", str(file), "--dry-run").stderr.splitlines()

    assert [line.split(":")[:2] for line in warnings[:2]] == [
        ["warning", " platform.gcp.service_account"],
        ["warning", " controller.gcp.service_account"],
    ]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["start"], "add --local for a cluster on this machine, or --config FILE"),
        (
            ["start", "--config", CONFIG, "--hosts", "2", "--name", "x"],
            "--name, --hosts: only for local clusters",
        ),
        (["start", "--config", str(EXAMPLES / "local.yaml")], "is on this machine: add --local"),
        (["start", "--local", "--dry-run"], "--dry-run shows the requests to a cloud"),
        (["stop", "x", "--json"], "--json needs --dry-run"),
        *(
            ([command, "x", "--config", CONFIG], "NAME and --config FILE exclude each other")
            for command in ("stop", "restart", "tunnel", "status", "validate", "cleanup")
        ),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(arguments: list[str], answer: str) -> None:
    """Said before anything is asked of anybody."""
    ran = iris(*arguments)
    assert ran.exit_code == 2
    assert answer in " ".join(ran.output.split())


def test_a_cluster_that_nobody_here_knows_is_meant_by_its_configuration() -> None:
    """Its name alone does not say where it is."""
    ran = iris("stop", "far", "--yes")
    assert isinstance(ran.exception, NotFound)
    assert "name its configuration with --config FILE" in str(ran.exception)


@pytest.mark.parametrize("command", ["status", "validate", "tunnel", "restart"])
def test_a_cluster_that_was_never_used_from_here_is_found_by_its_configuration(
    command: str, google: FakeGoogle, tmp_path: Path
) -> None:
    """The store has its uid, and Google its machine. What is missing is an error with the remedy,
    before and after a start.
    """
    endpoints = f'endpoints: {{tpu: "{google.tpu}", compute: "{google.compute}"}}'
    text = (
        Path(CONFIG)
        .read_text()
        .replace("project_id: my-project", f"project_id: my-project\n    {endpoints}")
    )
    store = Store((tmp_path / "store").as_uri(), create=True)
    text = text.replace(load_config(text).controller.bundle_prefix, store.url)
    (tmp_path / "far.yaml").write_text(text)
    never = iris(command, "--config", str(tmp_path / "far.yaml"))
    asyncio.run(cluster_uid(store, "eu-west4"))
    stopped = iris(command, "--config", str(tmp_path / "far.yaml"))

    assert isinstance(never.exception, Unreachable)
    assert "no cluster eu-west4 was ever started" in str(never.exception)
    assert isinstance(stopped.exception, Unreachable)
    assert "iris cluster start --config FILE" in str(stopped.exception)


def test_a_name_is_that_of_one_cluster() -> None:
    """What is started from here is found by its name: a simulation cannot take that of a cluster
    that costs money.
    """
    know("far")
    ran = iris("start", "--local", "--name", "far", "-d")
    assert isinstance(ran.exception, InvalidValue)
    assert str(ran.exception).startswith("name: 'far' ")


def test_a_cluster_gets_no_other_clusters_configuration() -> None:
    """A slip that would delete half of its machines."""
    know("far")
    ran = iris("reload", "far", "--config", CONFIG)
    assert isinstance(ran.exception, InvalidValue)
    assert "name: 'eu-west4' is not cluster far" in str(ran.exception)


def test_what_a_reload_would_change_is_shown_of_a_cluster_elsewhere_too(tmp_path: Path) -> None:
    """Compared with what it got last."""
    know("far")
    file = tmp_path / "new.yaml"
    text = Path(CONFIG).read_text().replace("name: eu-west4", "name: far")
    file.write_text(text.replace("max_slices: 16", "max_slices: 17"))
    assert (
        iris("reload", "far", "--config", str(file), "--dry-run").output
        == "~ cpu: max_slices 16 → 17\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ("start",),
        ("stop",),
        ("restart",),
        ("reload", "far"),
        ("status",),
        ("validate",),
        ("cleanup",),
        ("tunnel",),
    ],
)
@pytest.mark.parametrize("written", [b"\xff\xfe\x00", b"name: [a, b\n", b"\x00"])
def test_a_file_that_is_no_configuration_is_named(
    command: tuple[str, ...], written: bytes, tmp_path: Path
) -> None:
    """By whichever command it is read: there may be several of them in a line."""
    know("far")
    file = tmp_path / "broken.yaml"
    file.write_bytes(written)
    ran = iris(*command, "--config", str(file))
    assert isinstance(ran.exception, InvalidConfig), ran.output
    assert str(ran.exception).startswith(f"{file} has 1 problem:")


def test_a_configuration_keeps_its_line_ends_on_its_way_to_a_cluster(tmp_path: Path) -> None:
    """The machine gets exactly what is written."""
    file = tmp_path / "cluster.yaml"
    file.write_bytes(Path(CONFIG).read_bytes().replace(b"\n", b"\r\n"))
    assert load_written(file)[1] == file.read_bytes().decode()
    shown = json.loads(iris("start", "--config", str(file), "--dry-run").stdout)
    told = {
        item["key"]: item["value"]
        for item in shown["controller"]["instanceResource"]["metadata"]["items"]
    }
    assert told["iris-config"] == file.read_bytes().decode()


def test_slices_are_called_in_a_dry_run_as_they_will_be() -> None:
    """By the same rule, with the part that is chosen for each left open."""
    shown = json.loads(iris("start", "--config", CONFIG, "--dry-run").stdout)
    assert shown["slices"]["tpu_v5e_16"]["nodeId"] == names.slice_id(
        "iris-euw4", "tpu_v5e_16", "00000000"
    )
