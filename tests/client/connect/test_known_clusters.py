"""What is kept here of clusters, and which one is meant by a configuration: never another of its
name.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from iris.cli.main import run
from iris.client.connect.cluster_ref import resolve_cluster
from iris.client.connect.clusters import (
    ClusterRecord,
    ControllerVm,
    ProcessRef,
    check_is_free,
    cluster_dir,
    read_config,
    write_config,
    write_record,
)
from iris.client.operate.local.controller import LocalController
from iris.config import local_config
from iris.model.errors import InvalidValue

CONFIG = """
name: euw4
platform: {gcp: {project_id: my-project, default_zones: [europe-west4-b]}}
controller: {image: controller:1, bundle_prefix: "gs://mine", gcp: {}}
defaults: {bootstrap: {image: agent:1}}
scale_groups: {v5e: {type: tpu_vm, accelerator_variant: v5litepod-16}}
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory that nobody has used yet."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)
    return tmp_path


@pytest.fixture
def file(state: Path) -> Path:
    """The configuration of a cluster on Google Cloud."""
    file = state / "cluster.yaml"
    file.write_text(CONFIG)
    return file


def far(project: str = "my-project", store: str = "gs://mine", port: int = 10000) -> ClusterRecord:
    """What is known of a cluster elsewhere, whose machine was found in another zone than its
    configuration says.
    """
    vm = ControllerVm(
        project=project,
        zone="europe-west4-a",
        machine="iris-euw4-controller",
        port=port,
        dashboard_port=port + 2,
    )
    record = ClusterRecord(
        name="euw4", address="127.0.0.1:1", store=store, remote=True, project=project, vm=vm
    )
    write_record(record)
    write_config("euw4", CONFIG)
    return record


def here(*, runs: bool = False, ephemeral: bool = False) -> ClusterRecord:
    """What is known of a cluster on this machine."""
    supervisor = ProcessRef.of(os.getpid()) if runs else ProcessRef(pid=2**22 + 1, created=0)
    record = ClusterRecord(
        name="euw4",
        address="127.0.0.1:1",
        store="file:///x",
        supervisor=supervisor,
        ephemeral=ephemeral,
    )
    write_record(record)
    return record


def test_a_configuration_is_taken_as_it_is_written_and_not_as_it_was_kept(file: Path) -> None:
    """Somebody mends a port in the file: the record leads to the old one, and so is not used."""
    record = far()
    file.write_text(CONFIG + "# mended\n")
    known = resolve_cluster(None, file)
    assert (known.text, known.record, known.controller_vm("")) == (
        CONFIG + "# mended\n",
        record,
        record.vm,
    )
    file.write_text(CONFIG.replace("gcp: {}}", "gcp: {port: 12000}}"))
    known = resolve_cluster(None, file)
    assert (known.record, known.controller_vm("").port) == (None, 12000)


@pytest.mark.parametrize(
    ("know", "words"),
    [
        (
            partial(far, project="their-project"),
            r"elsewhere .*\(project their-project, store gs://mine\), and ",
        ),
        (
            partial(far, store="gs://theirs"),
            r"elsewhere .*\(project my-project, store gs://theirs\), and ",
        ),
        (partial(here, runs=True), r"that runs on this machine, and "),
    ],
    ids=["another project", "another store", "a simulation"],
)
def test_a_configuration_does_not_mean_another_cluster_of_its_name(
    file: Path, know: Callable[[], ClusterRecord], words: str
) -> None:
    """Two clusters that are called the same: what is done to the one must not be done to the
    other.
    """
    know()
    this = "the new cluster is in project my-project, store gs://mine; give the new cluster another name, or "
    with pytest.raises(InvalidValue, match=f"name: 'euw4' is taken by a cluster {words}{this}"):
        resolve_cluster(None, file)


def test_a_simulation_has_not_the_name_of_a_cluster_elsewhere(file: Path) -> None:
    """Neither is it started under it, nor is its configuration that cluster's; whoever starts it, a
    program too.
    """
    far()
    with pytest.raises(
        InvalidValue,
        match=r"is taken by a cluster elsewhere .*, and the new cluster is on this machine; give ",
    ):
        LocalController(local_config("euw4")).start()
    file.write_text(
        "name: euw4\nplatform: {local: {}}\nscale_groups: {c: {type: local_vm, max_slices: 1}}\n"
    )
    with pytest.raises(InvalidValue, match=r"^name: 'euw4' "):
        resolve_cluster(None, file)


def test_what_a_stopped_simulation_has_kept_is_not_lost_to_a_cluster_elsewhere(state: Path) -> None:
    """Its jobs go on at its next start; who wants them no more is told how to say so."""
    here()
    words = (
        r"on this machine that was stopped, and .*; .* delete the other cluster .* with: rm -r"
        rf" {state}/clusters/euw4$"
    )
    with pytest.raises(InvalidValue, match=words):
        check_is_free("euw4", "my-project", "gs://mine")
    here(ephemeral=True)
    with pytest.raises(
        InvalidValue, match=r"or stop the other cluster with: iris cluster stop euw4$"
    ):
        check_is_free("euw4", "my-project", "gs://mine")
    check_is_free("euw4")
    check_is_free("another", "my-project", "gs://mine")


def test_a_bucket_is_the_same_with_a_slash_at_its_end() -> None:
    """People write both."""
    far()
    check_is_free("euw4", "my-project", "gs://mine/")


@pytest.mark.long
def test_several_commands_keep_the_same_cluster_at_once(state: Path) -> None:
    """Each is done, and whoever reads finds one of the texts whole; line ends stay what they
    were.
    """
    program = (
        "import sys; from iris.client.connect.clusters import write_config\n"
        "for each in range(100): write_config('c', sys.argv[1] * 999)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, letter])
        for letter in ("a\r\n", "b\r\n", "c\r\n")
    ]
    texts = {letter * 999 for letter in ("a\r\n", "b\r\n", "c\r\n")}
    while any(writer.poll() is None for writer in writers):
        if (cluster_dir("c") / "config.yaml").exists():
            assert read_config("c") in texts
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert [path.name for path in cluster_dir("c").iterdir()] == ["config.yaml"]


def test_clusters_are_listed_with_those_that_were_stopped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever forgot a name, or whether a cluster still runs, asks here. No cluster is asked."""
    assert run(["cluster", "list"]) == 0
    assert "no clusters were started from here; start one with:" in capsys.readouterr().out
    far()
    write_record(ClusterRecord(name="old", address="127.0.0.1:2", store="file:///s"))
    write_record(
        ClusterRecord(
            name="here",
            address="127.0.0.1:3",
            store="file:///s",
            supervisor=ProcessRef.of(os.getpid()),
        )
    )

    assert run(["cluster", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["state"], each["location"]) for each in listed] == [
        ("euw4", "STARTED", "project my-project, store gs://mine"),
        ("here", "RUNNING", "this machine"),
        ("old", "STOPPED", "this machine"),
    ]


def test_a_program_reaches_its_cluster_by_the_address_where_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a host elsewhere nobody has started the cluster: advice to start a local one would lead
    away from it. What is known here, and another cluster that a user names, are reached as ever.
    """
    monkeypatch.setenv("IRIS_CLUSTER", "euw4")
    monkeypatch.setenv("IRIS_CLUSTER_ADDRESS", "10.0.0.2:7233/euw4")

    assert resolve_cluster().name == "10.0.0.2:7233/euw4"
    assert resolve_cluster("euw4").is_address
    assert resolve_cluster("other").name == "other"
    here()  # a stopped one of the same name, which cannot be the cluster of a running program
    assert resolve_cluster().name == "10.0.0.2:7233/euw4"
    far()
    assert resolve_cluster().name == "euw4"


def test_a_process_is_known_by_its_pid_and_its_creation_and_a_zombie_is_none() -> None:
    """Agents identify processes as psutil does, whose import costs a tenth of a command."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ref = ProcessRef.of(process.pid)
        assert ref is not None
        assert ref.created == psutil.Process(process.pid).create_time()
        assert ref.alive()
        assert not ref.model_copy(update={"created": ref.created - 1}).alive()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        assert not ref.alive()
    assert ProcessRef.of(process.pid) is None
    assert not ref.alive()


def test_a_command_that_looks_whether_a_cluster_runs_needs_no_psutil() -> None:
    """Each command looks that, and psutil costs a tenth of it."""
    write_record(
        ClusterRecord(
            name="here", address="127.0.0.1:1", store="", supervisor=ProcessRef.of(os.getpid())
        )
    )
    script = """
import sys
from iris.cli.main import run
code = run(["cluster", "list"])
sys.exit("imported psutil" if "psutil" in sys.modules else code)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "here" in ran.stdout


@pytest.mark.parametrize("controller", ["local: {}", "manual: {host: 10.9.9.8}"])
def test_a_cluster_over_ssh_that_was_never_started_is_told_as_such_with_the_command_that_starts_it(
    controller: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader of "cannot be reached" looks for a fault of the network."""
    store, file = state / "store", state / "lab.yaml"
    store.mkdir()
    file.write_text(
        "name: lab\nplatform: {manual: {}}\ndefaults: {ssh: {user: iris}}\ncontroller:\n "
        f" bundle_prefix: file://{store}\n  {controller}\nscale_groups: {{w: {{type: manual_vm,"
        " hosts: [10.9.9.9], resources: {cpu: 1, memory: 1g, disk: 1g}}}\n"
    )

    code = run(["cluster", "status", "--config", str(file)])

    assert code == 4
    assert "cluster lab was never started" in (said := capsys.readouterr().err)
    assert "start it with: iris cluster start --config FILE" in said
