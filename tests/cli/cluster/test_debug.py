"""`iris debug` before any cluster is reached, what it promises to programs, and its logins, which a
stand-in of gcloud plays.
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris.cli.cluster.checks import CHECKS, WORKERS
from iris.cli.cluster.debug import discovery_text, machine_text
from iris.cli.main import run
from iris.client.connect.cluster_ref import resolve_cluster
from iris.client.connect.clusters import (
    ClusterRecord,
    ControllerVm,
    ProcessRef,
    cluster_dir,
    write_record,
)
from iris.client.connect.controller_vm import controller_vm_of
from iris.client.operate.debugging import Check, WorkerRow, WorkerState
from iris.client.operate.discovery import Discovery, MachineSeen
from iris.client.operate.gcp.ssh import container_log, machine_status, ssh_command
from iris.config import load_config
from iris.model.errors import Rejected, Unreachable
from tests.builders import at
from tests.e2e.cluster import free_port

CONFIG = """
name: euw4
platform: {gcp: {project_id: my-project, default_zones: [europe-west4-b], label_prefix: iris}}
controller: {image: controller:1, bundle_prefix: "STORE", gcp: {port: 12000, iap: true}}
defaults: {bootstrap: {image: agent:1}}
scale_groups: {v5e: {type: tpu_vm, accelerator_variant: v5litepod-16}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory that nobody has used yet."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)
    return tmp_path


@pytest.fixture
def file(home: Path) -> Path:
    """The configuration of a cluster on Google Cloud."""
    file = home / "cluster.yaml"
    file.write_text(CONFIG.replace("STORE", (home / "store").as_uri()))
    return file


@pytest.fixture
def vm(file: Path) -> ControllerVm:
    """Its control plane's machine."""
    return controller_vm_of(load_config(file))


@pytest.fixture
def gcloud(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a gcloud on PATH that keeps its arguments in the file that is returned, and then runs
    this shell text.
    """

    def put(text: str) -> Path:
        said, program = home / "arguments", home / "bin" / "gcloud"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(said))}\n{text}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return said

    return put


def a_local_cluster(name: str = "here") -> ClusterRecord:
    """The record of a cluster on this machine that does not run."""
    record = ClusterRecord(
        name=name,
        address="127.0.0.1:1",
        store="file:///x",
        supervisor=ProcessRef(pid=2**22 + 1, created=0),
    )
    write_record(record)
    return record


def test_a_login_names_machine_project_and_zone_and_goes_through_iap_where_there_is_no_other_way(
    vm: ControllerVm,
) -> None:
    """Without a question: nobody is there to answer it. A machine that says nothing is waited for
    for a minute at most.
    """
    expected = [
        "gcloud",
        "compute",
        "ssh",
        "iris-euw4-controller",
        "--project=my-project",
        "--zone=europe-west4-b",
        "--quiet",
    ]
    flags = ("ServerAliveInterval=15", "ServerAliveCountMax=4", "ConnectTimeout=15")
    ways = [*(f"--ssh-flag=-o{flag}" for flag in flags), "--command=true"]
    assert ssh_command(vm, "true") == [*expected, "--tunnel-through-iap", *ways]
    assert ssh_command(vm.model_copy(update={"iap": False}), "true") == [*expected, *ways]


def test_what_a_login_shows_is_put_into_words(
    vm: ControllerVm, gcloud: Callable[[str], Path]
) -> None:
    """Lines that make no sense, as of a message of the day, are passed over."""
    gcloud(
        r"printf 'hello\nhostname|host-1\nup|up 2 days\ndisk|1G 50G 2%%\n'"
        r"; printf 'container|iris-controller|controller:1|Up 2 days\n'"
    )
    found = machine_status(vm)
    assert found == {
        "machine": "iris-euw4-controller",
        "zone": "europe-west4-b",
        "hostname": "host-1",
        "up": "up 2 days",
        "disk": "1G 50G 2%",
        "containers": [{"name": "iris-controller", "image": "controller:1", "status": "Up 2 days"}],
    }
    assert "iris-controller  controller:1  Up 2 days" in machine_text(found)


def test_a_login_that_fails_says_what_gcloud_said_last(
    vm: ControllerVm, gcloud: Callable[[str], Path]
) -> None:
    """The remedy stands there: it is Google's own."""
    gcloud(
        "echo 'ERROR: (gcloud.compute.ssh) Reauthentication required. Please run: gcloud auth"
        " login' >&2; exit 1"
    )
    with pytest.raises(
        Unreachable,
        match=r"ssh to iris-euw4-controller in europe-west4-b ended with 1:\nERROR: .*auth login",
    ):
        machine_status(vm)


def test_without_gcloud_one_is_told_to_install_it(
    vm: ControllerVm, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """It is the only way in, and no part of Iris."""
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(
        Rejected, match="gcloud is not installed here; install the Google Cloud CLI"
    ):
        container_log(vm, 10)


def test_logs_of_a_cluster_on_google_cloud_are_those_of_its_container(
    file: Path, gcloud: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Read by the machine's own engine; nothing has to be known here but the configuration."""
    said = gcloud("printf 'first\\nsecond\\n'")
    assert run(["debug", "logs", "--config", str(file), "--tail", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"lines": ["first", "second"]}
    assert (
        said.read_text().splitlines()[-1]
        == "--command=sudo docker logs --tail=2 iris-controller 2>&1"
    )


@pytest.mark.parametrize("part", ["controller", "temporal"])
def test_logs_of_a_local_cluster_are_its_files(
    part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when it does not run: that is when one wants to read them."""
    record = a_local_cluster()
    log = cluster_dir(record.name) / "logs" / f"{part}.log"
    log.parent.mkdir()
    log.write_text("one\ntwo\nthree\n")
    assert run(["debug", "logs", "--cluster", "here", "--part", part, "--tail", "2"]) == 0
    assert capsys.readouterr().out == "two\nthree\n"
    assert run(["debug", "--cluster", "here", "logs", "--part", "other"]) == 3
    assert f"there are logs of: {part}" in capsys.readouterr().err


def test_a_configuration_does_not_mean_a_simulation_of_its_name_that_was_stopped(
    file: Path,
) -> None:
    """It must not stand before the real one."""
    assert resolve_cluster(None, file).platform == "gcp"
    a_local_cluster("euw4")
    assert resolve_cluster(None, file).platform == "gcp"
    assert resolve_cluster("euw4", None).platform == "local"


def test_of_a_cluster_elsewhere_that_was_used_from_here_its_name_says_all(file: Path) -> None:
    """Its configuration was kept, and its machine is where it was found."""
    vm = ControllerVm(project="my-project", zone="europe-west4-a", machine="moved", port=12000)
    write_record(
        ClusterRecord(name="euw4", address="127.0.0.1:1", store="file:///x", remote=True, vm=vm)
    )
    (cluster_dir("euw4") / "config.yaml").write_text(file.read_text())
    known = resolve_cluster("euw4", None)
    assert (known.platform, known.controller_vm("")) == ("gcp", vm)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["ssh-status", "--cluster", "here"],
            5,
            "cluster here runs on this machine: its control plane has no machine of its own",
        ),
        (
            ["bootstrap-logs", "--cluster", "here"],
            5,
            "runs on this machine: its control plane has no machine of its own",
        ),
        (
            ["tunnel", "--cluster", "here"],
            5,
            "cluster here runs on this machine: it needs no tunnel",
        ),
        (["ssh-status", "--cluster", "10.0.0.1:7233"], 5, "not known to be on Google Cloud"),
        (
            ["logs", "--cluster", "10.0.0.1:7233"],
            5,
            "is not known; name its configuration with --config",
        ),
        (
            ["discover", "--cluster", "other"],
            3,
            "cluster 'other' is not known here: there is no local cluster 'other'",
        ),
        (["discover"], 4, "no cluster: no local cluster runs"),
        (["health"], 4, "no cluster: no local cluster runs"),
        (["list-workers", "--config", "nowhere.yaml"], 2, "'nowhere.yaml' does not exist"),
        (["list-workers", "--cluster", "../x"], 2, "is not a valid name"),
        (["look"], 2, "No such command 'look'"),
    ],
)
def test_what_cannot_be_looked_at_is_said_in_a_sentence(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code of its kind."""
    a_local_cluster()
    assert run(["debug", *arguments]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["debug", "tunnel", "--cluster", "here"], ["cluster", "tunnel", "here"]]
)
def test_a_tunnel_is_the_same_whoever_asks_for_it(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two commands that differ in what they refuse would have people try the other one."""
    a_local_cluster()
    assert run([*command, "--json"]) == 5
    assert "cluster here runs on this machine: it needs no tunnel" in capsys.readouterr().err


def test_a_bundle_of_a_service_that_is_away_has_this_machine_and_says_what_is_missing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An address is all that is known: neither a configuration nor a log is on this machine."""
    file = home / "bundle.tar.gz"
    address = f"127.0.0.1:{free_port()}"
    assert run(["debug", "bundle", "--cluster", address, "-o", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {*said["files"]} == {"versions.json", "machine.json", "cluster.json", "missing.txt"}
    assert {*said["missing"]} == {"service", "submissions", "config.json", "logs/controller.log"}
    assert run(["debug", "bundle", "--cluster", address, "-o", str(file)]) == 2
    assert "exists" in capsys.readouterr().err


def test_the_health_of_a_cluster_that_is_gone_is_one_check_that_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What cannot be asked without the service is not asked; a program sees it by the exit code."""
    a_local_cluster()
    assert run(["debug", "health", "--cluster", "here", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    (check,) = found["checks"]
    assert (check["name"], check["ok"]) == ("service", False)
    assert "does not run" in check["said"]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (
            CHECKS.json(Check(name="hosts", ok=True, took=0.12345, said="4 report")),
            {"name": "hosts", "ok": True, "took_seconds": 0.123, "said": "4 report"},
        ),
        (
            WORKERS.json(
                WorkerRow(
                    host="h1",
                    slice="s1",
                    state=WorkerState.CLOSED,
                    reported_at=at(0),
                    running=("ada/a:0",),
                )
            ),
            {
                "host": "h1",
                "slice": "s1",
                "state": "CLOSED",
                "reason": "",
                "reported_at": "2026-01-01T12:00:00Z",
                "started_at": None,
                "running": ["ada/a:0"],
            },
        ),
        (
            Discovery(
                cluster="c",
                platform="gcp",
                running=True,
                machine=MachineSeen(name="m", zone="z", project="p", status="RUNNING"),
            ).model_dump(mode="json"),
            {
                "cluster": "c",
                "platform": "gcp",
                "running": True,
                "healthy": False,
                "address": "",
                "namespace": "",
                "store": "",
                "ui": "",
                "machine": {
                    "name": "m",
                    "zone": "z",
                    "project": "p",
                    "status": "RUNNING",
                    "address": "",
                },
            },
        ),
    ],
)
def test_what_is_found_is_a_promise_to_programs(
    shown: dict[str, Any], expected: dict[str, Any]
) -> None:
    """A change here breaks somebody's script."""
    assert shown == expected


def test_where_a_cluster_is_reads_as_a_sentence() -> None:
    """What is not known is left out."""
    machine = MachineSeen(name="m", zone="z", project="p", status="RUNNING")
    found = Discovery(
        cluster="c",
        platform="gcp",
        running=True,
        healthy=True,
        address="127.0.0.1:5",
        namespace="n",
        machine=machine,
    )
    assert discovery_text(found).splitlines() == [
        "cluster c (gcp) runs, and answers",
        "  machine   m in z, project p: RUNNING",
        "  Temporal  127.0.0.1:5, namespace n",
    ]
    assert (
        discovery_text(Discovery(cluster="c", platform="local", running=False))
        == "cluster c (local) does not run"
    )
