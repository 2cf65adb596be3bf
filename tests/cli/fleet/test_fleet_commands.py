"""Commands of operators before any cluster is reached, and on the remains of clusters that are
dead.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.cli.main import run
from iris.client.connect.clusters import ClusterRecord, ProcessRef, cluster_dir, write_record
from iris.platforms.local import LocalPlatform
from iris.worker_agents.local.cluster import machines_dir
from iris.worker_agents.local.local_machines import LocalMachines, MachineState
from tests.platforms.worlds import wanted


@pytest.fixture(autouse=True)
def _nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("IRIS_USER", "ada")
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration that begins with more hosts than one machine can have."""
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "platform: {local: {}}\nscale_groups: {cpus: {type: local_vm, min_slices: 501, max_slices:"
        " 600}}\n"
    )
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["slice", "list", "--state", "TIRED"], 2, "'TIRED' is not one of"),
        (["slice", "show"], 2, "Missing argument 'SLICE'"),
        (["slice", "drain"], 2, "Missing argument 'SLICE...'"),
        (["slice", "drain", "x", "--deadline", "soon"], 2, "'soon' is not a duration"),
        (["slice", "lists"], 2, "No such command 'lists'"),
        (["autoscaler", "status"], 4, "no cluster: no local cluster runs"),
        (["group", "list"], 4, "no cluster: no local cluster runs"),
        (["slice", "list"], 4, "no cluster: no local cluster runs"),
        (["cluster", "stop"], 3, "no local cluster runs"),
        (["cluster", "stop", "other"], 3, "there is no local cluster 'other'"),
        (["cluster", "stop", "../other"], 2, "cluster: '../other' is not a valid name"),
        (["cluster", "stop", "", "--yes"], 2, "cluster: '' is not a valid name"),
        (["jobs", "--cluster", ""], 2, "cluster: '' is not a valid name"),
        (
            ["--cluster", "x", "cluster", "status", "local"],
            2,
            "NAME is 'local' and --cluster is 'x': name one cluster",
        ),
        (
            ["cluster", "stop", "local", "--cluster", "x"],
            2,
            "NAME is 'local' and --cluster is 'x': name one cluster",
        ),
        (
            ["--cluster", "other", "cluster", "stop", "other"],
            3,
            "there is no local cluster 'other'",
        ),
        (["cluster", "restart", "other"], 3, "there is no local cluster 'other'"),
        (["cluster", "reload", "other"], 2, "Missing option '--config'"),
        (["cluster", "reload", "--config", "nowhere.yaml"], 2, "'nowhere.yaml' does not exist"),
        (["cluster", "cleanup", "other"], 3, "there is no local cluster 'other'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code that tells a script which kind of problem it is."""
    assert run(arguments) == code
    assert words in capsys.readouterr().err


def test_a_name_overrides_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A variable is the default of a session; an argument is what its user wants now."""
    monkeypatch.setenv("IRIS_CLUSTER", "x")
    assert run(["cluster", "stop", "other"]) == 3
    assert "there is no local cluster 'other'" in capsys.readouterr().err


def a_dead_cluster(name: str, *, ephemeral: bool, processes: tuple[ProcessRef, ...] = ()) -> Path:
    """What the `kill -9` of a supervisor leaves; its directory."""
    supervisor = ProcessRef(pid=2**22 + 1, created=0)
    record = ClusterRecord(
        name=name,
        address="127.0.0.1:1",
        store="file:///x",
        supervisor=supervisor,
        processes=processes,
        ephemeral=ephemeral,
        ui="http://127.0.0.1:2",
    )
    write_record(record)
    return cluster_dir(name)


async def a_slice_of(directory: Path, *agents: ProcessRef) -> None:
    """A slice that is wanted there, and agents of which the room has written."""
    machines = machines_dir(directory)
    await LocalPlatform(machines).create_slice(wanted("left-1"))
    said = LocalMachines(
        state=MachineState.ACTIVE, agents={f"host-{ref.pid}": ref for ref in agents}
    )
    (machines / "left-1" / "machines.json").write_text(said.model_dump_json())


@pytest.fixture
def sleeper() -> "Iterator[subprocess.Popen[bytes]]":
    """A process that somebody has left."""
    process = subprocess.Popen(["sleep", "100"])
    yield process
    process.kill()
    process.wait()


def ref_of(process: "subprocess.Popen[bytes]") -> ProcessRef:
    ref = ProcessRef.of(process.pid)
    assert ref is not None
    return ref


@pytest.mark.parametrize("ephemeral", [True, False])
async def test_the_stop_of_a_dead_cluster_clears_what_it_has_left(
    ephemeral: bool, sleeper: "subprocess.Popen[bytes]", capsys: pytest.CaptureFixture[str]
) -> None:
    """Agents, machines and, unless its jobs are to go on, the directory; a dry run only tells; the
    second stop finds nothing.
    """
    directory = a_dead_cluster("dead", ephemeral=ephemeral)
    agent = ref_of(sleeper)
    await a_slice_of(directory, agent)

    assert await stopped("dead", "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.startswith("cluster dead does not run; would delete: 1 slice(s) and 1 process(es)")
    assert agent.alive()

    assert await stopped("dead") == 0
    assert (
        "cluster dead did not run; deleted: 1 slice(s) and 1 process(es)" in capsys.readouterr().out
    )
    assert not agent.alive()
    assert directory.exists() != ephemeral
    assert not machines_dir(directory).exists()
    assert await stopped("dead") == (3 if ephemeral else 0)


async def stopped(*arguments: str) -> int:
    """`iris cluster stop`, whose own event loop cannot be this one."""
    return await asyncio.to_thread(run, ["cluster", "stop", *arguments])


def test_a_cleanup_shows_what_dead_clusters_have_left_and_deletes_it_when_told_to(
    sleeper: "subprocess.Popen[bytes]", capsys: pytest.CaptureFixture[str]
) -> None:
    """What a stopped cluster needs for its next start stays, and so does a directory where somebody
    is at work.
    """
    left = ref_of(sleeper)
    dead = a_dead_cluster("dead", ephemeral=True, processes=(left,))
    kept = a_dead_cluster("kept", ephemeral=False)
    failed = cluster_dir("failed")
    (failed / "logs").mkdir(parents=True)
    with_jobs = cluster_dir("with-jobs")
    with_jobs.mkdir()
    (with_jobs / "temporal.sqlite").touch()

    assert run(["cluster", "cleanup"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"would delete process {sleeper.pid} of cluster dead",
        f"would delete directory {dead} of cluster dead",
        f"would delete directory {failed} of cluster failed",
        "nothing was deleted; to delete, add --no-dry-run",
    ]
    assert sleeper.poll() is None

    assert run(["cluster", "cleanup", "--no-dry-run"]) == 0
    assert not left.alive()
    assert [path.exists() for path in (dead, failed, kept, with_jobs)] == [False, False, True, True]
    capsys.readouterr()
    assert run(["cluster", "cleanup"]) == 0
    assert capsys.readouterr().out == "there is nothing to delete\n"


def test_a_reload_of_a_cluster_that_does_not_run_is_refused(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says how to start it; nothing is written."""
    directory = a_dead_cluster("dead", ephemeral=False)
    assert run(["cluster", "reload", "dead", "--config", config]) == 4
    assert "local cluster 'dead' " in capsys.readouterr().err
    assert run(["cluster", "restart", "dead"]) == 4
    assert not (directory / "config.yaml").exists()


def test_more_hosts_than_one_machine_can_have_are_refused(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started."""
    assert run(["cluster", "start", "--local", "-d", "--config", config]) == 2
    assert (
        "the cluster would start 501 hosts; the limit for one machine is 500"
        in capsys.readouterr().err
    )
