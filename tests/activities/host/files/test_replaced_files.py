"""Jobs that put links and other things in the place of what Iris keeps beside them: nothing is read
or written through those.
"""

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from iris.activities.host.attempt.run_task import Tasks
from iris.activities.host.files.outputs import keep
from iris.activities.host.runtimes.program import Program
from iris.model.states import TaskState
from iris.storage.log_format import decode
from iris.storage.object_store import Store
from tests import images
from tests.activities.host.attempt.test_attempt import PATIENCE, Bench, a_run, bench, dispatch
from tests.activities.host.sessions.test_exec import Bench as ExecBench
from tests.builders import a_host
from tests.containers import containers
from tests.e2e.cluster import alive, eventually

__all__ = ["bench"]

SECRET = "the secret of the host"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that no job may read or change by way of the agent."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n" * 3)
    return file


async def logs_of(bench: Bench) -> str:
    """All that was logged."""
    chunks = [await bench.store.get(path) for path, _ in await bench.store.sizes("logs")]
    return "\n".join(line.data.decode() for chunk in chunks for line in decode(chunk or b""))


async def outputs_of(bench: Bench, prefix: str = "outputs/it") -> dict[str, bytes | None]:
    found = await bench.store.sizes(prefix)
    return {path.removeprefix(f"{prefix}/"): await bench.store.get(path) for path, _ in found}


@pytest.mark.parametrize("name", ["stdout", "stderr", "orders", "launch.json", "lock"])
@pytest.mark.parametrize("how", ["ln -s {secret}", "mkfifo"])
async def test_a_job_that_replaces_a_file_that_iris_keeps_is_ended_and_told_why(
    bench: Bench, secret: Path, name: str, how: str
) -> None:
    """What it is replaced by is neither read, nor written to, nor waited for."""
    replaces = f"{how.format(secret=secret)} ../new && mv -fT ../new ../{name}"
    pid = bench.dir / "pid"
    outcome = await bench.outcome(
        "sh", "-c", f"echo $$ > {pid}; {replaces}; echo said; exec sleep 1000", key=uuid4().hex
    )

    assert (outcome.state, outcome.fault) == (TaskState.WORKER_FAILED, "attempt-lost")
    assert (
        outcome.reason
        == f"the attempt cannot continue on this host: {name} was replaced: it is not the file that"
        " Iris created there"
    )
    assert not alive(int(pid.read_text()))
    assert SECRET not in await logs_of(bench)
    assert secret.read_text() == f"{SECRET}\n" * 3


@pytest.mark.parametrize(
    "name",
    [
        "exit.json",
        "started.json",
        "shipped.json",
        ".state.json.new",
        ".shipped.json.new",
        "room.exit",
    ],
)
async def test_a_link_among_the_files_that_iris_writes_is_not_followed(
    bench: Bench, secret: Path, name: str
) -> None:
    """Whatever becomes of the attempt: what the link leads to stays as it is."""
    attempt = bench.attempt("sh", "-c", f"ln -sf {secret} ../{name}; seq 100000; exit 3")
    await asyncio.wait_for(attempt.run(), PATIENCE)

    assert secret.read_text() == f"{SECRET}\n" * 3
    assert SECRET not in await logs_of(bench)


async def test_a_set_up_that_leaves_links_for_the_program_is_not_followed(
    bench: Bench, secret: Path
) -> None:
    """It runs before the files are made."""
    leaves = "; ".join(
        f"ln -s {secret} ../{name}" for name in ("stdout", "stderr", "orders", "lock", "room.exit")
    )
    outcome = await bench.outcome("echo", "said", environment={"setup": [leaves]})

    assert outcome.state is TaskState.WORKER_FAILED
    assert secret.read_text() == f"{SECRET}\n" * 3
    assert SECRET not in await logs_of(bench)


async def test_the_next_agent_follows_no_link_either(bench: Bench, secret: Path) -> None:
    """What it finds was kept by its predecessor, and changed by the job."""
    secret.write_text('{"argv": ["touch", "/tmp/never"]}')
    directory = bench.dir / "attempts"
    program = f"ln -sf {secret} ../launch.json; echo $$ > {bench.dir / 'up'}; exec sleep 1000"
    host = bench.tasks()
    await dispatch(host, a_run("sh", "-c", program, incarnation=a_host("h1").incarnation))
    pid = int(await bench.there_is("up"))
    await host.hand_over()
    successor = bench.tasks()
    await successor.take_over()
    successor.report_lost()

    await asyncio.to_thread(eventually, lambda: list(directory.iterdir()) == [], PATIENCE, 0.02)
    assert not alive(pid)
    assert successor.running("ada/train", 0) is None
    assert [outcome.fault for outcome in bench.server.told] == ["attempt-lost"]


# -- outputs
# --------------------------------------------------------------------------------------------------


async def test_outputs_that_became_a_link_are_not_kept(bench: Bench, tmp_path: Path) -> None:
    """The files of another directory are not this job's."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text(SECRET)
    program = f"rmdir $IRIS_OUTPUT_DIR; ln -s {tmp_path / 'private'} $IRIS_OUTPUT_DIR"
    outcome = await bench.outcome("sh", "-c", program, outputs="outputs/it")

    assert outcome.state is TaskState.SUCCEEDED
    assert await outputs_of(bench) == {}
    assert (
        "outputs are not stored: outputs is not a directory, or is a link to one"
        in await logs_of(bench)
    )


async def test_a_link_among_outputs_counts_only_when_all_of_its_way_is_among_them(
    tmp_path: Path,
) -> None:
    """Out and in again, through a link to a directory, absolute or not: it is kept only when no
    step of it leads out.
    """
    store, outputs = Store((tmp_path / "store").as_uri(), create=True), tmp_path / "outputs"
    (outputs / "inner" / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text(SECRET)
    (outputs / "inner" / "weights").write_text("mine")
    (outputs / "out").symlink_to(tmp_path)
    links = {
        "same": "inner/weights",
        "absolute": str(outputs / "inner" / "weights"),
        "up": "inner/deep/../weights",
        "chain": "same",
        "through": "link/weights",
        "inner/deep/back": "../weights",
    }
    refused = {
        "secret": "../secret",
        "secret too": str(tmp_path / "secret"),
        "out and in": "../outputs/inner/weights",
        "through out": "out/secret",
        "through out and in": "out/outputs/inner/weights",
        "root": "/",
        "loop": "loop",
        "ping": "pong",
        "pong": "ping",
    }
    (outputs / "link").symlink_to("inner")
    for name, target in {**links, **refused}.items():
        (outputs / name).symlink_to(target)
    await keep(store, outputs, "outputs/it")

    kept = {
        path.removeprefix("outputs/it/"): await store.get(path)
        for path, _ in await store.sizes("outputs/it")
    }
    assert kept == dict.fromkeys([*links, "inner/weights"], b"mine")


# -- containers
# --------------------------------------------------------------------------------------------------

#: Replaces all that it finds beside it, and says what it could not find.
REWRITES = """
import json, os, pathlib, sys
attempt = pathlib.Path(os.environ["IRIS_WORKDIR"]).parent
print(*sorted(path.name for path in attempt.iterdir()))
names = "launch.json orders stdout stderr exit.json started.json lock state.json build outputs"
for name in names.split():
    there = attempt / name
    try:
        if there.is_dir():
            there.rmdir()
        elif there.exists():
            there.unlink()
    except OSError as error:
        print(name, error.strerror)
    try:
        there.symlink_to("/etc")
    except OSError:
        pass
launch = attempt / "launch.json"
try:
    launch.unlink()
    order = {"argv": ["sh"], "env": {}, "cwd": "/", "cgroups": [], "container": ""}
    launch.write_text(json.dumps(order))
except OSError as error:
    print(error)
sys.stdout.flush()
pathlib.Path(os.environ["IRIS_OUTPUT_DIR"], "up").touch()
import time
while not pathlib.Path(os.environ["IRIS_OUTPUT_DIR"], "go").exists():
    time.sleep(0.05)
"""


@pytest.fixture
async def boxed(bench: Bench) -> AsyncIterator[Tasks]:
    """A host on which a container runs that has replaced what it can."""
    tasks, key = bench.tasks(), f"boxed/{uuid4().hex}"
    task = a_run(
        "python3", "-c", REWRITES, image=images.docker_image(), outputs="outputs/it", key=key
    )
    await dispatch(tasks, task.model_copy(update={"incarnation": a_host("h1").incarnation}))
    try:
        await asyncio.to_thread(
            eventually, lambda: [*bench.dir.glob("attempts/*/outputs/up")], 60, 0.05
        )
        yield tasks
    finally:
        await asyncio.wait_for(tasks.kill_all("the test is over"), 60)
        assert containers(f"iris.key={key}") == []


@pytest.mark.docker
@pytest.mark.usefixtures("boxed")
async def test_a_container_has_none_of_the_files_that_iris_keeps(bench: Bench) -> None:
    """They decide what runs on the host itself with the agent's rights, and which files of it are
    read.
    """
    (attempt,) = bench.dir.glob("attempts/*")
    for name in ("launch.json", "state.json", "orders", "lock", "stdout", "started.json"):
        assert stat.S_ISREG((attempt / name).lstat().st_mode), name
    assert stat.S_ISDIR((attempt / "outputs").lstat().st_mode)
    assert Program(attempt).launch.container
    (attempt / "outputs" / "go").touch()
    await asyncio.to_thread(eventually, lambda: bench.server.told, 60, 0.05)

    assert [outcome.state for outcome in bench.server.told] == [TaskState.SUCCEEDED]
    said = (await logs_of(bench)).splitlines()
    assert "outputs Device or resource busy" in said
    assert said[0].split() == ["call", "checkpoint", "environment", "given", "outputs", "work"]
    await asyncio.to_thread(eventually, lambda: not attempt.exists(), 60, 0.05)
    assert set(await outputs_of(bench)) == {"up", "go"}


@pytest.mark.docker
async def test_a_command_beside_a_container_that_rewrites_its_launch_runs_in_the_container(
    bench: Bench, boxed: Tasks
) -> None:
    """And not on the host, as root."""
    commands = ExecBench(bench.store, boxed)  # type: ignore[arg-type]
    end, out, _ = await commands.run("sh", "-c", "echo $FLAVOUR; ls -d /image")

    assert (end.exit_code, out.split()) == (0, [b"vanilla", b"/image"])


@pytest.mark.docker
async def test_a_container_cannot_change_what_it_is_only_given_to_read(
    bench: Bench, boxed: Tasks
) -> None:
    """The pipes that its output goes through. Of the caches it has only the environment that it
    uses: here, none.
    """
    (attempt,) = bench.dir.glob("attempts/*")
    writes = f"rm {attempt}/given/*; ln -s /etc {attempt}/given/x; ls {bench.dir}"
    commands = ExecBench(bench.store, boxed)  # type: ignore[arg-type]
    end, out, _ = await commands.run("sh", "-c", writes)

    assert (end.exit_code, out) == (0, b"attempts\n")
    pipes = ["code.pipe", "look.pipe", "stderr.pipe", "stdout.pipe"]
    assert sorted(path.name for path in (attempt / "given").iterdir()) == pipes
